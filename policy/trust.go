package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// trust is what is known about the project of the working folder.
type trust struct {
	root    string // project root
	entry   string // trusted, untrusted, "" for none
	at      *node  // the entry
	trusted bool
	// entries are all trust levels by real path.
	entries map[string]*node
}

// decideTrust looks the project up in the layers loaded so far. A project's own
// file has no say.
func (ld *loader) decideTrust() {
	root := ld.merged(ld.layers)
	t := trust{root: ld.projectRoot(root), entries: map[string]*node{}}
	if projects := root.get("projects"); projects != nil && projects.kind == kTable {
		for _, path := range projects.keys {
			level := projects.fields[path].get("trust_level")
			if level == nil || level.kind != kString {
				continue
			}
			path = ld.expandHome(path)
			t.entries[filepath.Clean(path)] = level
			// Of two names for one folder the stricter entry counts.
			if real := ld.src.Files.RealPath(path); t.entries[real] == nil || level.text == "untrusted" {
				t.entries[real] = level
			}
		}
	}
	if ld.src.GitRoot == "" {
		ld.src.GitRoot = ld.mainCheckout()
	}
	ld.trust = t
	if t.at = ld.trustOf(ld.src.Cwd); t.at != nil {
		t.entry = t.at.text
		t.trusted = t.entry == "trusted"
	}
	ld.trust = t
	ld.refuseTrustFlag()
}

// refuseTrustFlag: --trust is for projects nobody has decided on; it does not
// overrule a decision against one.
func (ld *loader) refuseTrustFlag() {
	if ld.trust.at == nil || ld.trust.at.origin() != "--trust" {
		return
	}
	files := slices.DeleteFunc(slices.Clone(ld.layers), func(l *layer) bool { return l.explicit })
	projects := ld.merged(files).get("projects")
	for _, path := range []string{ld.src.Cwd, ld.trust.root, ld.src.GitRoot} {
		if e := projects.get(path, "trust_level"); e != nil && e.text == "untrusted" {
			ld.fail(&Error{Key: "--trust", Kind: KindUsage,
				Message:  fmt.Sprintf("--trust: the project is marked untrusted at %s", e.origin()),
				HintText: "change that entry first"})
			return
		}
	}
}

// mainCheckout is the root of the repository's main checkout, found from the
// .git file of a linked worktree; "" outside a repository.
func (ld *loader) mainCheckout() string {
	for dir := ld.src.Cwd; ; dir = filepath.Dir(dir) {
		git := filepath.Join(dir, ".git")
		if info, err := ld.src.Files.Stat(git); err == nil {
			if info != nil && info.IsDir() {
				return dir
			}
			data, err := ld.src.Files.ReadFile(git)
			folder, isLink := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir: ")
			if err != nil || !isLink {
				return dir
			}
			if !filepath.IsAbs(folder) {
				folder = filepath.Join(dir, folder)
			}
			common, err := ld.src.Files.ReadFile(filepath.Join(folder, "commondir"))
			if err != nil {
				return dir // a submodule is a project of its own
			}
			at := strings.TrimSpace(string(common))
			if !filepath.IsAbs(at) {
				at = filepath.Join(folder, at)
			}
			return filepath.Dir(filepath.Clean(at))
		}
		if filepath.Dir(dir) == dir {
			return ""
		}
	}
}

// trustOf is the entry that decides on a folder: its own, the project root's, or
// the main checkout's.
func (ld *loader) trustOf(dir string) *node {
	for _, path := range []string{dir, ld.trust.root, ld.src.GitRoot} {
		if e := ld.trust.entries[path]; e != nil && path != "" {
			return e
		}
	}
	return nil
}

// projectRoot is the first folder at or above the working folder that holds a
// marker; without one the working folder itself.
func (ld *loader) projectRoot(root *node) string {
	markers := []string{".git"}
	if m := root.get("project_root_markers"); m != nil {
		markers = stringsOf(m)
	}
	for dir := ld.src.Cwd; ; dir = filepath.Dir(dir) {
		for _, m := range markers {
			if _, err := ld.src.Files.Stat(filepath.Join(dir, m)); err == nil && m != "" {
				return dir
			}
		}
		if filepath.Dir(dir) == dir {
			return ld.src.Cwd
		}
	}
}

func (ld *loader) expandHome(path string) string {
	if path == "~" {
		return ld.src.UserHome
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(ld.src.UserHome, rest)
	}
	return path
}

// folders are those from the project root down to the working folder.
func (ld *loader) folders() []string {
	var out []string
	for dir := ld.src.Cwd; ; dir = filepath.Dir(dir) {
		out = append(out, dir)
		if dir == ld.trust.root || filepath.Dir(dir) == dir {
			break
		}
	}
	slices.Reverse(out)
	return out
}

// projectLayers reads the project's files, root first. Untrusted ones are named
// in a notice and not read.
func (ld *loader) projectLayers(below *node) []*layer {
	var out []*layer
	var refused []string
	home := ld.src.Files.RealPath(ld.src.Home)
	for _, dir := range ld.folders() {
		folder := filepath.Join(dir, ".codex")
		if ld.src.Files.RealPath(folder) == home {
			continue
		}
		path := filepath.Join(folder, "config.toml")
		e := ld.trustOf(dir)
		if e == nil || e.text != "trusted" {
			refused = append(refused, ld.present(folder)...)
			if ld.exists(path) {
				out = append(out, &layer{name: "project", path: path, why: "the project is not trusted", root: newTable(nil)})
			}
			continue
		}
		for _, name := range []string{"hooks.json"} {
			if file := filepath.Join(folder, name); ld.exists(file) {
				ld.notice(Notice{Class: "project_ignored", Origin: file,
					Message: file + " is ignored: a project cannot bring hooks",
					Hint:    "put hooks into " + filepath.Join(ld.src.Home, "config.toml")})
			}
		}
		l := ld.readLayer("project", path, KindUsage)
		if l == nil {
			continue
		}
		ld.check(l)
		ld.restrain(l, below)
		below = merge(below, mergeEnvironment(below, l.root))
		out = append(out, l)
	}
	if len(refused) > 0 {
		state := "has no trust entry"
		if ld.trust.entry == "untrusted" {
			state = "is marked untrusted at " + ld.trust.at.origin()
		}
		ld.notice(Notice{Class: "project_untrusted", Origin: refused[0],
			Message: fmt.Sprintf("project configuration is ignored because the project %s: %s", state, strings.Join(refused, ", ")),
			Hint:    fmt.Sprintf("to load it, add [projects.%q] trust_level = \"trusted\" to %s", ld.trust.root, filepath.Join(ld.src.Home, "config.toml"))})
	}
	return out
}

// present lists the files of a .codex folder that would count if it were
// trusted.
func (ld *loader) present(folder string) []string {
	var out []string
	for _, name := range []string{"config.toml", "hooks.json"} {
		if file := filepath.Join(folder, name); ld.exists(file) {
			out = append(out, file)
		}
	}
	rules := filepath.Join(folder, "rules")
	if entries, err := ld.src.Files.ReadDir(rules); err == nil {
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".rules") {
				out = append(out, filepath.Join(rules, e.Name()))
			}
		}
	}
	return out
}

func (ld *loader) exists(path string) bool {
	_, err := ld.src.Files.Stat(path)
	return err == nil
}
