//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempts runs scripts and compares what each prints. The default row of the
// world is closed: whatever is not listed as allowed must fail.
type attempt struct {
	try  string // exits 0 if it worked
	want string // "ok", or a part of the message it fails with
}

func tryAll(t *testing.T, b *Sandbox, as []attempt) {
	t.Helper()
	for _, a := range as {
		out, x := sh(t, b, "exec 2>&1; "+a.try)
		switch {
		case a.want == "ok" && x.Code != 0:
			t.Errorf("%s: must work, but: %s", a.try, out)
		case a.want != "ok" && x.Code == 0:
			t.Errorf("%s: worked, must fail with %q", a.try, a.want)
		case a.want != "ok" && !strings.Contains(out, a.want):
			t.Errorf("%s: failed with %q, want %q", a.try, out, a.want)
		}
	}
}

const readOnlyFS = "Read-only file system"

// world is a folder with a workspace and what is around it. It must not lie
// below /tmp, which commands see replaced.
func world(t testing.TB) (dir, ws, out string) {
	t.Helper()
	base := "/var/tmp"
	if home, err := os.UserHomeDir(); err == nil && os.Geteuid() != 0 {
		base = home
	} else if os.Geteuid() == 0 {
		base = "/var/lib"
	}
	dir, err := os.MkdirTemp(base, "nightshift-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := RemoveTree(dir); err != nil {
			t.Error(err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	ws, out = filepath.Join(dir, "ws"), filepath.Join(dir, "out")
	for _, d := range []string{ws, out} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(out, "file"), "outside")
	return dir, ws, out
}

func put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func gitIn(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestWorkspaceWrite(t *testing.T) {
	_, ws, out := world(t)
	put(t, ws+"/.git/config", "x")
	put(t, ws+"/src/a", "x")
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames})
	tryAll(t, b, []attempt{
		{"echo x > new", "ok"}, {"mkdir -p d/e && rmdir d/e", "ok"}, {"mv src src2 && mv src2 src", "ok"}, {"ln new hard", "ok"}, {"ln -s /etc link", "ok"},
		{"chmod 700 new", "ok"}, {"touch -d 2001-01-01 new", "ok"}, {"mkfifo fifo", "ok"}, {"rm -r src", "ok"},
		{"echo x > /tmp/a && echo x > /var/tmp/b && echo x > /dev/shm/c", "ok"}, {"echo x > /dev/null", "ok"},
		{"echo x > " + out + "/file", readOnlyFS}, {"echo x > " + out + "/new", readOnlyFS}, {"rm " + out + "/file", readOnlyFS},
		{"chmod 777 " + out + "/file", readOnlyFS}, {"touch -d 2001-01-01 " + out + "/file", readOnlyFS}, {"ln " + out + "/file here", "link"},
		{"mv new " + out + "/new", readOnlyFS}, {"mkdir " + out + "/d", readOnlyFS},
		{"echo x > .git/config", readOnlyFS}, {"rm -r .git", ""}, {"mv .git g", ""}, {"chmod 777 .git", readOnlyFS},
		{"mkdir .codex/x", readOnlyFS}, {"rmdir .codex", ""}, {"mv .codex c", ""}, {"mkdir .agents/x", readOnlyFS}, {"mkdir .aws/x", readOnlyFS},
		{"mv " + ws + " " + ws + "2", ""}, {"echo x > /run/x", readOnlyFS}, {"echo x > /dev/x", readOnlyFS}, {"echo 1 > /proc/sys/vm/drop_caches", ""},
		{"mknod dev c 1 3", "ot permitted"}, {"mknod dev b 8 0", "ot permitted"},
	})
	if got, err := os.ReadFile(out + "/file"); err != nil || string(got) != "outside" {
		t.Errorf("outside: %q %v", got, err)
	}
}

func TestReadOnly(t *testing.T) {
	_, ws, out := world(t)
	put(t, ws+"/a", "x")
	b := openBox(t, Spec{Mode: ReadOnly, Workspace: ws, ProtectNames: protectNames})
	tryAll(t, b, []attempt{
		{"cat a " + out + "/file", "ok"}, {"echo x > /dev/null", "ok"},
		{"echo x > a", readOnlyFS}, {"echo x > new", readOnlyFS}, {"mkdir d", readOnlyFS}, {"rm a", readOnlyFS}, {"chmod 777 a", readOnlyFS},
		{"echo x > /tmp/x", readOnlyFS}, {"echo x > /var/tmp/x", readOnlyFS}, {"echo x > /dev/shm/x", readOnlyFS}, {"mkdir .codex", readOnlyFS},
		{"echo x > " + out + "/file", readOnlyFS}, {"touch $HOME/x", readOnlyFS},
	})
	if list, err := os.ReadDir(ws); err != nil || len(list) != 1 {
		t.Errorf("the workspace changed: %v %v", list, err)
	}
}

// makeQueue makes a POSIX message queue, looks at it in its folder and removes it.
func makeQueue(name string) error {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(p)), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600, 0, 0, 0)
	if e != 0 {
		return fmt.Errorf("mq_open: %w", e)
	}
	if err := unix.Close(int(fd)); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/mqueue/" + name); err != nil {
		return err
	}
	if _, _, e := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(p)), 0, 0); e != 0 {
		return fmt.Errorf("mq_unlink: %w", e)
	}
	return nil
}

// Landlock looks at message queues as at files: they are commands' own, as shared
// memory is, where commands may write.
func TestMessageQueues(t *testing.T) {
	if _, err := os.Stat("/proc/sys/fs/mqueue"); err != nil {
		t.Skip("the kernel has no POSIX message queues")
	}
	_, ws, _ := world(t)
	for mode, want := range map[Mode]int{WorkspaceWrite: 0, ReadOnly: 1} {
		b := openBox(t, Spec{Mode: mode, Workspace: ws})
		if out, x := finish(t, start(t, b, Command{Helper: "queue", Argv: []string{"nightshift-test"}})); x.Code != want {
			t.Errorf("%s: exit code %d, want %d: %s", mode, x.Code, want, out)
		}
	}
}

// A read-only sandbox may have named exceptions.
func TestReadOnlyWithARoot(t *testing.T) {
	_, ws, out := world(t)
	b := openBox(t, Spec{Mode: ReadOnly, Workspace: ws, Write: []string{out}})
	tryAll(t, b, []attempt{{"echo x > " + out + "/file", "ok"}, {"echo x > f", readOnlyFS}, {"echo x > /tmp/f", readOnlyFS}})
}

func TestWorkspaceBelowTmp(t *testing.T) {
	ws := t.TempDir() // usually below /tmp
	put(t, ws+"/f", "seen")
	for _, mode := range []Mode{WorkspaceWrite, ReadOnly} {
		b := openBox(t, Spec{Mode: mode, Workspace: ws, ProtectNames: protectNames})
		if out, _ := sh(t, b, "cat f"); out != "seen" {
			t.Errorf("%s: %q", mode, out)
		}
		want := map[Mode]string{WorkspaceWrite: "ok", ReadOnly: readOnlyFS}[mode]
		tryAll(t, b, []attempt{{"echo x > g", want}})
	}
	b := openBox(t, Spec{Mode: WorkspaceWrite, Workspace: "/tmp"})
	if out, _ := sh(t, b, "cat "+ws+"/f"); out != "seen" {
		t.Errorf("workspace /tmp: %q", out)
	}
}

func TestWorkspaceInMemory(t *testing.T) {
	ws, err := os.MkdirTemp("/dev/shm", "nightshift-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(ws)
	put(t, ws+"/f", "x")
	b := openBox(t, Spec{Workspace: ws, ProtectNames: protectNames})
	tryAll(t, b, []attempt{{"cat f && echo x > g", "ok"}, {"mkdir .codex/x", readOnlyFS}})
	b = openBox(t, Spec{Mode: ReadOnly, Workspace: ws})
	tryAll(t, b, []attempt{{"cat f", "ok"}, {"echo x > g", readOnlyFS}})
}

func TestHostTmp(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "seen")
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, HostTmp: true})
	tryAll(t, b, []attempt{{"cat " + dir + "/f", "ok"}, {"echo x > " + dir + "/f", readOnlyFS}})
	if b.TmpDir() != "/tmp" {
		t.Errorf("TmpDir is %s", b.TmpDir())
	}
}

func TestOwnTmpDirIsKept(t *testing.T) {
	_, ws, out := world(t)
	b := openBox(t, Spec{Workspace: ws, TmpDir: out})
	sh(t, b, "echo x > /tmp/made")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(out + "/made"); err != nil {
		t.Error(err)
	}
}

func TestWorkspaceThroughLinks(t *testing.T) {
	dir, ws, out := world(t)
	put(t, ws+"/.git/config", "x")
	link := dir + "/link"
	if err := os.Symlink("ws", link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, ws+"/out"); err != nil {
		t.Fatal(err)
	}
	b := openBox(t, Spec{Workspace: link, ProtectNames: protectNames})
	out2, _ := finish(t, start(t, b, Command{Argv: []string{"sh", "-c", "exec 2>&1; echo x > f; echo x > .git/config; echo x > out/file; rm -f " + link}, Dir: link}))
	if n := strings.Count(out2, readOnlyFS); n != 3 {
		t.Errorf("%s", out2)
	}
	if _, err := os.Stat(ws + "/f"); err != nil {
		t.Error(err)
	}
	for _, w := range b.Report().Writable {
		if w == link {
			t.Error("the report names the link and not the real path")
		}
	}
}

func TestDeniedPaths(t *testing.T) {
	dir, ws, out := world(t)
	put(t, out+"/secret/key", "SECRET")
	put(t, out+"/secret/skills/s", "shown")
	put(t, ws+"/private/x", "SECRET")
	put(t, ws+"/token", "SECRET")
	put(t, ws+"/deep/er/key", "SECRET")
	if err := os.Symlink(out+"/secret", dir+"/by-link"); err != nil {
		t.Fatal(err)
	}
	b := openBox(t, Spec{Workspace: ws, Deny: []string{out + "/file", dir + "/by-link", ws + "/private", ws + "/token", ws + "/deep/er/key", dir + "/not/there"},
		Reveal: []string{out + "/secret/skills"}})
	tryAll(t, b, []attempt{
		{"cat " + out + "/file", "denied"}, {"cat " + out + "/secret/key", "No such file"}, {"cat " + dir + "/by-link/key", "No such file"},
		{"cat " + out + "/secret/skills/s", "ok"}, {"echo x > " + out + "/secret/skills/s", readOnlyFS},
		{"cat private/x", "denied"}, {"ls private", "denied"}, {"cat token", "denied"}, {"cp token t2", "denied"}, {"ln token t3", ""}, {"mv token t4", ""},
		{"chmod 777 token", readOnlyFS}, {"chmod 777 private", readOnlyFS}, {"cat /proc/self/root" + ws + "/token", "denied"},
		{"rm -rf private", ""}, {"mv private p2", ""},
		{"mv deep d2", ""}, {"mv deep/er e2", ""}, {"echo x > deep/er/beside && cat deep/er/beside", "ok"}, {"cat deep/er/key", "denied"},
	})
	if got, _ := sh(t, b, "grep -rs SECRET "+out+" . /proc/self/root"+out+" 2>/dev/null"); got != "" {
		t.Errorf("found: %s", got)
	}
}

// Settings that build tools insist on reading say nothing, instead of stopping
// every build.
func TestDeniedSettingsAreBlank(t *testing.T) {
	dir, ws, _ := world(t)
	var deny []string
	for _, n := range []string{".m2/settings.xml", ".npmrc", ".gradle/gradle.properties", ".docker/config.json", ".ssh/config"} {
		put(t, dir+"/home/"+n, "SECRET")
		deny = append(deny, dir+"/home/"+n)
	}
	b := openBox(t, Spec{Workspace: ws, Deny: deny})
	out, _ := sh(t, b, "cd "+dir+"/home; cat .m2/settings.xml .npmrc .gradle/gradle.properties .docker/config.json; cat .ssh/config 2>/dev/null || echo closed; "+
		"for f in .npmrc .m2/settings.xml; do (echo x > $f; chmod 777 $f; rm -f $f; mv $f x) 2>/dev/null; done; cat .npmrc")
	if out != "<settings/>\n{}\nclosed" {
		t.Errorf("%q", out)
	}
}

// What is denied stays denied when the host replaces it, and when it only comes
// to be later.
func TestDeniedPathsAreReplaced(t *testing.T) {
	dir, ws, out := world(t)
	late := dir + "/late"
	b := openBox(t, Spec{Workspace: ws, Deny: []string{out + "/file", late, dir + "/late-dir"}, ProtectNames: []string{".codex"}})
	see := func() string {
		got, _ := sh(t, b, "cat "+out+"/file "+late+" "+dir+"/late-dir/x 2>/dev/null")
		return got
	}
	if got := see(); got != "" {
		t.Fatalf("%q", got)
	}
	put(t, out+"/new", "SECRET")
	if err := os.Rename(out+"/new", out+"/file"); err != nil {
		t.Fatal(err)
	}
	put(t, late, "SECRET")
	put(t, dir+"/late-dir/x", "SECRET")
	if got := see(); got != "" {
		t.Errorf("after a change on the host: %q", got)
	}
	// A placeholder that somebody removes is there again for the next command.
	if err := os.Remove(ws + "/.codex"); err != nil {
		t.Fatal(err)
	}
	tryAll(t, b, []attempt{{"mkdir -p .codex && echo x > .codex/config.toml", readOnlyFS}})
}

// A private folder hides what lies in the host's /tmp and /run, except for what
// must be seen.
func TestHiddenFolders(t *testing.T) {
	dir := t.TempDir()
	if !strings.HasPrefix(dir, "/tmp/") {
		t.Skip("temporary folders are elsewhere")
	}
	put(t, dir+"/hidden", "x")
	put(t, dir+"/shown/f", "x")
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Show: []string{dir + "/shown"}})
	tryAll(t, b, []attempt{{"cat " + dir + "/hidden", "No such file"}, {"cat " + dir + "/shown/f", "ok"}, {"echo x > " + dir + "/shown/f", readOnlyFS}})
	if out, _ := sh(t, b, "ls /run | wc -l"); strings.TrimSpace(out) != "0" && !strings.Contains(out, "current-system") {
		t.Logf("/run shows %s entries", out)
	}
}

func TestSetIDFiles(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws})
	tryAll(t, b, []attempt{
		{"cp /bin/sh s; chmod u+s s", "ot permitted"}, {"touch g; chmod g+s g", "ot permitted"}, {"mkdir d; chmod 2755 d", "ot permitted"},
		{"install -m 4755 /bin/sh i", ""}, {"umask 0; touch plain; chmod 1777 plain", "ok"},
	})
	out, x := finish(t, start(t, b, Command{Argv: []string{"python3", "-c", `
import os, ctypes
os.umask(0)
libc = ctypes.CDLL(None, use_errno=True)
def fails(what, f):
    try: r = f()
    except OSError: return
    if r is None or r >= 0: print(what, "worked")
fails("open", lambda: os.open("o1", os.O_CREAT | os.O_WRONLY, 0o4755))
fails("open trunc", lambda: os.open("o2", os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o2755))
fails("mknod", lambda: os.mknod("o3", 0o104755))
fails("fchmod", lambda: os.fchmod(os.open("o4", os.O_CREAT | os.O_WRONLY, 0o755), 0o6755))
fails("tmpfile", lambda: os.open(".", 0o20200000 | os.O_WRONLY, 0o4755))
fails("openat2", lambda: libc.syscall(437, -100, b"o5", ctypes.byref((ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)), 24))
fails("fchmodat2", lambda: libc.syscall(452, -100, b"o4", 0o4755, 0))
os.open("fine", os.O_CREAT | os.O_WRONLY, 0o755)
os.close(os.open("fine", os.O_RDONLY, 0o4755)) # the mode means nothing here
for f in os.listdir("."):
    if os.stat(f).st_mode & 0o6000: print(f, "has the bit")
`}}))
	if x.Code == 127 || strings.Contains(out, "not found") {
		t.Skip("no python3 here")
	}
	if out != "" || x.Code != 0 {
		t.Errorf("%s (code %d)", out, x.Code)
	}
}

func TestManyDeniedPaths(t *testing.T) {
	dir, ws, out := world(t)
	const many = 10000
	var deny []string
	for i := range many {
		p := fmt.Sprintf("%s/d%d/f%d", out, i%100, i)
		put(t, p, "SECRET")
		deny = append(deny, p)
	}
	b := openBox(t, Spec{Workspace: ws, Deny: deny})
	if got, _ := sh(t, b, "cat "+out+"/d*/f* 2>/dev/null | head -c 100; ls "+out+"/d7 | wc -l"); strings.TrimSpace(got) != "100" {
		t.Errorf("%q", got)
	}
	_ = dir
}
