package rollout

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// maxIndexLine bounds a line of the index of names.
const maxIndexLine = 1 << 20

// Find returns the thread with that id or name, or a *NotFoundError.
func (s *Store) Find(ref string) (Info, error) {
	if id, err := uuid.Parse(ref); err == nil && len(ref) == len(uuid.Nil.String()) {
		return s.findID(id.String())
	}
	id, err := s.named(ref)
	if err != nil {
		return Info{}, err
	}
	info, err := s.findID(id)
	var missing *NotFoundError
	if errors.As(err, &missing) {
		return Info{}, &NotFoundError{Ref: ref, Archived: missing.Archived}
	}
	info.Name = ref
	return info, err
}

func (s *Store) findID(id string) (Info, error) {
	files, err := s.files(func(name string) bool { return strings.HasSuffix(name, "-"+id+".jsonl") })
	if err != nil {
		return Info{}, err
	}
	if len(files) == 0 {
		missing := &NotFoundError{Ref: id}
		if away, err := filepath.Glob(filepath.Join(s.Home, "archived_sessions", "*-"+id+".jsonl")); err == nil && len(away) > 0 {
			missing.Archived = away[0]
		}
		return Info{}, missing
	}
	info, err := describe(files[0])
	if err == nil && info.ID != id {
		err = fmt.Errorf("thread file %s belongs to thread %s", files[0].path, info.ID)
	}
	return info, err
}

// Last returns the newest thread of cwd ("" = any folder), sub-agents left
// out, or a *NotFoundError.
func (s *Store) Last(cwd string) (Info, error) {
	files, err := s.files(nil)
	if err != nil {
		return Info{}, err
	}
	if real, err := filepath.EvalSymlinks(cwd); err == nil && cwd != "" {
		cwd = real
	}
	for _, f := range files {
		info, err := describe(f)
		if err == nil && !info.Child && (cwd == "" || info.Cwd == cwd) {
			return info, nil
		}
	}
	return Info{}, &NotFoundError{Cwd: cwd}
}

// List returns the threads, last written first, at most limit (0: all). Files
// that are not threads are left out.
func (s *Store) List(limit int) ([]Info, error) {
	files, err := s.files(nil)
	if err != nil {
		return nil, err
	}
	names := s.names()
	var list []Info
	for _, f := range files {
		if limit > 0 && len(list) == limit {
			break
		}
		if info, err := describe(f); err == nil {
			info.Name = names[info.ID]
			list = append(list, info)
		}
	}
	return list, nil
}

type threadFile struct {
	path    string
	updated time.Time
}

// files lists thread files, last written first.
func (s *Store) files(want func(name string) bool) ([]threadFile, error) {
	var list []threadFile
	root := filepath.Join(s.Home, "sessions")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		name := d.Name()
		if !d.Type().IsRegular() || !strings.HasPrefix(name, "rollout-") || !strings.HasSuffix(name, ".jsonl") {
			return nil
		}
		if want != nil && !want(name) {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		list = append(list, threadFile{path, info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("threads: %w", err)
	}
	slices.SortStableFunc(list, func(a, b threadFile) int {
		if c := b.updated.Compare(a.updated); c != 0 {
			return c
		}
		return strings.Compare(filepath.Base(b.path), filepath.Base(a.path))
	})
	return list, nil
}

// describe reads the first line of a file.
func describe(f threadFile) (Info, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return Info{}, err
	}
	defer file.Close()
	text, err := readLine(bufio.NewReader(file))
	if err != nil && len(bytes.TrimSpace(text)) == 0 {
		return Info{}, fmt.Errorf("%s holds no thread: %w", f.path, err)
	}
	var l line
	var m sessionMeta
	if err := json.Unmarshal(text, &l); err != nil || l.Type != typeMeta {
		return Info{}, fmt.Errorf("%s holds no thread: its first line is not a session_meta", f.path)
	}
	if err := json.Unmarshal(l.Payload, &m); err != nil {
		return Info{}, fmt.Errorf("%s holds no thread: %w", f.path, err)
	}
	created, err := time.Parse(time.RFC3339Nano, m.Timestamp)
	if err != nil {
		created = f.updated
	}
	source := bytes.TrimSpace(m.Source)
	return Info{
		ID: m.ID, Path: f.path, Cwd: m.Cwd, Provider: m.Provider, Version: m.CLIVersion,
		Created: created, Updated: f.updated,
		Child: m.Parent != "" || len(source) > 0 && source[0] == '{',
	}, nil
}

// named looks a name up in the index that the reference keeps of names; the
// newest entry counts.
func (s *Store) named(name string) (string, error) {
	for id, known := range s.names() {
		if known == name {
			return id, nil
		}
	}
	return "", &NotFoundError{Ref: name}
}

// names maps thread ids to their names. A missing or broken index holds none.
func (s *Store) names() map[string]string {
	names := map[string]string{}
	f, err := os.Open(filepath.Join(s.Home, "session_index.jsonl"))
	if err != nil {
		return names
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxIndexLine)
	for sc.Scan() {
		var e struct {
			ID   string `json:"id"`
			Name string `json:"thread_name"`
		}
		if json.Unmarshal(sc.Bytes(), &e) == nil && e.ID != "" {
			names[e.ID] = e.Name
		}
	}
	return names
}
