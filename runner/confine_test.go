package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/workspace"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// place is a home, a CODEX_HOME and a workspace of one test, outside /tmp, which
// commands see replaced.
type place struct {
	t       *testing.T
	base    string
	ws      string
	user    string // home folder
	home    string // CODEX_HOME
	runtime string
	env     []string
	flags   policy.Flags
	made    []string // folders the test itself makes in the home folder
}

func newPlace(t *testing.T) *place {
	t.Helper()
	parent, err := os.UserHomeDir()
	if err != nil {
		t.Skipf("no home folder for the test's files: %v", err)
	}
	if real := sandbox.RealPath(parent); sandbox.Within(real, "/tmp") || sandbox.Within(real, "/var/tmp") {
		t.Skip("the home folder lies in a temporary one")
	}
	base, err := os.MkdirTemp(parent, ".confine-test-")
	if err != nil {
		t.Skipf("no folder outside /tmp: %v", err)
	}
	t.Cleanup(func() {
		filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				os.Chmod(p, 0o755)
			}
			return nil
		})
		os.RemoveAll(base)
	})
	if base, err = filepath.EvalSymlinks(base); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, base: base, ws: base + "/ws", user: base + "/user", home: base + "/codex", runtime: base + "/runtime"}
	for _, d := range []string{p.ws, p.user, p.home, p.runtime} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.user, "CODEX_HOME=" + p.home, "CI=true"}
	return p
}

func (p *place) write(path, text string) string {
	p.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.base, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *place) lookup(name string) (string, bool) { return environment(p.env).get(name) }

func (p *place) options(mode string, overrides ...string) ConfineOptions {
	p.t.Helper()
	src := policy.Sources{Files: diskFiles{}, SystemDir: p.base + "/etc", Home: p.home, UserHome: p.user, Cwd: p.ws, LookupEnv: p.lookup, Flags: p.flags}
	src.Flags.Sandbox = mode
	for _, o := range overrides {
		v, err := policy.ParseOverride(o)
		if err != nil {
			p.t.Fatal(err)
		}
		src.Overrides = append(src.Overrides, v)
	}
	pol, err := policy.Load(src)
	if err != nil {
		p.t.Fatal(err)
	}
	facts, err := workspace.Find(p.ws)
	if err != nil {
		p.t.Fatal(err)
	}
	return ConfineOptions{Policy: pol, Workdir: p.ws, Facts: facts, Home: p.home, UserHome: p.user, Private: p.runtime, LookupEnv: p.lookup}
}

func (p *place) confine(mode string, overrides ...string) (*Confinement, ConfineOptions) {
	p.t.Helper()
	o := p.options(mode, overrides...)
	c, err := Confine(o)
	if err != nil {
		p.t.Fatal(err)
	}
	return c, o
}

// run runs a script in the sandbox with the environment a command would get.
func (p *place) run(c *Confinement, o ConfineOptions, script string) (output string, code int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	box, err := sandbox.Open(ctx, c.Spec)
	var missing *sandbox.UnsupportedError
	if errors.As(err, &missing) {
		p.t.Skipf("%v", err)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() {
		if err := box.Close(); err != nil {
			p.t.Errorf("closing the sandbox: %v", err)
		}
	}()
	proc, err := box.Start(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, Dir: p.ws,
		Env: c.Environ(CommandEnv{Base: o.Policy.Environment(p.env), ThreadID: "t", CallID: "call_1", Version: "1.2.3"})})
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := io.ReadAll(proc.Output())
	if err != nil {
		p.t.Fatal(err)
	}
	x, err := proc.Wait()
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b), x.Code
}

func (p *place) git(dir string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.user, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// diskFiles are the real files.
type diskFiles struct{}

func (diskFiles) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }
func (diskFiles) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (diskFiles) RealPath(name string) string                { return sandbox.RealPath(name) }
func (diskFiles) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }

func TestConfineSpec(t *testing.T) {
	p := newPlace(t)
	extra := p.base + "/extra"
	if err := os.Mkdir(extra, 0o755); err != nil {
		t.Fatal(err)
	}
	p.flags.AddDirs = []string{extra}

	c, _ := p.confine("workspace-write", `sandbox.deny_read=["`+p.base+`/hidden"]`, "sandbox.memory=1073741824", "sandbox.processes=99")
	s := c.Spec
	if s.Mode != sandbox.WorkspaceWrite || s.Workspace != p.ws || !slices.Equal(c.roots(), []string{p.ws, extra}) || !slices.Equal(c.Extra(), []string{extra}) {
		t.Errorf("%+v", s)
	}
	for _, n := range []string{".git", ".codex", ".agents", ".aws"} {
		if !slices.Contains(s.ProtectNames, n) {
			t.Errorf("%s is not protected", n)
		}
	}
	for _, d := range []string{p.base + "/hidden", p.home, p.user + "/.ssh", "/etc/shadow"} {
		if !slices.Contains(s.Deny, d) {
			t.Errorf("%s is not denied: %q", d, s.Deny)
		}
	}
	if s.Limits.MemoryBytes != 1<<30 || s.Limits.Processes != 99 || s.Limits.OpenFiles != sandbox.DefaultLimits().OpenFiles {
		t.Errorf("%+v", s.Limits)
	}
	if s.Net.Mode != sandbox.NetOff || s.Require != sandbox.DefaultRequire || s.HostTmp || s.TmpDir != "" || !sandbox.Within(s.Private, p.runtime) {
		t.Errorf("%+v", s)
	}
	scope := c.PatchScope()
	if !slices.Equal(scope.Roots, []string{p.ws, extra, "/tmp"}) || scope.Workdir != p.ws || !slices.Contains(scope.Protected, p.base+"/hidden") {
		t.Errorf("%+v", scope)
	}

	c, _ = p.confine("read-only")
	if c.Spec.Mode != sandbox.ReadOnly || len(c.Spec.Write) != 0 || len(c.Caches) != 0 || len(c.PatchScope().Roots) != 0 {
		t.Errorf("%+v %+v", c.Spec, c.Caches)
	}
	c, _ = p.confine("danger-full-access")
	if c.Spec.Mode != sandbox.FullAccess || c.Spec.Net.Mode != sandbox.NetHost || c.Spec.Require&^sandbox.TreeDies != 0 || len(c.Spec.Deny) != 0 || len(c.Caches) != 0 || !slices.Equal(c.PatchScope().Roots, []string{"/"}) {
		t.Errorf("%+v", c.Spec)
	}
	c, _ = p.confine("workspace-write", "sandbox_workspace_write.network_access=true")
	if c.Spec.Net.Mode != sandbox.NetHost {
		t.Errorf("%+v", c.Spec.Net)
	}
	c, _ = p.confine("workspace-write", "sandbox.require=[\"resources-limited\"]")
	if c.Spec.Require&sandbox.Limited == 0 {
		t.Errorf("%v", c.Spec.Require)
	}
}

func TestConfineRefusals(t *testing.T) {
	for name, change := range map[string]func(*place){
		"the root":             func(p *place) { p.ws = "/" },
		"the home folder":      func(p *place) { p.ws = p.user },
		"above the home":       func(p *place) { p.ws = p.base },
		"a link to the home":   func(p *place) { os.Symlink(p.user, p.base+"/link"); p.flags.AddDirs = []string{p.base + "/link"} },
		"CODEX_HOME":           func(p *place) { p.ws = p.home },
		"the home as add-dir":  func(p *place) { p.flags.AddDirs = []string{p.user} },
		"the root as add-dir":  func(p *place) { p.flags.AddDirs = []string{"/"} },
		"CODEX_HOME as a root": func(p *place) { p.flags.AddDirs = []string{p.home} },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			change(p)
			o := p.options("workspace-write")
			o.accountHome = p.user
			_, err := Confine(o)
			var refused *ConfineError
			if !errors.As(err, &refused) || refused.Hint() == "" || !strings.Contains(err.Error(), refused.Path) {
				t.Errorf("%v", err)
			}
			if _, err := Confine(p.options("read-only")); err != nil {
				t.Errorf("read-only: %v", err)
			}
			if _, err := Confine(p.options("danger-full-access")); err != nil {
				t.Errorf("full access: %v", err)
			}
		})
	}
}

// A home that a CI system put into the workspace is used, and said.
func TestBorrowedHome(t *testing.T) {
	for name, change := range map[string]func(*place){
		"the workspace":    func(p *place) { p.user = p.ws },
		"in the workspace": func(p *place) { p.user = p.ws + "/.home"; p.write(p.user+"/x", "") },
	} {
		p := newPlace(t)
		change(p)
		c, err := Confine(p.options("workspace-write"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.ContainsFunc(c.Notices, func(n event.Notice) bool { return n.Class == "home_writable" }) {
			t.Errorf("%s: %+v", name, c.Notices)
		}
		p.flags.AddDirs = []string{p.user}
		if _, err := Confine(p.options("workspace-write")); name == "in the workspace" && err == nil {
			t.Error("as a folder of its own it is opened")
		}
	}
}

// A writable folder that does not exist is left out, and said.
func TestMissingRoot(t *testing.T) {
	p := newPlace(t)
	p.flags.AddDirs = []string{p.base + "/none"}
	c, err := Confine(p.options("workspace-write"))
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(c.Spec.Write, p.base+"/none") || len(c.Notices) == 0 || c.Notices[0].Class != "missing_root" {
		t.Errorf("%v %+v", c.Spec.Write, c.Notices)
	}
}

// A workspace that holds CODEX_HOME is used, and CODEX_HOME is out of reach.
func TestWorkspaceAroundCodexHome(t *testing.T) {
	p := newPlace(t)
	p.home = p.ws + "/.codex-home"
	p.write(p.home+"/auth.json", "SECRET-IN-AUTH")
	p.write(p.home+"/skills/x/SKILL.md", "a skill")
	c, o := p.confine("workspace-write")
	out, _ := p.run(c, o, `cat .codex-home/auth.json; echo x > .codex-home/auth.json; echo y > .codex-home/new; mv .codex-home gone; echo ok > file; cat file .codex-home/skills/x/SKILL.md`)
	if strings.Contains(out, "SECRET-IN-AUTH") || !strings.Contains(out, "ok\n") || !strings.Contains(out, "a skill") {
		t.Errorf("%s", out)
	}
	if b, err := os.ReadFile(p.home + "/auth.json"); err != nil || string(b) != "SECRET-IN-AUTH" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(p.home + "/new"); err == nil {
		t.Error("a file was made in CODEX_HOME")
	}
}

// A workspace below CODEX_HOME works; its secrets stay hidden.
func TestWorkspaceInsideCodexHome(t *testing.T) {
	p := newPlace(t)
	p.write(p.home+"/auth.json", "SECRET-IN-AUTH")
	p.ws = p.home + "/worktrees/one"
	p.write(p.ws+"/a.txt", "in the workspace\n")
	c, o := p.confine("workspace-write")
	out, _ := p.run(c, o, `cat a.txt; echo ok > b && cat b; cat ../../auth.json`)
	if strings.Contains(out, "SECRET") || !strings.Contains(out, "in the workspace\nok\n") {
		t.Errorf("%s", out)
	}
}

// The files that steer a CI job, and key files that the environment names, can
// be neither read nor written, wherever they lie.
func TestControlFiles(t *testing.T) {
	p := newPlace(t)
	var files []string
	add := func(name, path string) {
		p.env = append(p.env, name+"="+path)
		files = append(files, p.write(path, "CONTROL-CANARY\n"))
	}
	commands := p.base + "/_temp/_runner_file_commands"
	add("GITHUB_ENV", commands+"/set_env_1")
	add("GITHUB_PATH", commands+"/add_path_1")
	add("GITHUB_OUTPUT", commands+"/set_output_1")
	add("GITHUB_STATE", commands+"/save_state_1")
	add("GITHUB_STEP_SUMMARY", commands+"/step_summary_1")
	add("BASH_ENV", p.ws+"/.bash_env")
	add("GOOGLE_APPLICATION_CREDENTIALS", p.ws+"/gha-creds-1.json")
	add("AWS_SHARED_CREDENTIALS_FILE", p.base+"/aws/credentials")
	files = append(files, p.write(commands+"/set_env_2", "CONTROL-CANARY\n"))
	p.env = append(p.env, "CI_PROJECT_DIR="+p.ws)
	files = append(files, p.write(p.ws+".tmp/DEPLOY_KEY", "CONTROL-CANARY\n"))
	// The script of the very step, with its secrets written out, and the login of
	// the agent; other files there are for commands.
	p.env = append(p.env, "RUNNER_TEMP="+p.base+"/agent/_work/_temp", "WORKSPACE="+p.base+"/job")
	files = append(files, p.write("agent/_work/_temp/0f8fad5b-d9cb-469f-a165-70867728950e.sh", "CONTROL-CANARY\n"),
		p.write("agent/.credentials", "CONTROL-CANARY\n"), p.write("agent/.credentials_rsaparams", "CONTROL-CANARY\n"),
		p.write("job@tmp/secretFiles/1/key", "CONTROL-CANARY\n"))
	add("AGENT_TEMPDIRECTORY", p.base+"/azure/key.pem")
	p.env = append(p.env, "WORKSPACE_TMP="+p.runtime+"/..") // holds the run's own files and the workspace
	p.write("agent/.runner", "{}")
	p.write("agent/_work/_temp/plain.txt", "for commands\n")
	// One that holds the work itself cannot be covered.
	p.env = append(p.env, "KUBECONFIG="+p.base+":"+p.base+"/kube.yaml")
	files = append(files, p.write("kube.yaml", "CONTROL-CANARY\n"))

	c, o := p.confine("workspace-write")
	script := "env; cat " + p.base + "/agent/_work/_temp/plain.txt; "
	for _, f := range files {
		script += "cat " + f + "; echo POISON >> " + f + "; rm -f " + f + "; "
	}
	out, _ := p.run(c, o, script+"echo done > done; cat done")
	if strings.Contains(out, "CONTROL-CANARY") || !strings.Contains(out, "done") || !strings.Contains(out, "for commands") {
		t.Errorf("%s", out)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || string(b) != "CONTROL-CANARY\n" {
			t.Errorf("%s: %q, %v", f, b, err)
		}
	}
}

func TestCommitInLinkedWorktree(t *testing.T) {
	p := newPlace(t)
	p.git(p.ws, "init", "-q", "-b", "main")
	p.write("ws/a.txt", "one\n")
	p.git(p.ws, "add", "-A")
	p.git(p.ws, "commit", "-qm", "one")
	p.git(p.ws, "worktree", "add", "-q", "-b", "feature", p.base+"/wt")
	repo := p.ws + "/.git"
	p.ws = p.base + "/wt"
	const commit = `echo two >> a.txt && git add -A && git -c user.name=bot -c user.email=bot@example.com commit -qm work && git log --oneline | wc -l`

	c, o := p.confine("workspace-write")
	if out, code := p.run(c, o, commit); code == 0 {
		t.Errorf("committed without being allowed to: %s", out)
	}
	c, o = p.confine("workspace-write", `sandbox_workspace_write.writable_roots=["`+repo+`"]`)
	if out, code := p.run(c, o, commit); code != 0 || strings.TrimSpace(out) != "2" {
		t.Errorf("exit %d: %s", code, out)
	}
	if got := p.git(p.ws, "rev-list", "--count", "HEAD"); got != "2" {
		t.Errorf("%s commits", got)
	}
	if got := p.git(p.ws, "status", "--porcelain"); got != "" {
		t.Errorf("not clean: %s", got)
	}
	if scope := c.PatchScope(); !slices.Contains(scope.Roots, repo) {
		t.Errorf("%+v", scope)
	}
}

// A job's temporary folder is closed although the run has its own files there.
func TestRuntimeInTheJobsFolder(t *testing.T) {
	p := newPlace(t)
	p.runtime = p.base + "/jobtmp/deep/nightshift-1"
	p.write(p.runtime+"/x", "")
	secret := p.write("jobtmp/secret", "CONTROL-CANARY\n")
	p.write("jobtmp/deep/secret", "CONTROL-CANARY\n")
	p.env = append(p.env, "AGENT_TEMPDIRECTORY="+p.base+"/jobtmp")
	c, o := p.confine("workspace-write")
	out, _ := p.run(c, o, "cat "+secret+" "+p.base+"/jobtmp/deep/secret; echo x > $GOCACHE.x && echo done")
	if strings.Contains(out, "CONTROL-CANARY") || !strings.Contains(out, "done") {
		t.Errorf("%s", out)
	}
}

func TestTemporaryFiles(t *testing.T) {
	const script = `echo "$TMPDIR"; for d in /tmp /var/tmp /dev/shm "$TMPDIR"; do if touch $d/nightshift-probe 2>/dev/null; then echo "yes $d"; else echo "no $d"; fi; done; mktemp >/dev/null && echo mktemp`
	p := newPlace(t)
	own := p.runtime + "/private/tmp"
	for overrides, want := range map[string][]string{
		"":                       {"/tmp", "yes /tmp", "yes /var/tmp", "yes /tmp", "mktemp"},
		"exclude_slash_tmp":      {own, "no /tmp", "no /var/tmp", "yes " + own, "mktemp"},
		"exclude_tmpdir_env_var": {"/tmp", "yes /tmp", "yes /tmp", "mktemp"},
		"exclude_slash_tmp exclude_tmpdir_env_var": {"/tmp", "no /tmp", "no /var/tmp", "no /tmp"},
	} {
		var list []string
		for _, o := range strings.Fields(overrides) {
			list = append(list, "sandbox_workspace_write."+o+"=true")
		}
		c, o := p.confine("workspace-write", list...)
		out, _ := p.run(c, o, script)
		rest := out
		for _, w := range want {
			_, after, ok := strings.Cut("\n"+rest, "\n"+w+"\n")
			if !ok {
				t.Errorf("%s: no %q in\n%s", overrides, w, out)
			}
			rest = after
		}
		if excluded := strings.Contains(overrides, "slash"); slices.Contains(c.PatchScope().Roots, "/tmp") == excluded {
			t.Errorf("%s: %+v", overrides, c.PatchScope())
		}
	}
	if _, err := os.Stat("/tmp/nightshift-probe"); err == nil {
		t.Error("the host's /tmp was written")
	}
}

func TestEventOfConfinement(t *testing.T) {
	p := newPlace(t)
	c, _ := p.confine("workspace-write")
	e := c.Event(sandbox.Report{Mode: sandbox.WorkspaceWrite, Level: "full", LandlockABI: 7, Writable: []string{p.ws},
		Guarantees: []sandbox.Support{{Guarantee: sandbox.TreeDies, Name: "tree-dies", Held: true, Mechanism: "pid namespace"},
			{Guarantee: sandbox.Limited, Name: "resources-limited", Why: "no cgroup", Hint: "h"}}})
	if e.Mode != "workspace-write" || e.Level != "full" || e.LandlockABI != 7 || len(e.Guarantees) != 2 || !e.Guarantees[0].Required || e.Guarantees[1].Required || e.Guarantees[1].Why != "no cgroup" || e.Caches["GOCACHE"] == "" {
		t.Errorf("%+v", e)
	}
}
