package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner"
)

// TestExposedProcess proves that a process which could not be hidden starts no
// command, and still prints what needs none.
func TestExposedProcess(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"exec", "--skip-git-repo-check", "hello"}, runner.ExitSandbox},
		{[]string{"sandbox", "--", "true"}, runner.ExitSandbox},
		{[]string{"demo"}, runner.ExitSandbox},
		{[]string{"version"}, 0},
		{[]string{"report", "schema"}, 0},
	} {
		var out, errs bytes.Buffer
		rt := &runtime{
			ctx: context.Background(), stdin: strings.NewReader(""), stdout: &out, stderr: &errs,
			cwd: t.TempDir(), self: "nightshift", exposed: errors.New("prctl: no"),
		}
		if code := run(rt, tc.args); code != tc.code {
			t.Errorf("%v: exit %d, want %d\n%s", tc.args, code, tc.code, errs.String())
		}
		if told := strings.Contains(errs.String(), "prctl: no"); told != (tc.code != 0) {
			t.Errorf("%v: stderr %q", tc.args, errs.String())
		}
	}
}

// TestWordsAreExact proves that bytes which are no text reach the command line's
// values as they are: the name of a file to be denied may hold such.
func TestWordsAreExact(t *testing.T) {
	var c cli
	parser, err := newParser(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"sandbox", "--deny-read", "caf\xe9", "--deny-read=a,\xff", "-C", "\xfe", "--", "\xfd", "--x", "-y"}); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%q %q %q", c.Sandbox.DenyRead, c.Sandbox.Dir, c.Sandbox.Command)
	if want := `["caf\xe9" "a,\xff"] "\xfe" ["--" "\xfd" "--x" "-y"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
