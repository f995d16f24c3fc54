package patch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"unicode/utf8"
)

// maxFile bounds the files a patch may change, in bytes: they are held in
// memory, and a sparse file can claim any size.
const maxFile = 32 << 20

// VerifyError is a patch that does not fit the files. Nothing was changed.
type VerifyError struct{ Message string }

// Error is the sentence the model is told.
func (e *VerifyError) Error() string { return e.Message }

func unfit(format string, args ...any) error { return &VerifyError{fmt.Sprintf(format, args...)} }

// PathChange is one changed file; paths are absolute.
type PathChange struct {
	Path   string `json:"path"`
	Kind   Kind   `json:"kind"`
	MoveTo string `json:"move_to,omitempty"`
}

// step is one change with everything known that is needed to write it.
type step struct {
	change PathChange
	from   place // deleted, updated or moved file
	to     place // added, updated or moved-to file
	data   string
	mode   fs.FileMode // of the file replaced or moved
	owner  *owner      // likewise, nil for a new file
}

// Plan is a patch that was checked against the files.
type Plan struct {
	scope *scope
	steps []step
}

// Prepare checks every change of p, in order and as if the earlier ones were
// made, and writes nothing. Errors are a [*RejectedError] for a path that may
// not be changed, or a [*VerifyError]. Close the plan after use.
func Prepare(p *Patch, s Scope) (*Plan, error) {
	sc, err := openScope(s)
	if err != nil {
		return nil, unfit("%s", err)
	}
	plan := &Plan{scope: sc}
	v := verifier{scope: sc, seen: map[string]*file{}}
	sc.gone = func(path string) bool { f, ok := v.seen[path]; return ok && !f.exists }
	for _, c := range p.Changes {
		// Paths come first: a refused patch must not tell what is in a file
		// outside.
		if err := v.resolve(c); err != nil {
			plan.Close()
			return nil, err
		}
	}
	for _, c := range p.Changes {
		st, err := v.verify(c)
		if err != nil {
			plan.Close()
			return nil, err
		}
		plan.steps = append(plan.steps, st)
	}
	return plan, nil
}

// Close gives back the open folders.
func (p *Plan) Close() { p.scope.close() }

// Changes lists what the plan will change, sorted by path; a moved file stands
// under its old path.
func (p *Plan) Changes() []PathChange {
	var list []PathChange
	for _, st := range p.steps {
		list = append(list, st.change)
	}
	return onePerPath(list)
}

// onePerPath makes one change of several to the same path, sorted by path.
func onePerPath(list []PathChange) []PathChange {
	at := map[string]int{}
	var out []PathChange
	for _, c := range list {
		i, seen := at[c.Path]
		if !seen {
			at[c.Path] = len(out)
			out = append(out, c)
			continue
		}
		switch {
		case out[i].Kind == Delete && c.Kind != Delete: // it was there and is there again
			out[i].Kind = Update
		case out[i].Kind == Update && c.Kind == Delete:
			out[i].Kind = Delete
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

// Named lists the changes that p asks for without looking at any file, for
// telling what was refused.
func Named(p *Patch, workdir string) []PathChange {
	abs := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(workdir, name)
	}
	var list []PathChange
	for _, c := range p.Changes {
		list = append(list, PathChange{abs(c.Path), c.Kind, abs(c.MoveTo)})
	}
	return onePerPath(list)
}

// file is the state of a path after the changes verified so far.
type file struct {
	exists bool
	data   string
	read   bool // data is known
	mode   fs.FileMode
	owner  *owner
}

type verifier struct {
	scope *scope
	seen  map[string]*file // by resolved path
}

// resolve refuses paths that may not be changed.
func (v *verifier) resolve(c Change) error {
	for _, name := range []string{c.Path, c.MoveTo} {
		if name == "" {
			continue
		}
		_, err := v.scope.place(name, false)
		if err != nil {
			return pathError(err)
		}
	}
	return nil
}

func pathError(err error) error {
	var r *RejectedError
	if errors.As(err, &r) {
		return err
	}
	return &VerifyError{err.Error()}
}

func (v *verifier) verify(c Change) (step, error) {
	switch c.Kind {
	case Add:
		return v.add(c)
	case Delete:
		return v.delete(c)
	}
	return v.update(c)
}

func (v *verifier) add(c Change) (step, error) {
	to, err := v.scope.place(c.Path, false)
	if err != nil {
		return step{}, pathError(err)
	}
	old, err := v.target(to)
	if err != nil {
		return step{}, err
	}
	var b strings.Builder
	for _, l := range c.Lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	st := step{change: PathChange{Path: to.named, Kind: Add}, to: to, data: b.String(), mode: old.mode, owner: old.owner}
	v.seen[to.path] = &file{exists: true, data: st.data, read: true, mode: old.mode, owner: old.owner}
	return st, nil
}

func (v *verifier) delete(c Change) (step, error) {
	from, err := v.scope.place(c.Path, false)
	if err != nil {
		return step{}, pathError(err)
	}
	if _, err := v.content(from, "Failed to read %s: %s"); err != nil {
		return step{}, err
	}
	// A link goes, not the file it leads to.
	if from, err = v.scope.place(c.Path, true); err != nil {
		return step{}, pathError(err)
	}
	v.seen[from.path] = &file{}
	return step{change: PathChange{Path: from.named, Kind: Delete}, from: from}, nil
}

func (v *verifier) update(c Change) (step, error) {
	from, err := v.scope.place(c.Path, false)
	if err != nil {
		return step{}, pathError(err)
	}
	f, err := v.content(from, "Failed to read file to update %s: %s")
	if err != nil {
		return step{}, err
	}
	data := f.data
	if len(c.Hunks) > 0 {
		if data, err = patched(data, c.Hunks, from.named); err != nil {
			return step{}, &VerifyError{err.Error()}
		}
	}
	st := step{change: PathChange{Path: from.named, Kind: Update}, from: from, to: from, data: data, mode: f.mode, owner: f.owner}
	if c.MoveTo != "" {
		if err := v.move(&st, c.MoveTo); err != nil {
			return step{}, err
		}
	}
	v.seen[st.to.path] = &file{exists: true, data: data, read: true, mode: f.mode, owner: f.owner}
	return st, nil
}

// move points an update at its new path. Moving a file onto itself is a plain
// update.
func (v *verifier) move(st *step, name string) error {
	to, err := v.scope.place(name, false)
	if err != nil {
		return pathError(err)
	}
	st.change.MoveTo = to.named
	if to.path == st.from.path {
		return nil
	}
	if _, err := v.target(to); err != nil {
		return err
	}
	st.to = to
	v.seen[st.from.path] = &file{}
	return nil
}

// target checks a path that will be written: it is free, or holds a file that
// may be replaced.
func (v *verifier) target(p place) (*file, error) {
	f, err := v.look(p)
	if err != nil {
		return nil, unfit("Failed to write file %s: %s", p.named, err)
	}
	if f.exists {
		return f, nil
	}
	for dir := filepath.Dir(p.rel); dir != "."; dir = filepath.Dir(dir) {
		above := filepath.Join(p.root.path, dir)
		if f, ok := v.seen[above]; ok {
			if f.exists {
				return nil, unfit("Failed to write file %s: %s is a file, not a folder", p.named, above)
			}
			continue
		}
		fi, err := p.root.dir.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, unfit("Failed to write file %s: %s", p.named, SystemText(err))
		}
		if !fi.IsDir() {
			return nil, unfit("Failed to write file %s: %s is a file, not a folder", p.named, above)
		}
		break
	}
	return f, nil
}

// look returns the state of a path. The error says why the path can never be
// changed: it is not a regular file, or not only this file.
func (v *verifier) look(p place) (*file, error) {
	if f, ok := v.seen[p.path]; ok {
		return f, nil
	}
	fi, err := p.root.dir.Lstat(p.rel)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &file{}, nil
	}
	if err != nil {
		return nil, errors.New(SystemText(err))
	}
	if err := changeable(fi); err != nil {
		return nil, err
	}
	f := &file{exists: true, mode: fi.Mode().Perm(), owner: ownerOf(fi)}
	v.seen[p.path] = f
	return f, nil
}

// changeable refuses everything but regular files with one name.
func changeable(fi fs.FileInfo) error {
	switch m := fi.Mode(); {
	case m.IsDir():
		return errors.New(SystemText(syscall.EISDIR))
	case m&fs.ModeNamedPipe != 0:
		return errors.New("it is a named pipe, not a regular file")
	case m&fs.ModeSocket != 0:
		return errors.New("it is a socket, not a regular file")
	case m&fs.ModeDevice != 0:
		return errors.New("it is a device, not a regular file")
	case !m.IsRegular():
		return errors.New("it is not a regular file")
	}
	if n := linksOf(fi); n > 1 {
		return fmt.Errorf("the file has %d names (hard links), and a patch must not change it under the others; copy it first", n)
	}
	return nil
}

// content returns a file with its text. format makes the message of a path and
// a reason.
func (v *verifier) content(p place, format string) (*file, error) {
	f, err := v.look(p)
	if err != nil {
		return nil, unfit(format, p.named, err)
	}
	if !f.exists {
		return nil, unfit(format, p.named, SystemText(syscall.ENOENT))
	}
	if f.read {
		return f, nil
	}
	data, err := readFile(p)
	if err != nil {
		return nil, unfit(format, p.named, err)
	}
	if !utf8.Valid(data) {
		return nil, unfit(format, p.named, "the file is not valid UTF-8 text")
	}
	f.data, f.read = string(data), true
	return f, nil
}

// readFile opens without waiting, so that a pipe put in the file's place since
// it was looked at cannot hold the run, and looks again at what was opened.
func readFile(p place) ([]byte, error) {
	r, err := p.root.dir.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.New(SystemText(err))
	}
	defer r.Close() // read only
	fi, err := r.Stat()
	if err != nil {
		return nil, errors.New(SystemText(err))
	}
	if err := changeable(fi); err != nil {
		return nil, err
	}
	tooLarge := fmt.Errorf("the file is larger than the %d MiB that a patch may change", maxFile>>20)
	if fi.Size() > maxFile {
		return nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, errors.New(SystemText(err))
	}
	if len(data) > maxFile { // it grew
		return nil, tooLarge
	}
	return data, nil
}
