package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/sandbox"
)

const (
	tableHelper = "table-file"
	// MaxTable bounds a file that Tables reads or writes, in bytes.
	MaxTable = 32 << 20
	// tableBound is how long one file may take: it may lie on a file system that
	// hangs.
	tableBound = time.Minute
)

// Tables reads and writes files for tools that work on whole files. It does so
// inside the sandbox, as the model's commands would, so that what they may not
// read or write, these tools may not either. It is safe for concurrent use.
type Tables struct {
	Box *sandbox.Sandbox
	Dir string
	Env []string
}

// tableRequest is what the helper is asked to do.
type tableRequest struct {
	Path  string
	Write bool
	Data  []byte
}

// tableAnswer is what became of it. Problem is a text for the model.
type tableAnswer struct {
	Problem string
	Data    []byte
}

// Read returns a regular file of at most [MaxTable] bytes.
func (t Tables) Read(ctx context.Context, path string) ([]byte, error) {
	got, err := t.ask(ctx, tableRequest{Path: path})
	return got.Data, err
}

// Write makes path hold data, in one step, and makes its folder.
func (t Tables) Write(ctx context.Context, path string, data []byte) error {
	if len(data) > MaxTable {
		return fmt.Errorf("it would be larger than %d MiB", MaxTable>>20)
	}
	_, err := t.ask(ctx, tableRequest{Path: path, Write: true, Data: data})
	return err
}

func (t Tables) ask(ctx context.Context, req tableRequest) (tableAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tableBound, fmt.Errorf("it took longer than %s", tableBound))
	defer cancel()
	var got tableAnswer
	in, err := json.Marshal(req)
	if err != nil {
		return got, err
	}
	err = askHelper(ctx, t.Box, sandbox.Command{Helper: tableHelper, Dir: t.Dir, Env: t.Env, Stdin: bytes.NewReader(in)}, MaxTable, &got)
	if err == nil && got.Problem != "" {
		err = errors.New(got.Problem)
	}
	return got, err
}

// tableFile is the helper: a tableRequest on stdin, a tableAnswer on stdout.
func tableFile(_ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var req tableRequest
	err := json.NewDecoder(stdin).Decode(&req)
	if err == nil {
		var got tableAnswer
		if req.Write {
			err = writeTable(req.Path, req.Data)
		} else {
			got.Data, err = readTable(req.Path)
		}
		if err != nil {
			got = tableAnswer{Problem: patch.SystemText(err)}
		}
		err = json.NewEncoder(stdout).Encode(got)
	}
	if err != nil {
		fmt.Fprintf(stderr, "table-file: %s\n", err)
		return 1
	}
	return 0
}

func readTable(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxTable+1))
	if err == nil && len(data) > MaxTable {
		err = fmt.Errorf("it is larger than %d MiB", MaxTable>>20)
	}
	return data, err
}

func writeTable(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return errors.New("it is there and not a file")
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path, dir = real, filepath.Dir(real) // the file that a link names is replaced, not the link
	}
	f, err := os.CreateTemp(dir, ".table-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
