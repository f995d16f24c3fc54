package rules

import (
	"path"
	"slices"
	"strings"
)

// programs are the declarations of host_executable, by name.
type programs map[string][]Program

// authority orders layers: a declaration of one says for which paths its own
// rules and those of lower ones hold.
func (l Layer) authority() int {
	return slices.Index([]Layer{Project, User, System, Requirement}, l)
}

// paths are those for which a rule of a layer holds that names the program bare.
// Without a declaration it holds for all. A lower layer takes nothing away from
// what a higher one forbids and adds nothing to what it allows; it may only
// narrow what is allowed.
func (p programs) paths(name string, level Level, layer Layer) (paths []string, declared bool) {
	var lower []string
	for _, one := range p[name] {
		if one.Layer.authority() >= layer.authority() {
			paths, declared = append(paths, one.Paths...), true
		} else {
			lower = append(lower, one.Paths...)
		}
	}
	if !declared && level == Allow && len(p[name]) > 0 {
		return lower, true
	}
	return paths, declared
}

// hold tells whether a rule on a bare name holds for a path with that base name.
// Where paths are declared only those count; a path that is not absolute may be
// one of them, which is enough to restrict and too little to allow.
func (p programs) hold(name, file string, known bool, level Level, layer Layer) bool {
	paths, declared := p.paths(name, level, layer)
	switch {
	case !declared:
		return true
	case known && path.IsAbs(file):
		return slices.Contains(paths, path.Clean(file))
	}
	return level > Allow
}

// fitsExample tells whether the pattern of a rule fits an example, which may name
// the program by a path.
func (p programs) fitsExample(r Rule, argv []string) bool {
	if r.matchesPrefix(argv) {
		return true
	}
	base := path.Base(argv[0])
	if !strings.Contains(argv[0], "/") || base == "." || base == "/" || !p.hold(base, argv[0], true, Allow, r.Layer) {
		return false
	}
	return r.matchesPrefix(append([]string{base}, argv[1:]...))
}
