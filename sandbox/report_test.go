//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

func TestProbe(t *testing.T) {
	r := Probe()
	if len(r.Guarantees) != len(AllGuarantees) || r.Mode != WorkspaceWrite || r.Level == "" {
		t.Fatalf("%+v", r)
	}
	for i, s := range r.Guarantees {
		if s.Guarantee != AllGuarantees[i] || s.Name != AllGuarantees[i].String() {
			t.Errorf("%+v", s)
		}
		if s.Held && s.Mechanism == "" {
			t.Errorf("%s is held by nothing", s.Name)
		}
		if !s.Held && (s.Why == "" || s.Hint == "") {
			t.Errorf("%s: no reason or advice: %+v", s.Name, s)
		}
	}
}

func TestReportNamesPaths(t *testing.T) {
	_, ws, out := world(t)
	put(t, ws+"/.git/config", "x")
	b := openBox(t, Spec{Workspace: ws, Deny: []string{out + "/file", out + "/none"}, ProtectNames: protectNames})
	r := b.Report()
	if r.Level != LevelFull || strings.Join(r.Writable, " ") != ws+" /tmp /var/tmp" || strings.Join(r.Denied, " ") != out+"/file" {
		t.Errorf("%+v", r)
	}
	if got, want := strings.Join(r.Protected, " "), ws+"/.agents "+ws+"/.aws "+ws+"/.codex "+ws+"/.git"; got != want {
		t.Errorf("protected %s, want %s", got, want)
	}
}

func TestReportTellsWhoMayNotWrite(t *testing.T) {
	_, ws, _ := world(t)
	if err := os.Chmod(ws, 0o555); err != nil {
		t.Fatal(err)
	}
	b := openBox(t, Spec{Workspace: ws})
	if notes := strings.Join(b.Report().Notes, "\n"); !strings.Contains(notes, "may not write in "+ws) {
		t.Errorf("%q", notes)
	}
}

// What is refused becomes one sentence with the layer, the call and the errno.
func TestJudge(t *testing.T) {
	full := confine.Facts{Mounts: "mount_setattr", Root: "pivot_root", Proc: "own", Landlock: 7, Unix: confine.UnixByNotify}
	spaces := confine.Plan{Confined: true, UserNS: true, Namespaces: true}
	fail := func(layer, op string, errno int) map[string]confine.LayerFailure {
		return map[string]confine.LayerFailure{layer: {Op: op, Errno: errno, Text: "refused"}}
	}
	outer := full
	outer.Proc = "outer"
	outer.Failed = fail(confine.LayerProc, "mounting a new /proc", 1)
	bare := confine.Facts{Landlock: 7, Unix: confine.UnixRefused}
	oldLandlock := bare
	oldLandlock.Landlock = 2
	noFilter := full
	noFilter.Unix = ""
	noFilter.Failed = fail(confine.LayerSeccomp, "seccomp", 38)
	for _, c := range []struct {
		name   string
		spec   Spec
		plan   confine.Plan
		facts  confine.Facts
		failed map[string]confine.LayerFailure
		held   Guarantee
		why    map[Guarantee]string
	}{
		{"everything", Spec{Mode: WorkspaceWrite}, spaces, full, nil, DefaultRequire | Limited, nil},
		{"masked /proc", Spec{Mode: WorkspaceWrite}, spaces, outer, outer.Failed, DefaultRequire&^SecretsHidden | Limited,
			map[Guarantee]string{SecretsHidden: "/proc unavailable (mounting a new /proc: EPERM)"}},
		{"masked /proc, accepted", Spec{Mode: WorkspaceWrite, Degrade: []string{DegradeOuterProc}}, spaces, outer, outer.Failed, DefaultRequire | Limited, nil},
		{"no filter", Spec{Mode: WorkspaceWrite}, spaces, noFilter, noFilter.Failed, DefaultRequire&^(SyscallsConfined|NetConfined) | Limited,
			map[Guarantee]string{SyscallsConfined: "seccomp unavailable (seccomp: ENOSYS)"}},
		{"no namespaces", Spec{Mode: WorkspaceWrite}, confine.Plan{Confined: true}, bare, fail(confine.LayerUser, "clone", 1), NetConfined | TreeDies | SyscallsConfined | Limited,
			map[Guarantee]string{WritesConfined: "user namespace unavailable (clone: EPERM)", ReadsConfined: "clone: EPERM", SecretsHidden: "clone: EPERM"}},
		{"no namespaces, proxy", Spec{Mode: WorkspaceWrite, Net: Net{Mode: NetProxy}}, confine.Plan{Confined: true, Net: confine.NetProxy}, bare, fail(confine.LayerUser, "clone", 1),
			TreeDies | SyscallsConfined | Limited, map[Guarantee]string{NetConfined: "needs a network namespace"}},
		{"no namespaces, accepted", Spec{Mode: WorkspaceWrite, Degrade: []string{DegradeLandlock, DegradeOuterProc}}, confine.Plan{Confined: true}, bare,
			fail(confine.LayerUser, "clone", 1), DefaultRequire | Limited, nil},
		{"no namespaces, old Landlock, accepted", Spec{Mode: WorkspaceWrite, Degrade: []string{DegradeLandlock}}, confine.Plan{Confined: true}, oldLandlock,
			fail(confine.LayerUser, "clone", 1), ReadsConfined | NetConfined | SyscallsConfined | Limited, map[Guarantee]string{TreeDies: "Landlock ABI 6"}},
		{"full access", Spec{Mode: FullAccess}, confine.Plan{}, confine.Facts{Unix: confine.UnixOpen}, nil, TreeDies | Limited,
			map[Guarantee]string{WritesConfined: "confines nothing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.plan.Accept = c.spec.Degrade
			j := judge{spec: &c.spec, plan: &c.plan, facts: &c.facts, failed: c.failed, running: true}
			for _, g := range AllGuarantees {
				s := j.support(g)
				if s.Held != (c.held&g != 0) {
					t.Errorf("%s: held %v (%s%s)", g, s.Held, s.Mechanism, s.Why)
				}
				if want := c.why[g]; !strings.Contains(s.Why, want) {
					t.Errorf("%s: %q does not say %q", g, s.Why, want)
				}
				if !s.Held && c.spec.Mode != FullAccess && s.Hint == "" {
					t.Errorf("%s: no advice", g)
				}
			}
		})
	}
}

func TestUnsupportedErrorSaysEachReasonOnce(t *testing.T) {
	err := &UnsupportedError{Missing: []Support{{Name: "a", Why: "x"}, {Name: "b", Why: "y", Hint: "do y"}, {Name: "c", Why: "x"}}}
	if got := err.Error(); got != "sandbox: cannot guarantee a, c: x; cannot guarantee b: y" {
		t.Error(got)
	}
	if err.Hint() != "do y" {
		t.Error(err.Hint())
	}
	var none UnsupportedError
	if none.Hint() != "" || errors.Unwrap(&none) != nil {
		t.Error("an empty one says something")
	}
}

func TestGuaranteeNames(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range AllGuarantees {
		if g.String() == "" || seen[g.String()] {
			t.Errorf("%d is %q", g, g)
		}
		seen[g.String()] = true
	}
	if got := (WritesConfined | TreeDies).String(); got != "writes-confined,tree-dies" {
		t.Error(got)
	}
}

// What has run out is said, also when it comes wrapped.
func TestHintOfWhatRanOut(t *testing.T) {
	for errno, want := range map[unix.Errno]string{unix.EAGAIN: "ulimit -u", unix.EMFILE: "ulimit -n", unix.ENFILE: "fs.file-max", unix.EPERM: "nightshift doctor"} {
		err := &SetupError{Err: fmt.Errorf("sandbox: %w", os.NewSyscallError("clone", errno))}
		if hint := err.Hint(); !strings.Contains(hint, want) {
			t.Errorf("%s: %q", errno, hint)
		}
	}
}
