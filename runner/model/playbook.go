package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Playbook is a parsed script and how far it has been played. Its methods may be
// called by several goroutines at once.
type Playbook struct {
	name      string
	replies   []reply
	exhausted *reply
	routes    map[string]reply

	mu   sync.Mutex
	used []bool
	n    int // requests to the model so far
}

// ParseScript reads a script. name stands in messages.
//
// The file is one of
//
//   - JSONL: one reply on each line (what a Recorder writes); a first line
//     {"script":"nightshift","version":1} is allowed;
//   - a JSON list of replies;
//   - a JSON object with the list in "responses" or "model_script", and
//     optionally "on_exhausted" (a reply for all further requests) and "routes"
//     ({"POST /path": reply}); its other fields are ignored.
//
// A reply is a stream of output items,
//
//	{"items":[ITEM,…], "end":"completed", "usage":{"input":100,"cached":0,"cache_write":0,"output":10,"reasoning":0}}
//
// where "end" may be "failed" (with "error":{"code","message"}), "incomplete"
// (with "reason") or "none", and where "delay_s" (before the headers), "gap_s"
// (between items), "hang_s" (silence after the items), "cut_mid_item",
// "cut_after" (events), "reset", "end_turn", "response_id" and "model" may stand
// too; or a plain HTTP answer,
//
//	{"status":429, "headers":{"Retry-After":"2"}, "body":{…}}
//
// where "body" is an object, a text or {"base64":…}; or "sse", a stream written
// out. "match":{"contains":TEXT} keeps a reply for a request whose body has the
// text; other requests pass over it. "compact" marks the answer to a compaction
// request.
//
// An ITEM is {"message":TEXT,"phase":…}, {"reasoning":[PART,…],"encrypted":…},
// {"call":TOOL,"call_id":…,"args":{…},"namespace":…}, {"custom":TOOL,"call_id":…,
// "input":TEXT}, {"web_search":ACTION} or {"raw":{…}}, an item as the service
// sent it. Strings in items may hold placeholders, see capture.go. "deltas" says
// in how many pieces a text is sent.
//
// Fields that are not known are errors. .github/MODEL-SCRIPTS.md is the manual.
func ParseScript(name string, data []byte) (*Playbook, error) {
	p := &Playbook{name: name, routes: map[string]reply{}}
	first := true
	err := decodeReplies(data, func(raw json.RawMessage) error {
		defer func() { first = false }()
		if first {
			done, err := p.parseHead(raw)
			if done || err != nil {
				return err
			}
		}
		return p.add(raw)
	})
	if err != nil {
		return nil, &ScriptError{Name: name, Problem: err}
	}
	if len(p.replies) == 0 && p.exhausted == nil {
		return nil, &ScriptError{Name: name, Problem: errors.New("it holds no reply")}
	}
	p.used = make([]bool, len(p.replies))
	return p, nil
}

// ScriptError is a script that cannot be played.
type ScriptError struct {
	Name    string
	Problem error
}

// Error names the file and the line.
func (e *ScriptError) Error() string { return fmt.Sprintf("script %s: %v", e.Name, e.Problem) }

// Unwrap returns the problem.
func (e *ScriptError) Unwrap() error { return e.Problem }

// Hint tells where scripts come from.
func (e *ScriptError) Hint() string {
	return "a script is JSONL with one reply a line, as `nightshift exec --record FILE` writes it"
}

// parseHead handles a first value that is not a reply. It reports whether it was
// one.
func (p *Playbook) parseHead(raw json.RawMessage) (bool, error) {
	if raw[0] == '[' {
		return true, p.addAll(raw)
	}
	var head struct {
		Script    *string                    `json:"script"`
		Version   int                        `json:"version"`
		Responses json.RawMessage            `json:"responses"`
		Replies   json.RawMessage            `json:"model_script"`
		Exhausted json.RawMessage            `json:"on_exhausted"`
		Routes    map[string]json.RawMessage `json:"routes"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return true, err
	}
	switch {
	case head.Script != nil:
		if *head.Script != "nightshift" || head.Version != scriptVersion {
			return true, fmt.Errorf("it is of format %q version %d; this program plays \"nightshift\" version %d", *head.Script, head.Version, scriptVersion)
		}
		return true, nil
	case head.Responses != nil && head.Replies != nil:
		return true, errors.New(`it has both "responses" and "model_script"`)
	case head.Responses == nil && head.Replies == nil:
		return false, nil
	}
	list := head.Responses
	if list == nil {
		list = head.Replies
	}
	if err := p.addAll(list); err != nil {
		return true, err
	}
	if len(head.Exhausted) > 0 && string(head.Exhausted) != "null" {
		r, err := parseReply(head.Exhausted)
		if err != nil {
			return true, fmt.Errorf("on_exhausted: %w", err)
		}
		p.exhausted = &r
	}
	for route, raw := range head.Routes {
		r, err := parseReply(raw)
		if err != nil {
			return true, fmt.Errorf("routes: %s: %w", route, err)
		}
		p.routes[route] = r
	}
	return true, nil
}

func (p *Playbook) addAll(list json.RawMessage) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(list, &raw); err != nil {
		return err
	}
	for i, r := range raw {
		if err := p.add(r); err != nil {
			return fmt.Errorf("reply %d: %w", i+1, err)
		}
	}
	return nil
}

func (p *Playbook) add(raw json.RawMessage) error {
	r, err := parseReply(raw)
	if err != nil {
		return err
	}
	p.replies = append(p.replies, r)
	return nil
}

func parseReply(raw json.RawMessage) (reply, error) {
	var r reply
	if err := strict(raw, &r); err != nil {
		return r, err
	}
	return r, r.check()
}

// ErrExhausted is the reason of Answer when no reply is left.
var ErrExhausted = errors.New("no reply is left")

// IsModelPath tells whether a request of this method and path asks the model.
func IsModelPath(method, path string) bool {
	return method == http.MethodPost && strings.HasSuffix(path, "/responses")
}

// Answer is the answer to one request. Requests to the model (POST …/responses)
// take the first unused reply that fits; others are looked up in the routes and
// are answered with 404. An error means that the script has no answer: no reply
// is left (ErrExhausted), or a placeholder found nothing.
func (p *Playbook) Answer(method, path string, body []byte) (Plan, error) {
	compact := method == http.MethodPost && strings.HasSuffix(path, "/responses/compact")
	if route, ok := p.routes[method+" "+path]; ok {
		return route.plan(0, nil)
	}
	if !compact && !IsModelPath(method, path) {
		return Plan{Status: http.StatusNotFound, Steps: []Step{{Data: []byte("no such path\n")}}}, nil
	}
	r, n := p.take(compact, body)
	switch {
	case r == nil && compact:
		return Plan{Status: http.StatusNotFound, Steps: []Step{{Data: []byte("no compaction here\n")}}}, nil
	case r == nil:
		return Plan{}, &ScriptError{Name: p.name, Problem: fmt.Errorf("request %d to the model: %w", n, ErrExhausted)}
	}
	var sent struct {
		Input []json.RawMessage `json:"input"`
	}
	// A body that is not a request of ours has no tool outputs to capture from.
	_ = json.Unmarshal(body, &sent)
	plan, err := r.plan(n, toolOutputs(sent.Input))
	if err != nil {
		return Plan{}, &ScriptError{Name: p.name, Problem: fmt.Errorf("request %d to the model: %w", n, err)}
	}
	plan.mark, plan.input = r.Request, sent.Input
	return plan, nil
}

// take finds the reply and marks it as used.
func (p *Playbook) take(compact bool, body []byte) (*reply, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	for i := range p.replies {
		r := &p.replies[i]
		if p.used[i] || r.Compact != compact {
			continue
		}
		if r.Match != nil && !bytes.Contains(body, []byte(r.Match.Contains)) {
			continue
		}
		p.used[i] = true
		return r, p.n
	}
	if compact {
		return nil, p.n
	}
	return p.exhausted, p.n
}

// Left is the number of replies that were not played.
func (p *Playbook) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := 0
	for _, used := range p.used {
		if !used {
			left++
		}
	}
	return left
}
