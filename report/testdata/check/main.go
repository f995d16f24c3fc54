// Command check reads outputs of nightshift with the libraries of those who
// defined the formats. It is a module of its own, so that these libraries stay
// out of the program's; .ci/lanes/reports.sh runs it.
//
//	check intoto ENVELOPE PATCH    in-toto statement and SLSA provenance
//	check otlp                     collector on a free port: prints the port, then what came in when stdin ends
//	check log MEGABYTES            writes an event log of that size
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statement "github.com/in-toto/attestation/go/v1"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/protobuf/encoding/protojson"
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[0] == "intoto":
		err = intoto(args[1], args[2])
	case len(args) == 1 && args[0] == "otlp":
		err = otlp()
	case len(args) == 2 && args[0] == "log":
		err = longLog(args[1])
	default:
		err = fmt.Errorf("usage: check intoto ENVELOPE PATCH | otlp | log MEGABYTES")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func intoto(envelopePath, patchPath string) error {
	raw, err := os.ReadFile(envelopePath)
	if err != nil {
		return err
	}
	patch, err := os.ReadFile(patchPath)
	if err != nil {
		return err
	}
	var env struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			Sig string `json:"sig"`
		} `json:"signatures"`
	}
	if err := json.Unmarshal(raw, &env); err != nil {
		return err
	}
	if env.PayloadType != "application/vnd.in-toto+json" {
		return fmt.Errorf("payload type %q", env.PayloadType)
	}
	for _, s := range env.Signatures {
		if _, err := base64.StdEncoding.DecodeString(s.Sig); err != nil {
			return err
		}
	}
	var st statement.Statement
	if err := protojson.Unmarshal(env.Payload, &st); err != nil {
		return err
	}
	if err := st.Validate(); err != nil {
		return err
	}
	sum := sha256.Sum256(patch)
	if got := st.Subject[0].Digest["sha256"]; got != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("the subject is %s, the patch %x", got, sum)
	}
	pred, err := st.Predicate.MarshalJSON()
	if err != nil {
		return err
	}
	var p provenance.Provenance
	if err := protojson.Unmarshal(pred, &p); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	fmt.Printf("in-toto: valid statement on %s by %s\n", st.Subject[0].Name, p.GetRunDetails().GetBuilder().GetId())
	return nil
}

// otlp decodes with the Collector's own decoders.
func otlp() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var bad []error
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		n := 0
		if err == nil {
			n, err = decode(r.URL.Path, r.Header.Get("Content-Type"), body)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", r.URL.Path, err))
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		seen[r.URL.Path+" "+r.Header.Get("Content-Type")] += n
	})}
	go func() { _ = srv.Serve(l) }()
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = srv.Close()
	for k, n := range seen {
		fmt.Printf("otlp: %s: %d\n", k, n)
	}
	if len(bad) > 0 {
		return bad[0]
	}
	return nil
}

func decode(path, kind string, body []byte) (int, error) {
	asJSON := kind == "application/json"
	switch {
	case strings.HasSuffix(path, "logs"):
		r := plogotlp.NewExportRequest()
		err := unmarshal(r, asJSON, body)
		return r.Logs().LogRecordCount(), err
	case strings.HasSuffix(path, "traces"):
		r := ptraceotlp.NewExportRequest()
		err := unmarshal(r, asJSON, body)
		return r.Traces().SpanCount(), err
	case strings.HasSuffix(path, "metrics"):
		r := pmetricotlp.NewExportRequest()
		err := unmarshal(r, asJSON, body)
		return r.Metrics().DataPointCount(), err
	}
	return 0, fmt.Errorf("no such path")
}

func unmarshal(r interface {
	UnmarshalJSON([]byte) error
	UnmarshalProto([]byte) error
}, asJSON bool, body []byte) error {
	if asJSON {
		return r.UnmarshalJSON(body)
	}
	return r.UnmarshalProto(body)
}

func longLog(size string) error {
	mb, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(os.Stdout, 1<<20)
	out := strings.Repeat("some output of a command\\n", 2000)
	written := 0
	line := func(format string, args ...any) {
		n, _ := fmt.Fprintf(w, format+"\n", args...)
		written += n
	}
	line(`{"seq":1,"time":"2026-01-31T10:00:00Z","type":"run.started","model":"m","mode":"exec"}`)
	for i := 0; written < mb<<20; i++ {
		line(`{"seq":%d,"time":"2026-01-31T10:00:01Z","type":"item.started","item":{"id":"item_%d","type":"command_execution","command":"make","aggregated_output":"","exit_code":null,"status":"in_progress"}}`, 3*i+2, i)
		line(`{"seq":%d,"time":"2026-01-31T10:00:02Z","type":"item.completed","item":{"id":"item_%d","type":"command_execution","command":"make","aggregated_output":"%s","exit_code":1,"status":"failed"}}`, 3*i+3, i, out)
		line(`{"seq":%d,"time":"2026-01-31T10:00:02Z","type":"tool.completed","tool":"exec_command","call_id":"c%d","item_id":"item_%d","status":"failed","duration_ms":5,"output_bytes":50000,"model_bytes":50000}`, 3*i+4, i, i)
	}
	line(`{"seq":9999999,"time":"2026-01-31T10:10:00Z","type":"run.completed","outcome":"success","class":"success","exit_code":0,"final_message":"done"}`)
	return w.Flush()
}
