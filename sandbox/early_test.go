//go:build linux

package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is begun early is the same sandbox: the report and what a command sees
// are equal to those of Open.
func TestEarlyIsTheSame(t *testing.T) {
	for name, spec := range map[string]Spec{
		"workspace-write": {Mode: WorkspaceWrite, Limits: DefaultLimits(), Require: DefaultRequire},
		"read-only":       {Mode: ReadOnly, Limits: DefaultLimits(), Require: DefaultRequire},
		"proxy":           {Mode: WorkspaceWrite, Net: Net{Mode: NetProxy}, Limits: DefaultLimits()},
		"cpu":             {Mode: WorkspaceWrite, Limits: Limits{CPUPercent: 50, Processes: 100}},
		"host network":    {Mode: WorkspaceWrite, Net: Net{Mode: NetHost}, Limits: DefaultLimits()},
		"full access":     {Mode: FullAccess},
	} {
		t.Run(name, func(t *testing.T) {
			_, ws, _ := world(t)
			spec.Workspace = ws
			usual := openBox(t, spec)
			early := StartEarly()
			box, err := early.Open(testContext(t), spec)
			unsupported(t, err)
			defer func() {
				if err := box.Close(); err != nil {
					t.Error(err)
				}
			}()
			if err := early.Close(); err != nil {
				t.Error(err)
			}
			if a, b := usual.Report(), box.Report(); !reflect.DeepEqual(a, b) {
				t.Errorf("reports differ:\n%+v\n%+v", a, b)
			}
			const script = "cat /proc/self/limits; ls -l /proc/self/ns | sed 's/.*\\[//' | wc -l; touch made && echo wrote"
			a, x := sh(t, usual, script)
			b, y := sh(t, box, script)
			if a != b || x.Code != y.Code {
				t.Errorf("a command sees something else:\n%s (%d)\n%s (%d)", a, x.Code, b, y.Code)
			}
			if spec.Limits.MemoryBytes > 0 && box.group != nil {
				if got, want := groupLimit(t, box.group), groupLimit(t, usual.group); got != want {
					t.Errorf("the group holds %s, not %s", got, want)
				}
			}
		})
	}
}

// groupLimit reads the limit of memory that the kernel holds.
func groupLimit(t *testing.T, g *group) string {
	t.Helper()
	name := g.dir + "/memory.max"
	if g.v1 != nil {
		name = g.dirs["memory"] + "/memory.limit_in_bytes"
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Only one sandbox gets what was begun; the next is opened as usual.
func TestEarlyServesOnce(t *testing.T) {
	_, ws, _ := world(t)
	early := StartEarly()
	for range 2 {
		box, err := early.Open(testContext(t), Spec{Mode: ReadOnly, Workspace: ws})
		unsupported(t, err)
		if out, x := sh(t, box, "echo works"); out != "works" || x.Code != 0 {
			t.Errorf("%q, %d", out, x.Code)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What nobody takes is gone after Close: the process and its group.
func TestEarlyClose(t *testing.T) {
	early := StartEarly()
	first := <-early.first
	early.first <- first // as it was
	var pid int
	if first.launched != nil {
		pid = first.launched.c.proc.Pid
	}
	g := first.group
	if err := early.Close(); err != nil {
		t.Fatal(err)
	}
	if pid != 0 && unix.Kill(pid, 0) == nil {
		t.Errorf("process %d is still there", pid)
	}
	if g != nil {
		for _, dir := range g.folders() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is still there", dir)
			}
		}
	}
	if err := early.Close(); err != nil {
		t.Error(err)
	}
	var none *Early
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// A Spec that cannot be leaves nothing behind either.
func TestEarlyBadSpec(t *testing.T) {
	early := StartEarly()
	if _, err := early.Open(testContext(t), Spec{Mode: WorkspaceWrite, Workspace: "nowhere"}); err == nil {
		t.Fatal("opened")
	}
	if err := early.Close(); err != nil {
		t.Error(err)
	}
}

// The init begins its life in the group, or is moved there; this process, whose
// thread was there for a moment, is not: whoever ends the group would end it.
func TestGroupHoldsTheInitAlone(t *testing.T) {
	_, ws, _ := world(t)
	for range 20 {
		box := openBox(t, Spec{Mode: WorkspaceWrite, Workspace: ws, Limits: DefaultLimits()})
		if box.group == nil {
			t.Skip("no group can be made here")
		}
		for _, dir := range box.group.folders() {
			pids := map[string]bool{}
			err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				if err != nil || d.Name() != "cgroup.procs" {
					return err
				}
				b, err := os.ReadFile(p)
				for _, pid := range strings.Fields(string(b)) {
					pids[pid] = true
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if !pids[strconv.Itoa(box.init.proc.Pid)] || pids[strconv.Itoa(os.Getpid())] {
				t.Errorf("%s holds %v; the init is %d, this process %d", dir, pids, box.init.proc.Pid, os.Getpid())
			}
		}
	}
}
