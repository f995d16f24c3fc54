package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Plan is the answer to one request, ready for the wire: the headers, then steps
// of waiting and writing, then the way the connection ends.
type Plan struct {
	// Wait is the time before the headers.
	Wait   time.Duration
	Status int
	Header http.Header
	Steps  []Step
	End    Ending
	// Failure, if set, is an error the player was recorded with; there is no
	// answer on the wire then.
	Failure error

	// mark is what the recording knew of the request, input what was sent now.
	mark  *requestMark
	input []json.RawMessage
}

// Step waits, then writes.
type Step struct {
	Wait time.Duration
	Data []byte
}

// Ending is how an answer ends.
type Ending int

// Endings: as HTTP wants it; the connection closed in the middle; the connection
// reset.
const (
	EndClean Ending = iota
	EndAbort
	EndReset
)

// defaultUsage is the usage of a reply that names none.
var defaultUsage = usage{Input: 100, Output: 10}

// plan turns a reply into the answer to request n (1, 2, …), whose tool outputs
// fill the placeholders.
func (r *reply) plan(n int, outputs []toolOutput) (Plan, error) {
	p := Plan{Wait: time.Duration(r.Delay), Status: http.StatusOK}
	switch {
	case r.Failure != nil:
		p.Failure = r.Failure.err()
		return p, nil
	case r.Status != 0:
		data, contentType, err := r.httpBody()
		if err != nil {
			return p, err
		}
		p.Status, p.Header, p.Steps = r.Status, r.header(contentType), []Step{{Data: data}}
	case r.Compact:
		if err := r.compaction(&p, n); err != nil {
			return p, err
		}
	case r.SSE != nil:
		p.Header, p.Steps = r.header("text/event-stream"), []Step{{Data: []byte(*r.SSE)}}
		if r.End == "none" {
			p.End = EndAbort
		}
	default:
		p.Header = r.header("text/event-stream")
		p.Header.Set("X-Request-Id", fmt.Sprintf("req_%d", n))
		if err := r.stream(&p, n, outputs); err != nil {
			return p, err
		}
	}
	if r.Hang > 0 && !r.endsAfterHang() {
		p.Steps = append(p.Steps, Step{Wait: time.Duration(r.Hang)})
	}
	if r.Reset {
		p.End = EndReset
	}
	return p, nil
}

// stream adds the usual sequence of events.
func (r *reply) stream(p *Plan, n int, outputs []toolOutput) error {
	s := streamPlan{plan: p}
	id := r.ID
	if id == "" {
		id = fmt.Sprintf("resp_r%d", n)
	}
	envelope := envelope{ID: id, Object: "response", Status: "in_progress", Model: r.Model, Output: []json.RawMessage{}}
	s.send("response.created", "response", envelope)
	s.send("response.in_progress", "response", envelope)
	var built []json.RawMessage
	for i, it := range r.Items {
		if it.text != nil {
			filled, err := fill(it.text, outputs)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(filled, &it); err != nil {
				return err
			}
		}
		raw, err := it.build(n, i)
		if err != nil {
			return err
		}
		built = append(built, raw)
		if i > 0 {
			s.wait = time.Duration(r.Gap)
		}
		first := len(p.Steps)
		s.item(i, raw, it)
		if r.CutItem && i == len(r.Items)-1 {
			s.cutHalf(first)
			return nil
		}
	}
	if r.End == "none" || r.Hang > 0 && !r.endsAfterHang() {
		p.End = EndAbort
	} else {
		s.wait = time.Duration(r.Hang)
		r.terminal(&s, envelope, built)
	}
	if r.CutAfter != nil && *r.CutAfter < len(p.Steps) {
		p.Steps, p.End = p.Steps[:*r.CutAfter], EndAbort
	}
	return nil
}

// compaction is the answer to a compaction request: one object.
func (r *reply) compaction(p *Plan, n int) error {
	e := envelope{ID: r.ID, Object: "response.compaction", Usage: r.wireUsage(), Output: []json.RawMessage{}}
	for i, it := range r.Items {
		raw, err := it.build(n, i)
		if err != nil {
			return err
		}
		e.Output = append(e.Output, raw)
	}
	p.Header, p.Steps = r.header("application/json"), []Step{{Data: plainJSON(e)}}
	return nil
}

// endsAfterHang tells whether a terminal event follows the silence: only when
// the reply says which.
func (r *reply) endsAfterHang() bool { return r.End != "" && r.End != "none" }

// terminal sends the last event.
func (r *reply) terminal(s *streamPlan, e envelope, built []json.RawMessage) {
	switch r.End {
	case "failed":
		e.Status, e.Error = "failed", r.Error
		s.send("response.failed", "response", e)
		return
	case "incomplete":
		reason := r.Reason
		if reason == "" {
			reason = "max_output_tokens"
		}
		e.Status, e.Incomplete = "incomplete", &incomplete{reason}
	default:
		e.Status = "completed"
	}
	e.Usage = r.wireUsage()
	if built != nil {
		e.Output = built
	}
	e.EndTurn = r.EndTurn
	s.send("response."+e.Status, "response", e)
}

func (r *reply) wireUsage() *wireUsage {
	u := defaultUsage
	if r.Usage != nil {
		u = *r.Usage
	}
	return &wireUsage{
		Input: u.Input, InputDetails: inputDetails{u.Cached, u.CacheWrite},
		Output: u.Output, OutputDetails: outputDetails{u.Reasoning}, Total: u.Input + u.Output,
	}
}

// envelope is the response object of the lifecycle events.
type envelope struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Status     string            `json:"status"`
	Model      string            `json:"model,omitempty"`
	Error      json.RawMessage   `json:"error"`
	Incomplete *incomplete       `json:"incomplete_details"`
	Output     []json.RawMessage `json:"output"`
	Usage      *wireUsage        `json:"usage"`
	EndTurn    *bool             `json:"end_turn,omitempty"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type wireUsage struct {
	Input         int64         `json:"input_tokens"`
	InputDetails  inputDetails  `json:"input_tokens_details"`
	Output        int64         `json:"output_tokens"`
	OutputDetails outputDetails `json:"output_tokens_details"`
	Total         int64         `json:"total_tokens"`
}

type inputDetails struct {
	Cached     int64 `json:"cached_tokens"`
	CacheWrite int64 `json:"cache_write_tokens"`
}

type outputDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// streamPlan writes events into a plan, one step each.
type streamPlan struct {
	plan *Plan
	seq  int
	wait time.Duration // before the next event
}

// send adds one event; pairs are the names and values of its fields.
func (s *streamPlan) send(kind string, pairs ...any) {
	b := body{}
	b.field("type", kind)
	b.field("sequence_number", s.seq)
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		b.field(name, pairs[i+1])
	}
	s.seq++
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", kind, b.close())
	s.plan.Steps = append(s.plan.Steps, Step{Wait: s.wait, Data: out.Bytes()})
	s.wait = 0
}

// item sends the events of one item.
func (s *streamPlan) item(i int, raw json.RawMessage, it item) {
	var head struct {
		Type      string          `json:"type"`
		ID        string          `json:"id"`
		Content   []textPart      `json:"content"`
		Summary   []summaryPart   `json:"summary"`
		Arguments string          `json:"arguments"`
		Input     string          `json:"input"`
		Action    json.RawMessage `json:"action"`
	}
	// A raw item may be of a shape that is not known here: then only the frame
	// is sent.
	known := json.Unmarshal(raw, &head) == nil
	s.send("response.output_item.added", "output_index", i, "item", opened(raw))
	ref := []any{"item_id", head.ID, "output_index", i}
	with := func(more ...any) []any { return append(append([]any(nil), ref...), more...) }
	if known {
		switch head.Type {
		case "message":
			for c, part := range head.Content {
				s.message(with, c, part, it.Deltas)
			}
		case "reasoning":
			for c, part := range head.Summary {
				s.summary(with, c, part, it.Deltas)
			}
		case "function_call":
			s.deltas("response.function_call_arguments", "arguments", head.Arguments, it.Deltas, with)
		case "custom_tool_call":
			s.deltas("response.custom_tool_call_input", "input", head.Input, it.Deltas, with)
		case "web_search_call":
			for _, step := range []string{"in_progress", "searching", "completed"} {
				s.send("response.web_search_call."+step, with()...)
			}
		}
	}
	s.send("response.output_item.done", "output_index", i, "item", raw)
}

func (s *streamPlan) message(with func(...any) []any, c int, part textPart, n int) {
	empty := part
	empty.Text = ""
	s.send("response.content_part.added", with("content_index", c, "part", empty)...)
	for _, piece := range pieces(part.Text, n) {
		s.send("response.output_text.delta", with("content_index", c, "delta", piece)...)
	}
	s.send("response.output_text.done", with("content_index", c, "text", part.Text)...)
	s.send("response.content_part.done", with("content_index", c, "part", part)...)
}

func (s *streamPlan) summary(with func(...any) []any, c int, part summaryPart, n int) {
	s.send("response.reasoning_summary_part.added", with("summary_index", c, "part", summaryPart{Type: part.Type})...)
	for _, piece := range pieces(part.Text, n) {
		s.send("response.reasoning_summary_text.delta", with("summary_index", c, "delta", piece)...)
	}
	s.send("response.reasoning_summary_text.done", with("summary_index", c, "text", part.Text)...)
	s.send("response.reasoning_summary_part.done", with("summary_index", c, "part", part)...)
}

func (s *streamPlan) deltas(kind, field, text string, n int, with func(...any) []any) {
	for _, piece := range pieces(text, n) {
		s.send(kind+".delta", with("delta", piece)...)
	}
	s.send(kind+".done", with(field, text)...)
}

// cutHalf ends the stream half way through the events from first on, in the
// middle of one.
func (s *streamPlan) cutHalf(first int) {
	at := first + (len(s.plan.Steps)-first)/2
	data := s.plan.Steps[at].Data
	s.plan.Steps[at].Data = data[:len(data)/2]
	s.plan.Steps = s.plan.Steps[:at+1]
	s.plan.End = EndAbort
}

// opened is an item as it stands in output_item.added: in progress, its content
// still to come.
func opened(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	for name, value := range map[string]string{
		"status": `"in_progress"`, "content": `[]`, "summary": `[]`, "arguments": `""`, "input": `""`,
	} {
		if _, ok := fields[name]; ok {
			fields[name] = json.RawMessage(value)
		}
	}
	delete(fields, "action")
	return plainJSON(fields)
}
