package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nightshift-ci/nightshift/ci-examples/demo"
	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/workspace"
)

// demoCmd shows the whole product on a scratch repository: the real tools, the
// real sandbox, the real reports; only the model is a recording.
type demoCmd struct {
	Dir string `arg:"" optional:"" help:"Where to make the repository (default: a new temporary folder, kept)."`
}

// Run makes the repository and runs exec on it.
func (c *demoCmd) Run(rt *runtime) error {
	base, err := c.base(rt)
	if err != nil {
		return err
	}
	repo, out, home := filepath.Join(base, "stall"), filepath.Join(base, "report"), filepath.Join(base, "home")
	for _, dir := range []string{repo, out, home} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	if err := unpack(repo, demo.Project); err != nil {
		return err
	}
	if err := workspace.Init(rt.ctx, repo, rt.environ, "The stall as it was"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	script := filepath.Join(base, "script.json")
	if err := os.WriteFile(script, demo.Script, 0o644); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintf(rt.stderr, "A repository with a failing test is in %s\n$ nightshift exec -s workspace-write --verify %q %q\n\n", repo, demo.Verify, demo.Prompt)

	child := *rt
	child.stdin = nil // the prompt is all there is
	child.environ = append([]string{"CODEX_HOME=" + home}, slices.DeleteFunc(slices.Clone(rt.environ), func(e string) bool { return strings.HasPrefix(e, "CODEX_HOME=") })...)
	cmd, err := parse(&child, []string{"exec", "-C", repo, "-s", "workspace-write", "--model-script", script,
		"--report-dir", out, "--no-github", "--verify", demo.Verify, "--verify-rounds", "0", demo.Prompt})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	runErr := cmd.Run(&child)
	c.show(rt, repo, out)
	var coded exitError
	if errors.As(runErr, &coded) && coded.code == runner.ExitGate {
		fmt.Fprintln(rt.stderr, "The test still fails: that is a failure of the demo.")
	}
	return runErr
}

func (c *demoCmd) base(rt *runtime) (string, error) {
	if c.Dir == "" {
		base, err := os.MkdirTemp("", "nightshift-demo-")
		if err != nil {
			return "", fmt.Errorf("demo: %w", err)
		}
		return base, nil
	}
	base := rt.abs(c.Dir)
	if entries, err := os.ReadDir(base); err == nil && len(entries) > 0 {
		return "", usageError("demo: %s is not empty; name a new folder", base)
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	return base, nil
}

func unpack(dir string, archive []byte) error {
	for _, f := range txtar.Parse(archive).Files {
		p := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		if err := os.WriteFile(p, f.Data, 0o644); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	return nil
}

// show prints the diff and the places of the reports.
func (c *demoCmd) show(rt *runtime, repo, out string) {
	patch, err := os.ReadFile(filepath.Join(out, "changes.patch"))
	if err != nil {
		fmt.Fprintf(rt.stderr, "\nno patch was left: %v\n", err)
		return
	}
	fmt.Fprintf(rt.stdout, "\n%s\n", patch)
	fmt.Fprintf(rt.stderr, "The reports lie in %s:\n", out)
	entries, err := os.ReadDir(out)
	if err != nil {
		fmt.Fprintf(rt.stderr, "%v\n", err)
	}
	for _, e := range entries {
		fmt.Fprintf(rt.stderr, "  %s\n", filepath.Join(out, e.Name()))
	}
	fmt.Fprintf(rt.stderr, "The repository stays in %s\n", repo)
}
