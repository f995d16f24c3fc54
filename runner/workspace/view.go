package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// view is a private git folder through which one work tree is looked at. Its
// configuration is ours, its objects go to a private folder that has the
// repository's objects as alternates, and its index is a copy; so reading the
// tree runs nothing that the repository names and changes nothing in it.
type view struct {
	git    *gitRunner
	root   string   // work tree
	dir    string   // private git folder
	source Facts    // the repository; GitDir "" outside git
	deny   []string // what git cannot read in its sandbox
	own    []string // files that the run itself writes
	// alternate is the folder of the repository's objects, unless a file names it.
	alternate string
	// index is what the user's index looked like when it was copied.
	index signature
	// Of the settings: the hash of the repository, whether a file of the user's
	// gives attributes, and whether only a part of the files is checked out.
	sha256, attributes, sparse bool
	// links are the repositories that the index names, with or without .gitmodules.
	links []string
	// plain: the settings were read without git. named are files they name.
	plain bool
	named []string
}

// signature tells two states of a file apart without reading it.
type signature struct {
	size, mtime, ctime int64
	inode              uint64
	mode               fs.FileMode
}

// carried are the settings of the repository that decide what its files look
// like to git. Everything else of its configuration is left behind.
var carried = map[string]bool{
	"core.autocrlf": true, "core.eol": true, "core.filemode": true, "core.symlinks": true,
	"core.ignorecase": true, "core.precomposeunicode": true, "core.protecthfs": true,
	"core.protectntfs": true, "core.excludesfile": true, "core.attributesfile": true,
	"core.sparsecheckout": true, "core.sparsecheckoutcone": true, "core.trustctime": true,
	"core.checkstat": true, "core.checkroundtripencoding": true,
	"core.repositoryformatversion": true, "extensions.objectformat": true,
}

// newView makes the private git folder at dir for the work tree root.
func (d *Dir) newView(ctx context.Context, source Facts, root, dir string) (*view, error) {
	v := &view{git: d.git(), root: root, dir: dir, source: source, deny: d.o.Spec.Deny, own: d.o.Own}
	for _, sub := range []string{"objects", "refs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	settings, err := v.settings(ctx)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"HEAD": "ref: refs/heads/none\n", "config": settings}
	if source.Commit != "" {
		files["HEAD"] = source.Commit + "\n" // what git status compares with
	}
	if source.GitDir != "" {
		v.carryFiles(files)
	}
	for name, text := range files {
		if err := v.write(name, []byte(text)); err != nil {
			return nil, err
		}
	}
	if source.GitDir != "" {
		if v.index, err = v.copyIndex(v.indexFile()); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// carryFiles adds what the repository has besides its settings. Files that say
// nothing, as every new repository has one, are left out.
func (v *view) carryFiles(files map[string]string) {
	objects := filepath.Join(v.source.CommonDir, "objects")
	if strings.ContainsAny(objects, ":\"\\\n") { // a list of folders in a variable has marks of its own
		files["objects/info/alternates"] = quoteAlternate(objects)
	} else {
		v.alternate = objects
	}
	for name, from := range map[string]string{
		"info/exclude": v.source.CommonDir, "info/attributes": v.source.CommonDir, "info/sparse-checkout": v.source.GitDir,
	} {
		text, err := readBounded(filepath.Join(from, name), maxInfoFile)
		if err == nil && !onlyComments(string(text)) {
			files[name] = string(text)
		}
	}
}

func onlyComments(text string) bool {
	for line := range strings.Lines(text) {
		if line != "\n" && line[0] != '#' {
			return false
		}
	}
	return true
}

// write makes a file of the private git folder.
func (v *view) write(name string, text []byte) error {
	file := filepath.Join(v.dir, name)
	err := os.WriteFile(file, text, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

const (
	maxInfoFile  = 1 << 20 // info/exclude and its like
	maxIndexFile = 1 << 30
)

// settings makes the private configuration: the carried part of the
// repository's own, then ours.
func (v *view) settings(ctx context.Context) (string, error) {
	var b strings.Builder
	list, err := v.carriedSettings(ctx)
	if err != nil {
		return "", err
	}
	for _, s := range list {
		section, name, _ := strings.Cut(s.key, ".")
		fmt.Fprintf(&b, "[%s]\n\t%s = %s\n", section, name, quoteConfig(s.value))
		switch s.key {
		case "extensions.objectformat":
			v.sha256 = s.value == "sha256"
		case "core.attributesfile":
			v.attributes = true
		case "core.sparsecheckout":
			v.sparse = !slices.Contains([]string{"false", "no", "off", "0", ""}, strings.ToLower(s.value))
		}
		if strings.HasSuffix(s.key, "sfile") {
			v.named = append(v.named, s.value)
		}
	}
	b.WriteString(`[core]
	bare = false
	compression = 0
	safecrlf = false
	fsync = none
	splitIndex = false
[gc]
	auto = 0
[diff]
	renames = true
	ignoreSubmodules = dirty
[index]
	sparse = false
`)
	return b.String(), nil
}

// carriedSettings are those of the user and the repository, in order.
func (v *view) carriedSettings(ctx context.Context) ([]setting, error) {
	if v.source.GitDir == "" {
		v.plain = true
		return nil, nil
	}
	list, ok := v.plainSettings()
	if v.plain = ok; ok {
		return list, nil
	}
	out, err := v.git.run(ctx, call{
		args: []string{"config", "--list", "-z"}, dir: v.root,
		env: []string{"GIT_DIR=" + v.source.GitDir, "GIT_WORK_TREE=" + v.root},
	})
	if err != nil {
		return nil, err
	}
	list = nil
	for entry := range strings.SplitSeq(string(out), "\x00") {
		key, value, hasValue := strings.Cut(entry, "\n")
		if !carried[key] {
			continue
		}
		if !hasValue {
			value = "true"
		}
		list = append(list, setting{key, value})
	}
	return list, nil
}

func quoteConfig(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(s) + `"`
}

func quoteAlternate(path string) string {
	if strings.ContainsAny(path, "\n\"") || strings.HasPrefix(path, "#") {
		return strconv.Quote(path) + "\n"
	}
	return path + "\n"
}

// copyIndex copies the index and the shared part it may point to. The copy
// keeps the time of the original: git compares files against it to see which
// may have changed within the clock's resolution.
func (v *view) copyIndex(to string) (signature, error) {
	from := filepath.Join(v.source.GitDir, "index")
	st, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return signature{}, nil // a repository without a first commit
	}
	if err != nil {
		return signature{}, err
	}
	text, err := readBounded(from, maxIndexFile)
	if err != nil {
		return signature{}, err
	}
	v.unhide(text)
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return signature{}, err
	}
	if err := os.Chtimes(to, st.ModTime(), st.ModTime()); err != nil {
		return signature{}, err
	}
	shared, err := filepath.Glob(filepath.Join(filepath.Dir(from), "sharedindex.*"))
	if err != nil {
		shared = nil // a pattern character in the path: no split index support there
	}
	for _, file := range shared {
		if !bytes.Contains(text, []byte("link")) {
			break
		}
		part, err := readBounded(file, maxIndexFile)
		if err != nil {
			return signature{}, err
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(to), filepath.Base(file)), part, 0o600); err != nil {
			return signature{}, err
		}
	}
	return signatureOf(st), nil
}

func readBounded(file string, max int64) ([]byte, error) {
	f, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, max)
	}
	return b, nil
}

// denied tells whether git sees something else at a path than what is there.
func (v *view) denied(path string) bool {
	abs := filepath.Join(v.root, path)
	return slices.ContainsFunc(v.deny, func(dir string) bool { return sandbox.Within(abs, dir) })
}

// indexFile is the private index.
func (v *view) indexFile() string { return filepath.Join(v.dir, "index") }

// owned tells whether path is a file that the run itself writes.
func (v *view) owned(path string) bool { return slices.Contains(v.own, filepath.Join(v.root, path)) }

// do runs git on the private folder and the work tree.
func (v *view) do(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	return v.git.run(ctx, v.call(stdin, args...))
}

func (v *view) call(stdin string, args ...string) call {
	return call{
		args: args, stdin: stdin, dir: v.root,
		env: []string{
			"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + v.alternate,
			"GIT_DIR=" + v.dir, "GIT_WORK_TREE=" + v.root, "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_OBJECT_DIRECTORY=" + filepath.Join(v.dir, "objects"),
			"GIT_INDEX_FILE=" + v.indexFile(),
		},
	}
}

// entry is one path that differs from the index.
type entry struct {
	path      string // relative to the work tree
	untracked bool
}

// changed lists what differs between index and work tree, ignored files left
// out. Paths that end in a slash are repositories of their own.
func (v *view) changed(ctx context.Context) ([]entry, error) {
	out, err := v.do(ctx, "", "ls-files", "-z", "-t", "-m", "-o", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var list []entry
	seen := map[string]bool{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		tag, path, ok := strings.Cut(line, " ")
		if !ok || seen[path] {
			continue // unmerged paths come once per stage
		}
		seen[path] = true
		list = append(list, entry{path: path, untracked: tag == "?"})
	}
	// Tracked paths first: where a file became a folder, update-index must drop
	// the file before it adds what is in the folder.
	slices.SortStableFunc(list, func(a, b entry) int {
		switch {
		case a.untracked == b.untracked:
			return 0
		case b.untracked:
			return -1
		}
		return 1
	})
	return list, nil
}

// tracked lists the paths of an index file.
func (v *view) tracked(ctx context.Context, index string) (map[string]bool, error) {
	c := v.call("", "ls-files", "-z")
	c.env = append(c.env, "GIT_INDEX_FILE="+index)
	out, err := v.git.run(ctx, c)
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for path := range strings.SplitSeq(string(out), "\x00") {
		if path != "" {
			paths[path] = true
		}
	}
	return paths, nil
}

// add brings the index up to date for paths and returns those git refused.
func (v *view) add(ctx context.Context, paths []string) (refused []string, err error) {
	const maxRefused = 16
	for len(paths) > 0 {
		_, err = v.do(ctx, strings.Join(paths, "\x00")+"\x00", "update-index", "-z", "--add", "--remove", "--replace", "--stdin")
		var ge *gitError
		if err == nil || !errors.As(err, &ge) {
			return refused, err
		}
		bad, ok := refusedPath(ge.stderr)
		rest := without(paths, bad)
		if !ok || len(rest) == len(paths) || len(refused) == maxRefused {
			return refused, err
		}
		refused, paths = append(refused, bad), rest
	}
	return refused, nil
}

// refusedPath finds the path in the message of update-index, which stops at
// the first one it cannot handle and then writes nothing.
func refusedPath(stderr string) (string, bool) {
	for line := range strings.Lines(stderr) {
		if path, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "fatal: Unable to process path "); ok {
			return path, true
		}
	}
	return "", false
}

func without(list []string, drop string) []string {
	kept := make([]string, 0, len(list))
	for _, s := range list {
		if s != drop {
			kept = append(kept, s)
		}
	}
	return kept
}

// clean tells whether the work tree is just what its commit says, untracked files
// included. False may also mean that it is not known: then the state must be taken.
func (v *view) clean(ctx context.Context) bool {
	if v.source.Commit == "" || exists(filepath.Join(v.root, ".gitmodules")) {
		return false
	}
	out, err := v.do(ctx, "", "status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
	if err != nil {
		return false
	}
	for line := range strings.SplitSeq(string(out), "\x00") {
		if path, untracked := strings.CutPrefix(line, "? "); line != "" && (!untracked || !v.owned(path)) {
			return false
		}
	}
	return true
}

// tree writes the index as a tree and returns its id.
func (v *view) tree(ctx context.Context) (string, error) {
	out, err := v.do(ctx, "", "write-tree", "--missing-ok")
	return strings.TrimSpace(string(out)), err
}

// resolve asks the repository itself for an object id; "" if there is none.
func (v *view) resolve(ctx context.Context, name string) string {
	out, err := v.git.run(ctx, call{
		args: []string{"rev-parse", "--verify", "--quiet", name}, dir: v.root,
		env: []string{"GIT_DIR=" + v.source.GitDir, "GIT_WORK_TREE=" + v.root},
	})
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// emptyTree is the id of a tree without files in the repository's hash.
func (v *view) emptyTree(ctx context.Context) string {
	out, err := v.do(ctx, "", "hash-object", "-t", "tree", "/dev/null")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// submodules lists the paths of .gitmodules.
func (v *view) submodules(ctx context.Context) []string {
	file := filepath.Join(v.root, ".gitmodules")
	if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() || v.source.GitDir == "" {
		return nil
	}
	out, err := v.do(ctx, "", "config", "-z", "--file", file, "--no-includes", "--get-regexp", `^submodule\..*\.path$`)
	if err != nil {
		return nil
	}
	var paths []string
	for entry := range strings.SplitSeq(string(out), "\x00") {
		if _, path, ok := strings.Cut(entry, "\n"); ok && filepath.IsLocal(path) {
			paths = append(paths, filepath.Clean(path))
		}
	}
	return paths
}
