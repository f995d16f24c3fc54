package batch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// world is a repository, and a results folder beside it.
type world struct {
	t    *testing.T
	base string
	repo string
	git  *Git
}

func newWorld(t *testing.T) *world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, base: base, repo: filepath.Join(base, "repo")}
	out := filepath.Join(base, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	w.git = &Git{Root: out, Cache: filepath.Join(out, "cache"), Depth: 1, Environ: w.environ()}
	w.run(base, "init", "-q", "-b", "main", "repo")
	w.commit("one")
	w.run(w.repo, "tag", "-a", "-m", "annotated", "v1")
	w.commit("two")
	w.run(w.repo, "branch", "dev")
	w.run(w.repo, "branch", "v1") // as ambiguous as can be: the branch is meant
	w.commit("three")
	return w
}

func (w *world) environ() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.base, "GIT_CONFIG_NOSYSTEM=1"}
}

func (w *world) run(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	cmd.Dir, cmd.Env = dir, w.environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) commit(text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.repo, "file"), []byte(text+"\n"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.run(w.repo, "add", "-A")
	w.run(w.repo, "commit", "-q", "-m", text)
}

var treeCount atomic.Int32

// checkout makes a work tree, which must be whole: git sees no change in it.
func (w *world) checkout(repo, ref string) (dir, content string) {
	w.t.Helper()
	dir = filepath.Join(w.git.Root, fmt.Sprintf("tree%d", treeCount.Add(1)))
	commit, err := w.git.Checkout(context.Background(), repo, ref, dir)
	if err != nil {
		w.t.Fatalf("%s at %q: %v", repo, ref, err)
	}
	if head := w.run(dir, "rev-parse", "HEAD"); head != commit {
		w.t.Errorf("HEAD is %s, not %s", head, commit)
	}
	if dirty := w.run(dir, "status", "--porcelain"); dirty != "" {
		w.t.Errorf("%s at %q is dirty: %s", repo, ref, dirty)
	}
	b, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil {
		w.t.Fatal(err)
	}
	return dir, strings.TrimSpace(string(b))
}

// fingerprint is all of a folder: names, modes, contents.
func fingerprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil || d.IsDir() {
			out[path] = "folder"
			return err
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		out[path] = fi.Mode().String() + " " + hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// changed lists the differences of two fingerprints.
func changed(a, b map[string]string) []string {
	var out []string
	for p, v := range b {
		if a[p] != v {
			out = append(out, p)
		}
	}
	for p := range a {
		if _, ok := b[p]; !ok {
			out = append(out, p)
		}
	}
	return out
}

func TestCheckoutLocal(t *testing.T) {
	w := newWorld(t)
	w.run(w.base, "clone", "-q", "--bare", "repo", "bare.git")
	w.run(w.base, "clone", "-q", "--shared", "repo", "borrower")
	w.run(w.repo, "worktree", "add", "-q", "--detach", "../linked", "dev")
	old := w.run(w.repo, "rev-parse", "HEAD~2")
	before := fingerprint(t, w.repo)
	for _, tc := range []struct{ repo, ref, want string }{
		{w.repo, "", "three"}, {"file://" + w.repo, "", "three"}, {w.repo, "main", "three"}, {w.repo, "dev", "two"},
		{w.repo, "v1", "two"}, {w.repo, "refs/tags/v1", "one"}, {w.repo, "HEAD~1", "two"}, {w.repo, old, "one"}, {w.repo, old[:8], "one"},
		{filepath.Join(w.base, "bare.git"), "dev", "two"}, {filepath.Join(w.base, "borrower"), "", "three"}, {filepath.Join(w.base, "linked"), "", "two"},
	} {
		if _, got := w.checkout(tc.repo, tc.ref); got != tc.want {
			t.Errorf("%s at %q is %q, want %q", tc.repo, tc.ref, got, tc.want)
		}
	}
	if diff := changed(before, fingerprint(t, w.repo)); len(diff) > 0 {
		t.Errorf("the repository was touched: %q", diff)
	}
}

func TestCheckoutMistakes(t *testing.T) {
	w := newWorld(t)
	w.run(w.base, "init", "-q", "empty")
	for _, tc := range []struct{ repo, ref, want string }{
		{w.repo, "nope", `there is no branch, tag or commit "nope"`},
		{w.repo, "--upload-pack=x", "there is no branch, tag or commit"},
		{w.repo, "main:file", "there is no branch, tag or commit"},
		{w.base + "/empty", "", "it has no commit"},
		{w.base + "/gone", "", "no such file"},
		{w.base + "/out", "", "not a git repository"},
	} {
		dir := filepath.Join(w.git.Root, "t")
		_, err := w.git.Checkout(context.Background(), tc.repo, tc.ref, dir)
		var re *RepoError
		if !errors.As(err, &re) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s at %q: %v", tc.repo, tc.ref, err)
		}
		if _, serr := os.Stat(dir); serr == nil {
			t.Errorf("%s at %q left a tree", tc.repo, tc.ref)
		}
	}
}

// A repository's configuration and hooks are its owner's; nothing of it runs.
func TestCheckoutRunsNothing(t *testing.T) {
	w := newWorld(t)
	mark := filepath.Join(w.base, "mark")
	script := filepath.Join(w.base, "evil")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+mark+"\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"post-checkout", "reference-transaction", "pre-commit", "post-commit", "post-merge"} {
		if err := os.Symlink(script, filepath.Join(w.repo, ".git/hooks", hook)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	w.run(w.repo, "config", "core.fsmonitor", script)
	w.run(w.repo, "config", "uploadpack.packObjectsHook", script)
	w.run(w.repo, "config", "filter.x.smudge", script)
	w.run(w.repo, "config", "core.hooksPath", ".git/hooks")
	if err := os.WriteFile(filepath.Join(w.repo, ".gitattributes"), []byte("* filter=x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(mark)
	dir, _ := w.checkout(w.repo, "")
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("new\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	task := Task{ID: "a", Repo: w.repo}
	if _, err := w.git.Commit(context.Background(), task, dir, "change"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.git.Publish(context.Background(), task, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("something of the repository ran")
	}
}

func TestPublish(t *testing.T) {
	w := newWorld(t)
	w.run(w.repo, "worktree", "add", "-q", "--detach", "../linked", "dev")
	if err := os.WriteFile(filepath.Join(w.repo, "file"), []byte("not committed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, repo := range []string{w.repo, filepath.Join(w.base, "linked")} {
		task := Task{ID: "org/" + filepath.Base(repo), Repo: repo}
		dir, _ := w.checkout(repo, "dev")
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte("new\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		before := fingerprint(t, w.repo)
		if _, err := w.git.Commit(context.Background(), task, dir, "Say something\n\nat length"); err != nil {
			t.Fatal(err)
		}
		if change, err := w.git.Change(context.Background(), dir, "HEAD~1"); err != nil || !strings.Contains(change, "+new") {
			t.Errorf("%q, %v", change, err)
		}
		if diff := changed(before, fingerprint(t, w.repo)); len(diff) > 0 {
			t.Errorf("a commit in the checkout touched the repository: %q", diff)
		}
		branch, err := w.git.Publish(context.Background(), task, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range changed(before, fingerprint(t, w.repo)) {
			rel, err := filepath.Rel(filepath.Join(w.repo, ".git"), p)
			if err != nil || !strings.HasPrefix(rel, "objects/") && !strings.HasPrefix(rel, "refs/heads/nightshift") {
				t.Errorf("the repository changed at %s", p)
			}
		}
		if got := w.run(repo, "log", "-1", "--format=%an|%s|%b", branch); got != "nightshift|Say something|at length\n\nNightshift-Task: "+task.ID {
			t.Errorf("%q", got)
		}
		// Again: our own branch may be replaced, one that was worked on may not.
		if _, err := w.git.Publish(context.Background(), task, dir); err != nil {
			t.Error(err)
		}
		w.run(w.repo, "branch", "-f", branch, "main")
		var foreign *ForeignBranchError
		if _, err := w.git.Publish(context.Background(), task, dir); !errors.As(err, &foreign) {
			t.Errorf("somebody's work was overwritten: %v", err)
		}
	}
}

// execPath is where git keeps its programs.
func execPath(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(path))
}

// daemon serves w.base over git:// on loopback.
func (w *world) daemon() string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		w.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(filepath.Join(execPath(w.t), "git-daemon"), "--reuseaddr", "--export-all", "--base-path="+w.base, "--listen=127.0.0.1", "--port="+port, w.base)
	cmd.Env = append(w.environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	cmd.WaitDelay = time.Second
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 200 {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return "git://" + addr
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("the git daemon does not answer:\n%s", log.String())
	return ""
}

func TestCheckoutRemote(t *testing.T) {
	w := newWorld(t)
	url := w.daemon() + "/repo"
	old := w.run(w.repo, "rev-parse", "HEAD~2")
	for _, tc := range []struct{ ref, want string }{{"", "three"}, {"main", "three"}, {"dev", "two"}, {"v1", "two"}, {old, "one"}, {old[:8], "one"}} {
		dir, got := w.checkout(url, tc.ref)
		if got != tc.want {
			t.Errorf("%q is %q, want %q", tc.ref, got, tc.want)
		}
		if n := w.run(dir, "rev-list", "--count", "HEAD"); len(tc.ref) != 8 && n != "1" {
			t.Errorf("%q: %s commits of history were fetched", tc.ref, n)
		}
		if origin := w.run(dir, "remote", "get-url", "origin"); origin != url {
			t.Errorf("origin is %q", origin)
		}
	}
	// What moved on is fetched; what is there is not fetched again.
	w.commit("four")
	if _, got := w.checkout(url, ""); got != "four" {
		t.Errorf("after a push it is %q", got)
	}
	w.git.Depth = 0
	dir, _ := w.checkout(url, "")
	if n := w.run(dir, "rev-list", "--count", "HEAD"); n != "4" {
		t.Errorf("with --depth 0 there are %s commits", n)
	}
	for ref, want := range map[string]string{"nope": `there is no branch, tag or commit "nope"`, strings.Repeat("0", 40): "there is no branch, tag or commit"} {
		if _, err := w.git.Checkout(context.Background(), url, ref, filepath.Join(w.git.Root, "t")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if _, err := w.git.Checkout(context.Background(), strings.Replace(url, "/repo", "/none", 1), "", filepath.Join(w.git.Root, "t")); err == nil {
		t.Error("a repository that is not there was checked out")
	}
}

// Many tasks on one remote share one fetch, and their checkouts one store.
func TestCheckoutRemoteTogether(t *testing.T) {
	w := newWorld(t)
	url := w.daemon() + "/repo"
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			dir := filepath.Join(w.git.Root, fmt.Sprint("together", i))
			if _, err := w.git.Checkout(context.Background(), url, []string{"main", "dev"}[i%2], dir); err != nil {
				t.Error(err)
				return
			}
			packs, err := filepath.Glob(filepath.Join(dir, ".git/objects/*/*"))
			if err != nil || len(packs) > 1 { // info/alternates
				t.Errorf("the checkout has objects of its own: %v %v", packs, err)
			}
		})
	}
	wg.Wait()
	caches, err := filepath.Glob(filepath.Join(w.git.Cache, "*.git"))
	if err != nil || len(caches) != 1 {
		t.Errorf("%v %v", caches, err)
	}
}

// web serves w.base over HTTP, for one user only.
func (w *world) web(before func(http.ResponseWriter, *http.Request) bool) *httptest.Server {
	w.t.Helper()
	backend := &cgi.Handler{Path: filepath.Join(execPath(w.t), "git-http-backend"), Dir: w.base,
		Env: []string{"GIT_PROJECT_ROOT=" + w.base, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + w.base, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if before != nil && before(rw, r) {
			return
		}
		if user, pass, _ := r.BasicAuth(); user != "bot" || pass != "canary-s3cret" {
			rw.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(rw, r)
	}))
	w.t.Cleanup(srv.Close)
	return srv
}

// The password of a URL reaches the server and nothing else: no file below the
// results folder holds it, where agents could read it and CI could upload it.
func TestCheckoutWithPassword(t *testing.T) {
	w := newWorld(t)
	var tries atomic.Int32
	srv := w.web(func(rw http.ResponseWriter, _ *http.Request) bool {
		if tries.Add(1) == 1 {
			rw.WriteHeader(http.StatusServiceUnavailable) // it passes
			return true
		}
		return false
	})
	url := strings.Replace(srv.URL, "http://", "http://bot:canary-s3cret@", 1) + "/repo"
	dir, got := w.checkout(url, "dev")
	if got != "two" {
		t.Errorf("%q", got)
	}
	if origin := w.run(dir, "remote", "get-url", "origin"); strings.Contains(origin, "canary") || strings.Contains(origin, "bot") {
		t.Errorf("origin is %q", origin)
	}
	err := filepath.WalkDir(w.git.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("canary")) || bytes.Contains(b, []byte("Ym90OmNhbmFyeS1zM2NyZXQ=")) {
			t.Errorf("%s holds the password", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{strings.Replace(url, "s3cret", "wrong", 1), srv.URL + "/repo"} {
		_, err := w.git.Checkout(context.Background(), bad+".git", "", filepath.Join(w.git.Root, "t"))
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
}

func TestCleanURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://u:p@example.com/r.git": "https://example.com/r.git", "https://token@example.com/r": "https://example.com/r",
		"ssh://git@example.com/r": "ssh://git@example.com/r", "ssh://git:p@example.com/r": "ssh://git@example.com/r",
		"git@example.com:r.git": "git@example.com:r.git", "/a/b": "/a/b", "https://example.com/r?x=1": "https://example.com/r?x=1",
	} {
		if got := CleanURL(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestLocal(t *testing.T) {
	for in, want := range map[string]string{"/a": "/a", "a/b": "a/b", "file:///a": "/a", "file://localhost/a": "/a", "git@example.com:a": "", "https://example.com/a": "", "./x:y": "./x:y"} {
		if path, local := Local(in); local != (want != "") || local && path != want {
			t.Errorf("%s: %s %v", in, path, local)
		}
	}
}

// A repository may belong to somebody else: containers get them mounted.
func TestRepositoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	w := newWorld(t)
	err := filepath.WalkDir(w.repo, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 4711, 4711))
	})
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(w.git.Root, "tree")
	if _, err := w.git.Checkout(context.Background(), w.repo, "dev", tree); err != nil {
		t.Fatal(err)
	}
	if got := w.run(tree, "log", "-1", "--format=%s"); got != "two" {
		t.Errorf("the checkout is at %q", got)
	}
}

// A URL's password is one more setting of git, after those that the job makes.
func TestCredentialBesideSettings(t *testing.T) {
	for _, c := range []struct{ count, want string }{{"", "0"}, {"GIT_CONFIG_COUNT=2", "2"}, {"GIT_CONFIG_COUNT=x", "0"}} {
		env := credential("https://h.example/r", url.UserPassword("bot", "pw"), []string{"A=b", c.count})
		n, _ := strconv.Atoi(c.want)
		want := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", n+1), "GIT_CONFIG_KEY_" + c.want + "=http.https://h.example/.extraHeader", "GIT_CONFIG_VALUE_" + c.want + "=Authorization: Basic Ym90OnB3"}
		if !slices.Equal(env, want) {
			t.Errorf("%q: %q, want %q", c.count, env, want)
		}
	}
}
