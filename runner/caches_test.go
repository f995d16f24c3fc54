package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCachesOnlyWhereNeeded(t *testing.T) {
	p := newPlace(t)
	p.env = append(p.env, "GOCACHE="+p.ws+"/.gocache", "PIP_CACHE_DIR=/tmp/pip", "npm_config_cache="+p.base+"/elsewhere")
	c, _ := p.confine("workspace-write")
	for name, want := range map[string]string{
		"GOCACHE": "", "PIP_CACHE_DIR": "", // writable as they are
		"npm_config_cache": p.runtime + "/private/npm", "XDG_CACHE_HOME": p.runtime + "/private/xdg", "GOMODCACHE": p.runtime + "/private/go-mod",
		"CARGO_HOME": p.runtime + "/private/cargo", "GRADLE_USER_HOME": p.runtime + "/private/gradle", "MAVEN_OPTS": "-Dmaven.repo.local=" + p.runtime + "/private/maven",
		"PYTHONUSERBASE": p.runtime + "/private/python", "GRADLE_RO_DEP_CACHE": "", "GOPROXY": "",
	} {
		if got := c.Caches[name]; got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	if !slices.Contains(c.Spec.Write, p.runtime+"/private") || slices.Contains(c.Extra(), p.runtime+"/private") {
		t.Errorf("%q, %q", c.Spec.Write, c.Extra())
	}

	c, _ = p.confine("workspace-write", "sandbox.private_caches=false")
	if len(c.Caches) != 0 || slices.Contains(c.Spec.Write, p.runtime+"/private") {
		t.Errorf("switched off: %v", c.Caches)
	}
	// The whole of the cache folder is writable: nothing to move there.
	p.write(p.user+"/.cache/x", "")
	p.flags.AddDirs = []string{p.user + "/.cache"}
	c, _ = p.confine("workspace-write")
	if c.Caches["XDG_CACHE_HOME"] != "" || c.Caches["UV_CACHE_DIR"] != "" || c.Caches["CARGO_HOME"] == "" {
		t.Errorf("%v", c.Caches)
	}
	// The private folder lies in a writable one: it is hidden, and not used.
	p.flags.AddDirs = []string{p.runtime}
	c, _ = p.confine("workspace-write")
	if len(c.Caches) != 0 || !slices.Contains(c.Spec.Deny, p.runtime) || len(c.Notices) != 1 || c.Notices[0].Class != "no_private_caches" {
		t.Errorf("%v %+v", c.Caches, c.Notices)
	}
}

// An archive that names other owners can be unpacked by user 0, who has nobody
// else's number in a sandbox.
func TestOwnersOfArchives(t *testing.T) {
	p := newPlace(t)
	c, _ := p.confine("workspace-write")
	if got, want := c.Caches["TAR_OPTIONS"] != "", os.Geteuid() == 0; got != want {
		t.Errorf("TAR_OPTIONS=%q as user %d", c.Caches["TAR_OPTIONS"], os.Geteuid())
	}
	p.env = append(p.env, "TAR_OPTIONS=--totals")
	if c, _ = p.confine("workspace-write"); c.Caches["TAR_OPTIONS"] != "" {
		t.Errorf("the user's options became %q", c.Caches["TAR_OPTIONS"])
	}
}

// What the user has already stays in use.
func TestCachesKeepWhatIsThere(t *testing.T) {
	p := newPlace(t)
	p.write(p.user+"/go/pkg/mod/cache/download/x", "")
	p.write(p.user+"/.cargo/registry/x", "")
	p.write(p.user+"/.cargo/config.toml", "")
	p.write(p.user+"/.gradle/caches/modules-2/x", "")
	p.write(p.user+"/.gradle/wrapper/dists/gradle-9-bin/abc/gradle-9/bin/gradle", "")
	p.write(p.user+"/.gradle/wrapper/dists/gradle-9-bin/abc/gradle-9-bin.zip.ok", "")
	p.write(p.user+"/.gradle/wrapper/dists/gradle-9-bin/abc/gradle-9-bin.zip.lck", "")
	p.write(p.user+"/.local/lib/python3.12/site-packages/x.py", "")
	p.write(p.user+"/.m2/repository/x", "")
	p.write(p.user+"/.cache/huggingface/model", "")
	p.write(p.user+"/.cache/pip/x", "")
	for _, d := range []string{"new/bin/mvn", "new/lib/maven-core-3.9.9.jar", "old/bin/mvn", "old/lib/maven-core-3.8.7.jar"} {
		p.write(d, "")
	}
	p.env[0] = "PATH=" + p.base + "/new/bin"
	c, _ := p.confine("workspace-write")
	for name, want := range map[string]string{
		"GOMODCACHE": "", "CARGO_HOME": "", "PYTHONUSERBASE": "", "GOPROXY": "", "GRADLE_RO_DEP_CACHE": p.user + "/.gradle/caches",
		"MAVEN_OPTS": "-Dmaven.repo.local=" + p.runtime + "/private/maven -Dmaven.repo.local.tail=" + p.user + "/.m2/repository",
	} {
		if got := c.Caches[name]; got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	for link, want := range map[string]bool{"xdg/huggingface/model": true, "xdg/pip/x": false, "gradle/wrapper/dists/gradle-9-bin/abc/gradle-9/bin/gradle": true,
		"gradle/wrapper/dists/gradle-9-bin/abc/gradle-9-bin.zip.ok": true, "gradle/wrapper/dists/gradle-9-bin/abc/gradle-9-bin.zip.lck": false} {
		if _, err := os.Stat(filepath.Join(p.runtime, "private", link)); (err == nil) != want {
			t.Errorf("%s: %v", link, err)
		}
	}
	if st, err := os.Lstat(p.runtime + "/private/gradle/wrapper/dists/gradle-9-bin/abc"); err != nil || !st.IsDir() {
		t.Errorf("the wrapper cannot lock: %v", err)
	}

	p.env[0] = "PATH=" + p.base + "/old/bin"
	p.runtime = p.base + "/runtime2"
	c, _ = p.confine("workspace-write")
	if got, ok := c.Caches["MAVEN_OPTS"]; ok {
		t.Errorf("an old Maven without a network reads the user's repository: %q", got)
	}

	// With a network new things can come, and need a place.
	p.flags.NetworkAllow = []string{"example.com"}
	p.runtime = p.base + "/runtime3"
	p.write(p.user+"/.config/go/env", "GOPROXY=https://proxy.example.com\n")
	c, _ = p.confine("workspace-write")
	for name, want := range map[string]string{
		"GOMODCACHE": p.runtime + "/private/go-mod", "GOPROXY": "file://" + p.user + "/go/pkg/mod/cache/download,https://proxy.example.com",
		"CARGO_HOME": p.runtime + "/private/cargo", "MAVEN_OPTS": "-Dmaven.repo.local=" + p.runtime + "/private/maven",
	} {
		if got := c.Caches[name]; got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	if target, err := os.Readlink(p.runtime + "/private/cargo/config.toml"); err != nil || target != p.user+"/.cargo/config.toml" {
		t.Errorf("%q, %v", target, err)
	}
}

// needs skips where a program is missing or does not even start here.
func needs(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s", name)
	}
	if err := exec.Command(name, args...).Run(); err != nil {
		t.Skipf("%s does not work here: %v", name, err)
	}
}

// works runs a script inside that must succeed, and looks for what must not be
// left behind.
func works(t *testing.T, p *place, script string) string {
	t.Helper()
	c, o := p.confine("workspace-write")
	out, code := p.run(c, o, "set -e\n"+script)
	if code != 0 {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	for _, name := range []string{".cache", "go", ".npm", ".cargo", ".m2", ".local", ".config"} {
		if _, err := os.Lstat(filepath.Join(p.user, name)); err == nil && !slices.Contains(p.made, name) {
			t.Errorf("%s was made in the home folder", name)
		}
	}
	return out
}

func TestGoWorks(t *testing.T) {
	needs(t, "go", "version")
	p := newPlace(t)
	p.env = append(p.env, "GOTOOLCHAIN=local", "GOFLAGS=-p=2")
	p.write("ws/go.mod", "module example.com/x\ngo 1.21\nrequire example.com/dep v1.0.0\n")
	p.write("ws/x.go", "package x\nimport \"example.com/dep\"\nfunc Two() int { return dep.One + 1 }\n")
	// A module cache as an earlier step of the job left it.
	mod := p.user + "/go/pkg/mod"
	p.made = []string{"go"}
	p.write(mod+"/example.com/dep@v1.0.0/dep.go", "package dep\nconst One = 1\n")
	p.write(mod+"/example.com/dep@v1.0.0/go.mod", "module example.com/dep\n")
	download := mod + "/cache/download/example.com/dep/@v/v1.0.0"
	p.write(download+".mod", "module example.com/dep\n")
	p.write(download+".info", `{"Version":"v1.0.0"}`)
	p.write(download+".ziphash", "h1:0000000000000000000000000000000000000000000=")
	p.write("ws/go.sum", "example.com/dep v1.0.0 h1:0000000000000000000000000000000000000000000=\n"+
		"example.com/dep v1.0.0/go.mod h1:mhh2qvuaNXbD3WzHShoyLc7Bf3qxrveNlTFLAYg2RJ8=\n")
	// Nothing of the standard library is imported: it would be compiled first.
	out := works(t, p, `go build -v ./... 2>&1 && go list -m all && ls "$GOCACHE" | head -3`)
	if !strings.Contains(out, "example.com/x\n") || !strings.Contains(out, "example.com/dep v1.0.0") || !strings.Contains(out, "00\n") || strings.Contains(out, "read-only") {
		t.Errorf("%s", out)
	}
}

func TestNpmWorks(t *testing.T) {
	needs(t, "npm", "--version")
	p := newPlace(t)
	p.write("ws/dep/package.json", `{"name":"dep","version":"1.0.0","main":"i.js"}`)
	p.write("ws/dep/i.js", "module.exports = 42\n")
	p.write("ws/package.json", `{"name":"x","version":"1.0.0","dependencies":{"dep":"file:./dep"},"scripts":{"test":"node -e \"if (require('dep') !== 42) process.exit(1); console.log('tested')\""}}`)
	out := works(t, p, "npm pack ./dep 2>&1 && npm install --no-audit --no-fund 2>&1 && npm test 2>&1")
	if !strings.Contains(out, "tested") || strings.Contains(out, "EROFS") || strings.Contains(out, "warn") {
		t.Errorf("%s", out)
	}
}

func TestPipWorks(t *testing.T) {
	needs(t, "python3", "-m", "pip", "--version")
	p := newPlace(t)
	// A wheel is a zip file; no index is needed.
	p.write("ws/wheel.py", `import zipfile
z = zipfile.ZipFile("dep-1.0-py3-none-any.whl", "w")
z.writestr("dep.py", "one = 1\n")
z.writestr("dep-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: dep\nVersion: 1.0\n")
z.writestr("dep-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
z.writestr("dep-1.0.dist-info/RECORD", "")
z.close()
`)
	p.write("ws/test_x.py", "import unittest, dep\nclass T(unittest.TestCase):\n  def test(self): self.assertEqual(dep.one, 1)\n")
	out := works(t, p, `python3 wheel.py
export PIP_BREAK_SYSTEM_PACKAGES=1 && py=$(python3 -c "import sys; print(sys.executable)") && $py -m pip --disable-pip-version-check install --no-index --no-deps ./dep-1.0-py3-none-any.whl 2>&1
python3 -m unittest 2>&1
python3 -m venv --without-pip v && v/bin/python -c 'print("venv works")'`)
	if !strings.Contains(out, "Successfully installed dep-1.0") || !strings.Contains(out, "OK") || !strings.Contains(out, "venv works") || strings.Contains(out, "Permission denied") {
		t.Errorf("%s", out)
	}
}

func TestCargoWorks(t *testing.T) {
	needs(t, "cargo", "--version")
	p := newPlace(t)
	// The toolchain of rustup is found through the real home.
	if home, err := os.UserHomeDir(); err == nil {
		p.env = append(p.env, "RUSTUP_HOME="+filepath.Join(home, ".rustup"))
	}
	p.write("ws/Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
	p.write("ws/src/lib.rs", "#[test]\nfn works() { assert_eq!(1 + 1, 2); }\n")
	if out := works(t, p, "cargo test 2>&1"); !strings.Contains(out, "1 passed") {
		t.Errorf("%s", out)
	}
	// With a registry of the user's, which is read-only.
	p.write(p.user+"/.cargo/registry/CACHEDIR.TAG", "")
	p.made, p.runtime = []string{".cargo"}, p.base+"/runtime2"
	if out := works(t, p, "touch src/lib.rs && cargo test --offline 2>&1"); !strings.Contains(out, "1 passed") {
		t.Errorf("%s", out)
	}
}

func TestMakeAndGitWork(t *testing.T) {
	needs(t, "make", "--version")
	needs(t, "git", "--version")
	p := newPlace(t)
	p.git(p.ws, "init", "-q")
	p.write("ws/Makefile", "all: a b\n\tcat a b\na b:\n\techo $@ > $@\n")
	out := works(t, p, `make -j2
git status --porcelain
git init -q sub && cd sub && echo x > x && git add x && git -c user.name=a -c user.email=a@example.com commit -qm x && git log --oneline
git clone -q . "$TMPDIR/clone" && ls "$TMPDIR/clone"`)
	if !strings.Contains(out, "a\nb\n") || !strings.Contains(out, "x\n") {
		t.Errorf("%s", out)
	}
}

func TestMavenStarts(t *testing.T) {
	needs(t, "mvn", "--version")
	p := newPlace(t)
	p.write("ws/pom.xml", `<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging></project>`)
	c, o := p.confine("workspace-write")
	// Without a network and plugins it can only say what it lacks, and where it
	// looked.
	out, _ := p.run(c, o, "mvn -B -o -X validate 2>&1 | grep -i 'local repository'")
	if !strings.Contains(out, p.runtime+"/private/maven") {
		t.Errorf("%s", out)
	}
}

// A setup step writes the settings of Maven and Gradle, with credentials: they
// cannot be read, and the tools start all the same.
func TestSettingsWithCredentials(t *testing.T) {
	p := newPlace(t)
	p.write(p.user+"/.m2/settings.xml", "<settings><servers><server><id>r</id><password>SECRET</password></server></servers></settings>")
	p.write(p.user+"/.gradle/gradle.properties", "token=SECRET\n")
	p.write(p.user+"/.npmrc", "//r.example.com/:_authToken=SECRET\n")
	p.write("ws/pom.xml", `<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging></project>`)
	c, o := p.confine("workspace-write")
	out, code := p.run(c, o, `cat "$GRADLE_USER_HOME/gradle.properties" "$HOME/.m2/settings.xml" "$HOME/.npmrc" && grep -rs SECRET "$HOME" "$GRADLE_USER_HOME" "$npm_config_cache" && exit 3; exit 0`)
	if code != 0 || strings.Contains(out, "SECRET") {
		t.Errorf("exit %d: %s", code, out)
	}
	needs(t, "mvn", "--version")
	out, code = p.run(c, o, `MAVEN_OPTS="$MAVEN_OPTS -Duser.home=$HOME" mvn -B -o validate`)
	if code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
}
