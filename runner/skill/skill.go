// Package skill finds skills (folders with a SKILL.md), lists them for the
// prompt and gives their texts when a prompt names them.
//
// Only names, descriptions and paths go into every prompt; the body of a skill
// is read by the model when it needs it, or inserted when the user wrote
// $name. Skills of a project count only when the project is trusted, because
// they are instructions like any other.
package skill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

// Options says where to look. Empty folders are left out.
type Options struct {
	SystemDir   string // /etc/codex
	Home        string // CODEX_HOME
	UserHome    string // ~
	ProjectRoot string
	Cwd         string
	// Trusted allows skills of the project; otherwise they are only reported.
	Trusted bool
	// Disabled are names, and paths of SKILL.md files or their folders.
	Disabled []string
}

// Scopes of skills.
const (
	System  = "system"
	User    = "user"
	Project = "project"
)

// Skill is one skill.
type Skill struct {
	Name, Description string
	Path              string // of its SKILL.md
	Scope             string // System, User, Project
}

const (
	fileName    = "SKILL.md"
	maxFile     = 256 << 10
	maxDepth    = 5     // folders below a skills folder
	maxFolders  = 2_000 // looked at in one skills folder
	maxSkills   = 200   // in all
	maxNameLen  = 64
	maxDescript = 1024
)

// place is one folder that holds skills.
type place struct {
	dir, scope string
	inside     string // links must not lead out of this folder; "" = they may
}

// places lists the folders, farthest first.
func (o Options) places() []place {
	var list []place
	add := func(scope, base, inside string, parts ...string) {
		if base != "" {
			list = append(list, place{filepath.Join(append([]string{base}, parts...)...), scope, inside})
		}
	}
	add(System, o.SystemDir, "", "skills")
	add(User, o.UserHome, "", ".agents", "skills")
	add(User, o.Home, "", "skills")
	if o.Cwd == "" {
		return list
	}
	root := o.ProjectRoot
	if root == "" || !sandbox.Within(o.Cwd, root) {
		root = o.Cwd
	}
	var folders []string
	for at := o.Cwd; ; at = filepath.Dir(at) {
		folders = append(folders, at)
		if at == root {
			break
		}
	}
	for _, at := range slices.Backward(folders) {
		add(Project, at, root, ".codex", "skills")
		add(Project, at, root, ".agents", "skills")
	}
	return list
}

// Find lists the skills in order of name. Where two have the same name the
// nearest to the working folder counts. There is a notice for each SKILL.md
// that was left out.
func Find(o Options) ([]Skill, []event.Notice) {
	f := finder{byName: map[string]Skill{}, seen: map[string]bool{}}
	for _, p := range o.places() {
		left := maxFolders
		for _, path := range f.search(p, p.dir, maxDepth, &left) {
			f.consider(p, path, o)
		}
	}
	var skills []Skill
	for _, s := range f.byName {
		skills = append(skills, s)
	}
	slices.SortFunc(skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	if len(skills) > maxSkills {
		f.note("skills_too_many", "", fmt.Sprintf("%d skills were found; the last %d in order of name were left out", len(skills), len(skills)-maxSkills))
		skills = skills[:maxSkills]
	}
	return skills, f.notices
}

type finder struct {
	byName  map[string]Skill
	seen    map[string]bool // real paths of folders that were searched
	notices []event.Notice
}

func (f *finder) note(class, origin, message string) {
	f.notices = append(f.notices, event.Notice{Class: class, Origin: origin, Message: message})
}

// search returns the SKILL.md files below dir. Hidden folders are passed over:
// other programs keep their built-in skills there.
func (f *finder) search(p place, dir string, depth int, left *int) []string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || f.seen[real] {
		return nil // there is no such folder, or it was searched by another name
	}
	if p.inside != "" && !sandbox.Within(real, p.inside) {
		f.note("skill_outside", dir, dir+" is a link out of the project and was not followed")
		return nil
	}
	f.seen[real] = true
	if *left--; *left == 0 {
		f.note("skills_too_many", p.dir, fmt.Sprintf("%s holds more than %d folders; the rest was not searched", p.dir, maxFolders))
	}
	if *left <= 0 {
		return nil
	}
	entries, err := os.ReadDir(real)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		f.note("skill_unreadable", dir, fmt.Sprintf("%s cannot be searched for skills: %v", dir, reason(err)))
		return nil
	}
	var found []string
	for _, e := range entries {
		if e.Name() == fileName && !e.IsDir() {
			return []string{filepath.Join(dir, fileName)} // what lies below belongs to this skill
		}
		if depth > 0 && !strings.HasPrefix(e.Name(), ".") && (e.IsDir() || e.Type()&fs.ModeSymlink != 0) {
			found = append(found, f.search(p, filepath.Join(dir, e.Name()), depth-1, left)...)
		}
	}
	return found
}

// consider reads one SKILL.md and takes it in, or says why not.
func (f *finder) consider(p place, path string, o Options) {
	if p.scope == Project && !o.Trusted {
		f.notices = append(f.notices, event.Notice{
			Class: "skill_untrusted", Origin: path,
			Message: path + " was left out because the project is not trusted",
			Hint:    "trust the project to use its skills",
		})
		return
	}
	if p.inside != "" {
		if real, err := filepath.EvalSymlinks(path); err != nil || !sandbox.Within(real, p.inside) {
			f.note("skill_outside", path, path+" is a link out of the project and was not followed")
			return
		}
	}
	text, err := read(path)
	if err != nil {
		f.note("skill_unreadable", path, fmt.Sprintf("%s cannot be read: %v", path, reason(err)))
		return
	}
	s := Skill{Path: path, Scope: p.scope}
	if s.Name, s.Description, err = frontMatter(text, filepath.Base(filepath.Dir(path))); err != nil {
		f.note("skill_invalid", path, fmt.Sprintf("%s was left out: %v", path, err))
		return
	}
	if s.isOne(o.Disabled) {
		return
	}
	if old, ok := f.byName[s.Name]; ok {
		f.note("skill_shadowed", old.Path, fmt.Sprintf("%s was left out: %s has the same name %q and is nearer", old.Path, path, s.Name))
	}
	f.byName[s.Name] = s
}

// isOne tells whether list has the skill by its name or by where it is.
func (s Skill) isOne(list []string) bool {
	return slices.ContainsFunc(list, func(one string) bool {
		if one == s.Name {
			return true
		}
		if !filepath.IsAbs(one) {
			return false
		}
		real, err := filepath.EvalSymlinks(one)
		if err != nil {
			return false
		}
		mine, err := filepath.EvalSymlinks(s.Path)
		return err == nil && (real == mine || real == filepath.Dir(mine))
	})
}

func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// read reads a regular file within the bound; O_NONBLOCK keeps a FIFO from
// holding the run.
func read(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", errors.Join(err, errors.New("not a regular file"))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("larger than %d bytes", maxFile)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), nil
}
