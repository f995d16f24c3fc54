//go:build linux

package sandbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the programs that tests run: started as
// "sandbox.test confine …" it does what `nightshift sandbox` does, and as
// "sandbox.test deny LAYERS -- …" it runs a program on a poorer kernel.
func TestMain(m *testing.M) {
	Init(testHelpers())
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "confine":
			os.Exit(confineMain(os.Args[2:]))
		case "report":
			os.Exit(reportMain(os.Args[2:]))
		case "deny":
			os.Exit(denyMain(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

func testHelpers() map[string]HelperFunc {
	return map[string]HelperFunc{
		"echo": func(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
			fmt.Fprintln(stdout, strings.Join(args, " "))
			if _, err := io.Copy(stdout, stdin); err != nil {
				return 1
			}
			return 7
		},
		"hog": func(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
			mib, err := strconv.Atoi(args[0])
			if err != nil {
				return 2
			}
			b := make([]byte, mib<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			fmt.Fprintln(stdout, "had it", b[len(b)/2])
			return 0
		},
		"queue": func(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
			if err := makeQueue(args[0]); err != nil {
				fmt.Fprintln(stdout, err)
				return 1
			}
			return 0
		},
		"write": func(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
			if err := os.WriteFile(args[0], []byte("x"), 0o600); err != nil {
				fmt.Fprintln(stdout, err)
				return 1
			}
			return 0
		},
	}
}

// homeSecrets are the credentials that the hostile programs look for, as policy
// would name them.
func homeSecrets(home string) []string {
	out := []string{"/etc/shadow", "/etc/gshadow", "/etc/ssh"}
	for _, name := range []string{".ssh", ".aws", ".netrc", ".git-credentials", ".kube", ".docker", ".config/gh", ".npmrc", ".gnupg", ".pypirc", ".cargo/credentials.toml",
		".gradle/gradle.properties", ".m2/settings.xml", ".codex"} {
		out = append(out, filepath.Join(home, name))
	}
	return out
}

type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, ",") }
func (l *stringList) Set(s string) error { *l = append(*l, s); return nil }

// confineMain runs one command confined; exit code 4 is a refusal.
func confineMain(args []string) int {
	if err := HideSelf(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fs := flag.NewFlagSet("confine", flag.ExitOnError)
	var deny, write, degrade stringList
	mode := fs.String("mode", string(WorkspaceWrite), "")
	network := fs.Bool("network", false, "")
	fs.Var(&deny, "deny-read", "")
	fs.Var(&write, "add-dir", "")
	fs.Var(&degrade, "degrade", "")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	cwd, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	home := os.Getenv("HOME")
	s := Spec{Mode: Mode(*mode), Workspace: cwd, Write: write, ProtectNames: protectNames, Require: DefaultRequire,
		Deny: append(deny, homeSecrets(home)...), Limits: DefaultLimits(), Degrade: degrade}
	if f := os.Getenv("GITHUB_ENV"); f != "" {
		s.Deny = append(s.Deny, filepath.Dir(f))
	}
	if s.Mode == FullAccess {
		s.Require = TreeDies
	}
	if *network {
		s.Net.Mode = NetHost
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	b, err := Open(ctx, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 4
	}
	x, err := b.Foreground(ctx, Command{Argv: fs.Args(), Dir: cwd, Env: plainEnv(os.Environ())}, Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return x.Code
}

// plainEnv is the part of environ that programs need in order to start. Which
// variables the commands of a run get is decided by package policy.
func plainEnv(environ []string) []string {
	names := []string{"PATH", "HOME", "USER", "LANG", "SHELL", "TERM", "PWD", "PLAIN"}
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(names, name)
	})
}

var protectNames = []string{".git", ".codex", ".agents", ".aws"}

// testBound ends what hangs.
const testBound = 60 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testBound)
	t.Cleanup(cancel)
	return ctx
}

// unsupported skips where the machine cannot confine; in CI that is a failure.
func unsupported(t testing.TB, err error) {
	t.Helper()
	var ue *UnsupportedError
	if errors.As(err, &ue) && os.Getenv("NIGHTSHIFT_CI") == "" {
		t.Skipf("this machine cannot confine: %v", err)
	}
}

// openBox opens a sandbox that is closed with the test.
func openBox(t testing.TB, s Spec) *Sandbox {
	t.Helper()
	if s.Mode == "" {
		s.Mode = WorkspaceWrite
	}
	if s.Require == 0 && s.Mode != FullAccess {
		s.Require = DefaultRequire
	}
	b, err := Open(testContext(t), s)
	if err != nil {
		unsupported(t, err)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return b
}

// start starts a command that must start.
func start(t testing.TB, b *Sandbox, c Command) *Process {
	t.Helper()
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"}
	}
	p, err := b.Start(testContext(t), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// finish reads all output and waits.
func finish(t testing.TB, p *Process) (string, Exit) {
	t.Helper()
	out, err := io.ReadAll(p.Output())
	if err != nil {
		t.Errorf("output: %v", err)
	}
	x, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return string(out), x
}

// sh runs a script and returns its output without the last newline.
func sh(t testing.TB, b *Sandbox, script string) (string, Exit) {
	t.Helper()
	out, x := finish(t, start(t, b, Command{Argv: []string{"sh", "-c", script}}))
	return strings.TrimSuffix(out, "\n"), x
}
