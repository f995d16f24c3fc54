package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// quote is s as JSON text.
func quote(s string) json.RawMessage { return rawItem(s).Raw }

// ask makes one request and returns its finished response. A context overflow
// is met with one compaction; an overloaded or missing model with the next
// fallback.
func (r *run) ask(ctx context.Context, purpose string, withTools bool) (*model.Response, error) {
	compacted := false
	for {
		resp, err := r.stream(ctx, r.newRequest(purpose, withTools))
		if err == nil {
			r.account(resp)
			return resp, nil
		}
		var api *model.APIError
		if !errors.As(err, &api) || context.Cause(ctx) != nil {
			r.salvage()
			return nil, err
		}
		if doesNotFit(api) && !compacted && r.compactable() {
			compacted = true
			if r.compact(ctx, api.Class) != nil {
				return nil, err
			}
			if limit := r.meter.beforeRequest(); limit != nil {
				return nil, limit
			}
			continue
		}
		if !r.fallBack(api) {
			r.salvage()
			return nil, err
		}
	}
}

// doesNotFit tells whether a shorter history would help: the window of the model
// is one bound, that of a gateway or of a minute's tokens another.
func doesNotFit(e *model.APIError) bool {
	return e.Class == model.ClassContextLength || e.Class == model.ClassTooLarge
}

// salvage keeps what the last attempt of a request had finished when no other
// follows: words that were paid for and that tell how far the model had come.
// Its calls were never answered and are dropped.
func (r *run) salvage() {
	for _, it := range r.state.broken {
		o, err := readItem(it)
		if err != nil {
			continue // a damaged item of a damaged response
		}
		switch o.Type {
		case "message":
			text, _ := o.text()
			if text == "" || r.Mode == "review" {
				continue
			}
			r.log.Complete("", event.AgentMessage{Text: text})
		case "reasoning":
			if s := o.summary(); s != "" {
				r.log.Complete("", event.Reasoning{Text: s})
			}
		default:
			continue
		}
		r.history.add(it)
		r.store(it)
	}
	r.state.broken = nil
}

// fallBack switches to the next model of model_fallback. Only a model that is
// overloaded or not available is worth it; a bad request stays bad.
func (r *run) fallBack(api *model.APIError) bool {
	switch api.Class {
	case "overloaded", "server_error", "rate_limit", "invalid_model", "idle_timeout", "stream_ended":
	default:
		return false
	}
	if len(r.state.fallbacks) == 0 {
		return false
	}
	next := r.state.fallbacks[0]
	r.state.fallbacks = r.state.fallbacks[1:]
	r.log.Emit(event.ModelFallback{From: r.model, To: next, Class: api.Class, Reason: api.Message})
	r.log.Emit(event.Error{Message: fmt.Sprintf("Model %s is not available (%s); going on with %s", r.model, api.Message, next), Class: "model_fallback"})
	r.model = next
	return true
}

func (r *run) schemaJSON() json.RawMessage {
	if r.Schema == nil {
		return nil
	}
	return r.Schema.JSON
}

// usual is the reasoning effort, the summaries and the verbosity that the
// reference asks a model for when the configuration names none. What the service
// itself takes for granted is something else. Models that are not in the
// reference's catalogue are asked for summaries only.
func usual(name string) (effort, summary, verbosity string) {
	switch {
	case name == "gpt-5.5":
		return "medium", "", "low"
	case strings.HasPrefix(name, "gpt-6"), strings.HasPrefix(name, "gpt-5.6-"), strings.HasPrefix(name, "gpt-daybreak-"), name == "codex-auto-review":
		return "low", "", "low"
	}
	return "", "auto", ""
}

// effort is what the next request asks for.
func (r *run) effort() string {
	effort, _, _ := usual(r.model)
	switch r.cfg.ReasoningEffort {
	case "ultra": // a way to work of the interactive program; the service knows the effort below it
		if effort == "" {
			return "medium"
		}
		return "xhigh"
	case "persistent":
		return "disabled"
	}
	return cmp.Or(r.cfg.ReasoningEffort, effort)
}

func (r *run) newRequest(purpose string, withTools bool) model.Request {
	_, summary, verbosity := usual(r.model)
	req := model.Request{
		Model: r.model, Input: r.history.snapshot(), Parallel: true,
		Effort: r.effort(), Summary: cmp.Or(r.cfg.ReasoningSummary, summary), Verbosity: cmp.Or(r.cfg.Verbosity, verbosity),
		Tier:   r.cfg.ServiceTier,
		Schema: r.schemaJSON(), CacheKey: r.Thread.ID, Purpose: purpose,
		Metadata: r.metadata(purpose), Headers: r.headers(), Emit: r.log.Emit,
	}
	if withTools {
		req.Tools = r.tools.specs
	}
	return req
}

// restAfter is how long the model may think before the run gives back memory that
// it does not need meanwhile: what it has to map again costs milliseconds.
const restAfter = 250 * time.Millisecond

// stream reads one response to its terminal event. What a broken attempt had
// yielded is void: nothing of it reaches the log, the history or a tool.
func (r *run) stream(ctx context.Context, req model.Request) (*model.Response, error) {
	r.request++
	r.state.broken = nil
	r.progress("waiting for %s (request %d)", req.Model, r.request)
	var started bool
	if r.Mode != "agent" {
		rest := time.AfterFunc(restAfter, r.box.Rest)
		defer rest.Stop()
	}
	for d, err := range r.Model.Stream(ctx, req) {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, err
		}
		if !started {
			started = true
			r.beforeFirstTool(ctx)
		}
		switch {
		case d.Broken != nil:
			r.state.broken = d.Broken.Items
			r.spentInVain(d.Broken.Usage)
		case d.Retrying != nil:
			r.state.broken = nil
			r.totals.ModelRetries++
			r.retrying(d.Retrying)
		case d.Done != nil:
			return d.Done, nil
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return nil, &model.APIError{Class: "stream_ended", Message: "stream disconnected before completion: stream closed before response.completed", Retryable: true}
}

// retrying shows a retry as the reference does: repeats of the request itself
// are silent on the wire. The client has recorded both.
func (r *run) retrying(d *model.Retrying) {
	r.progress("retry %d/%d in %s: %s", d.Attempt, d.Max, d.Delay.Round(time.Millisecond), d.Err.Message)
	if d.Layer == "stream" {
		r.log.Emit(event.Error{Message: fmt.Sprintf("Reconnecting... %d/%d (%s)", d.Attempt, d.Max, d.Err.Message), Class: d.Err.Class})
	}
}

// account counts a finished response.
func (r *run) account(resp *model.Response) {
	r.totals.ModelResponses++
	r.meter.response(r.model, resp.Usage)
	r.state.lastInput = resp.Usage.Input + resp.Usage.Output
	r.storeUsage(resp.ID, resp.Usage)
}

// spentInVain counts a response that the service broke off and charged.
func (r *run) spentInVain(u event.Usage) {
	if u != (event.Usage{}) {
		r.meter.spentOn(r.model, u)
		r.storeUsage("", u)
	}
}

func (r *run) storeUsage(responseID string, u event.Usage) {
	if r.Thread.Store != nil {
		r.stored(r.Thread.Store.Usage(responseID, u, r.meter.usage, r.Thread.Usage.Add(r.meter.usage)))
	}
}
