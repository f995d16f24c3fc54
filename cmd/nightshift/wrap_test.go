package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// wrapping is a machine that forbids more than this one: named system calls
// answer EPERM (clone3: ENOSYS, so that libraries fall back to clone, where the
// flags can be seen), user namespaces cannot be made, and named programs are
// missing from PATH.
type wrapping struct {
	Deny    []string `json:"deny"`
	NoUser  bool     `json:"no_userns"`
	Missing []string `json:"missing"`
}

// wrapVariable carries the wrapping to the copy of the test binary that applies
// it to itself and then becomes the program.
const wrapVariable = "NIGHTSHIFT_TEST_WRAP"

// apply makes cmd run wrapped.
func (x *wrapping) apply(t *testing.T, w *world, cmd *exec.Cmd) {
	t.Helper()
	if len(x.Missing) > 0 {
		dir := w.base + "/bin"
		linkAllBut(t, dir, x.Missing)
		cmd.Env = append(cmd.Env, "PATH="+dir)
	}
	if len(x.Deny) == 0 && !x.NoUser {
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{self, "-test.run=^TestBecomeWrapped$", "--", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = self
	cmd.Env = append(cmd.Env, wrapVariable+"="+string(text), "NIGHTSHIFT_TEST_CHILD=1")
}

// linkAllBut fills dir with links to all programs on PATH but the named ones.
func linkAllBut(t *testing.T, dir string, missing []string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(from)
		if err != nil {
			continue // a folder on PATH that does not exist
		}
		for _, e := range entries {
			if slices.Contains(missing, e.Name()) {
				continue
			}
			if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
}

// TestBecomeWrapped is not a test: in a copy of the test binary that apply
// started it restricts the process and executes the program.
func TestBecomeWrapped(t *testing.T) {
	text, ok := os.LookupEnv(wrapVariable)
	if !ok {
		t.Skip("only used in a copy of this binary")
	}
	var x wrapping
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		fail(err)
	}
	if err := seccomp.LoadFilter(x.filter()); err != nil {
		fail(err)
	}
	args := os.Args[slices.Index(os.Args, "--")+1:]
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, wrapVariable+"=") || strings.HasPrefix(e, "NIGHTSHIFT_TEST_CHILD=")
	})
	fail(syscall.Exec(args[0], append([]string{filepath.Base(args[0])}, args[1:]...), env))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "wrapping the program:", err)
	os.Exit(125)
}

func (x *wrapping) filter() seccomp.Filter {
	const refuse = seccomp.ActionErrno
	deny := slices.DeleteFunc(slices.Clone(x.Deny), func(name string) bool { return name == "clone3" })
	groups := []seccomp.SyscallGroup{{Names: []string{"clone3"}, Action: refuse | seccomp.Action(unix.ENOSYS)}}
	if len(deny) > 0 {
		groups = append(groups, seccomp.SyscallGroup{Names: deny, Action: refuse | seccomp.Action(unix.EPERM)})
	}
	if x.NoUser {
		flag := seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_NEWUSER}}
		with := []seccomp.NameWithConditions{{Name: "clone", Conditions: flag}}
		if !slices.Contains(deny, "unshare") {
			with = append(with, seccomp.NameWithConditions{Name: "unshare", Conditions: flag})
		}
		groups = append(groups, seccomp.SyscallGroup{NamesWithCondtions: with, Action: refuse | seccomp.Action(unix.EPERM)})
	}
	return seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: groups}}
}

// The wrapper itself: a namespace that can be made here cannot be made in it.
func TestWrapping(t *testing.T) {
	w := newWorld(t)
	run := func(x *wrapping, args ...string) (string, error) {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = w.env()
		x.apply(t, w, cmd)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(&wrapping{Deny: []string{"mkdir", "mkdirat"}}, "/bin/mkdir", w.base+"/x"); err == nil || !strings.Contains(out, "not permitted") {
		t.Errorf("mkdir: %v %s", err, out)
	}
	if out, err := run(&wrapping{NoUser: true}, "/bin/sh", "-c", "unshare -U true"); err == nil || !strings.Contains(out, "not permitted") {
		t.Errorf("unshare -U: %v %s", err, out)
	}
	if out, err := run(&wrapping{Missing: []string{"git"}}, "/bin/sh", "-c", "ls / >/dev/null && git --version"); err == nil || !strings.Contains(out, "not found") {
		t.Errorf("git: %v %s", err, out)
	}
}
