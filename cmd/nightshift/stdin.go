package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// stdinGrace is how long a silent stdin may hold a run that already has its
// prompt. CI systems hand out pipes that nobody writes to and nobody closes.
const stdinGrace = 2 * time.Second

// maxPromptRunes is the service's bound on one input.
const maxPromptRunes = 1 << 20

// promptSources are the places a prompt may come from.
type promptSources struct {
	arg    *string // nil: no PROMPT given; "-": stdin
	file   string  // --prompt-file
	isSub  bool    // resume, fork, review: a PROMPT does not make the reference read stdin
	keyed  bool    // --api-key-stdin took the first line
	reader io.Reader
}

// prompt reads the prompt and says on stderr what it reads.
func (rt *runtime) prompt(src promptSources) (string, error) {
	text, given, err := rt.promptText(src)
	if err != nil {
		return "", err
	}
	if !given && strings.TrimSpace(text) == "" {
		return "", usageError("no prompt: give it as an argument, with --prompt-file, or on stdin")
	}
	if n := utf8.RuneCountInString(text); n > maxPromptRunes {
		return "", usageError("the prompt has %d characters; input exceeds the maximum length of %d characters", n, maxPromptRunes)
	}
	return text, nil
}

func (rt *runtime) promptText(src promptSources) (text string, given bool, err error) {
	if src.file != "" {
		if src.arg != nil {
			return "", false, usageError("--prompt-file and a PROMPT argument exclude each other")
		}
		b, err := os.ReadFile(rt.abs(src.file))
		if err != nil {
			return "", false, usageError("--prompt-file: %v", err)
		}
		text, err := decodeText(b)
		if err != nil {
			return "", false, usageError("--prompt-file %s: %v", src.file, err)
		}
		if strings.TrimSpace(text) == "" {
			return "", false, usageError("--prompt-file %s is empty", src.file)
		}
		return text, true, nil
	}
	switch {
	case src.arg == nil:
		fmt.Fprintln(rt.stderr, "Reading prompt from stdin...")
		text, err = rt.allStdin(src.reader)
		return text, false, err
	case *src.arg == "-":
		text, err = rt.allStdin(src.reader)
		return text, false, err
	}
	extra, err := rt.extraStdin(src.reader)
	if err != nil {
		return "", false, err
	}
	if extra == "" {
		return *src.arg, true, nil
	}
	if !strings.HasSuffix(extra, "\n") {
		extra += "\n"
	}
	return *src.arg + "\n\n<stdin>\n" + extra + "</stdin>", true, nil
}

// allStdin reads stdin to its end. A terminal has no end that a script could
// mean, so it is refused.
func (rt *runtime) allStdin(r io.Reader) (string, error) {
	if isTerminal(r) {
		return "", usageError("no prompt: stdin is a terminal; give the prompt as an argument")
	}
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(r, 8*maxPromptRunes))
		done <- read{b, err}
	}()
	select {
	case got := <-done:
		if got.err != nil {
			return "", usageError("stdin could not be read: %v", got.err)
		}
		text, err := decodeText(got.b)
		if err != nil {
			return "", usageError("failed to read prompt from stdin: %v", err)
		}
		if strings.TrimSpace(text) == "" {
			return "", usageError("no prompt provided via stdin")
		}
		return text, nil
	case <-rt.ctx.Done():
		return "", context.Cause(rt.ctx)
	}
}

// extraStdin reads what is piped beside a prompt. Only a stdin that sends a
// byte, or ends, within stdinGrace is waited for.
func (rt *runtime) extraStdin(r io.Reader) (string, error) {
	if r == nil || isTerminal(r) {
		return "", nil
	}
	fmt.Fprintln(rt.stderr, "Reading additional input from stdin...")
	first := make(chan struct{})
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		var buf bytes.Buffer
		one := make([]byte, 4096)
		n, err := r.Read(one)
		buf.Write(one[:n])
		close(first)
		if err == nil {
			_, err = io.Copy(&buf, io.LimitReader(r, 8*maxPromptRunes))
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		done <- read{buf.Bytes(), err}
	}()
	grace := time.NewTimer(stdinGrace)
	defer grace.Stop()
	select {
	case <-first:
	case <-rt.ctx.Done():
		return "", context.Cause(rt.ctx)
	case <-grace.C:
		fmt.Fprintf(rt.stderr, "stdin is open but silent for %s; going on with the prompt argument alone\n", stdinGrace)
		return "", nil
	}
	select {
	case got := <-done:
		if got.err != nil {
			if errors.Is(got.err, os.ErrClosed) || strings.Contains(got.err.Error(), "bad file descriptor") {
				return "", nil // stdin was closed by the caller (<&-)
			}
			return "", usageError("stdin could not be read: %v", got.err)
		}
		text, err := decodeText(got.b)
		if err != nil {
			return "", usageError("failed to read additional input from stdin: %v", err)
		}
		return text, nil
	case <-rt.ctx.Done():
		return "", context.Cause(rt.ctx)
	}
}

func isTerminal(r any) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// decodeText accepts UTF-8 with or without a byte order mark, and UTF-16 with
// one.
func decodeText(b []byte) (string, error) {
	switch {
	case bytes.HasPrefix(b, []byte{0xEF, 0xBB, 0xBF}):
		b = b[3:]
	case bytes.HasPrefix(b, []byte{0xFF, 0xFE}):
		return decodeUTF16(b[2:], func(p []byte) uint16 { return uint16(p[0]) | uint16(p[1])<<8 })
	case bytes.HasPrefix(b, []byte{0xFE, 0xFF}):
		return decodeUTF16(b[2:], func(p []byte) uint16 { return uint16(p[1]) | uint16(p[0])<<8 })
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return "", fmt.Errorf("input is not valid UTF-8 (invalid byte at offset %d); convert it, for example with iconv", i)
		}
		i += n
	}
	return string(b), nil
}

func decodeUTF16(b []byte, unit func([]byte) uint16) (string, error) {
	if len(b)%2 != 0 {
		return "", fmt.Errorf("input has a UTF-16 byte order mark but an odd number of bytes")
	}
	units := make([]uint16, 0, len(b)/2)
	for ; len(b) > 0; b = b[2:] {
		units = append(units, unit(b))
	}
	return string(utf16.Decode(units)), nil
}
