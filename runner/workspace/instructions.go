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
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// InstructionsOptions says which instruction files belong to a run.
type InstructionsOptions struct {
	Dir       string // working folder
	Root      string // project root: one file per folder from Root down to Dir
	Home      string // CODEX_HOME, whose file comes first; "" for none
	Fallbacks []string
	MaxBytes  int // over all project files; 0 reads none of them
	// Ref, if set, is the trusted git commit or branch that project files are
	// read from; the working tree is not looked at.
	Ref string
	// SkipProject leaves project files out (an untrusted project), with a
	// notice for each file that would have been read.
	SkipProject bool
}

// Instructions is the AGENTS.md chain of a folder.
type Instructions struct {
	// Text is the part of the user message, "" when there is nothing.
	Text    string
	Loaded  []event.InstructionsLoaded
	Notices []event.Notice
}

const (
	instructionsFile     = "AGENTS.md"
	instructionsOverride = "AGENTS.override.md"
	projectSeparator     = "\n\n--- project-doc ---\n\n"
	// maxHomeInstructions bounds the user's own file, which has no budget.
	maxHomeInstructions = 1 << 20
)

// document is one file that was found.
type document struct {
	path string
	size int64
	read func(max int64) ([]byte, error)
}

// Instructions collects the AGENTS.md chain: the file of CODEX_HOME, then one
// file per folder from the project root down. It starts git only for a Ref; a
// Ref that git does not know is an error.
func (d *Dir) Instructions(ctx context.Context, o InstructionsOptions) (Instructions, error) {
	var in Instructions
	home, err := in.home(o.Home)
	if err != nil {
		return Instructions{}, err
	}
	var project string
	if o.MaxBytes > 0 {
		docs, err := d.documents(ctx, o, &in)
		if err != nil {
			return Instructions{}, err
		}
		if project, err = in.project(docs, o); err != nil {
			return Instructions{}, err
		}
	}
	text := home
	if home != "" && project != "" {
		text += projectSeparator
	}
	if text += project; text != "" {
		about := ""
		if project != "" {
			about = " for " + o.Dir
		}
		in.Text = "# AGENTS.md instructions" + about + "\n\n<INSTRUCTIONS>\n" + text + "\n</INSTRUCTIONS>"
	}
	return in, nil
}

// home reads the user's file; an override that holds only white space does not
// count.
func (in *Instructions) home(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	for _, name := range []string{instructionsOverride, instructionsFile} {
		path := filepath.Join(dir, name)
		b, err := readBounded(path, maxHomeInstructions)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("instructions %s: %w", path, reason(err))
		}
		if text := strings.TrimSpace(replaceInvalid(b)); text != "" {
			in.Loaded = append(in.Loaded, event.InstructionsLoaded{Path: path, Bytes: len(b)})
			return text, nil
		}
	}
	return "", nil
}

// project joins the documents within the budget.
func (in *Instructions) project(docs []document, o InstructionsOptions) (string, error) {
	var parts []string
	left := int64(o.MaxBytes)
	for _, doc := range docs {
		if o.SkipProject {
			in.Notices = append(in.Notices, event.Notice{
				Class: "instructions_untrusted", Origin: doc.path,
				Message: doc.path + " was not given to the model because the project is not trusted",
				Hint:    "trust the project, or name a trusted commit with --instructions-from",
			})
			continue
		}
		b, err := doc.read(left)
		if err != nil {
			in.Notices = append(in.Notices, event.Notice{
				Class: "instructions_unreadable", Origin: doc.path,
				Message: fmt.Sprintf("%s could not be read: %v", doc.path, reason(err)),
			})
			continue
		}
		lost := max(doc.size-int64(len(b)), 0)
		text := replaceInvalid(b)
		if blank := strings.TrimSpace(text) == ""; blank && lost == 0 {
			continue
		} else if !blank {
			parts = append(parts, text)
			left -= int64(len(b))
		}
		in.Loaded = append(in.Loaded, event.InstructionsLoaded{Path: doc.path, Bytes: len(b), LostBytes: int(lost), Ref: o.Ref})
		if lost > 0 {
			in.Notices = append(in.Notices, event.Notice{
				Class: "instructions_truncated", Origin: doc.path,
				Message: fmt.Sprintf("%s was cut: %d of %d bytes were left out because project_doc_max_bytes is %d",
					doc.path, lost, doc.size, o.MaxBytes),
				Hint: "shorten the file or raise project_doc_max_bytes",
			})
		}
	}
	return strings.Join(parts, "\n\n"), nil
}

// names are the candidates in each folder; the first that exists is taken.
func (o InstructionsOptions) names() []string {
	names := []string{instructionsOverride, instructionsFile}
	for _, name := range o.Fallbacks {
		if name != "" && filepath.IsLocal(name) && !strings.ContainsRune(name, filepath.Separator) {
			names = append(names, name)
		}
	}
	return names
}

// folders are the folders from Root down to Dir, relative to Root.
func (o InstructionsOptions) folders() []string {
	rel, err := filepath.Rel(o.Root, o.Dir)
	if o.Root == "" || err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	list := []string{"."}
	if rel != "." {
		for i, r := range rel {
			if r == filepath.Separator {
				list = append(list, rel[:i])
			}
		}
		list = append(list, rel)
	}
	return list
}

func (d *Dir) documents(ctx context.Context, o InstructionsOptions, in *Instructions) ([]document, error) {
	if o.Root == "" || o.folders() == nil {
		o.Root = o.Dir
	}
	if o.Ref != "" {
		return d.fromRef(ctx, o, in)
	}
	root, err := os.OpenRoot(o.Root)
	if err != nil {
		return nil, fmt.Errorf("project root %s: %w", o.Root, reason(err))
	}
	defer root.Close()
	var docs []document
	for _, folder := range o.folders() {
		for _, name := range o.names() {
			rel := filepath.Join(folder, name)
			st, err := root.Lstat(rel)
			if err != nil || st.IsDir() {
				continue
			}
			path := filepath.Join(o.Root, rel)
			doc, err := fileDocument(o.Root, rel)
			if err != nil {
				in.Notices = append(in.Notices, refusedNotice(path, st, err))
				break
			}
			docs = append(docs, doc)
			break
		}
	}
	return docs, nil
}

// fileDocument describes a file of the working tree. Both here and when it is
// read, os.Root refuses links that lead out of the project.
func fileDocument(root, rel string) (document, error) {
	_, size, err := readInRoot(root, rel, 0)
	if err != nil {
		return document{}, err
	}
	return document{
		path: filepath.Join(root, rel), size: size,
		read: func(max int64) ([]byte, error) { b, _, err := readInRoot(root, rel, max); return b, err },
	}, nil
}

func readInRoot(root, rel string, max int64) ([]byte, int64, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	f, err := r.OpenFile(rel, openFlags, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !st.Mode().IsRegular() {
		return nil, 0, errors.New("not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, max))
	return b, st.Size(), err
}

func refusedNotice(path string, st fs.FileInfo, err error) event.Notice {
	n := event.Notice{
		Class: "instructions_unreadable", Origin: path,
		Message: fmt.Sprintf("%s could not be read: %v", path, reason(err)),
	}
	if st.Mode()&fs.ModeSymlink == 0 {
		return n
	}
	if real, e := filepath.EvalSymlinks(path); e == nil {
		n.Class = "instructions_outside"
		n.Message = fmt.Sprintf("%s is a link to %s outside the project and was not followed", path, real)
		n.Hint = "replace the link by a file if its text belongs to the project"
	}
	return n
}

// fromRef reads the chain from a commit, all candidates in one git process.
func (d *Dir) fromRef(ctx context.Context, o InstructionsOptions, in *Instructions) ([]document, error) {
	f := d.o.Facts
	if f.Root == "" {
		return nil, &RefError{Ref: o.Ref, Reason: "the folder is not in a git repository"}
	}
	if strings.HasPrefix(o.Ref, "-") || strings.ContainsAny(o.Ref, "\n\x00:") {
		return nil, &RefError{Ref: o.Ref, Reason: "not the name of a commit"}
	}
	if rel, err := filepath.Rel(f.Root, o.Root); err != nil || !filepath.IsLocal(rel) {
		o.Root = f.Root // the project begins above the repository
	}
	base, err := filepath.Rel(f.Root, o.Root)
	if err != nil {
		return nil, &RefError{Ref: o.Ref, Reason: err.Error()}
	}
	ask, paths := []string{o.Ref + "^{tree}"}, []string(nil)
	for _, folder := range o.folders() {
		for _, name := range o.names() {
			path := filepath.Join(base, folder, name)
			if strings.Contains(path, "\n") {
				return nil, &RefError{Ref: o.Ref, Reason: "a folder's name holds a line break"}
			}
			ask = append(ask, o.Ref+":"+filepath.ToSlash(path))
			paths = append(paths, filepath.Join(f.Root, path))
		}
	}
	out, err := d.git().run(ctx, call{
		args: []string{"cat-file", "--batch", "--follow-symlinks"}, dir: f.Root,
		env:   []string{"GIT_DIR=" + f.GitDir, "GIT_WORK_TREE=" + f.Root},
		stdin: strings.Join(ask, "\n") + "\n",
	})
	if err != nil {
		return nil, err
	}
	answers, err := parseBatch(out, len(ask))
	if err != nil {
		return nil, err
	}
	if answers[0].kind != "tree" {
		return nil, &RefError{Ref: o.Ref, Reason: "git knows no such commit"}
	}
	return in.pick(answers[1:], paths, len(o.names())), nil
}

// pick takes the first candidate that exists in each folder.
func (in *Instructions) pick(answers []batchAnswer, paths []string, perFolder int) []document {
	var docs []document
	for i := 0; i+perFolder <= len(answers); i += perFolder {
		for j := i; j < i+perFolder; j++ {
			a := answers[j]
			if a.kind == "missing" || a.kind == "tree" {
				continue
			}
			if a.kind != "blob" {
				in.Notices = append(in.Notices, event.Notice{
					Class: "instructions_outside", Origin: paths[j],
					Message: paths[j] + " is a link that leads to no file of that commit and was not followed",
				})
				break
			}
			docs = append(docs, document{
				path: paths[j], size: int64(len(a.body)),
				read: func(max int64) ([]byte, error) { return a.body[:min(int64(len(a.body)), max)], nil },
			})
			break
		}
	}
	return docs
}

// RefError is a --instructions-from that cannot be read. The run must not go
// on with instructions of another origin.
type RefError struct{ Ref, Reason string }

// Error names the ref.
func (e *RefError) Error() string {
	return fmt.Sprintf("instructions cannot be read from %q: %s", e.Ref, e.Reason)
}

// Hint tells how to get the commit.
func (e *RefError) Hint() string {
	return "name a branch or commit that this checkout has; a shallow checkout may need to fetch it first"
}

type batchAnswer struct {
	kind string // blob, tree, missing, …
	body []byte
}

// parseBatch reads n answers of cat-file --batch.
func parseBatch(out []byte, n int) ([]batchAnswer, error) {
	bad := errors.New("git cat-file answered in an unknown form")
	answers := make([]batchAnswer, 0, n)
	for range n {
		line, rest, ok := bytes.Cut(out, []byte("\n"))
		if !ok {
			return nil, bad
		}
		out = rest
		fields := strings.Fields(string(line))
		if len(fields) == 0 {
			return nil, bad
		}
		switch fields[len(fields)-1] {
		case "missing", "ambiguous":
			answers = append(answers, batchAnswer{kind: "missing"})
			continue
		}
		size, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil || size < 0 || size+1 > len(out) || len(fields) < 2 {
			return nil, bad
		}
		answers = append(answers, batchAnswer{kind: fields[len(fields)-2], body: out[:size]})
		out = out[size+1:]
	}
	return answers, nil
}

// replaceInvalid makes valid UTF-8 of b: each maximal invalid sequence, such
// as a character that was cut, becomes one U+FFFD.
func replaceInvalid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = invalidLength(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// invalidLength is the length of the longest beginning of a character that b
// starts with, at least 1.
func invalidLength(b []byte) int {
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}
