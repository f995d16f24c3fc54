package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// goldenPatch was made by `git diff --binary --full-index` in the repository
// that baseRepo makes: a change, a binary file, a rename with a new mode and a
// file that lost the newline at its end.
//
//go:embed testdata/changes.patch
var goldenPatch string

const baseCommit = "372576e5326275dd677a98bf1a2b8f8382a83609"

var goldenDigest = func() string {
	sum := sha256.Sum256([]byte(goldenPatch))
	return "sha256:" + hex.EncodeToString(sum[:])
}()

// git runs real git without the user's configuration.
func git(t *testing.T, dir string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=A Bot", "GIT_AUTHOR_EMAIL=bot@example.com",
		"GIT_COMMITTER_NAME=A Bot", "GIT_COMMITTER_EMAIL=bot@example.com", "GIT_AUTHOR_DATE=2026-01-31T09:00:00Z", "GIT_COMMITTER_DATE=2026-01-31T09:00:00Z", "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// baseRepo makes the repository that the golden patch applies to; its commit
// has always the same id.
func baseRepo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"price.go": "package shop\n\n// Price has the tax in it.\nfunc Price(net int) int { return net }\n",
		"run.sh":   "#!/bin/sh\nset -e\ngo test ./...\ngo vet ./...\n", "note.txt": "one\ntwo\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, nil, "init", "-q", "-b", "main")
	git(t, dir, nil, "add", ".")
	git(t, dir, nil, "commit", "-q", "-m", "base")
	if got := git(t, dir, nil, "rev-parse", "HEAD"); got != baseCommit {
		t.Fatalf("the base commit is %s, want %s", got, baseCommit)
	}
	return dir
}

// git itself takes both patches, and both give the same tree.
func TestPatchesApply(t *testing.T) {
	s := scenarios()[0].summary(t)
	render := func(format string) []byte {
		var b bytes.Buffer
		if err := Render(&b, format, []*Summary{s}, nil); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	dir := baseRepo(t)
	git(t, dir, render("patch"), "apply", "--check", "--index", "-")
	git(t, dir, render("patch"), "apply", "--index", "-")
	want := git(t, dir, nil, "write-tree")

	dir = baseRepo(t)
	git(t, dir, render("mail-patch"), "am", "-q")
	if got := git(t, dir, nil, "rev-parse", "HEAD^{tree}"); got != want {
		t.Errorf("git am gives the tree %s, git apply %s", got, want)
	}
	got := git(t, dir, nil, "log", "-1", "--format=%an <%ae>%n%s%n%b")
	wantLog := "A Bot <bot@example.com>\nMake the tests pass\nNightshift-Thread: " + thread
	if !strings.HasPrefix(got, wantLog) {
		t.Errorf("the commit says\n%s\nwant\n%s…", got, wantLog)
	}
}

// Carriage returns survive git am, which drops them from plain mails.
func TestMailPatchKeepsCarriageReturns(t *testing.T) {
	dir := baseRepo(t)
	path := filepath.Join(dir, "dos.txt")
	if err := os.WriteFile(path, []byte("one\r\ntwo\r\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, nil, "add", "dos.txt")
	cmd := exec.Command("git", "diff", "--cached", "--binary", "--full-index")
	cmd.Dir = dir
	patch, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	s := scenarios()[0].summary(t)
	s.patch = string(patch)
	var b bytes.Buffer
	if err := renderMail(&b, s, nil); err != nil {
		t.Fatal(err)
	}
	dir = baseRepo(t)
	git(t, dir, b.Bytes(), "am", "-q")
	if got := git(t, dir, nil, "cat-file", "blob", "HEAD:dos.txt"); got != "one\r\ntwo" {
		t.Errorf("the file became %q", got)
	}
}

// A mail is made of text from outside: no header, body or diff may be smuggled
// in through the author or the subject.
func TestMailPatchOfHostileDetails(t *testing.T) {
	s := scenarios()[0].summary(t)
	for _, evil := range []string{
		"x\nFrom: evil <evil@example.com>", "x\r\n\r\ndiff --git a/a b/a", "=?utf-8?q?x?=", "ä ☃ " + strings.Repeat("long ", 200), "", "\x00\x1b[31m",
		"---", "x <y> z <w>", "A <a@example.com\nBcc: b@example.com>",
	} {
		s.mail = &event.MailDetails{Author: evil, Subject: evil}
		var b bytes.Buffer
		if err := renderMail(&b, s, nil); err != nil {
			t.Fatal(err)
		}
		dir := baseRepo(t)
		git(t, dir, b.Bytes(), "am", "-q")
		if n := git(t, dir, nil, "rev-list", "--count", "HEAD"); n != "2" {
			t.Errorf("%q: %s commits, want 2", evil, n)
		}
		if body := git(t, dir, nil, "log", "-1", "--format=%b"); !strings.HasPrefix(body, "Nightshift-Thread: ") {
			t.Errorf("%q: the message became %q", evil, body)
		}
	}
}

// A patch that is not known is not written as an empty one.
func TestNoPatchWithoutDiff(t *testing.T) {
	for _, sc := range scenarios() {
		files, sinks := allSinks(t)
		sc.record(t, sinks...)
		_, written := files["changes.patch"]
		want := sc.name != "service" && sc.name != "killed"
		if written != want {
			t.Errorf("%s: changes.patch written: %v, want %v", sc.name, written, want)
		}
		if written && sc.name == "denied" && files["changes.patch"].Len() != 0 {
			t.Errorf("%s: nothing was changed, yet the patch is not empty", sc.name)
		}
	}
}

// report.json does not hold the patch: what is made of it says so, and writes no
// empty patch and no statement about one.
func TestNoPatchFromReportJSON(t *testing.T) {
	s := scenarios()[0].summary(t)
	var b bytes.Buffer
	if err := Render(&b, "json", []*Summary{s}, nil); err != nil {
		t.Fatal(err)
	}
	runs, err := ReadRuns(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"patch", "mail-patch", "provenance"} {
		var out bytes.Buffer
		if err := Render(&out, format, runs, nil); err == nil {
			t.Errorf("%s: %s", format, out.String())
		}
	}
	for _, format := range []string{"markdown", "html"} {
		var out bytes.Buffer
		if err := Render(&out, format, runs, nil); err != nil || !strings.Contains(out.String(), "is in the event log") {
			t.Errorf("%s does not say where the patch is (%v)", format, err)
		}
	}
}
