package tool

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/patch"
	"github.com/nightshift-ci/nightshift/sandbox"
)

//go:embed apply_patch.md
var patchDescription string

//go:embed apply_patch.lark
var patchGrammar string

// patchBound is how long one patch may take. Matching a hunk of thousands of
// equal lines against as many takes seconds, nothing real takes longer.
const patchBound = 2 * time.Minute

// patchTool is apply_patch, the freeform tool.
type patchTool struct{ set *Set }

func (t *patchTool) Name() string   { return "apply_patch" }
func (t *patchTool) Parallel() bool { return false }

func (t *patchTool) Spec() json.RawMessage {
	return encode(map[string]any{"type": "custom", "name": t.Name(), "description": strings.TrimSpace(patchDescription),
		"format": map[string]string{"type": "grammar", "syntax": "lark", "definition": patchGrammar}})
}

// Call applies a patch.
func (t *patchTool) Call(ctx context.Context, c Call) (Result, error) {
	s, began := t.set, t.set.deps.Now()
	if !c.Custom {
		return s.failed(c, began, "aborted: apply_patch takes its patch as plain text, not as JSON arguments"), nil
	}
	return s.applyPatch(ctx, c, began, patchInput{text: c.Input, dir: s.deps.Workdir})
}

// Decline answers a call that was refused before it began.
func (t *patchTool) Decline(_ context.Context, c Call, d event.Denial, text string) Result {
	in := patchInput{text: c.Input, dir: t.set.deps.Workdir}
	return t.set.declinePatch(c, t.set.deps.Now(), in, named(in), d, text)
}

// patchInput is a patch and where its relative paths start.
type patchInput struct {
	text  string
	dir   string
	shell bool // came inside a shell command
}

// named lists the files of a patch that no helper has looked at.
func named(in patchInput) []event.PathChange {
	p, err := patch.Parse(in.text)
	if err != nil {
		return []event.PathChange{}
	}
	return pathChanges(patch.Named(p, in.dir))
}

func pathChanges(list []patch.PathChange) []event.PathChange {
	out := make([]event.PathChange, len(list))
	for i, c := range list {
		out[i] = event.PathChange{Path: c.Path, Kind: string(c.Kind)}
	}
	return out
}

// applyPatch checks and applies a patch inside the sandbox. While it runs, no
// command of the same response does.
func (s *Set) applyPatch(ctx context.Context, c Call, began time.Time, in patchInput) (Result, error) {
	v := s.deps.Policy.Command([]string{"apply_patch"})
	if v.Outcome != policy.Sandboxed && v.Outcome != policy.Unsandboxed {
		d := denialOf(v)
		return s.declinePatch(c, began, in, named(in), d, "patch rejected: "+d.Reason), nil
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	box, err := s.deps.Box(ctx)
	if err != nil {
		return Result{}, err
	}
	scope := s.deps.Scope
	scope.Workdir = in.dir
	w := patchWatch{set: s, c: c, in: in}
	err = w.run(ctx, box, patch.Request{Scope: scope, Patch: in.text}, s.deps.Env(c.ID))
	if err != nil && !w.ended() {
		return w.broken(began, err)
	}
	return w.result(began), nil
}

// patchWatch follows one helper: it opens the item when the patch was found to
// fit and closes it with the last answer.
type patchWatch struct {
	set    *Set
	c      Call
	in     patchInput
	itemID string
	last   patch.Response
	took   time.Duration
}

func (w *patchWatch) ended() bool { return w.last.Stage == patch.Done || w.last.Stage == patch.Stopped }

func (w *patchWatch) run(ctx context.Context, box *sandbox.Sandbox, req patch.Request, env []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patchBound, fmt.Errorf("the patch took longer than %s", patchBound))
	defer cancel()
	in, err := json.Marshal(req)
	if err != nil {
		return err
	}
	started := w.set.deps.Now()
	p, err := box.Start(ctx, sandbox.Command{Helper: patch.HelperName, Dir: w.set.deps.Workdir, Env: env, Stdin: bytes.NewReader(in), SplitStderr: true})
	if err != nil {
		return err
	}
	said := make(chan string, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(p.Stderr(), 4096))
		if err != nil {
			b = append(b, err.Error()...)
		}
		said <- strings.TrimSpace(string(b))
	}()
	for dec := json.NewDecoder(p.Output()); ; {
		var r patch.Response
		if err = dec.Decode(&r); err != nil {
			break
		}
		w.heard(r)
	}
	exit, waited := p.Wait()
	w.took = w.set.deps.Now().Sub(started)
	text := <-said
	switch cause := context.Cause(ctx); {
	case w.ended():
		return nil
	case cause != nil:
		return cause
	case waited != nil:
		return waited
	case text != "":
		return errors.New(text)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return fmt.Errorf("the helper ended with code %d", exit.Code)
}

func (w *patchWatch) heard(r patch.Response) {
	w.last = r
	if r.Stage == patch.Verified {
		changes := pathChanges(r.Changes)
		w.itemID = w.set.deps.Log.Start(event.FileChange{Changes: changes, Status: event.InProgress})
		w.set.deps.Log.Emit(event.PolicyDecision{Action: "patch", Subject: subject(changes), Decision: "allow", Outcome: policy.Sandboxed,
			ItemID: w.itemID, CallID: w.c.ID})
	}
}

// subject names the files of a patch in one line.
func subject(changes []event.PathChange) string {
	paths := make([]string, len(changes))
	for i, c := range changes {
		paths[i] = c.Path
	}
	return strings.Join(paths, " ")
}

// broken ends a patch whose helper gave no answer. What was written before is
// unknown, so the item fails and so does the turn, unless the run was cancelled
// or the patch took too long.
func (w *patchWatch) broken(began time.Time, err error) (Result, error) {
	s := w.set
	changes := pathChanges(w.last.Changes)
	if w.last.Stage == "" {
		changes = named(w.in)
	}
	why := "the patch could not be applied: " + err.Error()
	id := s.deps.Log.Complete(w.itemID, event.FileChange{Changes: changes, Status: event.Failed, Message: why})
	r := s.finish(w.c, began, Result{Output: quoted(why), Status: event.Failed, ItemID: id, Message: why})
	return r, nil
}

// result closes the item and tells the model what became of the patch.
func (w *patchWatch) result(began time.Time) Result {
	s, r := w.set, w.last
	changes := pathChanges(r.Changes)
	switch {
	case r.Stage == patch.Done:
		id := s.deps.Log.Complete(w.itemID, event.FileChange{Changes: changes, Status: event.Completed})
		text := fmt.Sprintf("Exit code: 0\nWall time: %.1f seconds\nOutput:\nSuccess. Updated the following files:\n%s\n", w.took.Seconds(), strings.Join(r.Summary, "\n"))
		return w.finish(began, id, event.Completed, text, "")
	case r.Class == patch.ClassRejected:
		d := event.Denial{Source: "sandbox", Reason: r.Message, Rule: r.Reason}
		text := "patch rejected: writing outside of the project; rejected by user approval settings"
		if r.Reason == patch.NoWriting {
			text = "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings"
		}
		return s.declinePatch(w.c, began, w.in, changes, d, text)
	case r.Class == patch.ClassWrite:
		id := s.deps.Log.Complete(w.itemID, event.FileChange{Changes: changes, Status: event.Failed, Message: r.Message + w.committed("; ", ", ", "")})
		text := fmt.Sprintf("Exit code: 1\nWall time: %.1f seconds\nOutput:\n%s\n%s", w.took.Seconds(), r.Headline, w.committed("", "\n", "\n"))
		return w.finish(began, id, event.Failed, text, r.Message)
	}
	id := s.deps.Log.Complete("", event.FileChange{Changes: changes, Status: event.Failed, Message: r.Message})
	return w.finish(began, id, event.Failed, "apply_patch verification failed: "+r.Message, r.Message)
}

// committed tells what a patch that failed while writing had changed before.
func (w *patchWatch) committed(before, between, after string) string {
	if len(w.last.Summary) == 0 {
		return ""
	}
	return before + "Updated before the failure:" + strings.Replace(between, ",", "", 1) + strings.Join(w.last.Summary, between) + after
}

func (w *patchWatch) finish(began time.Time, id string, st event.Status, text, message string) Result {
	if w.in.shell && w.last.Class != patch.ClassParse && w.last.Class != patch.ClassVerify {
		text = "Wall time: 0.0000 seconds\nOutput:\n" + text
	}
	return w.set.finish(w.c, began, Result{Output: quoted(text), Status: st, ItemID: id, Message: message, OutBytes: int64(len(text))})
}

// declinePatch closes the item of a patch that was refused.
func (s *Set) declinePatch(c Call, began time.Time, in patchInput, changes []event.PathChange, d event.Denial, text string) Result {
	id := s.deps.Log.Complete("", event.FileChange{Changes: changes, Status: event.Declined, Denial: &d, Message: d.Reason})
	s.decision(c, id, "patch", subject(changes), d)
	return s.finish(c, began, Result{Output: quoted(text), Status: event.Declined, ItemID: id, Denied: &d, Message: d.Reason})
}
