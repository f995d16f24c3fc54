package model

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/tidwall/gjson"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// reader reads one response stream. openai-go's decoder finds the events; its
// typed stream is not used, because it takes an early end and response.failed
// for success and stops at any event that has a field "error". What is read of an
// event is read by path: a field of another kind than expected counts as absent,
// and does not make the rest unreadable.
type reader struct {
	dec   ssestream.Decoder
	body  *streamBody
	watch *watchdog
	begin time.Time
	now   func() time.Time

	resp   Response
	output []outputItem
	at     map[string]int // where an item is in output, by what tells it from others
	bytes  int
	seen   map[string]bool // lifecycle events so far
	said   []string        // text of deltas, until there is an item
	spoken int             // its length in bytes
}

// outputItem is an item with what is needed to order and recognise it.
type outputItem struct {
	index int
	raw   json.RawMessage
}

// newReader checks that res is an event stream.
func newReader(res *http.Response, watch *watchdog, begin time.Time, o Options) (*reader, *failure) {
	body := &streamBody{rc: res.Body, most: o.MaxResponseBytes}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil &&
		(strings.HasSuffix(media, "/html") || strings.HasSuffix(media, "/json")) {
		start, _ := io.ReadAll(io.LimitReader(body, maxErrorBody)) // a short read is an excerpt all the same
		_ = body.Close()
		if e, ok := parseServiceError(start); ok && media == "application/json" {
			return nil, responseFailure(e, o.Now())
		}
		return nil, fail(ClassBadResponse, prefixStream+"the service answered with "+media+", not with an event stream").
			stream().hinting("it begins %q", excerpt(strings.ToValidUTF8(string(start), "\uFFFD"), 200))
	}
	r := &reader{body: body, watch: watch, begin: begin, now: o.Now, at: map[string]int{}, seen: map[string]bool{}}
	// Only the body of the response is shown to the decoder: decoders are
	// registered by content type for the whole process, and "text/event-stream"
	// must mean the same here whatever else is linked.
	r.dec = ssestream.NewDecoder(&http.Response{Header: http.Header{}, Body: body})
	r.resp.ServiceID = res.Header.Get("X-Request-Id")
	return r, nil
}

// head is the part of an event that is looked at first.
type head struct {
	Type  string `json:"type"`
	Delta any    `json:"delta"`
}

// next returns the next sign of life, or the finished response, or a failure.
func (r *reader) next() (*Progress, *Response, *failure) {
	for r.dec.Next() {
		ev := r.dec.Event()
		r.body.event = 0
		data := bytes.ToValidUTF8(bytes.TrimSuffix(ev.Data, []byte("\n")), []byte("\uFFFD"))
		var h head
		if err := json.Unmarshal(data, &h); err != nil {
			if vital(ev.Type, data) {
				// Without this event the response would lack something, unnoticed.
				return nil, nil, cut(err).hinting("an event of the stream was not JSON")
			}
			continue
		}
		if h.Type == "" {
			h.Type = ev.Type
		}
		text, _ := h.Delta.(string)
		if !r.lives(h.Type, text, h.Delta != nil) {
			continue
		}
		r.watch.tick()
		if r.resp.FirstEvent == 0 {
			r.resp.FirstEvent = max(r.now().Sub(r.begin), 1)
		}
		if strings.HasSuffix(h.Type, ".delta") {
			p := &Progress{Event: h.Type}
			if h.Type == "response.output_text.delta" {
				p.Text = text
				if len(r.output) == 0 {
					if r.spoken += len(text); r.spoken > maxItemBytes {
						return nil, nil, oversized("the output", maxItemBytes)
					}
					r.said = append(r.said, text)
				}
			}
			return p, nil, nil
		}
		done, f := r.take(h.Type, data)
		if done != nil || f != nil {
			return nil, done, f
		}
		return &Progress{Event: h.Type}, nil, nil
	}
	return nil, nil, r.ended()
}

// vital tells whether a damaged event may be one that changes the response.
func vital(name string, data []byte) bool {
	for _, kind := range []string{"response.output_item.done", "response.completed", "response.failed", "response.incomplete"} {
		if name == kind || bytes.Contains(data, []byte(kind)) {
			return true
		}
	}
	return name == "error"
}

// lives tells whether an event is a real sign of life. Keep-alives, empty deltas
// and repeated announcements are not: a server that sends only those is as good
// as silent, and they say nothing that is not known.
func (r *reader) lives(t, delta string, hasDelta bool) bool {
	switch t {
	case "response.created", "response.queued", "response.in_progress":
		first := !r.seen[t]
		r.seen[t] = true
		return first
	case "error":
		return true
	}
	if strings.HasSuffix(t, ".delta") {
		return delta != "" || !hasDelta
	}
	return strings.HasPrefix(t, "response.")
}

// take handles an event that is not a delta. Types it does not know are ignored.
func (r *reader) take(kind string, data []byte) (*Response, *failure) {
	switch kind {
	case "error":
		e, _ := parseServiceError(data)
		return nil, responseFailure(e, r.now())
	case "response.created", "response.output_item.added", "response.output_item.done",
		"response.completed", "response.done", "response.failed", "response.incomplete":
	default:
		return nil, nil
	}
	ev := gjson.ParseBytes(data)
	res := ev.Get("response")
	switch kind {
	case "response.created":
		r.resp.ID, r.resp.Model = text(res.Get("id")), text(res.Get("model"))
		return nil, nil
	case "response.output_item.added":
		r.announce(ev.Get("item"))
		return nil, nil
	case "response.output_item.done":
		return nil, r.add(ev.Get("output_index"), json.RawMessage(ev.Get("item").Raw))
	case "response.failed":
		e, _ := parseServiceError([]byte(res.Get("error").Raw))
		return nil, responseFailure(e, r.now())
	case "response.incomplete":
		r.resp.Usage = usageOf(res.Get("usage"))
		return nil, incompleteFailure(text(res.Get("incomplete_details.reason")))
	}
	return r.finish(res)
}

// announce keeps what is known of a search when it begins.
func (r *reader) announce(item gjson.Result) {
	id := text(item.Get("id"))
	if id == "" || text(item.Get("type")) != "web_search_call" || len(r.resp.Announced) >= maxItems || r.bytes+len(item.Raw) > maxItemBytes {
		return
	}
	if r.resp.Announced == nil {
		r.resp.Announced = map[string]json.RawMessage{}
	}
	r.bytes += len(item.Raw)
	r.resp.Announced[id] = json.RawMessage(item.Raw)
}

// add keeps a finished item. An item that is sent twice counts once: a tool call
// in it must not run twice. place is its output_index, which some services leave
// out.
func (r *reader) add(place gjson.Result, raw json.RawMessage) *failure {
	index := int(place.Int())
	var id struct {
		Type   string `json:"type"`
		ID     string `json:"id"`
		CallID string `json:"call_id"`
	}
	if json.Unmarshal(raw, &id) != nil || id.Type == "" {
		return cut(errors.New("an output item has no type")).hinting("an output item could not be read")
	}
	it := outputItem{index: index, raw: withContent(id.Type, raw)}
	r.bytes += len(raw)
	if r.bytes > maxItemBytes {
		return oversized("the output", maxItemBytes)
	}
	// A call id counts most; else it is the same item if it stands in the same
	// place under the same id, or is equal: services that give every message the
	// same id mean several.
	var key string
	switch {
	case id.CallID != "":
		key = "call\x00" + id.Type + "\x00" + id.CallID
	case id.ID != "" && place.Exists():
		key = "item\x00" + strconv.Itoa(index) + "\x00" + id.ID
	default:
		key = "raw\x00" + strconv.Itoa(index) + "\x00" + string(it.raw)
	}
	if old, ok := r.at[key]; ok {
		r.output[old] = it
		return nil
	}
	if len(r.output) == maxItems {
		return fail(ClassOversized, fmt.Sprintf("%sthe output exceeds %d items", prefixStream, maxItems))
	}
	r.at[key] = len(r.output)
	r.output = append(r.output, it)
	r.said, r.spoken = nil, 0
	return nil
}

// withContent gives a reasoning item the "content":null that the service wants
// to see when the item comes back.
func withContent(kind string, raw json.RawMessage) json.RawMessage {
	if kind != "reasoning" {
		return raw
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	if _, ok := fields["content"]; ok {
		return raw
	}
	end := bytes.LastIndexByte(raw, '}')
	return slices.Concat(raw[:end], []byte(`,"content":null`), raw[end:])
}

// finish makes the response. Its items are those of the output_item.done events,
// in the order of their indices; a service that sends none of these is taken at
// the word of its final event, and one whose final event has none either at that
// of its deltas: gateways that translate streams leave out the one or the other.
func (r *reader) finish(res gjson.Result) (*Response, *failure) {
	if len(r.output) == 0 {
		for i, it := range res.Get("output").Array() {
			if f := r.add(gjson.Result{Type: gjson.Number, Num: float64(i), Raw: strconv.Itoa(i)}, json.RawMessage(it.Raw)); f != nil {
				return nil, f
			}
		}
	}
	if len(r.output) == 0 && r.spoken > 0 {
		said, err := json.Marshal(strings.Join(r.said, ""))
		if err != nil {
			return nil, cut(err)
		}
		if f := r.add(gjson.Result{}, slices.Concat([]byte(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":`), said, []byte(`}]}`))); f != nil {
			return nil, f
		}
	}
	out := r.resp
	out.Items = r.items()
	out.ID = cmp.Or(text(res.Get("id")), out.ID)
	out.Model = cmp.Or(text(res.Get("model")), out.Model)
	out.Status = cmp.Or(text(res.Get("status")), "completed")
	out.Usage = usageOf(res.Get("usage"))
	if end := res.Get("end_turn"); end.IsBool() {
		b := end.Bool()
		out.EndTurn = &b
	}
	out.Duration = r.now().Sub(r.begin)
	return &out, nil
}

// usageOf reads the token counts. A count below zero is not a count.
func usageOf(u gjson.Result) event.Usage {
	count := func(path string) int64 { return max(u.Get(path).Int(), 0) }
	return event.Usage{
		Input:           count("input_tokens"),
		CachedInput:     count("input_tokens_details.cached_tokens"),
		CacheWriteInput: count("input_tokens_details.cache_write_tokens"),
		Output:          count("output_tokens"),
		Reasoning:       count("output_tokens_details.reasoning_tokens"),
	}
}

// text is v where it is a string. What a service sends of another kind is nothing.
func text(v gjson.Result) string {
	if v.Type != gjson.String {
		return ""
	}
	return v.Str
}

// ended says why the stream ended without a terminal event.
func (r *reader) ended() *failure {
	err := r.dec.Err()
	switch {
	case errors.Is(err, errResponseTooLarge):
		return oversized("the response", r.body.most)
	case errors.Is(err, errEventTooLarge) || errors.Is(err, bufio.ErrTooLong):
		return oversized("an event", maxEventBytes)
	case err == nil:
		return closed()
	}
	return cut(err)
}

// broken is what had come before the attempt failed; nil if nothing did.
func (r *reader) broken() *Broken {
	items := r.items()
	if len(items) == 0 && r.resp.Usage == (event.Usage{}) {
		return nil
	}
	return &Broken{Items: items, Usage: r.resp.Usage}
}

// items are the finished items in the order of their indices.
func (r *reader) items() (out []Item) {
	slices.SortStableFunc(r.output, func(a, b outputItem) int { return cmp.Compare(a.index, b.index) })
	for _, it := range r.output {
		out = append(out, Item{Raw: it.raw})
	}
	return out
}
