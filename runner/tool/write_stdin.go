package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

//go:embed write_stdin.md
var stdinDescription string

const (
	pollLeast = 5_000 // milliseconds
	pollMost  = 300_000
	// typeBound is how long typing may take: a program that does not read its
	// terminal fills the kernel's buffer.
	typeBound = 5 * time.Second
)

// interrupt is what Ctrl-C types.
const interrupt = "\x03"

type stdinArgs struct {
	Session   float64  `json:"session_id"`
	Chars     string   `json:"chars"`
	Yield     *float64 `json:"yield_time_ms"`
	MaxTokens *float64 `json:"max_output_tokens"`
}

func stdinShape() shape {
	return shape{kind: object, fields: []field{
		{"session_id", shape{kind: number}, true}, {"chars", shape{kind: text}, false},
		{"yield_time_ms", shape{kind: number}, false}, {"max_output_tokens", shape{kind: number}, false},
	}}
}

// stdinTool is write_stdin.
type stdinTool struct{ set *Set }

func (t *stdinTool) Name() string   { return "write_stdin" }
func (t *stdinTool) Parallel() bool { return true }

func (t *stdinTool) Spec() json.RawMessage {
	return functionSpec(t.Name(), t.set.budgeted(stdinDescription), stdinShape())
}

// Call types into a session, or only waits.
func (t *stdinTool) Call(ctx context.Context, c Call) (Result, error) {
	s, began := t.set, t.set.deps.Now()
	var a stdinArgs
	if err := decodeArgs(c.Arguments, stdinShape(), &a); err != nil {
		return s.failed(c, began, err.Error()), nil
	}
	p := s.sessions.find(int(a.Session))
	if p == nil {
		return s.failed(c, began, fmt.Sprintf("write_stdin failed: Unknown process id %.0f", a.Session)), nil
	}
	wait := between(a.Yield, pollLeast, pollLeast, t.most())
	if a.Chars != "" {
		wait = between(a.Yield, yieldLeast, yieldLeast, yieldMost)
		if err := p.enter(ctx, a.Chars); err != nil {
			return s.failed(c, began, "write_stdin failed: "+err.Error()), nil
		}
	}
	started := s.deps.Now()
	p.wait(ctx, wait)
	return s.finish(c, began, s.answer(c, p, s.deps.Now().Sub(started), a.MaxTokens)), nil
}

// most is the longest wait in milliseconds.
func (t *stdinTool) most() float64 {
	if ms := t.set.deps.PollMost.Milliseconds(); ms > 0 {
		return math.Max(pollLeast, float64(ms))
	}
	return pollMost
}

// enter sends chars to the session's terminal. A session without one can only
// be interrupted. A session that is over takes nothing and is not an error: the
// answer tells how it ended.
func (s *session) enter(ctx context.Context, chars string) error {
	if over, _, _ := s.result(); over {
		return nil
	}
	if !s.tty {
		if chars == interrupt {
			return s.proc.Signal(syscall.SIGINT)
		}
		return errors.New("stdin is closed for this session; rerun exec_command with tty=true to keep stdin open")
	}
	typed := make(chan error, 1)
	go func() {
		_, err := s.proc.Write([]byte(chars))
		typed <- err
	}()
	select {
	case err := <-typed:
		if over, _, _ := s.result(); err == nil || over {
			return nil
		}
		return fmt.Errorf("failed to write to stdin: %w", err)
	case <-s.done:
		return nil
	case <-time.After(typeBound):
		return fmt.Errorf("failed to write to stdin: the program has not read its terminal for %s", typeBound)
	case <-ctx.Done():
		return nil // the wait that follows ends the session
	}
}

// Decline answers a call that was refused before it began.
func (t *stdinTool) Decline(_ context.Context, c Call, d event.Denial, text string) Result {
	return t.set.refused(c, t.set.deps.Now(), d, text)
}
