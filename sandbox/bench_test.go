//go:build linux

package sandbox

import (
	"context"
	"io"
	"os/exec"
	"testing"
)

// BenchmarkCommand is one confined `true` in an open sandbox.
func BenchmarkCommand(b *testing.B) {
	box, err := Open(context.Background(), Spec{Mode: WorkspaceWrite, Workspace: b.TempDir(), ProtectNames: []string{".git", ".codex", ".agents"}, Require: DefaultRequire})
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close()
	for b.Loop() {
		p, err := box.Start(context.Background(), Command{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, p.Output()); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is a whole sandbox with one command.
func BenchmarkOpen(b *testing.B) {
	ws := b.TempDir()
	for b.Loop() {
		p, err := Start(context.Background(), Spec{Mode: WorkspaceWrite, Workspace: ws, ProtectNames: []string{".git", ".codex", ".agents"}, Require: DefaultRequire},
			Command{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlain is the same program unconfined.
func BenchmarkPlain(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBubblewrap is the same confinement by another program.
func BenchmarkBubblewrap(b *testing.B) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip("bubblewrap is not installed")
	}
	ws := b.TempDir()
	for b.Loop() {
		cmd := exec.Command(bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
			"--tmpfs", "/tmp", "--tmpfs", "/run", "--bind", ws, ws, "/bin/true")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatal(err, string(out))
		}
	}
}
