package main

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nightshift-ci/nightshift/"

// listed is what `go list` tells of a package.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func listPackages(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	pkgs := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

// fence forbids imports. Every entry says why, and the test fails when an entry
// no longer names a package that exists.
type fence struct {
	pkg  string   // "runner/event", or "sandbox/..." with everything below
	ours []string // our packages it may import; nil: any not banned; empty: none
	ban  []string // import paths (or prefixes ending in "/") it must not import
	deep bool     // the ban holds for all dependencies, not only direct ones
	why  string
}

var fences = []fence{
	{pkg: "cmd/nightshift/early", ours: []string{"sandbox"}, ban: []string{"net/http", "github.com/alecthomas/kong"}, deep: true, why: "it is initialised as soon as what it imports is"},
	{pkg: "runner/event", ours: []string{}, why: "everybody imports it, so it imports nobody"},
	{pkg: "policy", ours: []string{"policy/rules"}, ban: []string{"os/exec", "net/http"}, deep: true, why: "policy is pure: bytes in, decisions out"},
	{pkg: "policy/rules", ours: []string{}, ban: []string{"os/exec", "net/http"}, deep: true, why: "policy is pure"},
	{pkg: "sandbox", ours: []string{"sandbox/confine"}, ban: []string{"net/http"}, why: "it knows no policy files and no model"},
	{pkg: "sandbox/confine", ours: []string{}, ban: []string{"net/http", "path/filepath", "os/exec"}, deep: true, why: "it is the inside of the sandbox: re-executed, small, on its own, and ready before what most of the program needs is initialised (packages are in the order of their paths)"},
	{pkg: "sandbox/egress", ours: []string{}, why: "it decides nothing: policy tells it through a func"},
	{pkg: "runner/model", ours: []string{"runner/event"}, why: "the credential comes through an interface"},
	{pkg: "runner/auth", ours: []string{"runner/event"}, why: "it fits model.Authorizer without knowing it"},
	{pkg: "runner/patch", ours: []string{}, why: "it runs inside the confined child"},
	{pkg: "runner/tool", ban: []string{module + "report", module + "runner", "os/exec"}, why: "tools act through the sandbox"},
	{pkg: "runner/mcp", ban: []string{module + "report", module + "runner", "os/exec"}, why: "servers start in the sandbox"},
	{pkg: "runner/hook", ban: []string{module + "report", module + "runner", "os/exec"}, why: "hooks run in the sandbox"},
	{pkg: "runner/workspace", ban: []string{module + "report", module + "runner", "os/exec"}, why: "git runs in the sandbox"},
	{pkg: "runner", ban: []string{module + "report", "github.com/alecthomas/kong", "os/exec"}, why: "reports are read off the log"},
	{pkg: "report", ours: []string{"runner/event"}, ban: []string{"os/exec", "net"}, why: "events in, bytes out"},
}

// homes are packages of others that have one importer.
var homes = []struct {
	path string // prefix
	in   []string
	why  string
}{
	{"github.com/alecthomas/kong", []string{"cmd/nightshift"}, "the grammar is cmd's"},
	{"github.com/openai/openai-go/", []string{"runner/model"}, "its types stop there"},
	{"github.com/modelcontextprotocol/go-sdk/", []string{"runner/mcp"}, "its types stop there"},
	{"go.opentelemetry.io/otel", []string{"report/telemetry"}, "telemetry is one reader of the log"},
	{"github.com/landlock-lsm/go-landlock/", []string{"sandbox", "sandbox/confine"}, "kernel words live in sandbox"},
	{"github.com/containerd/cgroups/", []string{"sandbox", "sandbox/confine"}, "kernel words live in sandbox"},
	{"github.com/creack/pty", []string{"sandbox"}, "terminals live in sandbox"},
	{"github.com/pelletier/go-toml/", []string{"policy"}, "TOML keys live in policy"},
	{"go.starlark.net/", []string{"policy/rules"}, "rules files live there"},
	{"mvdan.cc/sh/", []string{"policy/rules"}, "the shell reader lives there"},
	{"github.com/rs/zerolog", []string{"cmd/nightshift", "runner"}, "other packages return or emit, they do not log"},
	{"os/exec", nil, "every process goes through the kernel's door, which sandbox opens by hand"},
}

func TestImportFences(t *testing.T) {
	pkgs := listPackages(t)
	for _, f := range fences {
		p, ok := pkgs[f.pkg]
		if !ok {
			t.Errorf("the fence around %s is stale: there is no such package", f.pkg)
			continue
		}
		for _, imp := range p.Imports {
			if rel, ours := strings.CutPrefix(imp, module); ours && f.ours != nil && !slices.Contains(f.ours, rel) {
				t.Errorf("%s imports %s: %s", f.pkg, rel, f.why)
			}
		}
		list := p.Imports
		if f.deep {
			list = p.Deps
		}
		for _, b := range f.ban {
			for _, imp := range list {
				if imp == b || strings.HasSuffix(b, "/") && strings.HasPrefix(imp, b) {
					t.Errorf("%s depends on %s: %s", f.pkg, imp, f.why)
				}
			}
		}
	}
}

func TestHomes(t *testing.T) {
	pkgs := listPackages(t)
	for _, h := range homes {
		used := false
		for name, p := range pkgs {
			for _, imp := range p.Imports {
				if imp != h.path && !strings.HasPrefix(imp, strings.TrimSuffix(h.path, "/")+"/") {
					continue
				}
				if slices.Contains(h.in, name) {
					used = true
				} else if name != "runner/runnertest" {
					t.Errorf("%s imports %s: %s", name, imp, h.why)
				}
			}
		}
		if !used && len(h.in) > 0 {
			t.Errorf("the home of %s is stale: nobody there imports it", h.path)
		}
	}
}

func TestNobodyImportsCmdOrRunnertest(t *testing.T) {
	for name, p := range listPackages(t) {
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, module+"cmd/") && name != "cmd/nightshift" {
				t.Errorf("%s imports %s: nobody imports cmd", name, imp)
			}
			if imp == module+"runner/runnertest" && name != "cmd/nightshift" {
				t.Errorf("%s imports runnertest: it is for tests and for `debug server`", name)
			}
		}
	}
}
