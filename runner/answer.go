package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
	"github.com/nightshift-ci/nightshift/sandbox"
)

const (
	// maxRepairs is how often an answer that breaks the schema is handed back.
	maxRepairs = 1
	// verifyTimeout bounds one --verify command; wall-time limits are usually
	// shorter.
	verifyTimeout = 30 * time.Minute
	// verifyTimedOut is the exit code of one that was stopped, as timeout(1) has it.
	verifyTimedOut = 124
	// verifyTail is how much of a failed verification the model and the report
	// see.
	verifyTail = 16 << 10
)

var errVerifyTimeout = errors.New("the verification ran too long")

// gates counts the rounds of the gates between an answer and the end.
type gates struct {
	repairs, stops, verifies int
}

// accept checks an answer that made no call: stop hooks, schema, verification.
// false means that the model was asked to go on.
func (r *run) accept(ctx context.Context) (bool, error) {
	if done, err := r.stopHooks(ctx); err != nil || !done {
		return done, err
	}
	if done, err := r.schemaGate(); err != nil || !done {
		return done, err
	}
	return r.verify(ctx)
}

// goOn hands text back to the model as a user message.
func (r *run) goOn(text string) {
	m := r.message("user", textPart(text))
	r.history.add(m)
	r.store(m)
}

func (r *run) stopHooks(ctx context.Context) (bool, error) {
	if !r.tools.hooked("Stop") {
		return true, nil
	}
	res := r.tools.hooks.Stop(ctx, r.turnID, r.state.gates.stops > 0, r.final)
	if res.Ended {
		return false, &TurnError{Class: "hook_stopped", Message: "a Stop hook ended the run: " + res.Reason, Code: ExitFailed}
	}
	if !res.Blocked {
		return true, nil
	}
	limit := r.cfg.Limits.StopHookRounds
	r.state.gates.stops++
	if r.state.gates.stops > limit {
		return false, &TurnError{Class: "stop_hook", Code: ExitGate,
			Message:  fmt.Sprintf("a Stop hook refused the end of the turn %d times: %s", r.state.gates.stops, res.Reason),
			HintText: "the hook is " + res.Origin + "; its limit is limits.stop_hook_rounds"}
	}
	r.goOn(res.Reason)
	return false, nil
}

func (r *run) schemaGate() (bool, error) {
	if r.Schema == nil {
		return true, nil
	}
	problems := r.Schema.Check([]byte(r.final))
	r.log.Emit(event.SchemaChecked{Valid: len(problems) == 0, Round: r.state.gates.repairs + 1, Errors: problems})
	if len(problems) == 0 {
		return true, nil
	}
	if r.state.gates.repairs >= maxRepairs {
		return false, &TurnError{Class: "schema_mismatch", Code: ExitOutput,
			Message:  "the final answer does not fit the output schema: " + strings.Join(problems, "; "),
			HintText: "the answer is the last message of the stream; say in the prompt what the schema wants, or loosen it"}
	}
	r.state.gates.repairs++
	r.goOn(repairPrompt(problems))
	return false, nil
}

// verify runs the --verify commands in the sandbox. A failure goes back to the
// model, a bounded number of times.
func (r *run) verify(ctx context.Context) (bool, error) {
	var failures, failed []string
	for _, cmd := range r.cfg.Verify {
		r.progress("verifying: %s", cmd)
		v, err := r.verifyOne(ctx, cmd)
		if err != nil {
			return false, err
		}
		r.log.Emit(v)
		if !v.Passed {
			// Its output is masked already; the command may hold a secret too.
			failures, failed = append(failures, r.Mask.Mask(verifyFailure(v))), append(failed, cmd)
		}
	}
	if len(failures) == 0 {
		return true, nil
	}
	limit := r.cfg.Limits.VerifyRounds
	if r.state.gates.verifies >= limit {
		return false, &TurnError{Class: "verify_failed", Code: ExitGate,
			Message:  fmt.Sprintf("verification failed after %s: %s", count(r.state.gates.verifies+1, "round"), strings.Join(failed, "; ")),
			HintText: "the report has the output of the command; raise limits.verify_rounds to hand it back to the model more often"}
	}
	r.state.gates.verifies++
	r.goOn(strings.Join(failures, "\n\n"))
	return false, nil
}

func (r *run) verifyOne(ctx context.Context, cmd string) (event.VerifyCompleted, error) {
	v := event.VerifyCompleted{Command: cmd, Round: r.state.gates.verifies + 1}
	start := r.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, verifyTimeout, errVerifyTimeout)
	defer cancel()
	how := "-lc"
	if !r.cfg.AllowLoginShell {
		how = "-c"
	}
	env := r.childEnv("")
	p, err := r.box.Start(ctx, sandbox.Command{Argv: tool.LoginPath([]string{r.state.shell, how, cmd}, env), Dir: r.Workdir, Env: env})
	if err != nil {
		return v, fmt.Errorf("--verify %q: %w", cmd, err)
	}
	var tail tailBuffer
	masked := r.Mask.Writer(&tail)
	_, copyErr := io.Copy(masked, p.Output())
	copyErr = firstError(copyErr, masked.Close())
	exit, err := p.Wait()
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errVerifyTimeout):
		exit.Code = verifyTimedOut
		_, _ = fmt.Fprintf(&tail, "\n[stopped: it ran longer than %s]\n", verifyTimeout) // a buffer never fails
	case cause != nil:
		return v, cause
	case err != nil || copyErr != nil:
		return v, fmt.Errorf("--verify %q: %w", cmd, firstError(err, copyErr))
	}
	v.ExitCode, v.Passed = exit.Code, exit.Code == 0
	v.Output = tail.String()
	v.DurationMS = r.Now().Sub(start).Milliseconds()
	return v, nil
}

// count is n things in words: "1 round", "2 rounds".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// tailBuffer keeps the last verifyTail bytes.
type tailBuffer struct {
	b    []byte
	lost int
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - verifyTail; over > verifyTail {
		t.lost += over
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// String is valid UTF-8.
func (t *tailBuffer) String() string {
	b, lost := t.b, t.lost
	if over := len(b) - verifyTail; over > 0 {
		b, lost = b[over:], lost+over
	}
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	if lost > 0 {
		return fmt.Sprintf("… %d bytes omitted …\n%s", lost, s)
	}
	return s
}
