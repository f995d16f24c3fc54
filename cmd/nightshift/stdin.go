package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/nightshift-ci/nightshift/runner"
)

// stdinGrace is how long a silent stdin may hold a run that already has its
// prompt. CI systems hand out pipes that nobody writes to and nobody closes.
const stdinGrace = 2 * time.Second

// Bounds of a silence on stdin. A writer may still be at work: the first half of
// a pipeline can take minutes. A pipe that only callers of this process hold open
// is another matter: a CI agent made it, and nobody writes to it.
const (
	promptWait       = 10 * time.Minute
	callerPromptWait = 15 * time.Second
)

// maxPromptRunes is the service's bound on one input.
const maxPromptRunes = 1 << 20

// errEmptyPrompt is said of a PROMPT argument with nothing in it: the service
// would be paid for an answer to no question.
var errEmptyPrompt = usageError("the prompt is empty; is it a variable that is not set?")

// promptSources are the places a prompt may come from.
type promptSources struct {
	arg    *string // nil: no PROMPT given; "-": stdin
	file   string  // --prompt-file
	isSub  bool    // resume, fork, review: a PROMPT does not make the reference read stdin
	reader io.Reader
	stdin  io.Reader // what reader reads from in the end
	// silence is how long stdin may be silent; 0: the defaults.
	silence time.Duration
}

// prompt reads the prompt and says on stderr what it reads.
func (rt *runtime) prompt(ctx context.Context, src promptSources) (string, error) {
	text, given, err := rt.promptText(ctx, src)
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

func (rt *runtime) promptText(ctx context.Context, src promptSources) (text string, given bool, err error) {
	if src.file != "" {
		if src.arg != nil {
			return "", false, usageError("--prompt-file and a PROMPT argument exclude each other")
		}
		b, err := rt.readInput(rt.abs(src.file), maxPrompt)
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
		text, err = rt.allStdin(ctx, src)
		return text, false, err
	case *src.arg == "-":
		text, err = rt.allStdin(ctx, src)
		return text, false, err
	case *src.arg == "":
		return "", false, errEmptyPrompt
	}
	extra, err := rt.extraStdin(ctx, src)
	if err != nil {
		return "", false, err
	}
	if extra == "" && strings.TrimSpace(*src.arg) == "" {
		return "", false, errEmptyPrompt
	}
	if extra == "" {
		return *src.arg, true, nil
	}
	if !strings.HasSuffix(extra, "\n") {
		extra += "\n"
	}
	return *src.arg + "\n\n<stdin>\n" + extra + "</stdin>", true, nil
}

// piped is what arrives on a stdin that is read in the background.
type piped struct {
	beat chan struct{} // a byte has come since the last look
	done chan struct{} // closed at the end
	text []byte        // valid when done is closed
	err  error
}

// readPiped starts reading r. The reader cannot be stopped; it ends with the
// process.
func readPiped(r io.Reader) *piped {
	p := &piped{beat: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		var buf bytes.Buffer
		chunk := make([]byte, 32<<10)
		for buf.Len() < 8*maxPromptRunes {
			n, err := r.Read(chunk)
			buf.Write(chunk[:n])
			if err != nil {
				if !errors.Is(err, io.EOF) {
					p.err = err
				}
				break
			}
			select {
			case p.beat <- struct{}{}:
			default:
			}
		}
		p.text = buf.Bytes()
	}()
	return p
}

// end waits for the end of the input.
func (p *piped) end(ctx context.Context, src promptSources) error {
	err := src.await(ctx, p.done, p.beat)
	var silent *silentError
	if errors.As(err, &silent) {
		return exitError{code: runner.ExitUsage, err: &hintError{silent,
			"close stdin (< /dev/null) and give the prompt as an argument, or wait longer with --idle-prompt-wait"}}
	}
	return err
}

// silentError is a stdin that neither says anything nor ends.
type silentError struct{ wait time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("stdin is open, but nothing came from it for %s", e.wait)
}

// await waits until done is closed. It gives up, with a [silentError], after a time
// without a beat that the writer, if there is one, cannot be meant to let pass.
func (src promptSources) await(ctx context.Context, done, beat <-chan struct{}) error {
	wait := cmp.Or(max(src.silence, 0), callerPromptWait)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-beat:
			timer.Stop()
			continue
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
		if src.silence > 0 || wait >= promptWait || heldByCallers(src.stdin) {
			return &silentError{wait}
		}
		wait = promptWait
	}
}

// allStdin reads stdin to its end. A terminal has no end that a script could
// mean, so it is refused.
func (rt *runtime) allStdin(ctx context.Context, src promptSources) (string, error) {
	if isTerminal(src.reader) {
		return "", usageError("no prompt: stdin is a terminal; give the prompt as an argument")
	}
	in := readPiped(src.reader)
	if err := in.end(ctx, src); err != nil {
		return "", err
	}
	if in.err != nil {
		return "", usageError("stdin could not be read: %v", in.err)
	}
	text, err := decodeText(in.text)
	if err != nil {
		return "", usageError("failed to read prompt from stdin: %v", err)
	}
	if strings.TrimSpace(text) == "" {
		return "", usageError("%w", &hintError{errors.New("no prompt provided via stdin"),
			"give one as an argument (nightshift exec \"fix the failing test\"), through a pipe, or with --prompt-file FILE"})
	}
	return text, nil
}

// extraStdin reads what is piped beside a prompt. Only a stdin that sends a
// byte, or ends, within stdinGrace or the time that was asked for is waited for.
func (rt *runtime) extraStdin(ctx context.Context, src promptSources) (string, error) {
	if src.reader == nil || isTerminal(src.reader) {
		return "", nil
	}
	fmt.Fprintln(rt.stderr, "Reading additional input from stdin...")
	in := readPiped(src.reader)
	wait := cmp.Or(src.silence, stdinGrace)
	grace := time.NewTimer(wait)
	defer grace.Stop()
	select {
	case <-in.beat:
	case <-in.done:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-grace.C:
		fmt.Fprintf(rt.stderr, "stdin is open but silent for %s; going on with the prompt argument alone (--idle-prompt-wait waits longer)\n", wait)
		return "", nil
	}
	if err := in.end(ctx, src); err != nil {
		return "", err
	}
	if in.err != nil {
		if errors.Is(in.err, os.ErrClosed) || errors.Is(in.err, syscall.EBADF) {
			return "", nil // stdin was closed by the caller (<&-)
		}
		return "", usageError("stdin could not be read: %v", in.err)
	}
	text, err := decodeText(in.text)
	if err != nil {
		return "", usageError("failed to read additional input from stdin: %v", err)
	}
	return text, nil
}

func isTerminal(r any) bool {
	f, ok := r.(interface{ Fd() uintptr })
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
