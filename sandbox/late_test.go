//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"
)

// What a tree wrote is delivered however late its reader comes: on a busy
// machine that may be long after the tree is gone.
func TestLateReader(t *testing.T) {
	b, _ := box1(t)
	for name, c := range map[string]Command{
		"a line":      {Argv: []string{"sh", "-c", "echo one; echo two >&2"}, SplitStderr: true},
		"a full pipe": {Argv: []string{"sh", "-c", "head -c 60000 /dev/zero; echo two >&2"}, SplitStderr: true},
		"a terminal":  {Argv: []string{"sh", "-c", "echo one"}, TTY: &Winsize{Rows: 24, Cols: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, b, c)
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * drainBound)
			out, err := io.ReadAll(p.Output())
			if err != nil {
				t.Fatal(err)
			}
			told, err := io.ReadAll(p.Stderr())
			if err != nil {
				t.Fatal(err)
			}
			want := "one\n"
			if c.TTY != nil {
				want = "one\r\n"
			}
			if name == "a full pipe" {
				want = string(make([]byte, 60000))
			}
			if string(out) != want || c.SplitStderr && string(told) != "two\n" {
				t.Errorf("%d bytes of output, want %d; on stderr %q", len(out), len(want), told)
			}
		})
	}
}

// Nor does a slow reader lose the end of a long output.
func TestSlowReader(t *testing.T) {
	b, _ := box1(t)
	p, err := b.Start(context.Background(), Command{Argv: []string{"sh", "-c", "head -c 200000 /dev/zero"}})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for {
		if _, err := io.CopyN(&got, p.Output(), 20000); err != nil {
			break
		}
		time.Sleep(drainBound / 2)
	}
	if x, err := p.Wait(); err != nil || x.Code != 0 || got.Len() != 200000 {
		t.Errorf("%d bytes, %+v %v", got.Len(), x, err)
	}
}
