//go:build linux

package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sideBox is a sandbox with everything that commands may write, and a side folder.
func sideBox(t *testing.T, change func(*Spec)) (b *Sandbox, ws, side, out string) {
	t.Helper()
	dir, ws, out := world(t)
	side = filepath.Join(dir, "side")
	for _, d := range []string{side, filepath.Join(dir, "secret"), filepath.Join(ws, ".git")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(ws, "a"), "a\n")
	writeFile(t, filepath.Join(side, "mine"), "mine\n")
	writeFile(t, filepath.Join(dir, "secret/key"), "key\n")
	s := Spec{Workspace: ws, Write: []string{out}, ProtectNames: protectNames, Deny: []string{filepath.Join(dir, "secret")}, Side: side, Limits: DefaultLimits()}
	if change != nil {
		change(&s)
	}
	b = openBox(t, s)
	return b, ws, side, out
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func needsSide(t *testing.T, b *Sandbox) {
	t.Helper()
	if !b.HasSide() {
		t.Skipf("no view can be narrowed here: %+v", b.init.facts)
	}
}

// The side folder is closed to commands, and to side commands all is read-only
// but that.
func TestSideCommands(t *testing.T) {
	b, ws, side, out := sideBox(t, nil)
	needsSide(t, b)
	dir := filepath.Dir(ws)
	script := strings.NewReplacer("WS", ws, "SIDE", side, "OUT", out, "SECRET", dir+"/secret").Replace(`
		try() { if eval "$2" 2>/dev/null; then echo "$1"; fi; }
		try see-side 'ls SIDE'
		try read-side 'cat SIDE/mine'
		try enter-side 'cd SIDE'
		try write-side 'echo x > SIDE/new'
		try uncover-side 'umount SIDE'
		try read-workspace 'cat WS/a > /dev/null'
		try write-workspace 'echo x > WS/new-$0'
		try change-workspace 'echo x >> WS/a'
		try write-root 'echo x > OUT/new-$0'
		try write-tmp 'echo x > /tmp/new-$0'
		try write-shm 'echo x > /dev/shm/new-$0'
		try write-git 'echo x > WS/.git/new'
		try read-secret 'cat SECRET/key'
		try list-secret 'ls SECRET'
		try write-null 'echo x > /dev/null'
		try reopen-workspace 'mount -o remount,rw WS'`)
	run := func(who string, isSide bool) string {
		p := start(t, b, Command{Argv: []string{"sh", "-c", script, who}, Dir: "/", Side: isSide})
		got, _ := finish(t, p)
		return strings.Join(strings.Fields(got), " ")
	}
	if got, want := run("side", true), "mine see-side mine read-side enter-side write-side read-workspace write-null"; got != want {
		t.Errorf("a side command could\n%s, not\n%s", got, want)
	}
	if got, want := run("usual", false), "read-workspace write-workspace change-workspace write-root write-tmp write-shm write-null"; got != want {
		t.Errorf("a usual command could\n%s, not\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(side, "new")); err != nil {
		t.Errorf("what a side command wrote: %v", err)
	}
}

// After Settle nothing of the commands is left and none starts, but side commands do.
func TestSettle(t *testing.T) {
	b, ws, side, _ := sideBox(t, nil)
	needsSide(t, b)
	beat := filepath.Join(ws, "beat")
	p := start(t, b, Command{Argv: []string{"sh", "-c", "trap '' TERM HUP; (while :; do echo x >> beat; sleep 0.01; done) & until [ -s beat ]; do sleep 0.01; done; echo up; wait"}})
	buf := make([]byte, 3)
	if _, err := io.ReadFull(p.Output(), buf); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-p.gone:
	default:
		t.Error("a command is left")
	}
	before, err := os.ReadFile(beat)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Start(testContext(t), Command{Argv: []string{"true"}}); !errors.Is(err, errClosed) {
		t.Errorf("a command starts: %v", err)
	}
	if _, err := b.Start(testContext(t), Command{Argv: []string{"true"}, Unsandboxed: true}); !errors.Is(err, errClosed) {
		t.Errorf("an unconfined command starts: %v", err)
	}
	got, _ := finish(t, start(t, b, Command{Argv: []string{"sh", "-c", "wc -c < beat; echo y > " + side + "/y; ls " + side}, Side: true}))
	if !strings.Contains(got, "mine\ny\n") {
		t.Errorf("a side command says %q", got)
	}
	if after, err := os.ReadFile(beat); err != nil || len(after) != len(before) {
		t.Errorf("somebody still writes: %d bytes, then %d (%v)", len(before), len(after), err)
	}
}

// Nobody gets a narrowed view where it would be a wider one: with a network, with
// no folder, outside the confinement, in a folder that commands can reach.
func TestNoSide(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"none":         func(s *Spec) { s.Side = "" },
		"proxy":        func(s *Spec) { s.Net.Mode = NetProxy },
		"host network": func(s *Spec) { s.Net.Mode = NetHost },
		"full access":  func(s *Spec) { s.Mode = FullAccess },
	} {
		t.Run(name, func(t *testing.T) {
			b, _, _, _ := sideBox(t, func(s *Spec) { change(s); s.Require = TreeDies })
			if b.HasSide() {
				t.Error("it is offered")
			}
			if _, err := b.Start(testContext(t), Command{Argv: []string{"true"}, Side: true}); err == nil {
				t.Error("a side command starts")
			}
		})
	}
	dir, ws, out := world(t)
	for name, s := range map[string]Spec{
		"in a root":        {Workspace: dir, Side: out},
		"above a root":     {Workspace: ws, Side: dir},
		"in a denied one":  {Workspace: ws, Deny: []string{dir + "/out"}, Side: out},
		"missing":          {Workspace: ws, Side: dir + "/none"},
		"no absolute path": {Workspace: ws, Side: "out"},
	} {
		s.Mode = WorkspaceWrite
		var bad *SpecError
		if b, err := Open(testContext(t), s); !errors.As(err, &bad) || bad.Field != "side folder" {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				_ = b.Close()
			}
		}
	}
}

// In a folder that is nobody's, names are names; in others they stay protected.
func TestPlainRoot(t *testing.T) {
	_, ws, out := world(t)
	b := openBox(t, Spec{Workspace: ws, Write: []string{out}, Plain: []string{out}, ProtectNames: protectNames})
	got, _ := sh(t, b, "for d in "+ws+" "+out+"; do for n in .git .codex; do mkdir -p $d/$n && echo x > $d/$n/made && echo $d/$n; done 2>/dev/null; done")
	if want := out + "/.git\n" + out + "/.codex"; strings.TrimSpace(got) != want {
		t.Errorf("commands could make\n%s, not\n%s", got, want)
	}
	if entries, err := os.ReadDir(ws); err != nil || len(entries) != 4 {
		t.Errorf("placeholders in the workspace: %v %v", entries, err)
	}
}
