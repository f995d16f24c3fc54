package main

import (
	"bytes"
	"context"
	"errors"
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
