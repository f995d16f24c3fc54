package sandbox

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also the program that the attacks run under: started as
// "sandbox.test confine …" it does what `nightshift sandbox` does.
func TestMain(m *testing.M) {
	Init(testHelpers())
	if len(os.Args) > 1 && os.Args[1] == "confine" {
		os.Exit(confineMain(os.Args[2:]))
	}
	os.Exit(m.Run())
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
		"write": func(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
			if err := os.WriteFile(args[0], []byte("x"), 0o600); err != nil {
				fmt.Fprintln(stdout, err)
				return 1
			}
			return 0
		},
	}
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
	require := fs.Bool("require", true, "")
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
	s := Spec{Mode: Mode(*mode), Workspace: cwd, Write: write, ProtectNames: []string{".git", ".codex", ".agents", ".aws"},
		Deny: append(deny, DefaultDeny(home, "")...), Reveal: DefaultReveal(home, ""), Limits: DefaultLimits(), Degrade: degrade}
	for _, name := range []string{"GITHUB_ENV"} {
		if v := os.Getenv(name); v != "" {
			s.Deny = append(s.Deny, filepath.Dir(v))
		}
	}
	if *require {
		s.Require = DefaultRequire
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
	x, err := b.Foreground(ctx, Command{Argv: fs.Args(), Dir: cwd, Env: CleanEnv(os.Environ())}, Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return x.Code
}
