package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Private caches: build tools keep caches in the home folder, which commands
// cannot write. Each tool has a variable that moves its cache; where the default
// place is not writable it gets one in the run's private folder. What is in the
// old place and can be used read-only stays in use: module caches, installed
// programs, dependencies. Nothing becomes writable that was not.
//
// The folder has the same path inside and outside, and is removed with the run. Where
// the kernel can lay an overlay, a private cache begins with what the user's
// holds: a warm cache, and still nothing of the user's changes.

// cacheRule moves one cache.
type cacheRule struct {
	variable string
	place    string // below the private folder
	usual    string // below the home folder
}

// cacheRules are the plain cases: a cache that can be begun anew.
var cacheRules = []cacheRule{
	{"XDG_CACHE_HOME", "xdg", ".cache"},
	{"GOCACHE", "go-build", ".cache/go-build"},
	{"npm_config_cache", "npm", ".npm"},
	{"YARN_CACHE_FOLDER", "yarn", ".cache/yarn"},
	{"YARN_GLOBAL_FOLDER", "yarn-global", ".yarn/berry"},
	{"PNPM_HOME", "pnpm", ".local/share/pnpm"},
	{"BUN_INSTALL_CACHE_DIR", "bun", ".bun/install/cache"},
	{"DENO_DIR", "deno", ".cache/deno"},
	{"PIP_CACHE_DIR", "pip", ".cache/pip"},
	{"UV_CACHE_DIR", "uv", ".cache/uv"},
	{"CCACHE_DIR", "ccache", ".cache/ccache"},
	{"SCCACHE_DIR", "sccache", ".cache/sccache"},
	{"GRADLE_USER_HOME", "gradle", ".gradle"},
	{"COMPOSER_CACHE_DIR", "composer", ".cache/composer"},
	{"BUNDLE_USER_CACHE", "bundle", ".bundle/cache"},
	{"DOTNET_CLI_HOME", "dotnet", ""},
}

// installed are folders in the cache folder that hold what cannot be begun anew
// without a network: programs, environments, models. They stay visible.
var installed = []string{
	"pypoetry", "pre-commit", "huggingface", "torch", "ms-playwright", "Cypress", "puppeteer", "electron", "node",
	"selenium", "prisma", "bazelisk", "nltk_data", "trivy",
}

// openCaches fills Caches and the private folder.
func (c *Confinement) openCaches() error {
	c.Caches = map[string]string{}
	for _, r := range cacheRules {
		if at, ok := c.lookupEnv(r.variable); ok && at != "" {
			if !c.canWrite(at) {
				c.move(r.variable, r.place)
				c.warm(r.place, at)
			}
		} else if !c.canWrite(c.home(r.usual)) {
			c.move(r.variable, r.place)
			if r.usual != "" {
				c.warm(r.place, c.home(r.usual))
			}
		}
	}
	links := map[string]string{}
	if _, moved := c.Caches["XDG_CACHE_HOME"]; moved {
		for _, name := range installed {
			links["xdg/"+name] = c.place("XDG_CACHE_HOME", ".cache") + "/" + name
		}
	}
	c.goModules()
	c.cargo(links)
	c.maven()
	c.gradle(links)
	c.python()
	c.tar()
	return c.link(links)
}

// move sets a variable to a place in the private folder.
func (c *Confinement) move(variable, place string) {
	c.Caches[variable] = filepath.Join(c.private, place)
}

// warm lays a private cache over the user's, if there is one. The folder of all
// caches is left out: what is useful in it has variables of its own.
func (c *Confinement) warm(place, usual string) {
	lower := sandbox.RealPath(usual)
	if fi, err := os.Stat(lower); place == "xdg" || err != nil || !fi.IsDir() || sandbox.Within(c.private, lower) || sandbox.Within(lower, c.private) {
		return
	}
	at, changes := filepath.Join(c.private, place), filepath.Join(c.private, ".changes", place)
	if os.MkdirAll(at, 0o700) != nil || os.MkdirAll(changes, 0o700) != nil {
		return // it begins empty; openCaches reports a folder that cannot be made
	}
	c.Spec.Overlays = append(c.Spec.Overlays, sandbox.Overlay{At: at, Lower: lower, Private: changes})
}

// home is a path below the user's home folder.
func (c *Confinement) home(path string) string { return filepath.Join(c.userHome, path) }

// place is where a variable points, or the usual place below the home folder.
func (c *Confinement) place(variable, usual string) string {
	if at, ok := c.lookupEnv(variable); ok && at != "" {
		return at
	}
	return c.home(usual)
}

// canWrite tells whether commands can write at path.
func (c *Confinement) canWrite(path string) bool {
	path = sandbox.RealPath(path)
	if !c.Spec.HostTmp && (sandbox.Within(path, "/tmp") || sandbox.Within(path, "/var/tmp")) {
		return !c.Spec.TmpReadOnly
	}
	for _, r := range c.Spec.Write {
		if r != c.private && sandbox.Within(path, sandbox.RealPath(r)) {
			return true
		}
	}
	return false
}

// online tells whether new dependencies can be fetched at all.
func (c *Confinement) online() bool { return c.Spec.Net.Mode != sandbox.NetOff }

// link makes links in the private folder to what exists.
func (c *Confinement) link(links map[string]string) error {
	for name, target := range links {
		if _, err := os.Stat(target); err != nil {
			continue
		}
		at := filepath.Join(c.private, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return fmt.Errorf("sandbox: a private cache cannot be made: %w", err)
		}
		if err := os.Symlink(target, at); err != nil {
			return fmt.Errorf("sandbox: a private cache cannot be made: %w", err)
		}
	}
	return nil
}

// goModules: a module cache is read without writing to it, so the user's stays
// in use as long as nothing can be fetched. With a network a private one is
// filled, from the user's first, which has the layout of a module proxy.
func (c *Confinement) goModules() {
	usual := c.goEnv("GOMODCACHE")
	if usual == "" {
		usual = c.home("go/pkg/mod")
		if list := filepath.SplitList(c.goEnv("GOPATH")); len(list) > 0 && list[0] != "" {
			usual = filepath.Join(list[0], "pkg/mod")
		}
	}
	if c.canWrite(usual) || isFolder(usual) && !c.online() {
		return
	}
	c.move("GOMODCACHE", "go-mod")
	if download := filepath.Join(usual, "cache/download"); isFolder(download) {
		proxy := c.goEnv("GOPROXY")
		if proxy == "" {
			proxy = "https://proxy.golang.org,direct"
		}
		c.Caches["GOPROXY"] = "file://" + download + "," + proxy
	}
}

// goEnv is a setting of the go command: a variable, or what `go env -w` wrote.
func (c *Confinement) goEnv(name string) string {
	if v, ok := c.lookupEnv(name); ok {
		return v
	}
	b, err := os.ReadFile(filepath.Join(c.place("XDG_CONFIG_HOME", ".config"), "go/env"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return v
		}
	}
	return ""
}

// cargo reads a registry without locking it where the file system is read-only,
// so the user's stays as long as nothing can be fetched.
func (c *Confinement) cargo(links map[string]string) {
	usual := c.place("CARGO_HOME", ".cargo")
	if c.canWrite(usual) || isFolder(filepath.Join(usual, "registry")) && !c.online() {
		return
	}
	c.move("CARGO_HOME", "cargo")
	for _, name := range []string{"config.toml", "config", "bin"} {
		links["cargo/"+name] = filepath.Join(usual, name)
	}
}

// maven has no variable for its repository but options of the Java machine. From
// 3.9 on a private repository can be backed by the user's.
func (c *Confinement) maven() {
	usual := c.home(".m2/repository")
	if c.canWrite(usual) {
		return
	}
	options := "-Dmaven.repo.local=" + filepath.Join(c.private, "maven")
	if isFolder(usual) {
		if !c.mavenChains() {
			if !c.online() {
				return // reading works
			}
		} else {
			options += " -Dmaven.repo.local.tail=" + usual
		}
	}
	c.Caches["MAVEN_OPTS"] = options
}

// tar, as user 0, gives what it unpacks to the owners that the archive names. A
// sandbox has but one user, and tar would fail at the end.
func (c *Confinement) tar() {
	if _, set := c.lookupEnv("TAR_OPTIONS"); !set && os.Geteuid() == 0 {
		c.Caches["TAR_OPTIONS"] = "--no-same-owner"
	}
}

var mavenJar = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^maven-core-(\d+)\.(\d+)\.`) })

// mavenChains tells whether the Maven on the PATH knows chained repositories.
// One that is fetched by a wrapper is taken for new enough.
func (c *Confinement) mavenChains() bool {
	path, _ := c.lookupEnv("PATH")
	for _, dir := range filepath.SplitList(path) {
		mvn, err := filepath.EvalSymlinks(filepath.Join(dir, "mvn"))
		if err != nil {
			continue
		}
		jars, err := os.ReadDir(filepath.Join(filepath.Dir(filepath.Dir(mvn)), "lib"))
		if err != nil {
			return true
		}
		for _, jar := range jars {
			if v := mavenJar().FindStringSubmatch(jar.Name()); v != nil {
				return v[1] != "3" || len(v[2]) > 1 || v[2] >= "9"
			}
		}
		return true
	}
	return true
}

// gradle locks its home, so that is always a private one; dependencies and
// distributions of the user's are used from it.
func (c *Confinement) gradle(links map[string]string) {
	if _, moved := c.Caches["GRADLE_USER_HOME"]; !moved {
		return
	}
	usual := c.place("GRADLE_USER_HOME", ".gradle")
	if isFolder(filepath.Join(usual, "caches/modules-2")) {
		c.Caches["GRADLE_RO_DEP_CACHE"] = filepath.Join(usual, "caches")
	}
	links["gradle/init.d"] = filepath.Join(usual, "init.d")
	// The wrapper locks a file beside each distribution: real folders, with links
	// to what is in them.
	found, err := filepath.Glob(filepath.Join(usual, "wrapper/dists/*/*/*"))
	if err != nil {
		return // a home with a "[" in it: the wrapper fetches again
	}
	for _, f := range found {
		if !strings.HasSuffix(f, ".lck") && !strings.HasSuffix(f, ".part") {
			links["gradle"+strings.TrimPrefix(f, usual)] = f
		}
	}
}

// python installs for the user where the system's packages are read-only. If the
// user has such packages already they must stay visible, and nothing is moved.
func (c *Confinement) python() {
	if _, set := c.lookupEnv("PYTHONUSERBASE"); set || c.canWrite(c.home(".local")) {
		return
	}
	if have, err := filepath.Glob(filepath.Join(c.home(".local/lib"), "python*")); err == nil && len(have) == 0 {
		c.move("PYTHONUSERBASE", "python")
	}
}
