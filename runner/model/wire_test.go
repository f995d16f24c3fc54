package model_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/runnertest"
)

// Cut after every event of a response with tool calls: no cut may pass for a
// response, and the repeated request gets the whole of it.
func TestCutAtEveryEvent(t *testing.T) {
	const items = `[{"reasoning":["one","two"],"encrypted":"e"},{"message":"first"},
		{"call":"exec_command","call_id":"c1","args":{"cmd":"true"}},{"custom":"apply_patch","call_id":"c2","input":"x"},
		{"web_search":{"type":"search","query":"q"}}]`
	const events = 36 // the terminal one included
	one := 1
	for n := range events + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			srv := runnertest.NewServer(t, fmt.Sprintf(`[{"items":%s,"cut_after":%d},{"items":%s}]`, items, n, items))
			o := collect(t.Context(), client(t, srv, model.Options{StreamMaxRetries: &one, RequestMaxRetries: &one}), ask("hello"))
			if o.err != nil {
				t.Fatal(o.err)
			}
			if len(o.done.Items) != 5 {
				t.Errorf("%d items, want 5", len(o.done.Items))
			}
			want := 2
			if n == events {
				want = 1
			}
			if got := len(srv.ModelRequests()); got != want {
				t.Errorf("%d requests, want %d", got, want)
			}
		})
	}
}

func TestReset(t *testing.T) {
	one := 1
	for name, reply := range map[string]string{
		"before headers": `{"reset":true,"items":[],"cut_after":0}`,
		"in the stream":  `{"reset":true,"items":[{"message":"x"}],"end":"none"}`,
	} {
		t.Run(name, func(t *testing.T) {
			srv := runnertest.NewServer(t, `[`+reply+`,{"items":[{"message":"ok"}]}]`)
			o := collect(t.Context(), client(t, srv, model.Options{StreamMaxRetries: &one, RequestMaxRetries: &one}), ask("hello"))
			if o.err != nil || len(srv.ModelRequests()) != 2 {
				t.Errorf("error %v after %d requests", o.err, len(srv.ModelRequests()))
			}
		})
	}
}

// raw serves one connection after the other with handle, below HTTP.
func raw(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			handle(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String() + "/v1"
}

const head200 = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

// flood writes chunk until the client goes away or a gigabyte is written.
func flood(c net.Conn, chunk []byte) {
	for n := 0; n < 1<<30; n += len(chunk) {
		if _, err := c.Write(chunk); err != nil {
			return
		}
	}
}

// A server that lies about sizes costs a bounded amount of memory and an error.
func TestLyingServer(t *testing.T) {
	filler := bytes.Repeat([]byte("x"), 1<<20)
	delta := []byte(`data: {"type":"response.output_text.delta","delta":"` + strings.Repeat("y", 64<<10) + "\"}\n\n")
	tests := []struct {
		name, head string
		chunk      []byte
		class      string
	}{
		{"one endless line", head200 + "data: ", filler, "oversized"},
		{"one endless event", head200, append(append([]byte("data: "), filler...), '\n'), "oversized"},
		{"endless comments", head200, append(append([]byte(": "), filler...), '\n'), "oversized"},
		{"endless deltas", head200, delta, "oversized"},
		{"endless error body", "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", filler, "bad_request"},
		{"endless page", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n", filler, "bad_response"},
		{"endless header", "HTTP/1.1 200 OK\r\nX-A: ", filler, "network"},
		{"content length too large", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999999999999\r\n\r\n", nil, "stream_ended"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := raw(t, func(c net.Conn) {
				if _, err := io.WriteString(c, tt.head); err == nil && tt.chunk != nil {
					flood(c, tt.chunk)
				}
			})
			o := model.Options{BaseURL: url, RequestMaxRetries: new(int), StreamMaxRetries: new(int)}
			if tt.name == "endless deltas" {
				o.MaxResponseBytes = 16 << 20 // the default takes the race detector half a minute to read
			}
			c, err := model.NewClient(o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			peak := watchHeap(t)
			got := collect(t.Context(), c, ask("hello")).api(t)
			if got.Class != tt.class {
				t.Errorf("class %s (%s), want %s", got.Class, got.Message, tt.class)
			}
			if p := peak(); p > 300<<20 {
				t.Errorf("the heap grew to %d MiB", p>>20)
			}
		})
	}
}

// watchHeap samples the heap until the returned function is called.
func watchHeap(t *testing.T) func() uint64 {
	t.Helper()
	runtime.GC()
	var peak atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var m runtime.MemStats
		for {
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > peak.Load() {
				peak.Store(m.HeapAlloc)
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(stop); <-done; return peak.Load() }
}

// A server that sends signs of life but never anything else is silent.
func TestTrickle(t *testing.T) {
	const created = `data: {"type":"response.created","response":{"id":"r"}}` + "\n\n"
	for name, line := range map[string]string{
		"comments":        ": keep-alive\n\n",
		"pings":           "event: ping\ndata: {\"type\":\"ping\"}\n\n",
		"keepalive":       "data: {\"type\":\"keepalive\",\"sequence_number\":1}\n\n",
		"in progress":     "data: {\"type\":\"response.in_progress\"}\n\n",
		"created again":   created,
		"empty deltas":    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"\"}\n\n",
		"no type":         "data: {}\n\n",
		"no JSON":         "data: hello\n\n",
		"done":            "data: [DONE]\n\n",
		"single newlines": "\n",
		"half a line":     "d",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn) {
				if _, err := io.WriteString(c, head200+created); err != nil {
					return
				}
				for {
					if _, err := io.WriteString(c, line); err != nil {
						return
					}
					time.Sleep(30 * time.Millisecond)
				}
			})
			c, err := model.NewClient(model.Options{BaseURL: url, RequestMaxRetries: new(int), StreamMaxRetries: new(int), IdleTimeout: 500 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if o := collect(ctx, c, ask("hello")); o.api(t).Class != "idle_timeout" {
				t.Errorf("class %s, want idle_timeout", o.api(t).Class)
			}
		})
	}
}

// A stream of real events that never ends has its bound too.
func TestEndless(t *testing.T) {
	url := raw(t, func(c net.Conn) {
		_, err := io.WriteString(c, head200)
		for err == nil {
			_, err = io.WriteString(c, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n")
			time.Sleep(10 * time.Millisecond)
		}
	})
	c, err := model.NewClient(model.Options{BaseURL: url, RequestMaxRetries: new(int), StreamMaxRetries: new(int), ResponseTimeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if o := collect(t.Context(), c, ask("hello")); o.api(t).Class != "idle_timeout" {
		t.Errorf("class %s, want idle_timeout", o.api(t).Class)
	}
}

// What a decoder must survive: line ends, marks, unknown, repeated, unordered
// and damaged events.
func TestOddStreams(t *testing.T) {
	item := func(i int, id, text string) string {
		return fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":{"type":"message","id":%q,"role":"assistant","content":[{"type":"output_text","text":%q}]}}`, i, id, text)
	}
	const done = `{"type":"response.completed","response":{"id":"r"}}`
	ev := func(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }
	call := `{"type":"response.output_item.done","output_index":%d,"item":{"type":"function_call","id":"fc_%d","call_id":"c1","name":"x","arguments":"{}"}}`
	tests := []struct {
		name, stream string
		items        int
		contains     string
	}{
		{"plain", ev(item(0, "a", "one"), done), 1, "one"},
		{"carriage returns", strings.ReplaceAll(ev(item(0, "a", "one"), done), "\n", "\r"), 1, "one"},
		{"both", strings.ReplaceAll(ev(item(0, "a", "one"), done), "\n", "\r\n"), 1, "one"},
		{"byte order mark", "\ufeff" + ev(item(0, "a", "one"), done), 1, "one"},
		{"no space", strings.ReplaceAll(ev(item(0, "a", "one"), done), "data: ", "data:"), 1, "one"},
		{"event in several lines", "data: " + strings.Replace(item(0, "a", "one"), `,"item"`, ",\ndata: \"item\"", 1) + "\n\n" + ev(done), 1, "one"},
		{"other fields", "id: 7\nretry: 10\n" + ev(item(0, "a", "one")) + "event\n" + ev(done), 1, "one"},
		{"unknown events", ev(`{"type":"response.moon"}`, `{"type":"x","error":null}`, item(0, "a", "one"), `{"a":1}`, `[]`, `7`, done), 1, "one"},
		{"broken events", ev(`{"type":"response.in_pro`, item(0, "a", "one"), `hello`, "[DONE]", done), 1, "one"},
		{"repeated item", ev(item(0, "a", "one"), item(0, "a", "one"), done), 1, "one"},
		{"repeated call", ev(fmt.Sprintf(call, 0, 0), fmt.Sprintf(call, 1, 1), done), 1, "c1"},
		{"items without ids", ev(item(0, "", "one"), item(0, "", "one"), item(1, "", "two"), done), 2, "two"},
		{"unordered", ev(item(1, "b", "two"), item(0, "a", "one"), done), 2, "one"},
		{"only deltas", ev(`{"type":"response.output_text.delta","delta":"o"}`) + ev(`{"type":"response.output_text.delta","delta":"ne"}`) + ev(`{"type":"response.completed","response":{"id":"r","output":[]}}`), 1, "one"},
		{"deltas and the final event", ev(`{"type":"response.output_text.delta","delta":"o"}`) + ev(`{"type":"response.completed","response":{"id":"r","output":[{"type":"message","id":"a","content":[{"type":"output_text","text":"one"}]}]}}`), 1, "one"},
		{"only the final event", ev(`{"type":"response.completed","response":{"id":"r","output":[{"type":"message","id":"a","content":[{"type":"output_text","text":"one"}]}]}}`), 1, "one"},
		{"events after the end", ev(item(0, "a", "one"), done, item(1, "b", "two")), 1, "one"},
		{"invalid UTF-8 in an item", strings.Replace(ev(item(0, "a", "MARK"), done), "MARK", "on\xc3\x28e", 1), 1, "on\uFFFD(e"},
		{"invalid UTF-8 elsewhere", "\xff\xfe\n" + ev(item(0, "a", "one"), "\xff", "{\"type\":\"\xff\"}", done), 1, "one"},
		{"unknown item", ev(`{"type":"response.output_item.done","output_index":0,"item":{"type":"hologram","x":[1,{"y":2}]}}`, done), 1, "hologram"},
		{"odd usage", ev(item(0, "a", "one"), `{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":"many","output_tokens":-3,"input_tokens_details":null}}}`), 1, "one"},
		{"no response object", ev(item(0, "a", "one"), `{"type":"response.completed"}`), 1, "one"},
		{"type in the event field", "event: response.output_item.done\ndata: " + strings.Replace(item(0, "a", "one"), `"type":"response.output_item.done",`, "", 1) + "\n\nevent: response.completed\ndata: {}\n\n", 1, "one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, tt.stream)
			}))
			defer srv.Close()
			c, err := model.NewClient(model.Options{BaseURL: srv.URL + "/v1", RequestMaxRetries: new(int), StreamMaxRetries: new(int)})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			o := collect(t.Context(), c, ask("hello"))
			if o.err != nil {
				t.Fatal(o.err)
			}
			if len(o.done.Items) != tt.items || !bytes.Contains(o.done.Items[0].Raw, []byte(tt.contains)) && !bytes.Contains(o.done.Items[len(o.done.Items)-1].Raw, []byte(tt.contains)) {
				t.Errorf("items %s, want %d with %q", o.done.Items, tt.items, tt.contains)
			}
			if o.done.Usage.Output < 0 {
				t.Errorf("usage %+v", o.done.Usage)
			}
		})
	}
}

// Compressed streams are the transport's business.
func TestGzip(t *testing.T) {
	srv := runnertest.NewServer(t, always(`{"items":[{"message":"x"}]}`))
	o := collect(t.Context(), client(t, srv, model.Options{}), ask("hello"))
	if o.err != nil || srv.ModelRequests()[0].Header.Get("Content-Encoding") != "" {
		t.Errorf("error %v, or the request is compressed", o.err)
	}
}

func TestUntrustedCertificate(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	c, err := model.NewClient(model.Options{BaseURL: srv.URL + "/v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := collect(t.Context(), c, ask("hello"))
	if api := o.api(t); api.Class != "tls" || len(o.layers) != 0 {
		t.Errorf("class %s with %d retries, want tls at once", api.Class, len(o.layers))
	}
	c, err = model.NewClient(model.Options{BaseURL: strings.Replace(srv.URL, "https", "http", 1) + "/v1", RequestMaxRetries: new(int), StreamMaxRetries: new(int)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if o := collect(t.Context(), c, ask("hello")); o.api(t).Class != "bad_request" {
		t.Errorf("class %s for plain HTTP to a TLS port", o.api(t).Class)
	}
}

// A server that wants another kind of TLS than ours is no passing trouble.
func TestHandshakeAlert(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	c, err := model.NewClient(model.Options{BaseURL: srv.URL + "/v1", HTTP: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if o := collect(t.Context(), c, ask("hello")); o.api(t).Class != "tls" {
		t.Errorf("class %s (%v), want tls", o.api(t).Class, o.err)
	}
}

// A redirect is an answer, never followed: the credential and the prompt stay
// where the configuration sent them.
func TestRedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		srv := runnertest.NewServer(t, always(status(code, `""`, "Location", other.URL+"/v1/responses")))
		o := collect(t.Context(), client(t, srv, model.Options{Auth: &key{"sk-test-1"}}), ask("hello"))
		if o.api(t).Class != "redirect" || followed.Load() {
			t.Errorf("%d: class %s, followed %v", code, o.api(t).Class, followed.Load())
		}
	}
}

// Twenty thousand deltas are read in about linear time, and hold no memory.
func TestManyDeltas(t *testing.T) {
	srv := runnertest.NewServer(t, `[{"items":[{"message":`+quote(strings.Repeat("word ", 20000))+`,"deltas":20000}]}]`)
	progress := 0
	for d, err := range client(t, srv, model.Options{}).Stream(t.Context(), ask("hello")) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Progress != nil && d.Progress.Text != "" {
			progress++
		}
	}
	if progress != 20000 {
		t.Errorf("%d deltas", progress)
	}
}
