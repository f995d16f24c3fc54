package rollout

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files in testdata are threads in the layouts of the reference, with
// invented content. CODEX_HOME is testdata/home.
func home(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	check(t, os.CopyFS(dir, os.DirFS("testdata/home")))
	return &Store{Home: dir}
}

const (
	paginated = "0190a000-0000-7000-8000-00000000000a"
	forked    = "0190a000-0000-7000-8000-00000000000b"
	older     = "0190a000-0000-7000-8000-00000000000c"
	looping   = "0190a000-0000-7000-8000-00000000000d"
)

func TestReferenceLayouts(t *testing.T) {
	for _, c := range []struct {
		name, id, items string
		input           int64
		turns           int
		base            string
	}{
		{"paginated", paginated, "developer:permissions | user:<environment_context>x</environment_context> | user:count the pears | " +
			"function_call(c1) | function_call_output(c1)=4 | function_call(c2) | function_call_output(c2)=aborted | " +
			"custom_tool_call(c3) | custom_tool_call_output(c3)=aborted | assistant:four", 100, 1, "be brief"},
		{"fork that refers to its parent", forked, "developer:permissions | user:<environment_context>x</environment_context> | user:count the pears | " +
			"function_call(c1) | function_call_output(c1)=4 | user:and the figs?", 140, 2, "be brief"},
		{"older, compacted twice", older, "user:second prompt | user:summary two | user:third prompt | assistant:third answer", 300, 3, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := home(t)
			h, err := s.Read(find(t, s, c.id))
			check(t, err)
			if got := texts(h.Items); got != c.items {
				t.Errorf("items:\n got %s\nwant %s", got, c.items)
			}
			if h.Usage.Input != c.input || h.Turns != c.turns || h.Base != c.base {
				t.Errorf("usage %+v, turns %d, base %q", h.Usage, h.Turns, h.Base)
			}
			for _, it := range h.Items {
				if strings.Contains(string(it.Raw), "passthrough") {
					t.Errorf("a local field would be sent: %s", it.Raw)
				}
			}
		})
	}
}

func TestPaginatedFileKeepsItsOrdinals(t *testing.T) {
	s := home(t)
	w, _, err := s.Resume(context.Background(), find(t, s, forked))
	check(t, err)
	check(t, w.Item(say("user", "go on")))
	check(t, w.EndTurn("t", "", ""))
	check(t, w.Close())
	b, err := os.ReadFile(w.Path())
	check(t, err)
	want := int64(8) // the parent's history ends before 8
	for text := range strings.Lines(string(b)) {
		var l line
		check(t, json.Unmarshal([]byte(text), &l))
		if l.Ordinal == nil || *l.Ordinal != want {
			t.Errorf("ordinal %v, want %d: %s", l.Ordinal, want, text)
		}
		want++
	}
}

func TestForkOfAnyLayout(t *testing.T) {
	s := home(t)
	for _, id := range []string{paginated, forked, older} {
		from, err := s.Read(find(t, s, id))
		check(t, err)
		w, _, err := s.Fork(context.Background(), from.Info, Meta{Cwd: "/w"})
		check(t, err)
		check(t, w.Close())
		h, err := s.Read(find(t, s, w.ID()))
		check(t, err)
		if texts(h.Items) != texts(from.Items) || h.Usage != from.Usage || h.Base != from.Base {
			t.Errorf("fork of %s: %s, %+v", id, texts(h.Items), h.Usage)
		}
		b, err := os.ReadFile(w.Path())
		check(t, err)
		if !strings.Contains(string(b), `"forked_from_id":"`+id+`"`) {
			t.Error("the fork does not name its parent")
		}
	}
}

func TestHostileFiles(t *testing.T) {
	s := home(t)
	if _, err := s.Read(find(t, s, looping)); err == nil || !strings.Contains(err.Error(), "forks") {
		t.Errorf("a fork of itself: %v", err)
	}
	// A history that refers to a thread which is not there must not come back
	// shortened.
	i := find(t, s, forked)
	check(t, os.Remove(find(t, s, paginated).Path))
	if _, err := s.Read(i); err == nil {
		t.Error("a fork without its parent was read")
	}
	fifo := filepath.Join(s.Home, "sessions/2024/07/01/rollout-2024-07-01T00-00-00-"+NewID()+".jsonl")
	check(t, os.MkdirAll(fifo, 0o700))
	if _, err := s.List(0); err != nil {
		t.Errorf("a folder among the threads: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"a", "b", "c", "d"} {
		files, _ := filepath.Glob("testdata/home/sessions/*/*/*/*-00000000000" + name + ".jsonl")
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Add([]byte("\n\n{\"type\":\"response_item\",\"payload\":{\"type\":\"function_call_output\",\"call_id\":\"x\"}}\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Store{Home: t.TempDir()}
		path := filepath.Join(s.Home, "rollout.jsonl")
		check(t, os.WriteFile(path, b, 0o600))
		i := Info{ID: NewID(), Path: path}
		w, h, err := s.Resume(context.Background(), i)
		if err != nil {
			return
		}
		// What was read stays readable, and what is appended is found again.
		check(t, w.Item(say("user", "appended")))
		check(t, w.Close())
		again, err := s.Read(i)
		check(t, err)
		if want := strings.TrimPrefix(texts(h.Items)+" | user:appended", " | "); texts(again.Items) != want {
			t.Errorf("got %s, want %s", texts(again.Items), want)
		}
	})
}
