package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Bounds of what a hook may print.
const (
	maxStdout  = 1 << 20
	maxStderr  = 64 << 10
	maxMessage = 2 << 10 // of the event
)

// errTooMuch is a hook that printed more than its bound.
var errTooMuch = fmt.Errorf("it printed more than %d bytes", maxStdout)

// timeoutError is a hook that took too long.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return "it took longer than its timeout of " + e.after.String() }

// run runs one hook, reports it, and applies its on_error.
func (r *Runner) run(ctx context.Context, h hook, in input, itemID string) said {
	began := time.Now()
	body, err := event.Marshal(in)
	var s said
	var code *int
	if err == nil {
		var stdout, stderr string
		if code, stdout, stderr, err = r.execute(ctx, h, body); err == nil {
			s, err = read(h.Event, *code, stdout, stderr)
			s.reason, s.context, s.output = r.o.Mask.Mask(s.reason), r.o.Mask.Mask(s.context), r.o.Mask.Mask(s.output)
		}
	}
	done := event.HookCompleted{
		Event: h.Event, Hook: short(r.o.Mask.Mask(h.Command)), Origin: h.Origin, ExitCode: code,
		DurationMS: time.Since(began).Milliseconds(), ItemID: itemID, Outcome: "completed", Message: short(s.reason),
	}
	if err != nil {
		r.failures.Add(1)
		s = said{}
		done.Outcome, done.Message = "failed", short(err.Error())
		var late timeoutError
		if errors.As(err, &late) {
			done.Outcome = "timeout"
		}
		if h.blocksOnError() {
			s = said{blocked: true, reason: "the hook failed: " + err.Error()}
		}
	} else if s.blocked || s.ended {
		done.Outcome = "blocked"
	}
	if r.o.Log != nil {
		r.o.Log.Emit(done)
	}
	return s
}

// blocksOnError tells whether a failure is a no. Gates block unless they say
// otherwise; a failing Stop hook never makes the model go on, since a failure
// has nothing to tell it.
func (h hook) blocksOnError() bool {
	switch h.Event {
	case PreToolUse, PermissionRequest, UserPromptSubmit:
		return h.OnError != "continue"
	}
	return false
}

// execute runs the command with body as its input, within its time.
func (r *Runner) execute(ctx context.Context, h hook, body []byte) (code *int, stdout, stderr string, err error) {
	late := timeoutError{h.Timeout}
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timeout, late)
	defer cancel()
	p, err := r.o.Sandbox.Start(ctx, sandbox.Command{
		Argv: []string{r.o.Shell, "-c", h.Command}, Dir: r.o.Dir, Env: r.o.Env,
		Stdin: bytes.NewReader(append(body, '\n')), SplitStderr: true,
	})
	if err != nil {
		return nil, "", "", err
	}
	texts := make(chan string, 1)
	go func() {
		texts <- r.o.said(p.Stderr())
	}()
	stdout, whole := readHead(p.Output(), maxStdout)
	exit, waitErr := p.Wait()
	stderr = <-texts
	switch {
	case ctx.Err() != nil:
		return nil, "", "", context.Cause(ctx)
	case waitErr != nil:
		return nil, "", "", waitErr
	case exit.Killed != "":
		return &exit.Code, "", "", fmt.Errorf("it was killed by the limit on %s", exit.Killed)
	case exit.Signal != 0:
		return &exit.Code, "", "", fmt.Errorf("it was ended by signal %d", exit.Signal)
	case !whole:
		return &exit.Code, "", "", errTooMuch
	}
	return &exit.Code, stdout, stderr, nil
}

// head keeps the first bytes of what is written to it.
type head struct{ kept []byte }

// Write never fails.
func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxStderr-len(h.kept))]...)
	return len(p), nil
}

// said reads what a program says for people to its end and keeps the first part.
// Secrets are masked before it is cut, so that no half of one stays.
func (o *Options) said(r io.Reader) string {
	var h head
	masked := o.Mask.Writer(&h)
	_, _ = io.Copy(masked, r) // what came before an error is all there is
	_ = masked.Close()        // a head takes everything
	return strings.ToValidUTF8(string(h.kept), "\uFFFD")
}

// readHead reads r to its end and keeps the first max bytes; whole tells
// whether that was all.
func readHead(r io.Reader, max int64) (text string, whole bool) {
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, max))
	if err == nil && n == max {
		rest, _ := io.Copy(io.Discard, r) // so that the hook can end
		return strings.ToValidUTF8(b.String(), "\uFFFD"), rest == 0
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), err == nil
}

// short cuts a text for the event.
func short(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
