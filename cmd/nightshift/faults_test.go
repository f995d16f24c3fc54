package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// faultItems is a response that acts twice: a command and a patch.
const faultItems = `[{"reasoning":["Two steps."],"encrypted":"e"},
	{"call":"exec_command","call_id":"call_%[1]d","args":{"cmd":"echo ran >> side.txt"}},
	{"custom":"apply_patch","call_id":"patch_%[1]d","input":"*** Begin Patch\n*** Update File: list.txt\n@@\n top\n+new\n*** End Patch\n"}]`

// faultEvents is the number of events of that response, the terminal one
// included.
const faultEvents = 20

// TestFaultMatrix breaks the stream at every event boundary of a response that
// acts, in each way a connection can break. Whatever was sent before the break,
// each action happens once, every item is closed once, and the run succeeds.
func TestFaultMatrix(t *testing.T) {
	notShort(t)
	for cut := range faultEvents {
		for _, way := range []string{"close", "reset"} {
			if way == "reset" && cut%4 != 0 {
				continue // the client cannot tell where it was reset; a sample will do
			}
			t.Run(fmt.Sprintf("%s-%02d", way, cut), func(t *testing.T) {
				t.Parallel()
				breakAfter(t, cut, way)
			})
		}
	}
	t.Run("whole", func(t *testing.T) { t.Parallel(); breakAfter(t, faultEvents, "close") })
}

func breakAfter(t *testing.T, cut int, way string) {
	w := newWorld(t)
	w.write(t, w.ws+"/list.txt", []byte("top\nbottom\n"), 0o644)
	reset := ""
	if way == "reset" {
		reset = `,"reset":true`
	}
	script := fmt.Sprintf(`{"items":%s,"cut_after":%d%s}`, fmt.Sprintf(faultItems, 1), cut, reset)
	if cut < faultEvents {
		script += "\n" + fmt.Sprintf(`{"items":%s}`, fmt.Sprintf(faultItems, 2))
	}
	w.layOut(t, scenario{Model: "gpt-5.5"})
	if err := w.server.Load([]byte(script + "\n" + `{"items":[{"message":"done"}]}`)); err != nil {
		t.Fatal(err)
	}
	p := process{args: []string{"exec", "--json", "-s", "workspace-write", "Do it."}, dir: w.ws, env: append(w.env(), "MOCK_API_KEY=dummy-key"), timeout: time.Minute}
	res := p.run(t)
	if res.code != 0 {
		t.Fatalf("exit code %d\nstdout:\n%s\nstderr:\n%s", res.code, excerptOf(res.stdout), excerptOf(res.stderr))
	}
	for name, want := range map[string]string{"side.txt": "ran\n", "list.txt": "top\nnew\nbottom\n"} {
		if got, err := os.ReadFile(w.ws + "/" + name); err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", name, got, err, want)
		}
	}
	lines := res.lines(t)
	checkEvents(t, caseExpect{ItemsClosed: true, Events: []eventMatcher{
		{Type: "item.completed", Where: map[string]any{"item.type": "command_execution"}, Count: &count{1, 1}},
		{Type: "item.completed", Where: map[string]any{"item.type": "file_change"}, Count: &count{1, 1}},
		{Type: "item.completed", Where: map[string]any{"item.type": "reasoning"}, Count: &count{1, 1}},
		{Type: "turn.completed", Count: &count{1, 1}},
	}}, lines)
	want := 3
	if cut == faultEvents {
		want = 2
	}
	if got := len(w.server.ModelRequests()); way == "close" && cut > 0 && got != want {
		t.Errorf("%d requests, want %d", got, want)
	}
	if strings.Contains(string(res.stdout), `"status":"failed"`) {
		t.Errorf("an action failed:\n%s", excerptOf(res.stdout))
	}
}
