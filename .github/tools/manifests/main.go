// Command manifests decodes Kubernetes manifests strictly into the types of the
// API: a field that does not exist, one that stands twice or one of the wrong
// type is an error. With -json it prints them as JSON, one a line.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	asJSON := flag.Bool("json", false, "print the objects as JSON")
	flag.Parse()
	n := 0
	for _, name := range flag.Args() {
		objects, err := read(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		for _, o := range objects {
			n++
			if *asJSON {
				if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		}
	}
	if n == 0 {
		fmt.Fprintln(os.Stderr, "there is no manifest to check")
		os.Exit(1)
	}
	if !*asJSON {
		fmt.Printf("manifests: %d objects, strictly decoded\n", n)
	}
}

// read decodes every document of a file.
func read(name string) ([]runtime.Object, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	// The groups that the examples use. All of them would take minutes to compile.
	known := runtime.NewScheme()
	if err := errors.Join(batch.AddToScheme(known), core.AddToScheme(known)); err != nil {
		return nil, err
	}
	decode := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	var out []runtime.Object
	for docs := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		o, _, err := decode.Decode(doc, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(out)+1, err)
		}
		out = append(out, o)
	}
}
