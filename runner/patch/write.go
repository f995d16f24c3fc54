package patch

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WriteError is a change that could not be written. The changes in Done were
// made before it and stay.
type WriteError struct {
	Path string
	Kind Kind
	Done []PathChange
	Err  error
}

// Error names the file and the reason.
func (e *WriteError) Error() string { return e.Headline() + ": " + SystemText(e.Err) }

// Headline names the file only.
func (e *WriteError) Headline() string {
	if e.Kind == Delete {
		return "Failed to delete file " + e.Path
	}
	return "Failed to write file " + e.Path
}

// Unwrap returns the system's error.
func (e *WriteError) Unwrap() error { return e.Err }

// Apply writes the changes in the order of the patch, each file as a whole: a
// reader sees the old file or the new one. It returns the changes made. The
// error is a [*WriteError].
func (p *Plan) Apply() ([]PathChange, error) {
	var done []PathChange
	for _, st := range p.steps {
		if err := st.write(); err != nil {
			named := st.change.Path
			if st.change.MoveTo != "" {
				named = st.change.MoveTo
			}
			return done, &WriteError{Path: named, Kind: st.change.Kind, Done: done, Err: err}
		}
		done = append(done, st.change)
	}
	return done, nil
}

func (st step) write() error {
	if st.change.Kind == Delete {
		return st.from.root.dir.Remove(st.from.rel)
	}
	made, err := makeFolders(st.to)
	if err == nil {
		err = st.put()
	}
	if err != nil {
		for i := len(made) - 1; i >= 0; i-- {
			st.to.root.dir.Remove(made[i]) // tidying up; the error to tell is the one above
		}
		return err
	}
	if st.change.Kind == Update && st.to.path != st.from.path {
		if err := st.from.root.dir.Remove(st.from.rel); err != nil {
			return fmt.Errorf("the file was copied to %s, but %s could not be removed: %w", st.to.named, st.from.named, err)
		}
	}
	return nil
}

// makeFolders makes the missing folders above p and returns them, outermost
// first.
func makeFolders(p place) ([]string, error) {
	var missing []string
	for dir := filepath.Dir(p.rel); dir != "."; dir = filepath.Dir(dir) {
		if _, err := p.root.dir.Stat(dir); err == nil {
			break
		}
		missing = append(missing, dir)
	}
	var made []string
	for i := len(missing) - 1; i >= 0; i-- {
		if err := p.root.dir.Mkdir(missing[i], 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		}
		made = append(made, missing[i])
	}
	return made, nil
}

// put replaces the file by a rename. Where that is impossible – the folder takes
// no new files, or the owner cannot be kept – an existing file is written in
// place and put back if that fails half way. Where that is refused too, a file
// that only lost its owner is better than no change: it is what every editor
// does.
func (st step) put() error {
	err := st.replace(true)
	if err == nil || st.owner == nil {
		return err
	}
	if !errors.Is(err, errOwner) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return err
	}
	if touched, inPlace := st.overwrite(); touched || inPlace == nil {
		return inPlace
	}
	if errors.Is(err, errOwner) {
		return st.replace(false)
	}
	return err
}

// errOwner: the new file could not be given to the old one's owner.
var errOwner = errors.New("the owner of the file cannot be kept")

func (st step) replace(sameOwner bool) error {
	dir := st.to.root.dir
	temp := filepath.Join(filepath.Dir(st.to.rel), ".patch-"+rand.Text())
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = st.fill(f, sameOwner)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = dir.Rename(temp, st.to.rel)
	}
	if err != nil {
		dir.Remove(temp) // tidying up; the error to tell is the one above
	}
	return err
}

// fill writes data, owner and mode of a new file. A change of owner may clear
// mode bits, so the mode comes last.
func (st step) fill(f *os.File, sameOwner bool) error {
	if _, err := io.WriteString(f, st.data); err != nil {
		return err
	}
	if st.owner == nil {
		return nil // a new file
	}
	if !st.owner.keep(f) && sameOwner {
		return errOwner
	}
	return f.Chmod(st.mode)
}

// overwrite writes into the existing file. touched tells whether the error came
// after the first change.
func (st step) overwrite() (touched bool, err error) {
	if st.to.path != st.from.path && st.change.Kind == Update {
		return false, errOwner // a moved file has no old self to write into
	}
	f, err := st.to.root.dir.OpenFile(st.to.rel, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer f.Close() // an error of the last write is seen by Sync
	fi, err := f.Stat()
	if err == nil {
		err = changeable(fi)
	}
	if err == nil && fi.Size() > maxFile {
		err = errors.New("it is too large to be put back if writing fails")
	}
	if err != nil {
		return false, err
	}
	old, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return false, err
	}
	if err := rewrite(f, st.data); err != nil {
		return true, errors.Join(err, rewrite(f, string(old)))
	}
	return true, nil
}

func rewrite(f *os.File, data string) error {
	if _, err := f.WriteAt([]byte(data), 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(data))); err != nil {
		return err
	}
	return f.Sync()
}
