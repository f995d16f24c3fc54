package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript runs testdata/script: each file reads like a user's terminal.
// Besides the commands of testscript there are
//
//	exits N PROG ARGS…     the program must end with exactly that code; its
//	                       streams are $WORK/out and $WORK/err
//	repo DIR               makes DIR a git repository with everything committed
//	field FILE PATH VALUE  a value of a JSON file, by dotted path
//	events FILE KIND N     FILE (JSONL) has N lines of that type
//	unchanged DIR          DIR (a repository) has no change at all
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", built+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "user"))
			env.Setenv("CODEX_HOME", filepath.Join(env.WorkDir, "codex-home"))
			env.Setenv("NIGHTSHIFT_TEST_SYSTEM_DIR", filepath.Join(env.WorkDir, "etc"))
			env.Setenv("LANG", "C.UTF-8")
			env.Setenv("TERM", "dumb")
			for _, d := range []string{"user", "codex-home", "etc"} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, d), 0o755); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": scriptExits, "repo": scriptRepo, "field": scriptField, "events": scriptEvents, "unchanged": scriptUnchanged,
		},
	})
}

// environ is the environment of the script.
func environ(ts *testscript.TestScript) []string {
	var out []string
	for _, n := range []string{"PATH", "HOME", "CODEX_HOME", "NIGHTSHIFT_TEST_SYSTEM_DIR", "NIGHTSHIFT_LOG", "LANG", "TERM", "WORK", "TMPDIR",
		"CODEX_API_KEY", "MOCK_API_KEY", "GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV", "SECRET_TOKEN",
		"CI_NODE_INDEX", "CI_NODE_TOTAL"} {
		if v := ts.Getenv(n); v != "" {
			out = append(out, n+"="+v)
		}
	}
	return out
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N PROG ARGS…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	path, err := exec.LookPath(filepath.Join(built, args[1]))
	if err != nil {
		path, err = exec.LookPath(args[1])
		ts.Check(err)
	}
	cmd := exec.Command(path, args[2:]...)
	cmd.Args[0] = args[1]
	cmd.Dir, cmd.Env = ts.Getenv("PWD"), environ(ts)
	if cmd.Dir == "" {
		cmd.Dir = ts.MkAbs(".")
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Logf("[stdout]\n%s[stderr]\n%s[exit %d]", stdout.String(), stderr.String(), code)
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "out"), stdout.Bytes(), 0o644))
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "err"), stderr.Bytes(), 0o644))
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func scriptRepo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: repo DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	for _, a := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "start"}} {
		cmd := exec.Command("git", a...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			ts.Fatalf("git %v: %v\n%s", a, err, out)
		}
	}
}

func scriptField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: field FILE PATH VALUE")
	}
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	for _, k := range strings.Split(args[1], ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[k]
		case []any:
			i, err := strconv.Atoi(k)
			if err != nil || i >= len(at) {
				ts.Fatalf("%s: no element %q", args[1], k)
			}
			v = at[i]
		default:
			v = nil
		}
	}
	got, err := json.Marshal(v)
	ts.Check(err)
	text := strings.Trim(string(got), `"`)
	if (text == args[2]) == neg {
		ts.Fatalf("%s of %s is %s", args[1], args[0], text)
	}
}

func scriptEvents(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: events FILE KIND N")
	}
	n := 0
	sc := bufio.NewScanner(strings.NewReader(ts.ReadFile(args[0])))
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e struct{ Type string }
		ts.Check(json.Unmarshal(sc.Bytes(), &e))
		if e.Type == args[1] {
			n++
		}
	}
	if strconv.Itoa(n) != args[2] {
		ts.Fatalf("%d events %s, want %s", n, args[1], args[2])
	}
}

func scriptUnchanged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: unchanged DIR")
	}
	cmd := exec.Command("git", "status", "--porcelain", "--ignored")
	cmd.Dir = ts.MkAbs(args[0])
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		ts.Fatalf("git status: %v\n%s", err, out)
	}
}
