package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// maxNotes bounds how many files that are not in the patch are named.
const maxNotes = 50

// Diff tells what changed in the workspace since the baseline. It always
// answers: what could not be found out is in Error, and files that the patch leaves
// out are named in Omitted. When Ready was never awaited nothing of the run can
// have written, and Diff says so without starting git.
//
// The patch is made from two trees, so it holds what the run changed and
// nothing else, also when the folder had changes before. It applies to Base if
// Dirty is false.
func (d *Dir) Diff(ctx context.Context) event.DiffCaptured {
	d.mu.Lock()
	awaited := d.awaited
	d.mu.Unlock()
	out := event.DiffCaptured{Base: d.o.Facts.Commit, Files: []event.FileStat{}}
	if !awaited {
		out.Digest = digest("")
		return out
	}
	<-d.done // closed: Ready has returned
	out.Base, out.Dirty = d.base, d.dirty
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.Timeout, fmt.Errorf("comparing took longer than %s", d.o.Timeout))
	defer cancel()
	err := d.err
	if err == nil {
		err = d.compare(ctx, &out)
	}
	if err != nil {
		out.Patch, out.Error = "", "the changes of this run could not be captured: "+err.Error()
	}
	out.Digest = digest(out.Patch)
	return out
}

func digest(patch string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(patch)))
}

func (d *Dir) compare(ctx context.Context, out *event.DiffCaptured) error {
	var patch strings.Builder
	notes := slices.Clone(d.notes)
	var found []string // repositories made during the run
	known := map[string]bool{}
	for _, s := range d.scopes {
		known[s.prefix] = true
	}
	for i, s := range d.scopes {
		last, err := s.view.after(ctx, s.first, d.o.Bounds)
		if err != nil {
			return err
		}
		for _, note := range last.notes {
			notes = append(notes, s.prefix+note)
		}
		for _, path := range last.nested {
			if !known[s.prefix+path+"/"] {
				found = append(found, s.prefix+path+"/")
			}
		}
		if i == 0 {
			out.Head = last.tree
		}
		if err := d.append(ctx, s, last.tree, &patch, out); err != nil {
			return err
		}
	}
	for _, prefix := range found {
		if err := d.newRepository(ctx, prefix, &patch, out); err != nil {
			notes = append(notes, fmt.Sprintf("%s: a repository of its own: %v", prefix, err))
		}
	}
	out.Patch = patch.String()
	out.Omitted = bound(notes)
	return nil
}

// newRepository adds a repository that the run made, as plain files: the patch
// has no other way to keep them.
func (d *Dir) newRepository(ctx context.Context, prefix string, patch *strings.Builder, out *event.DiffCaptured) error {
	if source, _ := nestedFacts(filepath.Join(d.top(), prefix)); source.Root == "" {
		return errors.New("its content is not in the patch")
	}
	if err := countable(filepath.Join(d.top(), prefix), d.o.Bounds); err != nil {
		return err
	}
	v, err := d.newView(ctx, Facts{}, filepath.Join(d.top(), prefix),
		filepath.Join(d.o.Private, "new"+digest(prefix)[len("sha256:"):][:16]))
	if err != nil {
		return err
	}
	v.git = d.scopes[0].view.git
	first := snapshot{}
	if first.tree, err = v.tree(ctx); err != nil {
		return err
	}
	first.at = first.tree
	last, err := v.after(ctx, first, d.o.Bounds)
	if err != nil {
		return err
	}
	return d.append(ctx, &scope{prefix: prefix, view: v, first: first}, last.tree, patch, out)
}

// append adds the difference of one work tree to the patch and the file list.
func (d *Dir) append(ctx context.Context, s *scope, tree string, patch *strings.Builder, out *event.DiffCaptured) error {
	if tree == s.first.tree {
		return nil
	}
	room := int(d.o.PatchBytes) - patch.Len()
	c := s.comparison("-z", "--raw", "--numstat", "--abbrev=40", "-p")
	c.max = maxGitOutput + room
	all, err := s.view.git.run(ctx, c)
	tooLarge := errors.Is(err, errTooMuchOutput)
	if tooLarge { // the list alone fits, perhaps
		all, err = s.view.git.run(ctx, s.comparison("-z", "--raw", "--numstat", "--abbrev=40"))
	}
	if err != nil {
		return err
	}
	files, text, err := parseDiff(all, s.prefix)
	if err != nil {
		return err
	}
	out.Files = append(out.Files, files...)
	if !tooLarge && !utf8.Valid(text) {
		text, err = s.binaryPatch(ctx, text, files, room)
		tooLarge = errors.Is(err, errTooMuchOutput)
	}
	switch {
	case tooLarge || len(text) > room:
		return fmt.Errorf("the patch is larger than %d bytes; the files are listed without it", d.o.PatchBytes)
	case err != nil:
		return err
	}
	patch.Write(text)
	return nil
}

// comparison is the call that compares the state before the run with the
// private index, which holds the one after it.
func (s *scope) comparison(what ...string) call {
	return s.view.call("", append(append([]string{
		"diff-index", "--cached", "--ita-invisible-in-index", "-M", "-l2000", "--no-ext-diff", "--no-textconv", "--no-color",
		"--ignore-submodules=dirty", "--submodule=short", "--no-relative", "--diff-algorithm=histogram",
		"--binary", "--full-index", "--src-prefix=a/" + s.prefix, "--dst-prefix=b/" + s.prefix,
	}, what...), s.first.at)...)
}

// binaryPatch makes the patch again where it is not valid UTF-8. It travels in
// JSON, so every file of it must be: a text that is not (Latin-1, say) is written
// as a binary difference, which keeps its bytes.
func (s *scope) binaryPatch(ctx context.Context, text []byte, files []event.FileStat, room int) ([]byte, error) {
	name := filepath.Join(s.view.dir, "info/attributes")
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.view.write("info/attributes", append(append(old, '\n'), binaryAttributes(text, files, s.prefix)...)); err != nil {
		return nil, err
	}
	c := s.comparison("-p")
	c.max = room
	text, err = s.view.git.run(ctx, c)
	if err == nil && !utf8.Valid(text) {
		err = errors.New("the patch is not valid UTF-8; the files are listed without it")
	}
	return text, errors.Join(err, os.WriteFile(name, old, 0o600))
}

// binaryAttributes names the files whose part of the patch is not UTF-8. The
// parts come in the order of the list; if they cannot be told apart, all files
// are named.
func binaryAttributes(text []byte, files []event.FileStat, prefix string) []byte {
	parts := bytes.Split(append([]byte("\n"), text...), []byte("\ndiff --git "))[1:]
	if len(parts) != len(files) {
		return []byte("* -diff\n")
	}
	var b bytes.Buffer
	for i, p := range parts {
		if utf8.Valid(p) {
			continue
		}
		for _, path := range []string{files[i].Path, files[i].OldPath} {
			if path != "" {
				fmt.Fprintf(&b, "%s -diff\n", attributePattern(strings.TrimPrefix(path, prefix)))
			}
		}
	}
	return b.Bytes()
}

// attributePattern is path as a pattern of gitattributes that matches it alone.
func attributePattern(path string) string {
	escaped := strings.NewReplacer("\\", "\\\\", "*", "\\*", "?", "\\?", "[", "\\[").Replace("/" + path)
	return strconv.Quote(escaped)
}

// parseDiff reads what git prints with -z --raw --numstat and perhaps -p: all raw
// entries, all counts in the same order, a zero byte, and the patch as it is.
func parseDiff(out []byte, prefix string) ([]event.FileStat, []byte, error) {
	var files []event.FileStat
	next := func() string {
		field, rest, _ := bytes.Cut(out, []byte{0})
		out = rest
		return string(field)
	}
	for len(out) > 0 && out[0] == ':' {
		head := strings.Fields(next()[1:])
		if len(head) != 5 || head[4] == "" {
			return nil, nil, errors.New("git printed a file list that cannot be read")
		}
		files = append(files, fileStat(head, prefix, next))
	}
	for n := 0; len(out) > 0 && out[0] != 0; n++ {
		counts := strings.SplitN(next(), "\t", 3)
		if len(counts) != 3 || n >= len(files) {
			return nil, nil, errors.New("git printed counts that cannot be read")
		}
		if counts[2] == "" { // a rename: both names follow
			next()
			next()
		}
		if counts[0] == "-" {
			files[n].Binary = true
			continue
		}
		files[n].Added, _ = strconv.Atoi(counts[0])
		files[n].Deleted, _ = strconv.Atoi(counts[1])
	}
	if len(out) > 0 {
		out = out[1:]
	}
	return files, out, nil
}

// fileStat reads one raw entry: old mode, new mode, old id, new id, status.
func fileStat(head []string, prefix string, next func() string) event.FileStat {
	f := event.FileStat{Path: prefix + next()}
	switch head[4][0] {
	case 'A':
		f.Kind = "add"
	case 'D':
		f.Kind = "delete"
	case 'R', 'C':
		f.Kind, f.OldPath, f.Path = "rename", f.Path, prefix+next()
	default:
		f.Kind = "update"
		if head[2] == head[3] {
			f.Kind = "mode"
		}
	}
	if head[0] != head[1] && f.Kind != "delete" {
		f.Mode = head[1]
	}
	return f
}

func bound(notes []string) []string {
	if len(notes) <= maxNotes {
		return notes
	}
	return append(slices.Clone(notes[:maxNotes]), fmt.Sprintf("and %d more", len(notes)-maxNotes))
}
