//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// The places a run meets, each made of what it refuses. For each: what holds by
// itself, what fails closed and why, and what holds with the weaker mechanisms
// accepted by name.
var hosts = []struct {
	name    string
	layers  string    // of denyMain
	held    Guarantee // without Spec.Degrade, besides Limited
	refused string    // what a run with the default requirements is told; "" when it goes on
	degrade Guarantee // held with both weaker mechanisms
}{
	{"Ubuntu 24.04, mounts refused by AppArmor", "nobody,apparmor", NetConfined | TreeDies | SyscallsConfined,
		"mount namespace unavailable (making / private: EACCES)", DefaultRequire},
	{"Ubuntu 24.04, loopback refused by AppArmor", "nobody,loopback", NetConfined | TreeDies | SyscallsConfined,
		"network namespace unavailable (bringing up the loopback: EPERM)", DefaultRequire},
	{"Docker, default profile, root", "allns,mount,pivot", NetConfined | TreeDies | SyscallsConfined,
		"user namespace unavailable (clone: EPERM)", DefaultRequire},
	{"Docker, seccomp=unconfined, masked /proc", "procmount", DefaultRequire &^ SecretsHidden,
		"/proc unavailable (mounting a new /proc: EPERM)", DefaultRequire},
	{"Docker with SYS_ADMIN, no pivot_root", "pivot", DefaultRequire, "", DefaultRequire},
	{"Kubernetes, restricted pod", "nobody,allns,mount,pivot", NetConfined | TreeDies | SyscallsConfined,
		"user namespace unavailable (clone: EPERM)", DefaultRequire},
	{"no Landlock in the kernel", "landlock", DefaultRequire, "", DefaultRequire},
	{"Landlock not in lsm=", "landlock-off", DefaultRequire, "", DefaultRequire},
	{"gVisor", "landlock,newmount,pidfd,openat2,listener,diag", DefaultRequire, "", DefaultRequire},
	{"gVisor, restricted pod", "nobody,allns,mount,pivot,landlock,pidfd,openat2,listener,diag", NetConfined | SyscallsConfined,
		"user namespace unavailable (clone: EPERM)", NetConfined | SyscallsConfined},
	{"a kernel without filters", "seccomp", DefaultRequire &^ (NetConfined | SyscallsConfined),
		"seccomp unavailable (seccomp(SECCOMP_SET_MODE_FILTER): ENOSYS)", DefaultRequire &^ (NetConfined | SyscallsConfined)},
	{"a bare machine, ordinary user", "nobody", DefaultRequire, "", DefaultRequire},
}

func TestHosts(t *testing.T) {
	if r := Probe(); r.Level != LevelFull || r.LandlockABI < 6 {
		t.Skipf("only a machine that has everything can be made to lack things: %+v", r)
	}
	bin := publicCopy(t)
	for _, h := range hosts {
		t.Run(h.name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				if h.layers = strings.TrimPrefix(strings.TrimPrefix(h.layers, "nobody"), ","); h.layers == "" {
					h.layers = "clone3"
				}
				if strings.HasSuffix(h.name, ", root") || h.layers == "pivot" {
					t.Skip("a host of root's")
				}
			}
			t.Parallel()
			weaker := []string{"--degrade", DegradeLandlock, "--degrade", DegradeOuterProc}
			for _, c := range []struct {
				flags []string
				held  Guarantee
			}{{nil, h.held}, {weaker, h.degrade}} {
				r := hostReport(t, bin, h.layers, c.flags)
				for _, s := range r.Guarantees {
					g := guaranteeNamed(s.Name)
					if g != Limited && s.Held != (c.held&g != 0) {
						t.Errorf("%v: %s: held %v: %s%s", c.flags, s.Name, s.Held, s.Mechanism, s.Why)
					}
					if !s.Held && (s.Why == "" || s.Hint == "") {
						t.Errorf("%v: %s: no reason or no advice: %+v", c.flags, s.Name, s)
					}
				}
				// What is claimed is tried, what is not refuses before anything runs.
				got := onHost(t, bin, h.layers, c.flags)
				if c.held&DefaultRequire != DefaultRequire {
					if got.code != 4 || got.stdout != "" || c.flags == nil && !strings.Contains(got.stderr, h.refused) {
						t.Errorf("%v: code %d, stdout %q, stderr %q; want a refusal that says %q", c.flags, got.code, got.stdout, got.stderr, h.refused)
					}
				} else if got.code != 0 || got.stdout != "fine\n" || got.outside != "outside" || got.left {
					t.Errorf("%v: code %d, stdout %q, stderr %q, outside %q, left %v", c.flags, got.code, got.stdout, got.stderr, got.outside, got.left)
				}
			}
		})
	}
}

func guaranteeNamed(name string) Guarantee {
	for g, n := range guaranteeNames {
		if n == name {
			return g
		}
	}
	return 0
}

// publicCopy is this test program where every user can start it.
func publicCopy(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return self
	}
	dir, _, _ := world(t)
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(dir+"/sandbox.test", os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close(), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// hostReport is what a sandbox there says of itself.
func hostReport(t *testing.T, bin, layers string, flags []string) Report {
	t.Helper()
	_, ws, _ := publicWorld(t)
	cmd := exec.Command(bin, append([]string{"deny", layers, "--", bin, "report"}, flags...)...)
	cmd.Dir, cmd.Env = ws, []string{"PATH=/usr/bin:/bin", "HOME=" + ws}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return r
}

// publicWorld is a world whose workspace belongs to nobody, the user.
func publicWorld(t *testing.T) (dir, ws, out string) {
	t.Helper()
	dir, ws, out = world(t)
	put(t, ws+"/.git/config", "x")
	put(t, ws+"/src/f", "x")
	put(t, ws+"/private/secret", "DENIED")
	put(t, dir+"/deny/secret", "DENIED")
	if os.Geteuid() != 0 {
		return dir, ws, out
	}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(p, nobody, nobody)
	})
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir, ws, out
}

// onHost runs the probes there.
func onHost(t *testing.T, bin, layers string, flags []string) deniedRun {
	t.Helper()
	dir, ws, out := world(t)
	if strings.HasPrefix(layers, "nobody") {
		dir, ws, out = publicWorld(t)
	} else {
		put(t, ws+"/.git/config", "x")
		put(t, ws+"/src/f", "x")
		put(t, ws+"/private/secret", "DENIED")
		put(t, dir+"/deny/secret", "DENIED")
	}
	return probe(t, bin, layers, dir, ws, out, flags)
}

// reportMain prints the report of a sandbox in the working folder.
func reportMain(args []string) int {
	var degrade []string
	for i := 1; i < len(args); i += 2 {
		degrade = append(degrade, args[i]) // behind --degrade
	}
	ws, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b := &Sandbox{spec: Spec{Mode: WorkspaceWrite, Workspace: ws, ProtectNames: protectNames, Limits: DefaultLimits(), Degrade: degrade}}
	err = b.open(context.Background(), nil)
	if r := b.Report(); r.Mode != "" {
		err = nil // there may be no sandbox at all, and still a report
	}
	if err := errors.Join(err, json.NewEncoder(os.Stdout).Encode(b.Report()), b.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Every version of Landlock is used as far as it goes: with mounts everything
// holds at any, alone it must know truncation and signals.
func TestLandlockVersions(t *testing.T) {
	have := Probe().LandlockABI
	for abi := 1; abi <= have; abi++ {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("version %d, alone %v", abi, alone), func(t *testing.T) {
				_, ws, out := world(t)
				put(t, ws+"/.git/config", "x")
				put(t, ws+"/src/f", "x")
				b := &Sandbox{spec: Spec{Mode: WorkspaceWrite, Workspace: ws, ProtectNames: protectNames, Deny: []string{out + "/file"}, Degrade: []string{DegradeLandlock, DegradeOuterProc}}}
				defer func() {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				}()
				if err := b.prepare(&ascent{err: unix.EPERM}); err != nil {
					t.Fatal(err)
				}
				b.plan.LandlockABI = abi
				flags := uintptr(0)
				if !alone {
					flags = cloneFlags(&b.spec) | unix.CLONE_NEWUSER
				}
				o := &outcome{plan: b.plan, failed: map[string]confine.LayerFailure{}}
				o.plan.UserNS, o.plan.Namespaces = !alone, !alone
				l, err := launch(flags, nil)
				if !o.try(testContext(t), l, err, "") {
					t.Fatal(o.err)
				}
				b.init = o.conn
				b.report = b.makeReport(o)
				if b.report.LandlockABI != abi {
					t.Errorf("version %d was used", b.report.LandlockABI)
				}
				want := DefaultRequire
				if alone && abi < 3 {
					want &^= WritesConfined
				}
				if alone && abi < 6 {
					want &^= TreeDies
				}
				for _, s := range b.report.Guarantees {
					if s.Guarantee != Limited && s.Held != (want&s.Guarantee != 0) {
						t.Errorf("%s: held %v: %s%s", s.Name, s.Held, s.Mechanism, s.Why)
					}
				}
				got, _ := sh(t, b, "(echo x > "+out+"/new; echo x >> .git/config; cat "+out+"/file; echo x > src/new) 2>/dev/null; cat src/new")
				if got != "x" || exists(out+"/new") {
					t.Errorf("%q", got)
				}
			})
		}
	}
}
