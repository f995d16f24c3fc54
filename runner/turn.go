package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// call is one tool call of a response.
type call = tool.Call

// maxEmptyResponses bounds how often in a row a service may say that it is not
// done without having sent anything.
const maxEmptyResponses = 3

// turn is the loop: ask, run the calls, answer them, ask again, until the model
// answers without a call and every gate agrees.
func (r *run) turn(ctx context.Context) error {
	empty := 0
	for {
		if limit := r.meter.beforeWork(); limit != nil {
			return limit
		}
		if err := r.compactIfNeeded(ctx, "mid_turn"); err != nil {
			return err
		}
		if limit := r.meter.beforeWork(); limit != nil {
			return limit
		}
		resp, err := r.ask(ctx, "turn", true)
		if err != nil {
			return err
		}
		calls, err := r.absorb(resp)
		if err != nil {
			return err
		}
		switch {
		case len(calls) > 0:
			empty = 0
			if err := r.answer(ctx, calls); err != nil {
				return err
			}
			if result, ok := r.row.get(); ok { // a worker's report ends its work
				r.final, r.answered = string(result), true
				return nil
			}
		case resp.EndTurn != nil && !*resp.EndTurn:
			// The service asks to be asked again.
			if len(resp.Items) > 0 {
				empty = 0
			} else if empty++; empty >= maxEmptyResponses {
				return &TurnError{Class: "bad_response", Code: ExitService, HintText: "try later; the service's status page may tell more",
					Message: fmt.Sprintf("the service sent %d responses in a row without any output and asked to go on", empty)}
			}
		default:
			done, err := r.accept(ctx)
			if done && r.Mode == "review" && r.final != "" {
				r.finishReview()
			}
			if err != nil || done {
				return err
			}
		}
	}
}

// summaryBound is how long the closing summary may take.
const summaryBound = 30 * time.Second

// sumUp records the limit that stopped the run and, where a request is still
// allowed, lets the model say what was done and what is missing, without tools.
func (r *run) sumUp(ctx context.Context, limit *LimitError) {
	r.log.Emit(event.LimitReached{Limit: limit.Limit, Max: limit.Max, Used: limit.Used})
	// The last response is the parent's, not an agent's.
	if r.Mode == "agent" || !r.meter.maySumUp() || context.Cause(ctx) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, summaryBound)
	defer cancel()
	r.progress("limit %s reached, asking for a summary", limit.Limit)
	r.pending(r.message("developer", textPart(finalAnswerPrompt(limit))))
	resp, err := r.ask(ctx, "final_answer", false)
	if err == nil {
		_, err = r.absorb(resp)
	}
	if err != nil {
		// The limit is the truth of this ending; what the summary ran into is said beside it.
		r.notice("final_answer", "the closing summary could not be had: "+err.Error(), "")
	}
}

// absorb takes a finished response into the history and the log, and returns
// the calls it makes.
func (r *run) absorb(resp *model.Response) ([]call, error) {
	var calls []call
	r.answered, r.commentary = false, false
	for _, it := range resp.Items {
		o, err := readItem(it)
		if err != nil {
			return nil, &TurnError{Class: "bad_response", Message: err.Error(), Code: ExitService,
				HintText: "check base_url: what answers there does not speak the Responses API as the service does"}
		}
		r.history.add(it)
		r.store(it)
		switch o.Type {
		case "message":
			text, refusal := o.text()
			if refusal != "" && text == "" {
				r.log.Complete("", event.AgentMessage{Text: refusal})
				r.final = refusal
				return nil, &TurnError{Class: "refused", Message: "the model refused: " + refusal, Code: ExitFailed,
					HintText: "reword the task or leave out the material it stumbles over; -m asks another model"}
			}
			r.final, r.answered = text, strings.TrimSpace(text) != ""
			if r.Mode != "review" { // a review shows one message, made of the answer
				r.log.Complete("", event.AgentMessage{Text: text})
			}
			r.commentary = o.Phase == "commentary"
		case "reasoning":
			if s := o.summary(); s != "" {
				r.log.Complete("", event.Reasoning{Text: s})
			}
		case "web_search_call":
			r.webSearch(o, resp.Announced[o.ID])
		case "function_call":
			calls = append(calls, call{ID: o.CallID, Name: o.Name, Namespace: o.Namespace, Arguments: o.arguments()})
		case "custom_tool_call":
			calls = append(calls, call{ID: o.CallID, Name: o.Name, Namespace: o.Namespace, Input: o.Input, Custom: true})
		}
	}
	r.clock.touch()
	return calls, nil
}

// summary joins the parts of a reasoning summary; "" when all are empty.
func (o outputItem) summary() string {
	var parts []string
	for _, s := range o.Summary {
		parts = append(parts, s.Text)
	}
	text := strings.Join(parts, "\n")
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return text
}

// answer runs the calls of one response and appends their outputs in call
// order.
func (r *run) answer(ctx context.Context, calls []call) error {
	if l := r.meter.beforeCalls(len(calls)); l != nil {
		for _, c := range calls {
			r.refuseForLimit(c, l)
		}
		return l
	}
	results, err := r.dispatch(ctx, calls)
	for i, c := range calls {
		out := results[i].Output
		if out == nil {
			out = quote("aborted")
		}
		item := r.callOutput(c, out)
		r.history.add(item)
		r.store(item)
	}
	for _, res := range results {
		r.hookContext(res.Context)
	}
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}
