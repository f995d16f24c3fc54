package policy

import (
	"io/fs"
	"path/filepath"
)

type dirEntry = fs.DirEntry

// dirFS is the part of [Files] below a folder, as far as globbing needs it.
type dirFS struct {
	files Files
	base  string
}

// Open is what fs.FS asks for; globbing uses Stat and ReadDir instead.
func (d dirFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
}

// Stat follows symbolic links.
func (d dirFS) Stat(name string) (fs.FileInfo, error) {
	return d.files.Stat(filepath.Join(d.base, name))
}

// ReadDir lists a folder. One that cannot be read holds nothing that a command
// of the same user could read either.
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := d.files.ReadDir(filepath.Join(d.base, name))
	if err != nil {
		return nil, nil
	}
	return entries, nil
}
