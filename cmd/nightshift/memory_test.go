package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMemoryWhileTheModelThinks: in a long wait, not only in the first, a run
// gives back the pages of the program that it needed before. Nothing else makes
// the count fall. How far depends on the pieces in which the file lies in the page
// cache, so only the fall is asserted.
func TestMemoryWhileTheModelThinks(t *testing.T) {
	t.Parallel()
	w, tokens := loginWorld(t, time.Hour)
	w.play(t, `{"model_script":[
		{"items":[{"call":"exec_command","call_id":"a","args":{"cmd":"true"}}]},
		{"items":[{"call":"exec_command","call_id":"b","args":{"cmd":"true"}}],"delay_s":2},
		{"items":[{"message":"done"}],"delay_s":2}]}`)
	fell := map[int]bool{}
	p := process{args: []string{"exec", "hi"}, dir: w.ws, env: append(w.env(), "CODEX_REFRESH_TOKEN_URL_OVERRIDE="+tokens.URL), timeout: time.Minute}
	p.send = func(ctx context.Context, proc *os.Process) {
		var request int
		var before int64
		for ctx.Err() == nil && len(fell) < 2 {
			now, n := mappedOfFiles(proc.Pid), len(w.server.ModelRequests())
			if n == request && n > 1 && now > 0 && now < before {
				fell[n] = true
			}
			request, before = n, now
			time.Sleep(time.Millisecond)
		}
	}
	if res := p.run(t); res.code != 0 {
		t.Fatalf("exit %d\n%s", res.code, res.stderr)
	}
	if !fell[2] || !fell[3] {
		t.Errorf("memory was given back in the waits for the answers %v, not 2 and 3", fell)
	}
}

// mappedOfFiles is how many kB of files a process has mapped, 0 when it is gone.
func mappedOfFiles(pid int) (kB int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		return 0
	}
	return kB
}
