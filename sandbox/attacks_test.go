//go:build linux

package sandbox

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The attack corpus of testdata/attacks (README.md there tells its format) runs
// under the test binary, or under a nightshift binary:
//
//	go test ./sandbox -run TestAttacks                      a fast part, with every `go test`
//	NIGHTSHIFT_ATTACKS=full go test ./sandbox -run TestAttacks -v -timeout 60m
//	NIGHTSHIFT_BIN=$PWD/nightshift NIGHTSHIFT_ATTACKS=full go test …
//
// As another user: compile with `go test -c -o /tmp/sandbox.test ./sandbox`, then
// in ./sandbox `setpriv --reuid USER --regid USER --clear-groups env HOME=… NIGHTSHIFT_ATTACKS=full /tmp/sandbox.test -test.run TestAttacks -test.v`.

// fastAttacks are what the tests in Go do not try in the same way.
const fastAttacks = "agents-*,env-*,fs-rename-exchange*,git-root*,github-*,inherited-*,log-*,mount-*,net-unix-*,proc-environ*,ptrace*,read-auth*,workspace-root*," +
	"git-read*,localhost*,pseudo*,unix-*"

// onlyRead are the programs that must work under read-only too: the others
// write, which is what read-only is there to refuse.
var onlyRead = []string{"git-read.sh", "job-control.sh", "localhost.py", "pipes-devices.sh", "pseudo-terminal.py", "system-facts.sh"}

func TestAttacks(t *testing.T) {
	for _, tool := range []string{"python3", "bash", "git", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the corpus needs %s", tool)
		}
	}
	full := os.Getenv("NIGHTSHIFT_ATTACKS") == "full"
	if testing.Short() && !full {
		t.Skip("short")
	}
	for _, mode := range []Mode{WorkspaceWrite, ReadOnly} {
		if mode == ReadOnly && !full {
			continue
		}
		t.Run(string(mode), func(t *testing.T) {
			only := "*"
			if !full {
				only = fastAttacks
			}
			rows := runAttacks(t, only, mode)
			for _, r := range rows {
				ok := r.Verdict == "HELD" || r.Verdict == "WORKS" || r.Verdict == "SKIPPED" ||
					mode == ReadOnly && r.Kind == "works" && !slices.Contains(onlyRead, r.File)
				if full || !ok {
					t.Logf("%-8s %-34s %s", r.Verdict, r.File, r.Why)
				}
				if !ok {
					t.Errorf("%s: %s", r.File, r.Verdict)
				}
			}
			if len(rows) < 15 {
				t.Errorf("only %d files ran", len(rows))
			}
		})
	}
}

// attackRow is one verdict.
type attackRow struct {
	File, Kind, Class, Verdict, Why string
	Seconds                         float64
}

func runAttacks(t *testing.T, only string, mode Mode) []attackRow {
	t.Helper()
	corpus, err := filepath.Abs("testdata/attacks")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	prefix := []string{self, "confine"}
	if bin := os.Getenv("NIGHTSHIFT_BIN"); bin != "" {
		prefix = []string{bin, "sandbox"}
	}
	prefix = append(prefix, "--mode", string(mode), "--deny-read", "{DENY}", "--deny-read", "{DENYWS}", "--")
	table := filepath.Join(t.TempDir(), "table.json")
	args := append([]string{filepath.Join(corpus, "run-attacks"), "--only", only, "--json", table, "--"}, prefix...)
	cmd := exec.Command("python3", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run-attacks: %v\n%s", err, tailOf(string(out), 2000))
	}
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	var rows []attackRow
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func tailOf(s string, n int) string { return strings.TrimSpace(s[max(0, len(s)-n):]) }
