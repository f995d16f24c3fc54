//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// At rest the init of a sandbox has less of the program's file mapped, and starts
// commands as before. How much less depends on the pieces in which the file lies
// in the page cache.
func TestRest(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames, Limits: DefaultLimits()})
	status := fmt.Sprintf("/proc/%d/status", b.init.proc.Pid)
	mapped := func() (kB int64) {
		text, err := os.ReadFile(status)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "RssFile:")
		if _, err := fmt.Sscan(rest, &kB); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		return kB
	}
	before := mapped()
	b.Rest()
	for end := time.Now().Add(testBound); mapped() >= before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("of %d kB %d are still mapped", before, mapped())
		}
	}
	for range 3 {
		if out, x := sh(t, b, "echo here && pwd"); x.Code != 0 || out != "here\n"+ws {
			t.Errorf("after a rest: %d %q", x.Code, out)
		}
		b.Rest()
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.Rest() // there is nobody
}
