package tool

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/sandbox"
)

//go:embed view_image.md
var imageDescription string

const (
	imageHelper = "view-image"
	// maxImage bounds an image file, in bytes. The service refuses larger ones.
	maxImage = 20 << 20
	// imageBound is how long reading an image may take: the file may lie on a
	// file system that hangs.
	imageBound = 30 * time.Second
)

// imageTool is view_image.
type imageTool struct {
	set     *Set
	offered bool
}

func imageShape() shape {
	return shape{kind: object, fields: []field{{"path", shape{kind: text}, true}}}
}

func (t *imageTool) Name() string   { return "view_image" }
func (t *imageTool) Parallel() bool { return true }

func (t *imageTool) Spec() json.RawMessage {
	if !t.offered {
		return nil
	}
	return functionSpec(t.Name(), imageDescription, imageShape())
}

// imagePart is an image as the model gets it.
type imagePart struct {
	Type string `json:"type"`
	URL  string `json:"image_url"`
}

// Call reads an image inside the sandbox, so that the policy on reading holds.
func (t *imageTool) Call(ctx context.Context, c Call) (Result, error) {
	s, began := t.set, t.set.deps.Now()
	if !t.offered {
		return s.failed(c, began, "unsupported call: "+t.Name()), nil
	}
	var a struct{ Path string }
	if err := decodeArgs(c.Arguments, imageShape(), &a); err != nil {
		return s.failed(c, began, err.Error()), nil
	}
	path := s.absolute(a.Path)
	box, err := s.deps.Box(ctx)
	if err != nil {
		return Result{}, err
	}
	got, err := t.read(ctx, box, path, s.deps.Env(c.ID))
	if err != nil {
		return s.failed(c, began, fmt.Sprintf("unable to process image: `%s`: %s", path, err)), nil
	}
	if got.Missing != "" {
		return s.failed(c, began, fmt.Sprintf("unable to locate image at `%s`: %s", path, got.Missing)), nil
	}
	if got.Bad != "" {
		return s.failed(c, began, fmt.Sprintf("unable to process image: `%s` %s", path, got.Bad)), nil
	}
	url := "data:" + got.Type + ";base64," + base64.StdEncoding.EncodeToString(got.Data)
	return s.finish(c, began, Result{Output: encode([]imagePart{{"input_image", url}}), Status: event.Completed, OutBytes: int64(len(got.Data))}), nil
}

// imageAnswer is what the helper found. Missing and Bad say why there is no
// image.
type imageAnswer struct {
	Missing, Bad string
	Type         string
	Data         []byte
}

func (t *imageTool) read(ctx context.Context, box *sandbox.Sandbox, path string, env []string) (imageAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, imageBound, fmt.Errorf("reading it took longer than %s", imageBound))
	defer cancel()
	var got imageAnswer
	helper := sandbox.Command{Helper: imageHelper, Dir: t.set.deps.Workdir, Env: env, Stdin: strings.NewReader(path)}
	err := askHelper(ctx, box, helper, maxImage, &got)
	return got, err
}

// readImage is the helper: the path on stdin, an imageAnswer on stdout.
func readImage(_ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	path, err := io.ReadAll(io.LimitReader(stdin, 64<<10))
	if err == nil {
		err = json.NewEncoder(stdout).Encode(loadImage(string(path)))
	}
	if err != nil {
		fmt.Fprintf(stderr, "view-image: %s\n", err)
		return 1
	}
	return 0
}

func loadImage(path string) imageAnswer {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return imageAnswer{Missing: patch.SystemText(err)}
	}
	defer f.Close() // read only
	fi, err := f.Stat()
	if err != nil {
		return imageAnswer{Missing: patch.SystemText(err)}
	}
	if !fi.Mode().IsRegular() {
		return imageAnswer{Bad: "is not a file"}
	}
	tooLarge := imageAnswer{Bad: fmt.Sprintf("is larger than %d MiB", maxImage>>20)}
	if fi.Size() > maxImage {
		return tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	if err != nil {
		return imageAnswer{Bad: "cannot be read: " + patch.SystemText(err)}
	}
	if len(data) > maxImage { // it grew
		return tooLarge
	}
	kind, err := ImageType(data)
	if err != nil {
		return imageAnswer{Bad: err.Error()}
	}
	return imageAnswer{Type: kind, Data: data}
}
