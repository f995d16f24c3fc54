package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// Policy is the effective policy of one run. It is immutable and safe for
// concurrent use.
type Policy struct {
	src     Sources
	config  Config
	notices []Notice
	layers  []*layer
	needs   *requirements
	root    *node // effective values
	rules   *rules.Set
	origins map[string]string
	digest  string

	write           []string // writable roots, workspace first
	protect         []string
	networks        []networkLimit
	domains         map[string]string // host pattern to origin
	secretVariables []string
}

// Load reads every layer and decides every value. The error is an [*Errors]
// with all mistakes at once; notices that came up until then are lost with it.
func Load(src Sources) (*Policy, error) {
	if src.Files == nil {
		src.Files = Disk{}
	}
	ld := &loader{src: src}
	ld.load()
	q := ld.loadRequirements()
	set := ld.loadRules(q)
	b := &builder{loader: ld, q: q, rules: set}
	b.build()
	if len(ld.errs) > 0 {
		return nil, &Errors{List: uniqueErrors(ld.errs)}
	}
	p := &Policy{
		src:      src,
		config:   b.cfg,
		notices:  ld.notices,
		layers:   ld.layers,
		needs:    q,
		root:     b.root,
		rules:    set,
		protect:  b.protect,
		networks: b.networks,
	}
	if b.workspaceWritable() {
		p.write = append(p.write, src.Cwd)
	}
	p.write = unique(append(p.write, b.cfg.Sandbox.WritableRoots...))
	p.secretVariables = secretVariables(&b.cfg, b.headerVariables)
	p.origins = b.origins()
	p.domains = b.domainOrigins()
	p.digest = digest(&p.config, q, set)
	return p, nil
}

// uniqueErrors drops repetitions: a value that two steps look at is one mistake.
func uniqueErrors(list []*Error) []*Error {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(e *Error) bool {
		text := e.Error()
		if seen[text] {
			return true
		}
		seen[text] = true
		return false
	})
}

// loadRules reads the rules files of every layer. They are one policy: neither
// their order nor their folder matters.
func (ld *loader) loadRules(q *requirements) *rules.Set {
	files := slices.Clone(q.rules)
	files = append(files, ld.rulesFolder(filepath.Join(ld.src.SystemDir, "rules"), rules.System)...)
	if !ld.src.IgnoreRules {
		files = append(files, ld.rulesFolder(filepath.Join(ld.src.Home, "rules"), rules.User)...)
		home := ld.src.Files.RealPath(ld.src.Home)
		for _, dir := range ld.folders() {
			folder := filepath.Join(dir, ".codex")
			if e := ld.trustOf(dir); e != nil && e.text == "trusted" && ld.src.Files.RealPath(folder) != home {
				files = append(files, ld.rulesFolder(filepath.Join(folder, "rules"), rules.Project)...)
			}
		}
	}
	for _, path := range ld.src.Rules {
		data, err := ld.src.Files.ReadFile(path)
		if err != nil {
			ld.fail(&Error{File: path, Message: "rules cannot be read: " + reason(err), Kind: KindPolicy})
			continue
		}
		files = append(files, ld.rulesFile(path, data, rules.User))
	}
	return rules.NewSet(files...)
}

func (ld *loader) rulesFolder(folder string, layer rules.Layer) []*rules.File {
	entries, err := ld.src.Files.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		ld.fail(&Error{File: folder, Message: "rules cannot be read: " + reason(err), HintText: "rules is a folder of .rules files", Kind: KindPolicy})
		return nil
	}
	var out []*rules.File
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if !strings.HasSuffix(e.Name(), ".rules") {
			continue
		}
		if info, err := ld.src.Files.Stat(path); err == nil && info.IsDir() {
			ld.notice(Notice{Class: "rules_folder", Origin: path,
				Message: fmt.Sprintf("%s is a folder and holds no rules: only files directly in %s are read", path, folder)})
			continue
		}
		data, err := ld.src.Files.ReadFile(path)
		if err != nil {
			ld.fail(&Error{File: path, Kind: KindPolicy,
				Message:  "rules cannot be read: " + reason(err),
				HintText: "no run starts while its rules are unknown"})
			continue
		}
		out = append(out, ld.rulesFile(path, data, layer))
	}
	return out
}

func (ld *loader) rulesFile(path string, data []byte, layer rules.Layer) *rules.File {
	f, errs := rules.Parse(path, data, layer)
	for _, e := range errs {
		ld.fail(&Error{File: e.File, Line: e.Line, Column: e.Column, Message: e.Message, HintText: e.HintText, Kind: KindPolicy})
	}
	return f
}

// secretVariables are the variables that hold the runner's credentials.
func secretVariables(c *Config, more []string) []string {
	out := []string{"CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_ACCESS_TOKEN"}
	if c.Provider.EnvKey != "" {
		out = append(out, c.Provider.EnvKey)
	}
	for _, name := range c.Provider.EnvHTTPHeaders {
		out = append(out, name)
	}
	for _, s := range c.MCPServers {
		if s.BearerTokenEnvVar != "" {
			out = append(out, s.BearerTokenEnvVar)
		}
		for _, name := range s.EnvHTTPHeaders {
			out = append(out, name)
		}
	}
	out = unique(append(out, more...))
	slices.Sort(out)
	return out
}

// Config is the effective configuration; it must not be changed.
func (p *Policy) Config() *Config { return &p.config }

// Notices is what the user must be told, in order.
func (p *Policy) Notices() []Notice { return p.notices }

// Digest is "sha256:…" over what the policy permits. It does not depend on
// where files lie, and holds no secret.
func (p *Policy) Digest() string { return p.digest }

// Origins names the layer of each value that is not a default: key to
// "file:line" or the flag.
func (p *Policy) Origins() map[string]string { return p.origins }

// ForbiddenExecutables are the programs that must not be executed at all: bare
// names or absolute paths. Reading command lines stops them where they are
// visible; only refusing the execution stops them inside other programs.
func (p *Policy) ForbiddenExecutables() []string { return p.rules.Executables() }

// Rules are the rules on commands and hosts.
func (p *Policy) Rules() *rules.Set { return p.rules }
