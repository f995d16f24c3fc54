package runner

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// Credentials in git's configuration. Commands need the files to use git, so what
// stands there can only be masked, and the user warned.

// maxGitConfigs bounds the configurations of submodules and the included files
// that are looked into.
const maxGitConfigs = 100

// maxGitConfig bounds the configuration that is searched, in bytes.
const maxGitConfig = 1 << 20

// gitCredentials looks for tokens that a checkout or set-up step left in the
// configuration of the repository, the user or the machine.
func (c *Confinement) gitCredentials() {
	if c.facts.CommonDir == "" {
		return
	}
	files := []string{filepath.Join(c.facts.CommonDir, "config"), filepath.Join(c.facts.GitDir, "config.worktree")}
	if modules, err := filepath.Glob(globQuote(c.facts.CommonDir) + "/modules/*/config"); err == nil {
		files = append(files, modules[:min(len(modules), maxGitConfigs)]...)
	}
	files = append(files, c.gitUserConfigs()...)
	var found []string
	origin, seen := "", map[string]bool{}
	for len(files) > 0 && len(seen) < maxGitConfigs {
		file := files[0]
		files = files[1:]
		if seen[file] {
			continue
		}
		seen[file] = true
		secrets, included := credentialsIn(file)
		for _, s := range secrets {
			if !slices.Contains(found, s) {
				found = append(found, s)
			}
		}
		if len(secrets) > 0 {
			origin = cmp.Or(origin, file)
		}
		for _, name := range included {
			if rest, ok := strings.CutPrefix(name, "~/"); ok {
				name = filepath.Join(c.userHome, rest)
			} else if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(file), name)
			}
			files = append(files, name)
		}
	}
	if len(found) > 0 {
		c.Secrets["git-config"] = found
		c.Notices = append(c.Notices, event.Notice{Class: "git_credentials",
			Message: "git's configuration holds a credential that commands can read; it is masked in the output",
			Origin:  origin, Hint: "check out with persist-credentials: false, or leave the credential to a helper"})
	}
}

// gitUserConfigs are the files that git reads besides the repository's.
func (c *Confinement) gitUserConfigs() []string {
	set := func(name, otherwise string) string {
		value, _ := c.lookupEnv(name)
		return cmp.Or(value, otherwise)
	}
	return []string{
		set("GIT_CONFIG_GLOBAL", filepath.Join(c.userHome, ".gitconfig")),
		filepath.Join(set("XDG_CONFIG_HOME", filepath.Join(c.userHome, ".config")), "git/config"),
		set("GIT_CONFIG_SYSTEM", "/etc/gitconfig"),
	}
}

// credentialsIn returns the credentials in a git configuration file, and the files
// that it includes. Newer checkout steps put the credential into such a file.
func credentialsIn(file string) (found, included []string) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // not to wait at a pipe
	if err != nil {
		return nil, nil // git will say so
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxGitConfig))
	if err != nil {
		return nil, nil
	}
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) { // a value may go on
		line = strings.TrimSpace(line)
		found = append(found, policy.URLCredentials(line)...)
		if head := sectionHead().FindString(line); head != "" {
			section, line = strings.ToLower(head), strings.TrimSpace(line[len(head):])
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.Trim(strings.TrimSpace(value), `"`)
		switch {
		case key == "path" && strings.HasPrefix(section, "[include"):
			included = append(included, value)
		case key == "extraheader":
			found = append(found, headerSecrets(value)...)
		case key == "helper":
			found = append(found, helperPasswords(value)...)
		}
	}
	return found, included
}

// sectionHead is the head of a section, whose name in quotes may hold a bracket.
var sectionHead = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\[[^\]"]*("(?:[^"\\]|\\.)*"\s*)?\]`)
})

// helperPasswords are the passwords that a helper has in its own text.
func helperPasswords(value string) (found []string) {
	const word = "password="
	for {
		i := strings.Index(strings.ToLower(value), word)
		if i < 0 {
			return found
		}
		value = value[i+len(word):]
		password := value
		if end := strings.IndexAny(value, " \t\"';&|\\"); end >= 0 {
			password = value[:end]
		}
		if password != "" && !strings.ContainsAny(password, "$`%") {
			found = append(found, password)
		}
	}
}
