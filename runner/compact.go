package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// maxCompactions bounds how often one turn may compact: a history that does not
// get smaller is no reason to go on asking.
const maxCompactions = 8

// compactShare is how much of the model's window may be used before the history
// is compacted, in percent, when only the window is configured.
const compactShare = 90

// compactLimit is the number of tokens after which the history is compacted, 0:
// only when the service says that it is too long.
func (r *run) compactLimit() int64 {
	window := r.cfg.ContextWindow * compactShare / 100
	if l := r.cfg.CompactLimit; l > 0 && (window <= 0 || l < window) {
		return l
	}
	return max(window, 0)
}

// compactIfNeeded compacts when the last response's tokens passed the limit of
// the configuration.
func (r *run) compactIfNeeded(ctx context.Context, trigger string) error {
	limit := r.compactLimit()
	if limit <= 0 || r.state.lastInput < limit {
		return nil
	}
	if r.totals.Compactions >= maxCompactions {
		return &TurnError{Class: "context_length", Code: ExitFailed,
			Message:  fmt.Sprintf("the history was compacted %d times and is again over %d tokens", maxCompactions, limit),
			HintText: "raise model_auto_compact_token_limit (or model_context_window), or split the task"}
	}
	if r.history.bytes() < r.state.compactFrom {
		return nil
	}
	var stays *incompressible
	if err := r.compact(ctx, trigger); !errors.As(err, &stays) {
		return err
	}
	// The limit is only the user's guess; the service will say when it is too much.
	r.state.compactFrom = 2 * r.history.bytes()
	r.progress("%v; going on with all of it", stays)
	return nil
}

// incompressible is why a history stays as it is: asking again is no use before
// it has grown.
type incompressible struct{ why string }

func (e *incompressible) Error() string { return "the history could not be compacted: " + e.why }

// compacted is a shorter history and how it came to be.
type compacted struct {
	method  string // endpoint, summary
	summary string // "" of an endpoint: its items are opaque
	items   []model.Item
}

// compact replaces the history by a shorter one: the one that the provider's
// endpoint gives, or else the context messages, the user's own messages and a
// summary. It returns *incompressible rather than take a history that did not
// shrink.
func (r *run) compact(ctx context.Context, trigger string) error {
	if r.tools.hooked("PreCompact") {
		r.tools.hooks.Compact(ctx, false, r.turnID, trigger)
	}
	r.progress("compacting the history")
	before, beforeBytes := len(r.history.items), r.history.bytes()
	next, err := r.compactAtEndpoint(ctx)
	if err == nil && next == nil {
		next, err = r.summarize(ctx)
	}
	if err != nil {
		return err
	}
	h := history{items: next.items}
	if h.bytes() >= beforeBytes {
		return &incompressible{fmt.Sprintf("%d bytes became %d", beforeBytes, h.bytes())}
	}
	r.history = h
	r.state.lastInput = 0
	r.totals.Compactions++
	r.log.Emit(event.HistoryCompacted{Trigger: trigger, Method: next.method, ItemsBefore: before, ItemsAfter: len(h.items),
		BytesBefore: beforeBytes, BytesAfter: h.bytes()})
	if r.Thread.Store != nil {
		r.stored(r.Thread.Store.Compacted(next.summary, h.items))
	}
	if r.tools.hooked("PostCompact") {
		r.tools.hooks.Compact(ctx, true, r.turnID, trigger)
	}
	return nil
}

// compactAtEndpoint asks the built-in provider for a shorter history; nil means
// that there is no such endpoint, that it failed, or that what it sent is no
// shorter: a summary is the way then. Others are not asked, as in the reference:
// most have no such endpoint. Neither is it asked when the user has words of
// their own for a summary.
func (r *run) compactAtEndpoint(ctx context.Context) (*compacted, error) {
	service, ok := r.Model.(model.Compactor)
	if !ok || !r.cfg.Provider.BuiltIn || r.cfg.CompactPrompt != "" || r.state.noEndpoint {
		return nil, nil
	}
	req := r.newRequest("compaction", false)
	req.Schema = nil
	req.Input = closedCalls(r.history.snapshot(), r)
	resp, err := service.Compact(ctx, req)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var api *model.APIError
	if errors.As(err, &api) {
		r.state.noEndpoint = true // one try is enough
		r.progress("the compaction endpoint failed: %s", api.Message)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the history could not be compacted: %w", err)
	}
	r.account(&resp)
	next := compacted{method: "endpoint", items: append([]model.Item(nil), r.state.base...)}
	kept := 0
	for _, it := range resp.Items {
		o, err := readItem(it)
		if err != nil || o.Type == "message" && (o.Role == "developer" || o.Role == "system" || isContext(o)) {
			continue // the context messages are sent anew
		}
		if o.Type != "message" || o.Role != "user" {
			kept++
		}
		next.items = append(next.items, it)
	}
	if next := (history{items: next.items}); kept == 0 || next.bytes() >= r.history.bytes() {
		r.state.noEndpoint = true
		return nil, nil
	}
	return &next, nil
}

// summarize asks the model for a summary.
func (r *run) summarize(ctx context.Context) (*compacted, error) {
	resp, err := r.askForSummary(ctx)
	if err != nil {
		return nil, err
	}
	r.account(resp)
	summary := ""
	for _, it := range resp.Items {
		if o, err := readItem(it); err == nil && o.Type == "message" {
			text, _ := o.text()
			summary += text
		}
	}
	if summary == "" {
		return nil, &incompressible{"the model returned no summary"}
	}
	kept := append([]model.Item(nil), r.state.base...)
	kept = append(kept, userMessages(r.history.items)...)
	return &compacted{"summary", summary, append(kept, r.message("user", textPart(summaryPrefix+summary)))}, nil
}

// compactable tells whether there is anything that a summary could replace.
func (r *run) compactable() bool {
	for _, it := range r.history.items {
		if o, err := readItem(it); err == nil && (o.Type != "message" || o.Role == "assistant") {
			return true
		}
	}
	return false
}

// userMessages keeps what people said: not the context messages, which begin
// with marks of their own and are sent anew.
func userMessages(items []model.Item) []model.Item {
	var out []model.Item
	for _, it := range items {
		o, err := readItem(it)
		if err != nil || o.Type != "message" || o.Role != "user" || len(o.Content) == 0 {
			continue
		}
		if !isContext(o) {
			out = append(out, it)
		}
	}
	return out
}

// isContext tells whether a user message is one that the runner wrote.
func isContext(o outputItem) bool {
	if len(o.Content) == 0 {
		return false
	}
	first := o.Content[0].Text
	return strings.HasPrefix(first, "# AGENTS.md instructions") || strings.HasPrefix(first, "<environment_context>") || strings.HasPrefix(first, summaryPrefix)
}

// closedCalls makes a copy of items in which every call has an output: the
// service refuses a call without one.
func closedCalls(items []model.Item, r *run) []model.Item {
	open := map[string]outputItem{}
	var order []string
	for _, it := range items {
		o, err := readItem(it)
		if err != nil {
			continue
		}
		switch o.Type {
		case "function_call", "custom_tool_call":
			open[o.CallID] = o
			order = append(order, o.CallID)
		case "function_call_output", "custom_tool_call_output":
			delete(open, o.CallID)
		}
	}
	out := append([]model.Item(nil), items...)
	for _, id := range order {
		if o, ok := open[id]; ok {
			out = append(out, r.callOutput(call{ID: id, Custom: o.Type == "custom_tool_call"}, json.RawMessage(`"aborted"`)))
		}
	}
	return out
}
