package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// git works in the run's sandbox where a diff is due and commands cannot reach its
// folder.
func TestSideFolder(t *testing.T) {
	private, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, mode, kind string
		spec             sandbox.Spec
		unconfined, want bool
	}{
		{name: "usual", mode: "workspace-write", kind: "exec", spec: sandbox.Spec{Write: []string{"/ws"}}, want: true},
		{name: "nothing can change", mode: "read-only", kind: "exec"},
		{name: "some commands run outside", mode: "read-only", kind: "exec", unconfined: true, want: true},
		{name: "an agent of a run", mode: "workspace-write", kind: "agent"},
		{name: "no confinement", mode: "danger-full-access", kind: "exec"},
		{name: "writable", mode: "workspace-write", kind: "exec", spec: sandbox.Spec{Write: []string{filepath.Dir(private)}}},
		{name: "denied", mode: "workspace-write", kind: "exec", spec: sandbox.Spec{Deny: []string{private}}},
	} {
		if err := os.RemoveAll(filepath.Join(private, "baseline")); err != nil {
			t.Fatal(err)
		}
		r := &run{Options: Options{Private: private, Mode: c.kind}, cfg: &policy.Config{SandboxMode: c.mode}}
		r.cfg.Sandbox.AllowUnsandboxed = c.unconfined
		conf := &Confinement{Spec: c.spec}
		conf.Spec.Mode = sandbox.Mode(c.mode)
		r.openSide(conf)
		if got := conf.Spec.Side == filepath.Join(private, "baseline"); got != c.want {
			t.Errorf("%s: side folder %q", c.name, conf.Spec.Side)
		}
		if exists(filepath.Join(private, "baseline")) != c.want {
			t.Errorf("%s: made or not made", c.name)
		}
	}
}
