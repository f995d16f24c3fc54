package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/hook"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// maxParallel bounds how many calls of one response run at once.
const maxParallel = 16

// dispatch runs calls in order; neighbours that may run beside each other do.
// The results are in call order; one without an output belongs to a call that
// was not reached.
func (r *run) dispatch(ctx context.Context, calls []call) ([]tool.Result, error) {
	results := make([]tool.Result, len(calls))
	if err := r.workspaceReady(ctx); err != nil {
		return results, err
	}
	for i := 0; i < len(calls); {
		j := i + 1
		if r.tools.parallel(calls[i]) {
			for j < len(calls) && r.tools.parallel(calls[j]) {
				j++
			}
		}
		group, gctx := errgroup.WithContext(ctx)
		group.SetLimit(maxParallel)
		var last *ticket
		for k := i; k < j; k++ {
			p := behind(last)
			last = p
			group.Go(func() error {
				defer p.leave()
				return guarded(func() error { // a panic here would end the process
					res, err := r.callOne(gctx, calls[k], p)
					results[k] = res
					r.clock.touch()
					return err
				})
			})
		}
		err := group.Wait()
		for k := i; k < j; k++ {
			r.count(calls[k], results[k])
		}
		if err != nil {
			return results, err
		}
		i = j
	}
	return results, nil
}

// ticket is the place of a call among those that run at the same time: their items
// begin in the order in which the model made the calls.
type ticket struct {
	before, left chan struct{}
	once         sync.Once
}

// behind is the ticket after p; a nil p is no ticket, so nobody is waited for.
func behind(p *ticket) *ticket {
	next := &ticket{left: make(chan struct{})}
	if p != nil {
		next.before = p.left
	}
	return next
}

// wait ends when the call before has begun.
func (p *ticket) wait(ctx context.Context) error {
	if p.before == nil {
		return nil
	}
	select {
	case <-p.before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave lets the next call begin.
func (p *ticket) leave() { p.once.Do(func() { close(p.left) }) }

// callOne runs one call between its hooks. An error ends the turn.
func (r *run) callOne(ctx context.Context, c call, p *ticket) (tool.Result, error) {
	t := r.tools.find(c.Namespace, c.Name)
	if t == nil {
		if err := p.wait(ctx); err != nil {
			return tool.Result{}, err
		}
		return r.unknownCall(c), nil
	}
	r.progress("running %s", c.Name)
	seen := hookView(c, r.turnID, r.Workdir)
	if r.tools.hooked("PreToolUse") {
		before := r.tools.hooks.Before(ctx, seen)
		if before.Ended {
			return tool.Result{}, &TurnError{Class: "hook_stopped", Message: "a hook ended the run: " + before.Reason, Code: ExitFailed}
		}
		if err := p.wait(ctx); err != nil {
			return tool.Result{}, err
		}
		if before.Blocked {
			return r.declined(t, c, before), nil
		}
		if len(before.Input) > 0 {
			c = rewritten(c, before.Input)
		}
	}
	if err := p.wait(ctx); err != nil {
		return tool.Result{}, err
	}
	if _, ok := t.(tool.Announcer); !ok {
		p.leave()
	}
	res, err := t.Call(tool.OnBegun(ctx, p.leave), c)
	if err != nil {
		return res, fmt.Errorf("tool %s: %w", c.Name, err)
	}
	res.Output = r.tellRefusals(res.Output)
	if r.tools.hooked("PostToolUse") && res.Denied == nil {
		seen.ItemID = res.ItemID
		after := r.tools.hooks.After(ctx, seen, res.Output)
		if after.Replaced {
			res.Output = quote(after.Output)
		}
		res.Context = after.Context
	}
	return res, nil
}

// unknownCall answers a call of a tool that was never offered. The reference
// shows nothing of it.
func (r *run) unknownCall(c call) tool.Result {
	name := c.Name
	if c.Namespace != "" {
		name = c.Namespace + "." + c.Name
	}
	text := "unsupported call: " + c.Name
	if c.Custom {
		text = "unsupported custom tool call: " + c.Name
	}
	id := r.log.Complete("", event.ToolCall{Message: text, Tool: name, Status: event.Failed})
	r.log.Emit(event.ToolCompleted{Tool: name, CallID: c.ID, ItemID: id, Status: event.Failed, Message: text})
	return tool.Result{Output: quote(text), Status: event.Failed, ItemID: id}
}

// decliner is a tool that knows the item of a call that was refused before it
// began.
type decliner interface {
	Decline(context.Context, tool.Call, event.Denial, string) tool.Result
}

// declined answers a call that a hook blocked.
func (r *run) declined(t tool.Tool, c call, h hook.Result) tool.Result {
	d := h.Denial()
	if d == nil {
		d = &event.Denial{Reason: h.Reason, Source: "hook", Rule: h.Hook, Origin: h.Origin}
	}
	return r.decline(t, c, *d, h.Reason)
}

func (r *run) decline(t tool.Tool, c call, d event.Denial, text string) tool.Result {
	if own, ok := t.(decliner); ok {
		return own.Decline(context.Background(), c, d, text)
	}
	id := r.log.Complete("", event.ToolCall{Message: d.Reason, Tool: c.Name, Status: event.Declined, Denial: &d})
	r.log.Emit(event.PolicyDecision{Action: "tool", Subject: c.Name, Decision: "forbidden", Outcome: "denied",
		Reason: d.Reason, Source: d.Source, Rule: d.Rule, Origin: d.Origin, ItemID: id, CallID: c.ID})
	return tool.Result{Output: quote(text), Status: event.Declined, ItemID: id, Denied: &d}
}

// refuseForLimit shows a call that a limit stopped.
func (r *run) refuseForLimit(c call, l *LimitError) {
	d := event.Denial{Reason: l.Error(), Source: "limit", Rule: l.Limit}
	text := "not run: " + l.Error()
	if t := r.tools.find(c.Namespace, c.Name); t != nil {
		r.decline(t, c, d, text)
	} else {
		r.unknownCall(c)
	}
	item := r.callOutput(c, quote(text))
	r.history.add(item)
	r.store(item)
}

// count notes a finished call in the totals and the limits.
func (r *run) count(c call, res tool.Result) {
	if res.Status == "" {
		return // not reached
	}
	r.meter.call()
	r.totals.ToolCalls++
	if res.Denied != nil {
		r.totals.Denials++
	} else if res.Status == event.Failed {
		r.totals.FailedTools++
	}
	failed := res.Status == event.Failed || res.Status == event.Declined
	r.meter.step(c.Namespace+"\x00"+c.Name+"\x00"+string(c.Arguments)+c.Input, failed)
}

// hookView is a call as hooks see it: shell commands are "Bash".
func hookView(c call, turnID, workdir string) hook.Tool {
	v := hook.Tool{Name: c.Name, Input: c.Arguments, UseID: c.ID, TurnID: turnID}
	switch {
	case c.Namespace != "":
		v.Name = c.Namespace + "__" + c.Name
	case c.Name == "exec_command":
		var args struct {
			Cmd     string `json:"cmd"`
			Workdir string `json:"workdir"`
		}
		if json.Unmarshal(c.Arguments, &args) == nil {
			v.Name, v.Input = "Bash", rawItem(map[string]string{"command": args.Cmd}).Raw
			if v.Dir = args.Workdir; v.Dir != "" && !filepath.IsAbs(v.Dir) {
				v.Dir = filepath.Join(workdir, v.Dir)
			}
		}
	case c.Custom:
		v.Input = rawItem(map[string]string{"command": c.Input}).Raw
	}
	return v
}

// rewritten applies a hook's updatedInput to a call.
func rewritten(c call, input json.RawMessage) call {
	var in struct {
		Command *string `json:"command"`
	}
	if json.Unmarshal(input, &in) == nil && in.Command != nil {
		if c.Custom {
			c.Input = *in.Command
			return c
		}
		if c.Name == "exec_command" && c.Namespace == "" {
			var args map[string]json.RawMessage
			if json.Unmarshal(c.Arguments, &args) == nil {
				args["cmd"] = quote(*in.Command)
				c.Arguments = rawItem(args).Raw
				return c
			}
		}
	}
	c.Arguments = input
	return c
}
