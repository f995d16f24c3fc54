package policy

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nightshift-ci/nightshift/policy/rules"
)

// LintKind guesses from its name what a policy file is: rules, requirements or
// config.
func LintKind(path string) string {
	name := filepath.Base(path)
	switch {
	case strings.HasSuffix(name, ".rules"):
		return "rules"
	case strings.Contains(name, "requirements"):
		return "requirements"
	}
	return "config"
}

// Lint finds all mistakes of one policy file without the machine it is meant
// for: syntax, unknown keys, types, and what could never work. Files that it
// names are not looked at. kind is rules, requirements or config.
func Lint(kind, path string, data []byte) []*Error {
	if kind == "rules" {
		var out []*Error
		_, errs := rules.Parse(path, data, rules.User)
		for _, e := range errs {
			out = append(out, &Error{File: e.File, Line: e.Line, Column: e.Column, Message: e.Message, HintText: e.HintText, Kind: KindPolicy})
		}
		return out
	}
	k := KindUsage
	if kind == "requirements" {
		k = KindPolicy
	}
	l := &layer{name: "user", path: path, used: true}
	if filepath.Base(path) == "managed_config.toml" {
		l.name, k = "managed", KindPolicy
	}
	root, bad := parseTOML(l, data, k)
	if bad != nil {
		return []*Error{bad}
	}
	l.root = root
	ld := &loader{src: Sources{Files: nowhere{}, SystemDir: "/", Home: "/home", UserHome: "/home", Cwd: "/work", Strict: true}}
	ld.trust = trust{root: "/work", entries: map[string]*node{}}
	q := &requirements{
		pins:      map[string]*node{},
		features:  map[string]*node{},
		defaults:  map[string]*node{},
		maxima:    map[string]*node{},
		profileBy: map[string]*node{},
	}
	if kind == "requirements" {
		l.name = "requirements"
		ld.require(q, l, true)
		// A requirement for machines where somebody can be asked is not a mistake.
		before := len(ld.errs)
		ld.consistent(q)
		late := slices.DeleteFunc(ld.errs[before:], func(e *Error) bool { return e.Key == "allowed_approval_policies" })
		ld.errs = append(ld.errs[:before], late...)
	} else {
		ld.add(l)
		ld.report()
		if m := l.root.get("model_provider"); m != nil && l.root.get("model_providers", m.text) == nil {
			// The provider may be another layer's.
			l.root = l.root.without("model_provider")
		}
		if l.name == "managed" {
			ld.requireManaged(q, l)
		}
		b := &builder{loader: ld, q: q, rules: rules.NewSet()}
		b.build()
	}
	return uniqueErrors(ld.errs)
}

// nowhere is a file system in which every named file exists and is empty.
type nowhere struct{}

func (nowhere) ReadFile(name string) ([]byte, error) {
	if filepath.Base(name) == "hooks.json" {
		return nil, fs.ErrNotExist
	}
	if strings.HasSuffix(name, ".toml") {
		return nil, nil
	}
	return []byte("text"), nil
}

func (nowhere) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrNotExist }
func (nowhere) RealPath(name string) string           { return filepath.Clean(name) }
func (nowhere) Stat(name string) (fs.FileInfo, error) { return nil, nil }
