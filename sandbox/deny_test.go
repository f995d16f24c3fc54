//go:build linux

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Poorer kernels and containers, made by a filter that refuses what they refuse.

// deniedLayer is what a place lacks.
type deniedLayer struct {
	calls []uint32
	errno unix.Errno
	flags uint32 // of clone and unshare, refused with EPERM
	args  []deniedArg
}

// deniedArg refuses a call for some values of an argument's low half: where a bit
// of bits is set, or where it is value and bits is 0.
type deniedArg struct {
	call, arg   uint32
	bits, value uint32
	errno       unix.Errno
}

var mountCalls = []uint32{unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR}

var deniedLayers = map[string]deniedLayer{
	"userns":       {flags: unix.CLONE_NEWUSER},
	"allns":        {flags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP},
	"netns":        {flags: unix.CLONE_NEWNET},
	"landlock":     {calls: []uint32{unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF}, errno: unix.ENOSYS},
	"landlock-off": {calls: []uint32{unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF}, errno: unix.EOPNOTSUPP},
	"seccomp":      {calls: []uint32{unix.SYS_SECCOMP}, errno: unix.ENOSYS},
	"mount":        {calls: append([]uint32{unix.SYS_MOUNT, unix.SYS_UMOUNT2}, mountCalls...), errno: unix.EPERM},
	"newmount":     {calls: mountCalls, errno: unix.ENOSYS},
	"setattr":      {calls: []uint32{unix.SYS_MOUNT_SETATTR}, errno: unix.ENOSYS},
	"pivot":        {calls: []uint32{unix.SYS_PIVOT_ROOT}, errno: unix.EPERM},
	"pidfd":        {calls: []uint32{unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_CLOSE_RANGE}, errno: unix.ENOSYS},
	"openat2":      {calls: []uint32{unix.SYS_OPENAT2}, errno: unix.ENOSYS},
	// What single hosts refuse besides.
	"apparmor":  {calls: append([]uint32{unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT}, mountCalls...), errno: unix.EACCES},
	"loopback":  {args: []deniedArg{{unix.SYS_IOCTL, 1, 0, unix.SIOCSIFFLAGS, unix.EPERM}}},
	"procmount": {args: []deniedArg{{unix.SYS_MOUNT, 3, 0, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, unix.EPERM}}},
	"listener":  {args: []deniedArg{{unix.SYS_SECCOMP, 1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, unix.EINVAL}}},
	"diag":      {args: []deniedArg{{unix.SYS_SOCKET, 2, 0, unix.NETLINK_SOCK_DIAG, unix.EPROTONOSUPPORT}}},
	"clone3":    {calls: []uint32{unix.SYS_CLONE3}, errno: unix.ENOSYS},
}

// nobody is a user with no rights and no files.
const nobody = 65534

// denyMain runs a program with layers taken away: deny LAYER[,LAYER…] -- CMD….
func denyMain(args []string) int {
	if len(args) < 3 || args[1] != "--" {
		return 2
	}
	runtime.LockOSThread()
	code := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	refuse := func(e unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(e)}
	}
	equals := func(nr uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: skip}
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	for name := range strings.SplitSeq(args[0], ",") {
		if name == "nobody" { // who starts it is an ordinary user with nothing to gain
			if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 2
			}
			continue
		}
		l, ok := deniedLayers[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no layer", name)
			return 2
		}
		for _, nr := range l.calls {
			code = append(code, equals(nr, 1), refuse(l.errno))
		}
		if l.flags != 0 {
			for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
				code = append(code, equals(nr, 4), unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
					unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: l.flags, Jf: 1}, refuse(unix.EPERM), allow)
			}
			code = append(code, equals(unix.SYS_CLONE3, 1), refuse(unix.ENOSYS))
		}
		for _, a := range l.args {
			test := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: a.value, Jf: 1}
			if a.bits != 0 {
				test = unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: a.bits, Jf: 1}
			}
			code = append(code, equals(a.call, 4), unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 8*a.arg},
				test, refuse(a.errno), unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0})
		}
	}
	code = append(code, allow)
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	program, err := exec.LookPath(args[2])
	if err == nil {
		err = syscall.Exec(program, args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 2
}

// probes are what a confined command tries; each prints a word when it works.
const probes = `
(echo x > "$OUT/file") 2>/dev/null && echo wrote-outside
(mkdir -p .git/hooks && echo x > .git/hooks/h) 2>/dev/null && echo wrote-git
(echo x > .codex/config.toml) 2>/dev/null && echo wrote-codex
mv .git g 2>/dev/null && echo moved-git
chmod 777 "$OUT/file" 2>/dev/null && echo changed-mode
cat "$DENY/secret" 2>/dev/null
cat private/secret 2>/dev/null
(echo x > src/new) 2>/dev/null && echo -n fine
echo
kill -0 "$VICTIM" 2>/dev/null && echo signalled
cat "/proc/$VICTIM/environ" 2>/dev/null | tr '\0' '\n' | grep VICTIMSECRET
unshare -U true 2>/dev/null && echo made-userns
setsid sleep 300 >/dev/null 2>&1 &
`

// For each layer that is taken away: what is still claimed still holds, and what
// is required and missing is refused with the layer's name and exit code 4,
// before anything runs.
func TestFallbacks(t *testing.T) {
	root := os.Geteuid() == 0
	for _, c := range []struct {
		layers   string
		refused  string // part of the message; "" when it must work
		ordinary string // the same for an ordinary user, when different
	}{
		{"userns", "", "user namespace unavailable (clone: EPERM)"},
		{"allns", "user namespace unavailable (clone: EPERM)", ""},
		{"netns", "user namespace unavailable (clone: EPERM)", ""},
		{"landlock", "", ""},
		{"landlock-off", "", ""},
		{"seccomp", "seccomp unavailable (seccomp(SECCOMP_SET_MODE_FILTER): ENOSYS)", ""},
		{"mount", "mount namespace unavailable (making / private: EPERM)", ""},
		{"newmount", "", ""},
		{"setattr", "", ""},
		{"pivot", "", ""},
		{"pidfd", "", ""},
		{"openat2", "", ""},
		{"clone3", "", ""},
		{"newmount,pivot,landlock,openat2,pidfd,clone3", "", ""},
	} {
		t.Run(c.layers, func(t *testing.T) {
			refused := c.refused
			if !root && c.ordinary != "" {
				refused = c.ordinary
			}
			got := underDenied(t, c.layers)
			if refused != "" {
				if got.code != 4 || !strings.Contains(got.stderr, refused) || got.stdout != "" {
					t.Errorf("code %d, stdout %q, stderr %q; want a refusal that says %q", got.code, got.stdout, got.stderr, refused)
				}
				return
			}
			if got.code != 0 || got.stdout != "fine\n" {
				t.Errorf("code %d stderr %q\nstdout %q", got.code, got.stderr, got.stdout)
			}
			if got.outside != "outside" || got.left {
				t.Errorf("outside is %q, a process is left: %v", got.outside, got.left)
			}
		})
	}
}

// Ubuntu lets the clone succeed and refuses the maps, which a wrong map does too:
// root goes on without a user namespace, everybody else is refused.
func TestUserNamespaceWithoutMaps(t *testing.T) {
	_, ws, _ := world(t)
	b := &Sandbox{spec: Spec{Mode: WorkspaceWrite, Workspace: ws, Require: DefaultRequire}}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.prepare(&ascent{err: unix.EPERM}); err != nil {
		t.Fatal(err)
	}
	b.plan.UID++
	o := launchFirst(&b.spec, nil).climb(testContext(t), &b.plan, nil)
	b.init = o.conn
	r := b.makeReport(o)
	missing := missingOf(r, DefaultRequire)
	if f := o.failed[confine.LayerUser]; f.Op != "writing /proc/self/uid_map" {
		t.Errorf("%+v", o.failed)
	}
	if os.Geteuid() == 0 {
		if len(missing) > 0 || o.plan.UserNS || !o.plan.Namespaces {
			t.Errorf("as root: %+v", missing)
		}
		if out, _ := sh(t, b, "grep CapEff /proc/self/status; echo x > /etc/x"); !strings.Contains(out, "0000000000000000") {
			t.Errorf("%s", out)
		}
		return
	}
	if err := (&UnsupportedError{Missing: missing}); len(missing) == 0 || !strings.Contains(err.Error(), "writing /proc/self/uid_map: EPERM") || err.Hint() == "" {
		t.Errorf("%v", err)
	}
}

// The named weaker mechanisms hold what they claim.
func TestDegraded(t *testing.T) {
	// Below, a command could kill what is to kill it.
	const signalABI = 6
	old := Probe().LandlockABI < signalABI
	for _, layers := range []string{"allns", "allns,pidfd", "mount"} {
		t.Run(layers, func(t *testing.T) {
			got := underDenied(t, layers, "--degrade", DegradeLandlock, "--degrade", DegradeOuterProc)
			if old {
				if got.code != 4 || got.stdout != "" || !strings.Contains(got.stderr, "tree-dies") {
					t.Errorf("old Landlock: code %d stdout %q stderr %q", got.code, got.stdout, got.stderr)
				}
				return
			}
			if got.code != 0 || got.stdout != "fine\n" {
				t.Errorf("code %d stderr %q\nstdout %q", got.code, got.stderr, got.stdout)
			}
			if got.outside != "outside" || got.left {
				t.Errorf("outside is %q, a process is left: %v", got.outside, got.left)
			}
		})
	}
	// Without Landlock there is nothing to stand on.
	got := underDenied(t, "allns,landlock", "--degrade", DegradeLandlock, "--degrade", DegradeOuterProc)
	if got.code != 4 || got.stdout != "" {
		t.Errorf("code %d stdout %q stderr %q", got.code, got.stdout, got.stderr)
	}
}

type deniedRun struct {
	code           int
	stdout, stderr string
	outside        string
	left           bool
}

// underDenied runs the probes confined on a poorer kernel.
func underDenied(t *testing.T, layers string, flags ...string) deniedRun {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, ws, out := world(t)
	put(t, ws+"/.git/config", "x")
	put(t, ws+"/src/f", "x")
	put(t, ws+"/private/secret", "DENIED")
	put(t, dir+"/deny/secret", "DENIED")
	return probe(t, self, layers, dir, ws, out, flags)
}

// probe runs the probes in a world.
func probe(t *testing.T, self, layers, dir, ws, out string, flags []string) deniedRun {
	t.Helper()
	victim := exec.Command("sleep", "300")
	victim.Env = []string{"VICTIMSECRET=x", "PATH=/bin:/usr/bin"}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := victim.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = victim.Wait() // it was killed
	}()
	args := append([]string{"deny", layers, "--", self, "confine", "--deny-read", dir + "/deny", "--deny-read", ws + "/private"}, flags...)
	marker := "nightshift-probe-" + filepath.Base(dir)
	script := strings.ReplaceAll(probes, "sleep 300", "sh -c 'sleep 300 && : "+marker+"'")
	cmd := exec.Command(self, append(args, "--", "sh", "-c", script)...)
	cmd.Dir = ws
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "OUT=" + out, "DENY=" + dir + "/deny", fmt.Sprintf("VICTIM=%d", victim.Process.Pid)}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	r := deniedRun{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	b, err := os.ReadFile(out + "/file")
	if err != nil {
		t.Fatal(err)
	}
	r.outside = string(b)
	if fi, err := os.Stat(out + "/file"); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("the mode outside changed: %v %v", fi, err)
	}
	r.left = running(marker)
	return r
}

// running tells whether a process has a word in its command line.
func running(word string) bool {
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false
	}
	for _, f := range list {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(word)) {
			return true
		}
	}
	return false
}

// Names of files are bytes. One that is no text is denied, protected and handed
// to commands like any other.
func TestNamesThatAreNoText(t *testing.T) {
	_, ws, _ := world(t)
	ws += "/caf\xe9"
	put(t, ws+"/sub\xff/.git/config", "x")
	put(t, ws+"/sub\xff/.git/HEAD", "x")
	put(t, ws+"/s\xe9cret", "hidden")
	put(t, ws+"/closed\xfe/in", "hidden")
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames, Deny: []string{ws + "/s\xe9cret", ws + "/closed\xfe"}})
	tryAll(t, b, []attempt{
		{"echo x > new", "ok"}, {"cp new sub*/.git/config", readOnlyFS}, {"cat s*cret", "ermission denied"}, {"cat closed*/in", ""}, {"mkdir .codex/x", readOnlyFS},
	})
	if !exists(ws + "/new") {
		t.Error("the workspace was another one")
	}
	out, _ := finish(t, start(t, b, Command{Argv: []string{"sh", "-c", `printf %s "$1$A"; pwd`, "x", "a\xffb"}, Dir: ws + "/sub\xff", Env: append(os.Environ(), "A=\xfe")}))
	if want := "a\xffb\xfe" + ws + "/sub\xff\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}
