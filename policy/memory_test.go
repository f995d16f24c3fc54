package policy

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// memory is a file system in a map, for tests that load many policies.
type memory fstest.MapFS

func inMemory(files map[string]string) memory {
	m := memory{}
	for name, text := range files {
		m[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return m
}

func (m memory) name(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p == "" {
		return "."
	}
	return p
}

func (m memory) ReadFile(p string) ([]byte, error)       { return fstest.MapFS(m).ReadFile(m.name(p)) }
func (m memory) ReadDir(p string) ([]fs.DirEntry, error) { return fstest.MapFS(m).ReadDir(m.name(p)) }
func (m memory) Stat(p string) (fs.FileInfo, error)      { return fstest.MapFS(m).Stat(m.name(p)) }
func (m memory) RealPath(p string) string                { return path.Clean(p) }

// with is a copy with one more file.
func (m memory) with(name, text string) memory {
	out := memory{}
	for k, v := range m {
		out[k] = v
	}
	out[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	return out
}

// place is where memory's machine has its folders.
func (m memory) sources() Sources {
	return Sources{
		Files:     m,
		SystemDir: "/etc/codex",
		Home:      "/home/u/.codex",
		UserHome:  "/home/u",
		Cwd:       "/work/repo",
		Hostname:  "build-7",
		GitRoot:   "/work/repo",
	}
}

// load makes a policy of files, or fails.
func load(t testing.TB, files map[string]string, change ...func(*Sources)) *Policy {
	t.Helper()
	content := map[string]string{"/work/repo/.git/HEAD": "x"}
	for name, text := range files {
		content[places.Replace(name)] = text
	}
	src := inMemory(content).sources()
	for _, f := range change {
		f(&src)
	}
	p, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
