package workspace

import (
	"bytes"
	"crypto/sha1" // the names git gives, no secret depends on them
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// A private index is read here where starting git for one line of text would
// cost more than the answer. What is out of the ordinary (a split or a sparse
// index, paths that are not merged) is an error: then git is asked.

// indexEntry is one path of an index.
type indexEntry struct {
	path string
	mode uint32
	id   []byte
	// intent: only the name was added; no tree holds it.
	intent bool
	// at is where the entry begins in the file.
	at int
}

// errIndex is an index that only git can read.
var errIndex = errors.New("not a plain index")

const (
	indexHeader  = 12 // signature, version, number of entries
	indexStat    = 40 // times, device, inode, mode, owner, size
	indexModeAt  = 24
	flagExtended = 0x4000
	flagStage    = 0x3000
	flagAssume   = 0x8000 // taken for unchanged, whatever the file says
	flagIntent   = 0x2000 // of the extended flags
	flagSkip     = 0x4000 // of the extended flags: not looked at in the work tree
	maxIndexPath = 1 << 16
	modeGitlink  = 0o160000
	modeLink     = 0o120000
	modeFile     = 0o100644
	modeProgram  = 0o100755
)

// readIndex reads the entries of an index whose ids have size bytes.
func readIndex(b []byte, size int) ([]indexEntry, error) {
	if len(b) < indexHeader+size || string(b[:4]) != "DIRC" {
		return nil, errIndex
	}
	version, count := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if version < 2 || version > 4 || int64(count) > int64(len(b))/indexStat {
		return nil, errIndex
	}
	r := indexReader{rest: b[indexHeader : len(b)-size], size: size, version: version}
	entries := make([]indexEntry, 0, count)
	last := ""
	for range count {
		at := len(b) - size - len(r.rest)
		e, err := r.next(last)
		e.at = at
		if err != nil {
			return nil, err
		}
		if e.path <= last { // also: a path that is not merged comes more than once
			return nil, errIndex
		}
		last = e.path
		entries = append(entries, e)
	}
	return entries, r.extensions()
}

// indexReader reads an index front to back.
type indexReader struct {
	rest    []byte
	size    int // of an id
	version uint32
}

// next reads one entry; last is the path before it.
func (r *indexReader) next(last string) (indexEntry, error) {
	fixed := indexStat + r.size + 2
	if len(r.rest) < fixed {
		return indexEntry{}, errIndex
	}
	e := indexEntry{mode: binary.BigEndian.Uint32(r.rest[indexModeAt:]), id: r.rest[indexStat : indexStat+r.size]}
	flags := binary.BigEndian.Uint16(r.rest[indexStat+r.size:])
	if flags&flagExtended != 0 {
		if len(r.rest) < fixed+2 {
			return indexEntry{}, errIndex
		}
		e.intent = binary.BigEndian.Uint16(r.rest[fixed:])&flagIntent != 0
		fixed += 2
	}
	switch e.mode {
	case modeFile, modeProgram, modeLink, modeGitlink:
	default: // a folder of a sparse index, or nothing git writes
		return indexEntry{}, errIndex
	}
	if flags&flagStage != 0 {
		return indexEntry{}, errIndex
	}
	var err error
	e.path, err = r.name(fixed, last)
	return e, err
}

// name reads the path after the fixed part of an entry and goes on to the next.
func (r *indexReader) name(fixed int, last string) (string, error) {
	text := r.rest[fixed:]
	prefix := ""
	if r.version == 4 {
		drop, n := offset(text)
		if n == 0 || drop > len(last) {
			return "", errIndex
		}
		prefix, text = last[:len(last)-drop], text[n:]
		fixed += n
	}
	end := bytes.IndexByte(text[:min(len(text), maxIndexPath)], 0)
	if end < 0 || end+len(prefix) == 0 {
		return "", errIndex
	}
	length := fixed + end + 1
	if r.version < 4 { // one to eight zero bytes, to a multiple of eight
		length = (fixed + end + 8) &^ 7
	}
	if length > len(r.rest) {
		return "", errIndex
	}
	r.rest = r.rest[length:]
	return prefix + string(text[:end]), nil
}

// offset reads the variable-length number of version 4; n is how long it is.
func offset(b []byte) (v, n int) {
	for i, c := range b[:min(len(b), 3)] {
		v = v<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return v, i + 1
		}
		v++
	}
	return 0, 0
}

// extensions looks for those without which the entries are not all there is. A
// name in lower case is one that must be understood.
func (r *indexReader) extensions() error {
	for len(r.rest) > 0 {
		if len(r.rest) < 8 || r.rest[0] < 'A' || r.rest[0] > 'Z' {
			return errIndex
		}
		n := int64(binary.BigEndian.Uint32(r.rest[4:]))
		if n > int64(len(r.rest)-8) {
			return errIndex
		}
		r.rest = r.rest[8+n:]
	}
	return nil
}

// treeOf is the id of the tree that entries stand for, as git write-tree would
// name it.
func treeOf(entries []indexEntry, newHash func() hash.Hash) string {
	id, _ := subtree(entries, 0, newHash)
	return hex.EncodeToString(id)
}

// subtree names the folder of entries whose paths share their first skip bytes;
// false if no tree would hold it.
func subtree(entries []indexEntry, skip int, newHash func() hash.Hash) ([]byte, bool) {
	var body bytes.Buffer
	for i := 0; i < len(entries); {
		name, _, folder := strings.Cut(entries[i].path[skip:], "/")
		e := entries[i]
		if !folder {
			if !e.intent {
				fmt.Fprintf(&body, "%o %s\x00%s", e.mode, name, e.id)
			}
			i++
			continue
		}
		n := i + 1
		for n < len(entries) && strings.HasPrefix(entries[n].path[skip:], name+"/") {
			n++
		}
		if id, holds := subtree(entries[i:n], skip+len(name)+1, newHash); holds {
			fmt.Fprintf(&body, "40000 %s\x00%s", name, id)
		}
		i = n
	}
	h := newHash()
	_, _ = io.WriteString(h, "tree "+strconv.Itoa(body.Len())+"\x00")
	_, _ = h.Write(body.Bytes())
	return h.Sum(nil), body.Len() > 0
}

// unhide takes the marks off an index with which a user keeps git from looking at
// files: what a run changed in them would be missing from its diff. Of a sparse
// checkout git itself finds the files that are there all the same. An index that
// only git can read stays as it is. The same pass finds the repositories in it.
func (v *view) unhide(b []byte) {
	size, newHash := v.hash()
	entries, err := readIndex(b, size)
	if err != nil {
		return
	}
	changed := false
	clear := func(at int, flag uint16) {
		if flags := binary.BigEndian.Uint16(b[at:]); flags&flag != 0 {
			binary.BigEndian.PutUint16(b[at:], flags&^flag)
			changed = true
		}
	}
	v.links = nil
	for _, e := range entries {
		if e.mode == modeGitlink {
			v.links = append(v.links, e.path)
		}
		at := e.at + indexStat + size
		clear(at, flagAssume)
		if binary.BigEndian.Uint16(b[at:])&flagExtended != 0 && !v.sparse && exists(filepath.Join(v.root, e.path)) {
			clear(at+2, flagSkip)
		}
	}
	sum := b[len(b)-size:]
	if !changed || len(bytes.Trim(sum, "\x00")) == 0 { // an index may go without
		return
	}
	h := newHash()
	_, _ = h.Write(b[:len(b)-size])
	copy(sum, h.Sum(nil))
}

// entries reads the private index.
func (v *view) entries() ([]indexEntry, error) {
	b, err := os.ReadFile(v.indexFile())
	if err != nil {
		return nil, err
	}
	size, _ := v.hash()
	return readIndex(b, size)
}

// hash is the one of the repository.
func (v *view) hash() (size int, newHash func() hash.Hash) {
	if v.sha256 {
		return sha256.Size, sha256.New
	}
	return sha1.Size, sha1.New
}

// hasAttributes tells whether anything may give attributes to one of paths.
func (v *view) hasAttributes(paths []string) bool {
	if v.attributes || exists(v.dir+"/info/attributes") {
		return true
	}
	for _, file := range v.git.userFiles("attributes") {
		if exists(file) {
			return true
		}
	}
	// What is no longer in the work tree counts by the index.
	entries, err := v.entries()
	if err != nil {
		return true
	}
	for _, e := range entries {
		if path.Base(e.path) == attributesFile {
			return true
		}
	}
	seen := map[string]bool{}
	for _, p := range paths {
		for dir := path.Dir(p); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			if exists(path.Join(v.root, dir, attributesFile)) {
				return true
			}
		}
	}
	return false
}

const attributesFile = ".gitattributes"

// exists tells whether there is such a file; true when that cannot be found out.
func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil || !missing(err)
}
