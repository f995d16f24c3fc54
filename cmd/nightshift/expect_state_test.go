package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func (e fileExpect) check(t *testing.T, path string, before []byte, accept map[string]json.RawMessage) {
	t.Helper()
	data, err := os.ReadFile(path)
	if e.Exists != nil && *e.Exists != (err == nil) {
		t.Errorf("%s: exists is %v, want %v", path, err == nil, *e.Exists)
	}
	if err != nil {
		if e.Exists == nil {
			t.Errorf("%s: %v", path, err)
		}
		return
	}
	want := [][]byte{}
	if e.Equals != nil {
		want = append(want, []byte(*e.Equals))
	}
	if e.BytesBase64 != nil {
		b, err := base64.StdEncoding.DecodeString(*e.BytesBase64)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, b)
	}
	if len(want) > 0 && accept[path] != nil {
		want = append(want, acceptedBytes(t, accept[path]))
	}
	if len(want) > 0 && !slices.ContainsFunc(want, func(w []byte) bool { return bytes.Equal(w, data) }) {
		t.Errorf("%s is %q, want %q", path, excerptOf(data), want)
	}
	if e.Unchanged && !bytes.Equal(before, data) {
		t.Errorf("%s was changed", path)
	}
	for _, s := range e.Absent {
		if bytes.Contains(data, []byte(s)) {
			t.Errorf("%s has %q", path, s)
		}
	}
	e.Lines.check(t, "lines of "+path, bytes.Count(data, []byte("\n")))
	if info, err := os.Stat(path); e.Mode != "" && (err != nil || fmt.Sprintf("%o", info.Mode().Perm()) != e.Mode) {
		t.Errorf("%s has mode %v (%v), want %s", path, info.Mode(), err, e.Mode)
	}
	if e.JSON == nil {
		return
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Errorf("%s is not JSON: %v", path, err)
	}
	for key, value := range e.JSON {
		if got, _ := at(v, key); !reflect.DeepEqual(got, value) {
			t.Errorf("%s has %s = %v, want %v", path, key, got, value)
		}
	}
}

// acceptedBytes reads a second accepted result: a text, or an expectation of a
// file's content.
func acceptedBytes(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	var e struct {
		Equals      *string
		BytesBase64 string `json:"bytes_base64"`
	}
	if json.Unmarshal(raw, &e) == nil {
		if e.Equals != nil {
			return []byte(*e.Equals)
		}
		if b, err := base64.StdEncoding.DecodeString(e.BytesBase64); err == nil && len(b) > 0 {
			return b
		}
	}
	return contentOf(t, raw)
}

func (o *observed) checkGit(t *testing.T, e gitExpect) {
	t.Helper()
	dir := o.world.ws
	if e.Dir != "" {
		dir = e.Dir
	}
	if e.Numstat != nil {
		if got := strings.TrimSpace(o.world.git(t, dir, "diff", "--numstat")); got != *e.Numstat {
			t.Errorf("git diff --numstat is %q, want %q", got, *e.Numstat)
		}
	}
	if e.Commits != nil {
		if got := strings.TrimSpace(o.world.git(t, dir, "rev-list", "--count", "HEAD")); got != fmt.Sprint(*e.Commits) {
			t.Errorf("%s commits, want %d", got, *e.Commits)
		}
	}
	if e.Clean != nil {
		args := []string{"status", "--porcelain", "--", "."}
		for _, path := range e.StatusIgnored {
			args = append(args, ":(exclude)"+path)
		}
		if got := o.world.git(t, dir, args...); (got == "") != *e.Clean {
			t.Errorf("git status is %q, want clean %v", got, *e.Clean)
		}
	}
}

// checkProcesses looks at all command lines of the machine, a little after the
// end.
func (o *observed) checkProcesses(t *testing.T, e *processExpect) {
	t.Helper()
	if e == nil {
		return
	}
	time.Sleep(600 * time.Millisecond)
	re := regexp.MustCompile(e.Matching)
	var found []string
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range dirs {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		line := strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
		if re.MatchString(line) {
			found = append(found, line)
		}
	}
	e.Count.check(t, fmt.Sprintf("processes left %q", found), len(found))
}

func (o *observed) checkHome(t *testing.T, e caseExpect) {
	t.Helper()
	rollouts := 0
	err := filepath.WalkDir(o.world.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if strings.HasPrefix(d.Name(), "rollout-") {
			rollouts++
		}
		data, err := os.ReadFile(path)
		for _, s := range e.HomeAbsent {
			if bytes.Contains(data, []byte(s)) {
				t.Errorf("%s has %q", path, s)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	e.Rollouts.check(t, "rollouts", rollouts)
	threads := map[string]bool{}
	for _, r := range o.results {
		threads[r.thread(t)] = true
	}
	e.DistinctThreads.check(t, "distinct threads", len(threads))
	if n := e.SameThreadAsStep; n > 0 && !threads[o.world.threads[n-1]] {
		t.Errorf("threads %v, want that of step %d, %s", threads, n, o.world.threads[n-1])
	}
}
