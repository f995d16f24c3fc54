package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
)

// Bounds of input files, in bytes: a name may lead to a device that never ends.
const (
	maxConfig = 16 << 20 // configuration, requirements, rules, schemas
	maxPrompt = 64 << 20
	maxImage  = 64 << 20
	maxScript = 1 << 30
)

// pipeWait bounds the wait for an input that is not an ordinary file. A process
// substitution is a good input; a named pipe that somebody left in a workspace
// never says anything.
const pipeWait = 5 * time.Second

// readInput reads a whole file. Pipes and devices are read too, within pipeWait
// and until the process has to end.
func (rt *runtime) readInput(name string, most int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the open of a pipe would wait
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && (fi.Mode().IsRegular() || fi.IsDir()) {
		return readMost(f, most)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		f, err := os.Open(name)
		if err != nil {
			done <- read{nil, err}
			return
		}
		b, err := readMost(f, most)
		done <- read{b, err}
	}()
	t := time.NewTimer(pipeWait)
	defer t.Stop()
	select {
	case got := <-done:
		return got.b, got.err
	case <-rt.ctx.Done():
		return nil, context.Cause(rt.ctx)
	case <-t.C:
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it is not a regular file, and did not come to an end within %s", pipeWait)}
	}
}

func readMost(f *os.File, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("it is larger than %d MiB", most>>20)}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return b, nil
}

// osFiles reads policy files from the real file system.
type osFiles struct {
	policy.Disk
	rt *runtime
}

func (rt *runtime) files() osFiles { return osFiles{rt: rt} }

// ReadFile reads a file of policy, whatever it is.
func (f osFiles) ReadFile(name string) ([]byte, error) {
	data, err := f.rt.readInput(name, maxConfig)
	return data, policy.Absent(name, err)
}

var _ policy.Files = osFiles{}
