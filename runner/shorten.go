package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/nightshift-ci/nightshift/runner/model"
)

// maxShortenings bounds how often a summary is asked for again with less.
const maxShortenings = 12

// askForSummary asks for a summary of the history. One that is itself too long
// for the service, as after a request that did not fit, is asked for again
// without its oldest part.
func (r *run) askForSummary(ctx context.Context) (*model.Response, error) {
	items := r.history.snapshot()
	for range maxShortenings {
		if limit := r.meter.beforeRequest(); limit != nil {
			return nil, limit
		}
		req := r.newRequest("compaction", false)
		req.Schema = nil
		req.Input = append(closedCalls(items, r), r.message("user", textPart(compactPrompt(r.cfg.CompactPrompt))))
		resp, err := r.stream(ctx, req)
		if err == nil {
			return resp, nil
		}
		var api *model.APIError
		if !errors.As(err, &api) || !doesNotFit(api) {
			return nil, fmt.Errorf("the history could not be compacted: %w", err)
		}
		shorter := withoutOldest(items)
		if shorter == nil {
			return nil, &incompressible{"what must stay is itself too long to be summarized"}
		}
		r.progress("the history is too long to be summarized; its oldest %d items are left out", len(items)-len(shorter))
		items = shorter
	}
	return nil, &incompressible{fmt.Sprintf("it is still too long to be summarized after %d tries", maxShortenings)}
}

// withoutOldest leaves out the oldest quarter of what the model and its tools
// said, whole responses with the outputs of their calls: the messages of people
// and of the runner outlive a compaction anyway. It returns nil when nothing can
// be left out.
func withoutOldest(items []model.Item) []model.Item {
	var theirs []int // indexes of what may go
	var seen []outputItem
	total := 0
	for i, it := range items {
		o, err := readItem(it)
		if err == nil && o.Type == "message" && o.Role != "assistant" {
			continue
		}
		theirs, seen, total = append(theirs, i), append(seen, o), total+len(it.Raw)
	}
	if len(theirs) == 0 {
		return nil
	}
	gone, removed, open := map[int]bool{}, 0, map[string]bool{}
	for k, i := range theirs {
		if removed*4 >= total && len(open) == 0 && removed > 0 && seen[k-1].Type != "reasoning" {
			break
		}
		gone[i], removed = true, removed+len(items[i].Raw)
		switch seen[k].Type {
		case "function_call", "custom_tool_call":
			open[seen[k].CallID] = true
		case "function_call_output", "custom_tool_call_output":
			delete(open, seen[k].CallID)
		}
	}
	kept := make([]model.Item, 0, len(items)-len(gone))
	for i, it := range items {
		if !gone[i] {
			kept = append(kept, it)
		}
	}
	return kept
}
