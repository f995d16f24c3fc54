package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// built is the folder of the binaries that the end-to-end tests run: the real
// program, linked so that its system folder can be chosen, under both names.
var built string

// programVariable names another program to run the end-to-end tests with: the
// reference, to see what it does with a case or a scenario.
const programVariable = "NIGHTSHIFT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	sandbox.Init(runner.Helpers())
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nightshift-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if path := os.Getenv(programVariable); path != "" {
		for _, name := range []string{"nightshift", "codex"} {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	} else if os.Getenv("NIGHTSHIFT_TEST_CHILD") == "" {
		cmd := exec.Command("go", "build", "-ldflags=-X main.systemDir=$NIGHTSHIFT_TEST_SYSTEM_DIR", "-o", filepath.Join(dir, "nightshift"), ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building nightshift:", err)
			return 1
		}
		if err := os.Symlink("nightshift", filepath.Join(dir, "codex")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	built = dir
	return m.Run()
}

// binary is the path of the program under test.
func binary(t testing.TB) string {
	t.Helper()
	if built == "" {
		t.Fatal("the binary was not built")
	}
	return filepath.Join(built, "nightshift")
}
