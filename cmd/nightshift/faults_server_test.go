package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

// sse is an event of the model's stream; data is what follows its type.
func sse(kind, data string) string {
	if data != "" {
		data = "," + data
	}
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"" + data + "}\n\n"
}

const (
	faultMessage   = `"output_index":0,"item":{"type":"message","id":"m1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"done","annotations":[]}]}`
	faultCall      = `"output_index":0,"item":{"type":"function_call","id":"f1","call_id":"c1","name":"exec_command","status":"completed","arguments":"{\"cmd\":\"echo ran >> side.txt\"}"}`
	faultCompleted = `"response":{"id":"r1","status":"completed","usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2,"input_tokens_details":{"cached_tokens":0},"output_tokens_details":{"reasoning_tokens":0}}}`
)

var (
	created   = sse("response.created", `"response":{"id":"r1"}`)
	wholeText = created + sse("response.output_item.done", faultMessage) + sse("response.completed", faultCompleted)
)

// badServer is one way in which a model server can be wrong.
type badServer struct {
	name  string
	first func(w http.ResponseWriter, r *http.Request) // the first answer; later ones are whole
	every bool                                         // all answers are like the first
	long  bool                                         // only the lane waits for it
	codes []int
	ran   int // how often the call of the first answer may have run
}

// write sends s and flushes; false when the client has left.
func write(w http.ResponseWriter, s string) bool {
	_, err := io.WriteString(w, s)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

func stream(parts ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			write(w, p)
		}
	}
}

// flood sends head and then a gigabyte of chunk.
func flood(status int, head, chunk string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(status)
		chunk := strings.Repeat(chunk, max(1, (64<<10)/len(chunk)))
		for sent := 0; write(w, head) && sent < 1<<30; sent += len(chunk) {
			head = chunk
		}
	}
}

func badServers() []badServer {
	call := sse("response.output_item.done", faultCall)
	message, completed := sse("response.output_item.done", faultMessage), sse("response.completed", faultCompleted)
	delta := func(text string) string {
		return sse("response.output_text.delta", `"item_id":"m1","output_index":0,"content_index":0,"delta":"`+text+`"`)
	}
	var items strings.Builder // each another one
	for i := range 100_000 {
		items.WriteString(sse("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":{"type":"x","id":"x%d"}`, i, i)))
	}
	zeros := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		chunk := make([]byte, 1<<20)
		for range 1 << 10 {
			if _, err := z.Write(chunk); err != nil {
				return
			}
		}
		_ = z.Close()
	}
	return []badServer{
		{name: "1 GB in one line", first: flood(200, created+"data: ", "x"), every: true, codes: []int{6}},
		{name: "1 GB in one event", long: true, first: flood(200, created+"event: x\n", "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"), every: true, codes: []int{6}},
		{name: "1 GB of deltas", long: true, first: flood(200, created, delta(strings.Repeat("y", 1000))), every: true, codes: []int{6}},
		{name: "1 GB of unknown events", long: true, first: flood(200, created, sse("response.news", `"x":"`+strings.Repeat("y", 1000)+`"`)), every: true, codes: []int{6}},
		{name: "1 GB of comments", first: flood(200, created, ": keep-alive\n\n"), every: true, codes: []int{6}},
		{name: "1 GB of items", long: true, first: flood(200, created, items.String()), every: true, codes: []int{6}},
		{name: "1 GB of error body", first: flood(400, `{"error":{"message":"`, "x"), every: true, codes: []int{1, 6}},
		{name: "1 GB of zeros, packed", long: true, first: zeros, every: true, codes: []int{6}},
		{name: "invalid UTF-8", first: stream(created, delta("a\xff\xfeb"), strings.Replace(message, "done", "a\xff\xc3(b", 1), completed), codes: []int{0}},
		{name: "a call with invalid UTF-8", first: stream(created, strings.Replace(call, "ran >>", "r\xffan >>", 1), completed), codes: []int{0}, ran: 1},
		{name: "an item twice", first: stream(created, call, call, completed), codes: []int{0}, ran: 1},
		{name: "the end twice", first: stream(created, call, completed, completed), codes: []int{0}, ran: 1},
		{name: "items after the end", first: stream(created, message, completed, call), codes: []int{0}},
		{name: "the end first", first: stream(completed, created, call), codes: []int{0, 1, 6}},
		{name: "deltas of nothing", first: stream(delta("a"), created, delta("b"), message, completed), codes: []int{0}},
		{name: "done before added", first: stream(created, message, sse("response.output_item.added", faultMessage), completed), codes: []int{0}},
		{name: "unknown events and items", first: stream(created, sse("response.dream", ""), sse("response.output_item.done", `"output_index":0,"item":{"type":"dream","id":"d"}`), message, completed), codes: []int{0}},
		{name: "an event of nested lists", first: stream(created, "data: "+strings.Repeat("[", 100_000)+"\n\n", message, completed), codes: []int{0}},
		{name: "numbers that are none", first: stream(created, message, strings.Replace(completed, `"input_tokens":1`, `"input_tokens":-1e400`, 1)), codes: []int{0, 6}},
		{name: "usage beyond counting", first: stream(created, message, strings.Replace(completed, `"input_tokens":1`, `"input_tokens":9223372036854775807`, 1)), codes: []int{0}},
		{name: "usage below zero", first: stream(created, message, strings.Replace(completed, `"input_tokens":1`, `"input_tokens":-5`, 1)), codes: []int{0}},
		{name: "a page for people", first: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome</html>") }, every: true, codes: []int{6}},
		{name: "nothing", first: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, every: true, codes: []int{6}},
		{name: "redirects in a circle", first: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, every: true, codes: []int{1, 6}},
		{name: "an endless redirect elsewhere", first: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/x", http.StatusFound)
		}, every: true, codes: []int{1, 6}},
		{name: "more length than it sends", first: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, created+call)
		}, codes: []int{0}},
		{name: "less length than it sends", first: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, wholeText[:100])
		}, codes: []int{0}},
		{name: "retry after a century", first: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3153600000")
			w.WriteHeader(503)
		}, every: true, codes: []int{6}},
		{name: "retry after minus one", first: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "-1")
			w.WriteHeader(429)
		}, codes: []int{0, 6}},
	}
}

// TestFaultServer asks servers that lie, flood and stammer. The run ends in time
// and within bounded memory, what it prints is JSON, and nothing is done twice.
func TestFaultServer(t *testing.T) {
	notShort(t)
	lane := os.Getenv(roundsVariable) != ""
	for _, c := range badServers() {
		t.Run(c.name, func(t *testing.T) {
			if c.long && !lane {
				t.Skip("takes long; the lane runs it")
			}
			t.Parallel()
			w := newWorld(t)
			var asked atomic.Int32
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if asked.Add(1) == 1 || c.every {
					c.first(rw, r)
					return
				}
				stream(wholeText)(rw, r)
			})}
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close() })
			w.git(t, w.ws, "init", "-q", "-b", "main")
			w.write(t, w.home+"/config.toml", fmt.Appendf(nil, `model = "gpt-5.5"
model_provider = "mock"
[model_providers.mock]
name = "mock"
base_url = "http://%s/v1"
env_key = "MOCK_API_KEY"
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 2000
`, l.Addr()), 0o600)
			res := process{args: []string{"exec", "--json", "-s", "workspace-write", "--max-wall-time", "90s", "Do it."}, dir: w.ws,
				env: append(w.env(), "MOCK_API_KEY=dummy-key"), timeout: 2 * time.Minute}.run(t)
			t.Logf("FAULT server: %s | 1 | exit code %d, %d requests, %d MB, %s", c.name, res.code, asked.Load(), res.rss>>20, res.took.Round(10*time.Millisecond))
			if !slices.Contains(c.codes, res.code) {
				t.Errorf("exit code %d, want one of %v\nstdout:\n%s\nstderr:\n%s", res.code, c.codes, excerptOf(res.stdout), excerptOf(res.stderr))
			}
			if res.rss > 400<<20 {
				t.Errorf("it needs %d MB", res.rss>>20)
			}
			if !utf8.Valid(res.stdout) || !utf8.Valid(res.stderr) || bytes.Contains(res.stdout, []byte{0}) {
				t.Errorf("the output is no text: %.2000q", res.stdout)
			}
			checkEvents(t, caseExpect{ItemsClosed: true}, res.lines(t))
			if side, _ := os.ReadFile(w.ws + "/side.txt"); strings.Count(string(side), "\n") != c.ran {
				t.Errorf("the call ran %d times, want %d: %q", strings.Count(string(side), "\n"), c.ran, side)
			}
		})
	}
}
