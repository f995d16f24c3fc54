package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// maxCompactions bounds how often one turn may compact: a history that does not
// get smaller is no reason to go on asking.
const maxCompactions = 8

// compactIfNeeded compacts when the last response's tokens passed the limit of
// the configuration.
func (r *run) compactIfNeeded(ctx context.Context, trigger string) error {
	limit := r.cfg.CompactLimit
	if limit <= 0 || r.context.lastInput < limit {
		return nil
	}
	if r.totals.Compactions >= maxCompactions {
		return &TurnError{Class: "context_length", Code: ExitFailed,
			Message:  fmt.Sprintf("the history was compacted %d times and is again over model_auto_compact_token_limit (%d)", maxCompactions, limit),
			HintText: "raise model_auto_compact_token_limit, or split the task"}
	}
	return r.compact(ctx, trigger)
}

// compact asks the model for a summary and replaces everything but the context
// messages, the user's own messages and that summary. It fails rather than keep
// a history that did not shrink.
func (r *run) compact(ctx context.Context, trigger string) error {
	if r.tools.hooked("PreCompact") {
		r.tools.hooks.Compact(ctx, false, r.turnID, trigger)
	}
	r.progress("compacting the history")
	before, beforeBytes := len(r.history.items), r.history.bytes()
	req := r.newRequest("compaction", false)
	req.Schema = nil
	req.Input = append(closedCalls(r.history.snapshot(), r), r.message("user", textPart(compactPrompt(r.cfg.CompactPrompt))))
	resp, err := r.stream(ctx, req)
	if err != nil {
		return fmt.Errorf("the history could not be compacted: %w", err)
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
		return &TurnError{Class: "context_length", Code: ExitFailed, Message: "the history could not be compacted: the model returned no summary"}
	}
	kept := append([]model.Item(nil), r.context.base...)
	kept = append(kept, userMessages(r.history.items)...)
	kept = append(kept, r.message("user", textPart(summaryPrefix+summary)))
	next := history{items: kept}
	if next.bytes() >= beforeBytes {
		return &TurnError{Class: "context_length", Code: ExitFailed,
			Message: fmt.Sprintf("the history could not be compacted: %d bytes became %d", beforeBytes, next.bytes())}
	}
	r.history = next
	r.context.lastInput = 0
	r.totals.Compactions++
	r.log.Emit(event.HistoryCompacted{Trigger: trigger, Method: "summary", ItemsBefore: before, ItemsAfter: len(kept),
		BytesBefore: beforeBytes, BytesAfter: next.bytes()})
	if r.Thread.Store != nil {
		r.stored(r.Thread.Store.Compacted(summary, kept))
	}
	if r.tools.hooked("PostCompact") {
		r.tools.hooks.Compact(ctx, true, r.turnID, trigger)
	}
	return nil
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
		first := o.Content[0].Text
		if strings.HasPrefix(first, "# AGENTS.md instructions") || strings.HasPrefix(first, "<environment_context>") || strings.HasPrefix(first, summaryPrefix) {
			continue
		}
		out = append(out, it)
	}
	return out
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
