package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func say(role, text string) model.Item {
	kind := "input_text"
	if role == "assistant" {
		kind = "output_text"
	}
	b, _ := json.Marshal(map[string]any{"type": "message", "role": role, "content": []map[string]string{{"type": kind, "text": text}}})
	return model.Item{Raw: b}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func texts(items []model.Item) string {
	var list []string
	for _, it := range items {
		var m message
		if json.Unmarshal(it.Raw, &m) == nil && m.Type == "message" {
			list = append(list, m.Role+":"+m.text())
			continue
		}
		var c struct {
			Type, Output string
			CallID       string `json:"call_id"`
		}
		_ = json.Unmarshal(it.Raw, &c)
		list = append(list, strings.TrimSuffix(c.Type+"("+c.CallID+")="+c.Output, "="))
	}
	return strings.Join(list, " | ")
}

// record writes a thread of one turn and returns its id.
func record(t *testing.T, s *Store, cwd string) string {
	t.Helper()
	w, err := s.Create(Meta{Cwd: cwd, Version: "1.2.3", Provider: "mock", Model: "m", Git: &event.GitState{Commit: "abc", Branch: "main"}})
	check(t, err)
	check(t, w.Turn(TurnContext{TurnID: "t1", Cwd: cwd, Model: "m", Effort: "low", Sandbox: "workspace-write"}))
	check(t, w.Item(say("user", "colour?")))
	check(t, w.Item(say("assistant", "teal")))
	u := event.Usage{Input: 100, CachedInput: 20, Output: 10, Reasoning: 3}
	check(t, w.Usage("r1", u, u, u))
	check(t, w.EndTurn("t1", "teal", ""))
	check(t, w.Close())
	return w.ID()
}

func find(t *testing.T, s *Store, ref string) Info {
	t.Helper()
	i, err := s.Find(ref)
	check(t, err)
	return i
}

func TestThreadIsPrivateAndComplete(t *testing.T) {
	s := &Store{Home: t.TempDir()}
	id := record(t, s, "/stall/a")
	i := find(t, s, id)
	if i.Cwd != "/stall/a" || i.Provider != "mock" || i.Version != "1.2.3" || i.Child || i.Created.IsZero() {
		t.Errorf("info: %+v", i)
	}
	if ok, _ := filepath.Match(filepath.Join(s.Home, "sessions/[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]/rollout-????-??-??T??-??-??-"+id+".jsonl"), i.Path); !ok {
		t.Errorf("path %s", i.Path)
	}
	check(t, filepath.WalkDir(filepath.Join(s.Home, "sessions"), func(p string, d fs.DirEntry, err error) error {
		check(t, err)
		st, err := d.Info()
		check(t, err)
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", p, st.Mode().Perm(), want)
		}
		return nil
	}))
	h, err := s.Read(i)
	check(t, err)
	if got := texts(h.Items); got != "user:colour? | assistant:teal" {
		t.Errorf("items: %s", got)
	}
	if want := (event.Usage{Input: 100, CachedInput: 20, Output: 10, Reasoning: 3}); h.Usage != want || h.Last != want {
		t.Errorf("usage %+v, last %+v", h.Usage, h.Last)
	}
	if h.Turns != 1 || h.Model != "m" || h.Effort != "low" || h.Sandbox != "workspace-write" || len(h.Notices) != 0 {
		t.Errorf("history: %+v", h)
	}
}

// The events beside the items are what lists of threads show.
func TestMessagesAreEventsToo(t *testing.T) {
	s := &Store{Home: t.TempDir()}
	w, err := s.Create(Meta{Cwd: "/w"})
	check(t, err)
	check(t, w.Item(say("user", "<environment_context>x</environment_context>")))
	for _, turn := range []string{"t1", "t2"} {
		check(t, w.Turn(TurnContext{TurnID: turn}))
		check(t, w.Item(say("developer", "context")))
		check(t, w.Item(model.Item{Raw: json.RawMessage(`{"type":"message","role":"user","content":[{"type":"input_text","text":"<image name=[Image #1]>"},{"type":"input_image","image_url":"x"},{"type":"input_text","text":"ask ` + turn + `"}]}`)}))
		check(t, w.Item(say("user", "a hook says: go on")))
		check(t, w.Item(say("assistant", "answer")))
	}
	check(t, w.Close())
	b, err := os.ReadFile(w.Path())
	check(t, err)
	var got []string
	for text := range strings.Lines(string(b)) {
		var l struct {
			Type    string
			Payload struct{ Type, Message string }
		}
		check(t, json.Unmarshal([]byte(text), &l))
		if l.Type == typeEvent && l.Payload.Message != "" {
			got = append(got, l.Payload.Type+" "+l.Payload.Message)
		}
	}
	if want := "user_message ask t1, agent_message answer, user_message ask t2, agent_message answer"; strings.Join(got, ", ") != want {
		t.Errorf("events: %v", got)
	}
}

func TestResumeGoesOn(t *testing.T) {
	s := &Store{Home: t.TempDir()}
	id := record(t, s, "/w")
	for n := 1; n <= 3; n++ {
		w, h, err := s.Resume(context.Background(), find(t, s, id))
		check(t, err)
		if h.Turns != n {
			t.Errorf("turns %d, want %d", h.Turns, n)
		}
		check(t, w.Turn(TurnContext{TurnID: fmt.Sprint("t", n), Model: "m2", Sandbox: "read-only"}))
		check(t, w.Item(say("user", fmt.Sprint(n))))
		u := event.Usage{Input: 10, Output: 1}
		check(t, w.Usage("r", u, u, h.Usage.Add(u)))
		check(t, w.EndTurn("t", "", "interrupted"))
		check(t, w.Close())
		check(t, w.Close())
		if err := w.Item(say("user", "late")); err == nil {
			t.Error("a closed thread took an item")
		}
	}
	h, err := s.Read(find(t, s, id))
	check(t, err)
	if got := texts(h.Items); got != "user:colour? | assistant:teal | user:1 | user:2 | user:3" {
		t.Error(got)
	}
	if h.Usage.Input != 130 || h.Usage.Output != 13 || h.Model != "m2" || h.Sandbox != "read-only" {
		t.Errorf("%+v", h)
	}
}

// A run may be killed inside any write: whatever is left, Resume goes on with
// the whole lines and says what it removed.
func TestTornEndIsRepaired(t *testing.T) {
	s := &Store{Home: t.TempDir()}
	i := find(t, s, record(t, s, "/w"))
	whole, err := os.ReadFile(i.Path)
	check(t, err)
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := last; cut <= len(whole); cut++ {
		check(t, os.WriteFile(i.Path, whole[:cut], 0o600))
		w, h, err := s.Resume(context.Background(), i)
		check(t, err)
		torn := cut > last && cut < len(whole)-1
		if (len(h.Notices) == 1) != torn {
			t.Fatalf("cut at %d of %d: notices %v", cut-last, len(whole)-last, h.Notices)
		}
		if torn && !strings.Contains(h.Notices[0].Message, fmt.Sprintf("%d bytes", cut-last)) {
			t.Fatalf("notice: %s", h.Notices[0].Message)
		}
		check(t, w.Item(say("user", "next")))
		check(t, w.Close())
		h, err = s.Read(i)
		check(t, err)
		if got := texts(h.Items); got != "user:colour? | assistant:teal | user:next" || len(h.Notices) != 0 {
			t.Fatalf("cut at %d: %s %v", cut-last, got, h.Notices)
		}
	}
	check(t, os.WriteFile(i.Path, append(bytes.Clone(whole), make([]byte, 300)...), 0o600))
	w, h, err := s.Resume(context.Background(), i)
	check(t, err)
	defer w.Close()
	if len(h.Notices) != 1 {
		t.Errorf("zeros after a power cut: %v", h.Notices)
	}
}

func TestOneWriter(t *testing.T) {
	s := &Store{Home: t.TempDir(), LockWait: 100 * time.Millisecond}
	id := record(t, s, "/w")
	w, _, err := s.Resume(context.Background(), find(t, s, id))
	check(t, err)
	_, _, err = s.Resume(context.Background(), find(t, s, id))
	var busy *BusyError
	if !errors.As(err, &busy) || busy.ID != id || busy.Hint() == "" {
		t.Fatalf("second writer: %v", err)
	}
	fork, h, err := s.Fork(context.Background(), find(t, s, id), Meta{Cwd: "/w"}) // reading needs no lock
	check(t, err)
	check(t, fork.Close())
	if h.ID == id || texts(h.Items) != "user:colour? | assistant:teal" {
		t.Errorf("fork: %+v", h)
	}
	check(t, w.Close())
	w, _, err = s.Resume(context.Background(), find(t, s, id))
	check(t, err)
	check(t, w.Close())
	left, err := filepath.Glob(filepath.Join(s.Home, lockFolder, "*.lock"))
	check(t, err)
	for _, l := range left {
		if filepath.Base(l) != coordination {
			t.Errorf("left behind: %s", l)
		}
	}
}

// A waiting writer gets the thread once the first has closed it, though the
// lock file was removed in between.
func TestWaitingWriter(t *testing.T) {
	s := &Store{Home: t.TempDir(), LockWait: time.Minute}
	i := find(t, s, record(t, s, "/w"))
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			w, _, err := s.Resume(context.Background(), i)
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(w.Item(say("user", fmt.Sprint(n))), w.Item(say("user", fmt.Sprint(n))), w.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h, err := s.Read(i)
	check(t, err)
	items := h.Items[2:]
	for n := 0; n < len(items); n += 2 {
		if !bytes.Equal(items[n].Raw, items[n+1].Raw) {
			t.Errorf("two writers at once: %s", texts(items))
		}
	}
	if len(items) != 16 {
		t.Errorf("%d items", len(items))
	}
}

func TestManyThreadsOnANewHome(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	check(t, os.Mkdir(home, 0o700))
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() { record(t, &Store{Home: home}, "/w") })
	}
	wg.Wait()
	list, err := (&Store{Home: home}).List(0)
	check(t, err)
	ids := map[string]bool{}
	for _, i := range list {
		ids[i.ID] = true
	}
	if len(ids) != 6 {
		t.Errorf("%d threads", len(ids))
	}
}

// A thread that the reference put away is not called missing.
func TestArchived(t *testing.T) {
	s := &Store{Home: t.TempDir()}
	id := record(t, s, "/w")
	path := find(t, s, id).Path
	away := filepath.Join(s.Home, "archived_sessions", filepath.Base(path))
	check(t, os.Mkdir(filepath.Dir(away), 0o700))
	check(t, os.Rename(path, away))
	check(t, os.WriteFile(filepath.Join(s.Home, "session_index.jsonl"), fmt.Appendf(nil, "{\"id\":%q,\"thread_name\":\"figs\"}\n", id), 0o600))
	for _, ref := range []string{id, "figs"} {
		_, err := s.Find(ref)
		var missing *NotFoundError
		if !errors.As(err, &missing) || err.Error() != "thread "+ref+" is archived: "+away || !strings.Contains(missing.Hint(), "unarchive") {
			t.Errorf("%v", err)
		}
	}
}

func TestFindings(t *testing.T) {
	s := &Store{Home: t.TempDir()}
	missing := func(i Info, err error) {
		t.Helper()
		var nf *NotFoundError
		if !errors.As(err, &nf) || nf.Error() == "" || nf.Hint() == "" {
			t.Errorf("want not found, got %+v, %v", i, err)
		}
	}
	missing(s.Last("/w"))
	missing(s.Last(""))
	missing(s.Find(NewID()))
	missing(s.Find("a name"))
	missing(s.Find("../../etc"))
	missing(s.Find(""))

	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	check(t, os.Symlink(dir, link))
	old, other := record(t, s, dir), record(t, s, "/other")
	later := time.Now().Add(time.Hour)
	check(t, os.Chtimes(find(t, s, old).Path, later, later))
	child, err := s.Create(Meta{Cwd: dir, ParentID: old})
	check(t, err)
	check(t, child.Close())
	check(t, os.Chtimes(child.Path(), later.Add(time.Hour), later.Add(time.Hour)))
	for cwd, want := range map[string]string{dir: old, link: old, "/other": other, "": old} {
		i, err := s.Last(cwd)
		check(t, err)
		if i.ID != want {
			t.Errorf("last of %q is %s, want %s", cwd, i.ID, want)
		}
	}
	missing(s.Last(filepath.Join(dir, "sub")))
	index := fmt.Sprintf("not json\n{\"id\":%q,\"thread_name\":\"pears\",\"updated_at\":\"\"}\n{\"id\":%q,\"thread_name\":\"gone\"}\n", other, NewID())
	check(t, os.WriteFile(filepath.Join(s.Home, "session_index.jsonl"), []byte(index), 0o600))
	if i := find(t, s, "pears"); i.ID != other || i.Name != "pears" {
		t.Errorf("by name: %+v", i)
	}
	missing(s.Find("gone"))
	check(t, os.WriteFile(filepath.Join(filepath.Dir(child.Path()), "rollout-x-y.jsonl"), nil, 0o600))
	list, err := s.List(0)
	check(t, err)
	if len(list) != 3 || list[0].ID != child.ID() || !list[0].Child {
		t.Errorf("list: %+v", list)
	}
	if list, _ = s.List(1); len(list) != 1 {
		t.Errorf("limit: %+v", list)
	}
}

type blot struct{ secret string }

func (b blot) MaskJSON(j []byte) []byte {
	return bytes.ReplaceAll(j, []byte(b.secret), []byte("[masked]"))
}

func TestSecretsStayOut(t *testing.T) {
	s := &Store{Home: t.TempDir(), Mask: blot{"tok-123"}}
	w, err := s.Create(Meta{Cwd: "/w", Base: "tok-123"})
	check(t, err)
	check(t, w.Item(say("assistant", "use tok-123")))
	check(t, w.Event(json.RawMessage("{\"type\":\"x\",\n\"v\":\"tok-123\"}")))
	check(t, w.Compacted("tok-123", []model.Item{say("user", "tok-123")}))
	check(t, w.EndTurn("t", "tok-123", ""))
	check(t, w.Close())
	b, err := os.ReadFile(w.Path())
	check(t, err)
	if bytes.Contains(b, []byte("tok-123")) {
		t.Errorf("secret in\n%s", b)
	}
	for _, l := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
		if !json.Valid(l) {
			t.Errorf("no JSON: %s", l)
		}
	}
}

func TestEphemeralWriterWritesNothing(t *testing.T) {
	var w *Writer
	check(t, errors.Join(w.Turn(TurnContext{}), w.Item(say("user", "x")), w.Usage("", event.Usage{}, event.Usage{}, event.Usage{}),
		w.Compacted("", nil), w.Event(nil), w.EndTurn("", "", ""), w.Sync(), w.Close()))
	if w.ID() != "" || w.Path() != "" {
		t.Error("an ephemeral thread has a file")
	}
}

func TestUnwritable(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	check(t, os.WriteFile(home, nil, 0o600))
	if _, err := (&Store{Home: home}).Create(Meta{Cwd: "/w"}); err == nil {
		t.Error("a file as CODEX_HOME was taken")
	}
	if _, err := (&Store{Home: t.TempDir()}).Create(Meta{ID: "../x"}); err == nil {
		t.Error("a path was taken as an id")
	}
	s := &Store{Home: t.TempDir()}
	w, err := s.Create(Meta{Cwd: "/w"})
	check(t, err)
	check(t, w.file.Close())
	first := w.Item(say("user", "x"))
	if first == nil || w.Item(say("user", "y")) == nil || w.Sync() == nil {
		t.Error("a failed write was forgotten")
	}
	if err := w.Close(); err == nil {
		t.Error("Close forgot the failed write")
	}
}
