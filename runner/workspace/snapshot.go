package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// snapshot is the state of one work tree: a git tree for what is kept, and
// signatures of what is too much to keep.
type snapshot struct {
	tree string // id
	// at is what a diff begins with: the tree, or the commit that has it.
	at string
	// clean: it is known to be what the commit says.
	clean  bool
	unkept map[string]signature
	// differs: something unkept is not what the commit says.
	differs bool
	// nested are folders that are repositories of their own.
	nested []string
	notes  []string
}

// before takes the state at the beginning of a run.
func (v *view) before(ctx context.Context, b Bounds) (snapshot, error) {
	if v.clean(ctx) {
		if entries, err := v.entries(); err == nil {
			_, newHash := v.hash()
			return snapshot{tree: treeOf(entries, newHash), at: v.source.Commit, clean: true}, nil
		}
	}
	list, err := v.changed(ctx)
	if err != nil {
		return snapshot{}, err
	}
	s := snapshot{unkept: map[string]signature{}}
	var keep []string
	var untracked int64
	for _, e := range list {
		if v.owned(e.path) {
			continue
		}
		if nested, ok := strings.CutSuffix(e.path, "/"); ok {
			s.nested = append(s.nested, nested)
			continue
		}
		sig, ok := v.sign(e.path)
		switch {
		case v.denied(e.path): // whether it was changed before the run nobody can say
			s.unkept[e.path] = sig
		case !ok: // gone: the tree says the same
			keep = append(keep, e.path)
		case !diffable(sig.mode), sig.size > b.FileBytes,
			e.untracked && (untracked+sig.size > b.UntrackedAll || len(keep) >= b.Entries):
			s.unkept[e.path], s.differs = sig, true
		default:
			if e.untracked {
				untracked += sig.size
			}
			keep = append(keep, e.path)
		}
	}
	refused, err := v.add(ctx, keep)
	if err != nil {
		return snapshot{}, err
	}
	for _, path := range refused {
		sig, _ := v.sign(path)
		s.unkept[path], s.differs = sig, true
	}
	s.tree, err = v.tree(ctx)
	s.at = s.tree
	return s, err
}

// after takes the state at the end of a run, given the one at its beginning.
// Files that cannot be part of the patch are named in notes.
func (v *view) after(ctx context.Context, first snapshot, b Bounds) (snapshot, error) {
	list, err := v.changed(ctx)
	if err != nil {
		return snapshot{}, err
	}
	if list, err = v.withForced(ctx, list); err != nil {
		return snapshot{}, err
	}
	var s snapshot
	var keep []string
	listed := map[string]bool{}
	for _, e := range list {
		listed[e.path] = true
		if v.owned(e.path) {
			continue
		}
		if nested, ok := strings.CutSuffix(e.path, "/"); ok {
			s.nested = append(s.nested, nested)
			continue
		}
		sig, ok := v.sign(e.path)
		old, unkept := first.unkept[e.path]
		switch {
		case unkept && sig == old:
		case unkept:
			s.notes = append(s.notes, e.path+": changed, but it was too large or too odd to keep a copy of before the run")
		case v.denied(e.path):
			s.notes = append(s.notes, e.path+": lies where reading is denied")
		case ok && !diffable(sig.mode):
			s.notes = append(s.notes, e.path+": neither a file nor a link")
		case ok && sig.size > b.FileBytes:
			s.notes = append(s.notes, fmt.Sprintf("%s: %d bytes, more than a patch takes of one file", e.path, sig.size))
		default:
			keep = append(keep, e.path)
		}
	}
	for path, old := range first.unkept {
		if _, ok := v.sign(path); !ok && !listed[path] && old != (signature{}) {
			s.notes = append(s.notes, path+": deleted, but it was too large or too odd to keep a copy of before the run")
		}
	}
	if len(keep) == 0 {
		s.tree = first.tree
		return s, nil
	}
	filtered, err := v.filtered(ctx, keep)
	if err != nil {
		return snapshot{}, err
	}
	for path, driver := range filtered {
		keep = without(keep, path)
		s.notes = append(s.notes, fmt.Sprintf("%s: stored through the filter %q, which is not run", path, driver))
	}
	refused, err := v.add(ctx, keep)
	if err != nil {
		return snapshot{}, err
	}
	for _, path := range refused {
		s.notes = append(s.notes, path+": cannot be read")
	}
	if entries, err := v.entries(); err == nil {
		_, newHash := v.hash()
		s.tree = treeOf(entries, newHash)
		return s, nil
	}
	s.tree, err = v.tree(ctx)
	return s, err
}

// withForced adds paths that the run put into the user's index although they
// are ignored ("git add -f", then perhaps a commit).
func (v *view) withForced(ctx context.Context, list []entry) ([]entry, error) {
	if v.source.GitDir == "" {
		return list, nil
	}
	now := filepath.Join(v.dir, "index.now")
	sig := signature{}
	if st, err := os.Stat(filepath.Join(v.source.GitDir, "index")); err == nil {
		sig = signatureOf(st)
	}
	if sig == v.index {
		return list, nil
	}
	if _, err := v.copyIndex(now); err != nil {
		return nil, err
	}
	theirs, err := v.tracked(ctx, now)
	if err != nil {
		return nil, err
	}
	ours, err := v.tracked(ctx, filepath.Join(v.dir, "index"))
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		ours[e.path] = true
	}
	for path := range theirs {
		if _, exists := v.sign(path); exists && !ours[path] {
			list = append(list, entry{path: path, untracked: true})
		}
	}
	return list, nil
}

// filtered returns the paths whose content git stores through a filter driver
// (such as large file storage), with the driver's name. Our configuration
// defines no driver, so their content in the patch would be the wrong one.
func (v *view) filtered(ctx context.Context, paths []string) (map[string]string, error) {
	if len(paths) == 0 || !v.hasAttributes(paths) {
		return nil, nil
	}
	out, err := v.do(ctx, strings.Join(paths, "\x00")+"\x00", "check-attr", "-z", "--stdin", "filter")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+2 < len(fields); i += 3 {
		switch value := fields[i+2]; value {
		case "unspecified", "unset", "set":
		default:
			found[fields[i]] = value
		}
	}
	return found, nil
}

// sign reads the signature of a path; false if there is nothing.
func (v *view) sign(path string) (signature, bool) {
	st, err := os.Lstat(filepath.Join(v.root, path))
	if err != nil {
		return signature{}, false
	}
	return signatureOf(st), true
}

func signatureOf(st fs.FileInfo) signature {
	s := signature{size: st.Size(), mtime: st.ModTime().UnixNano(), mode: st.Mode()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.inode, s.ctime = sys.Ino, changeTime(sys)
	}
	return s
}

// diffable tells whether git can hold a thing of that mode. Folders can stand
// here for a submodule.
func diffable(m fs.FileMode) bool {
	return m.IsRegular() || m&fs.ModeSymlink != 0 || m.IsDir()
}

// countable refuses a folder without a repository that is too large to look
// at as a whole, such as a home folder.
func countable(dir string, b Bounds) error {
	entries := 0
	var size int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be read is named by git later, if it matters
		}
		if entries++; entries > b.Entries {
			return fmt.Errorf("it holds more than %d entries", b.Entries)
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Size() <= b.FileBytes {
			if size += info.Size(); size > b.UntrackedAll {
				return fmt.Errorf("it holds more than %d bytes", b.UntrackedAll)
			}
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return fmt.Errorf("%s is not a git repository and too large to copy: %w", dir, err)
	}
	return nil
}
