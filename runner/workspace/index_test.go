package workspace

import (
	"crypto/sha1"
	"crypto/sha256"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An index is read as git reads it, or not at all.
func TestReadIndex(t *testing.T) {
	files := map[string]string{"a": "a\n", "a/b-": "", "d/e/f": "f\n", "d/e.x": "x\n", "d.x": "x\n", "ü": "u\n"}
	delete(files, "a/b-")
	for _, c := range []struct {
		name    string
		prepare func(dir string)
		plain   bool
	}{
		{"version 2", func(string) {}, true},
		{"version 4", func(dir string) { git(t, dir, "update-index", "--index-version=4") }, true},
		{"only the name", func(dir string) {
			put(t, dir, map[string]string{"later/one": "l\n", "sole": "s\n"})
			git(t, dir, "add", "-N", "later/one", "sole")
		}, true},
		{"hidden", func(dir string) { git(t, dir, "update-index", "--skip-worktree", "a") }, true},
		{"no checksum", func(dir string) { git(t, dir, "-c", "index.skipHash=true", "update-index", "--force-write-index") }, true},
		{"empty", func(dir string) { git(t, dir, "rm", "-rq", "--cached", ".") }, true},
		{"split", func(dir string) { git(t, dir, "update-index", "--split-index") }, false},
		{"sparse", func(dir string) { git(t, dir, "sparse-checkout", "set", "--cone", "--sparse-index", "other") }, false},
		{"not merged", func(dir string) {
			git(t, dir, "checkout", "-q", "-b", "x")
			put(t, dir, map[string]string{"a": "x\n"})
			git(t, dir, "commit", "-qam", "x")
			git(t, dir, "checkout", "-q", "main")
			put(t, dir, map[string]string{"a": "m\n"})
			git(t, dir, "commit", "-qam", "m")
			git(t, dir, "read-tree", "-m", "main~1", "main", "x")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := repo(t, files)
			c.prepare(dir)
			b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
			check(t, err)
			entries, err := readIndex(b, sha1.Size)
			if (err == nil) != c.plain {
				t.Fatalf("read: %v", err)
			}
			if !c.plain {
				return
			}
			if got, want := treeOf(entries, sha1.New), git(t, dir, "write-tree"); got != want {
				t.Errorf("tree %s, want %s", got, want)
			}
		})
	}
	t.Run("sha256", func(t *testing.T) {
		dir := plain(t, files)
		git(t, dir, "init", "-q", "--object-format=sha256")
		git(t, dir, "add", "-A")
		b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
		check(t, err)
		entries, err := readIndex(b, sha256.Size)
		check(t, err)
		if got, want := treeOf(entries, sha256.New), git(t, dir, "write-tree"); got != want {
			t.Errorf("tree %s, want %s", got, want)
		}
	})
}

func FuzzReadIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00" + strings.Repeat("\x00", 20)))
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01" + strings.Repeat("\x00", 24) + "\x00\x00\x81\xa4" + strings.Repeat("\x00", 32) + "\x00\x03a/b\x00\x00\x00\x00\x00\x00\x00" + strings.Repeat("\x00", 20)))
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\x00", 24) + "\x00\x00\x81\xa4" + strings.Repeat("\x00", 32) + "\x00\x03\x00a/b\x00" + strings.Repeat("\x00", 20)))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := readIndex(b, sha1.Size)
		if err != nil {
			return
		}
		last := ""
		for _, e := range entries {
			if e.path <= last || len(e.id) != sha1.Size {
				t.Fatalf("%q after %q, id of %d bytes", e.path, last, len(e.id))
			}
			last = e.path
		}
		if len(treeOf(entries, func() hash.Hash { return sha1.New() })) != 2*sha1.Size {
			t.Error("no id")
		}
	})
}

// Plain settings are read as git reads them; what is not plain is git's.
func TestPlainSettings(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[remote \"origin\"]\n\turl = x\n": "core.repositoryformatversion=0 core.filemode=true",
		"[CORE]\n fileMode=false\n; note \\\n# note\n\n[user]\n\tname = A  B # c\n[core]\nFILEMODE\n":                "core.filemode=false core.filemode=true",
		"[core]\nexcludesFile = ~/.ignore\n[core \"x\"]\nfilemode = false\n":                                         "core.excludesfile=~/.ignore",
		"[core]\n\tautocrlf = input \t\n": "core.autocrlf=input",

		"[core]\nautocrlf = true ; why\n":                "?",
		"[core]\nautocrlf = tr\\\nue\n":                  "?",
		"[core]\nautocrlf = \"true\"\n":                  "?",
		"[core]\nautocrlf = true\r\n":                    "?",
		"[core] autocrlf = true\n":                       "?",
		"[core]\nautocrlf =\n":                           "?",
		"[core]\nrepositoryformatversion = 1\n":          "?",
		"[include]\npath = x\n":                          "?",
		"[includeIf \"onbranch:x\"]\npath = x\n":         "?",
		"[extensions]\nworktreeConfig = true\n":          "?",
		"[user]\nname = a \\\n[core]\nfilemode = true\n": "?",
		"filemode = true\n":                              "?",
		"\ufeff[core]\nfilemode = true\n":                "?",
		"[remote \"a\\\"b\"]\n":                          "?",
		"[remote x]\n":                                   "?",
		"[core\nfilemode = true\n":                       "?",
		"[core]\nfile_mode = true\n":                     "?",
	} {
		got := "?"
		if list, ok := parsePlain(text); ok {
			var words []string
			for _, s := range list {
				words = append(words, s.key+"="+s.value)
			}
			got = strings.Join(words, " ")
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if want == "?" {
			continue
		}
		dir := t.TempDir()
		put(t, dir, map[string]string{"config": text})
		var words []string
		for entry := range strings.SplitSeq(git(t, dir, "config", "--file", "config", "--list", "-z"), "\x00") {
			key, value, has := strings.Cut(entry, "\n")
			if !has {
				value = "true"
			}
			if carried[key] {
				words = append(words, key+"="+value)
			}
		}
		if git := strings.Join(words, " "); git != got {
			t.Errorf("%q: git reads %q, not %q", text, git, got)
		}
	}
}
