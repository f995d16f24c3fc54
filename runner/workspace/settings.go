package workspace

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// The settings of a repository are few and plain nearly everywhere. Those are
// read here; git, which costs a process, is asked about everything else:
// includes, quotes, continued lines, extensions, files that it may not see.

// setting is one line of a configuration, as git config --list would print it.
type setting struct{ key, value string }

const maxSettings = 1 << 20

// plainSettings reads the carried settings of the user and the repository, in
// the order in which git does; false where git must be asked.
func (v *view) plainSettings() ([]setting, bool) {
	files := append(v.git.userFiles("config"), v.git.homeFile(".gitconfig")...)
	files = append(files, filepath.Join(v.source.CommonDir, "config"))
	if slices.ContainsFunc(files, func(file string) bool { return !filepath.IsAbs(file) }) {
		return nil, false
	}
	var all []setting
	for _, file := range files {
		text, ok := v.plainFile(file)
		if !ok {
			return nil, false
		}
		list, ok := parsePlain(text)
		if !ok {
			return nil, false
		}
		all = append(all, list...)
	}
	return all, true
}

// plainFile reads a file that git would see as we do; one that is not there is
// empty.
func (v *view) plainFile(file string) (string, bool) {
	real, err := filepath.EvalSymlinks(file)
	if missing(err) && !exists(file) { // no link that leads nowhere
		return "", true
	}
	if err != nil || slices.ContainsFunc(v.deny, func(dir string) bool { return sandbox.Within(file, dir) || sandbox.Within(real, dir) }) {
		return "", false
	}
	text, err := readBounded(real, maxSettings)
	return string(text), err == nil
}

// parsePlain reads a configuration of plain lines and keeps what is carried.
func parsePlain(text string) ([]setting, bool) {
	var kept []setting
	section := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Trim(line, " \t")
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			name, ok := plainSection(line)
			if !ok {
				return nil, false
			}
			section = name
			continue
		}
		s, ok := plainSetting(section, line)
		if !ok {
			return nil, false
		}
		if carried[s.key] {
			kept = append(kept, s)
		}
	}
	return kept, true
}

// plainSection reads a line like [core] or [remote "origin"]. A section with a
// second name gets a name that no setting has: none of those is carried.
func plainSection(line string) (string, bool) {
	inside, ok := strings.CutSuffix(line[1:], "]")
	name, second, has := strings.Cut(inside, " ")
	name = strings.ToLower(name)
	if !ok || !isPlainName(name) || name == "include" || name == "includeif" || name == "extensions" {
		return "", false
	}
	if !has {
		return name, true
	}
	second = strings.TrimLeft(second, " ")
	quoted := len(second) >= 2 && second[0] == '"' && second[len(second)-1] == '"'
	return name + " ", quoted && !strings.ContainsAny(second[1:len(second)-1], "\"\\")
}

// plainSetting reads a line like filemode = true.
func plainSetting(section, line string) (setting, bool) {
	name, value, has := strings.Cut(line, "=")
	name = strings.TrimRight(name, " \t")
	if section == "" || !isPlainName(name) || strings.ContainsAny(value, "\"\\\r\x00") {
		return setting{}, false
	}
	s := setting{section + "." + strings.ToLower(name), strings.TrimLeft(value, " \t")}
	if !has {
		s.value = "true"
	}
	switch {
	case !carried[s.key]:
		return s, true
	case s.key == "core.repositoryformatversion":
		return s, s.value == "0"
	}
	return s, s.value != "" && strings.Trim(s.value, plainValue) == ""
}

const (
	letters    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	plainValue = letters + "0123456789_./~:-"
)

// isPlainName tells whether s is a name as git takes it.
func isPlainName(s string) bool {
	return s != "" && strings.Contains(letters, s[:1]) && strings.Trim(s, letters+"0123456789-") == ""
}

// userFiles are the places of one of git's files below the user's folder for
// configuration.
func (g *gitRunner) userFiles(name string) []string {
	if dir, ok := g.lookup("XDG_CONFIG_HOME"); ok && dir != "" {
		return []string{filepath.Join(dir, "git", name)}
	}
	return g.homeFile(filepath.Join(".config/git", name))
}

// homeFile is a file in the user's home folder, if there is one.
func (g *gitRunner) homeFile(name string) []string {
	home, ok := g.lookup("HOME")
	if !ok {
		return nil
	}
	return []string{filepath.Join(home, name)}
}

// lookup reads a variable of git's environment, where the last of two counts.
func (g *gitRunner) lookup(name string) (string, bool) {
	for _, kv := range slices.Backward(g.env) {
		if k, value, ok := strings.Cut(kv, "="); ok && k == name {
			return value, true
		}
	}
	return "", false
}

// missing tells whether err says that nothing is there.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
