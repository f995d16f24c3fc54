package batch

import (
	"errors"
	"strings"
	"testing"
)

func TestReadTasks(t *testing.T) {
	for _, tc := range []struct {
		name, file, data string
		o                ReadOptions
		want             string // ids, or the mistakes
	}{
		{"lines", "t.jsonl", `{"id":"a","repo":"/r","prompt":"p"}` + "\n\n" + `{"id":"b","repo":"/r","prompt":"p","limits":{"max_wall_time":"5m"}}`, ReadOptions{}, "a b"},
		{"config object", "t.jsonl", `{"id":"a","repo":"/r","prompt":"p","config":{"model":"m"}}`, ReadOptions{}, "a"},
		{"defaults", "t.jsonl", `{"id":"a"}`, ReadOptions{Prompt: "do {id}", Repo: "/r"}, "a"},
		{"csv", "t.csv", "id,repo,lang\na,/r,go\n\"b\",/r,\"c,d\"\n", ReadOptions{Prompt: "translate to {lang}"}, "a b"},
		{"all mistakes", "t.jsonl", `{"id":"a","repo":"/r","prompt":"p"}` + "\n" + `{"id":"a","repo":"/r","prompt":"p"}` + "\n" + `{"repo":"/r","prompt":"p"}` + "\n" + `{"id":"c","prompt":"p"}` + "\n" + `{"id":"d","repo":"/r","promt":"p"}` + "\n" + `nonsense`, ReadOptions{},
			"t.jsonl:2: id \"a\" is also on line 1|t.jsonl:3: the task has no id|t.jsonl:4: task \"c\" names no repo|t.jsonl:5: json: unknown field \"promt\"|t.jsonl:6: invalid character"},
		{"hole", "t.csv", "id,repo\na,/r\n", ReadOptions{Prompt: "{lang}"}, "t.csv:2: the prompt names {lang}"},
		{"both prompts", "t.jsonl", `{"id":"a","repo":"/r","prompt":"p","prompt_file":"f"}`, ReadOptions{}, "exclude each other"},
		{"dash", "t.jsonl", `{"id":"a","repo":"--upload-pack=x","prompt":"p"}`, ReadOptions{}, "begins with a dash"},
		{"duration", "t.jsonl", `{"id":"a","repo":"/r","prompt":"p","limits":{"max_wall_time":"soon"}}`, ReadOptions{}, "not a duration"},
		{"short row", "t.csv", "id,repo,prompt\na,/r\nb,/r,p\n", ReadOptions{}, "t.csv:2: wrong number of fields"},
		{"column twice", "t.csv", "id,id\na,b\n", ReadOptions{Prompt: "p", Repo: "/r"}, "there twice"},
		{"empty", "t.jsonl", "\n", ReadOptions{}, "no task in the file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tasks, err := ReadTasks(tc.file, []byte(tc.data), tc.o)
			var got string
			if err != nil {
				var fe *FileError
				if !errors.As(err, &fe) || tasks != nil {
					t.Fatalf("%T, %d tasks beside an error", err, len(tasks))
				}
				got = err.Error()
			} else {
				var ids []string
				for _, x := range tasks {
					ids = append(ids, x.ID)
				}
				got = strings.Join(ids, " ")
			}
			for _, part := range strings.Split(tc.want, "|") {
				if !strings.Contains(got, part) {
					t.Errorf("got:\n%s\nwant: %s", got, part)
				}
			}
		})
	}
}

func TestFill(t *testing.T) {
	got, err := Fill(`{{"a": "{b}"}} {c-d}`, map[string]string{"b": "{c-d}", "c-d": "x"})
	if err != nil || got != `{"a": "{c-d}"} x` {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDirNamesAreSafeAndDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"a", "A", "a/b", "a_b", "..", "../../x", "ü", strings.Repeat("x", 200), strings.Repeat("x", 199) + "y", "a b"} {
		d := (Task{ID: id}).Dir()
		if old, ok := seen[d]; ok {
			t.Errorf("%q and %q share %s", id, old, d)
		}
		seen[d] = id
		if strings.ContainsAny(d, "/\x00") || len(d) > 80 {
			t.Errorf("%q: %q", id, d)
		}
	}
}

func FuzzReadTasks(f *testing.F) {
	f.Add("t.jsonl", []byte(`{"id":"a","repo":"/r","prompt":"{x}"}`))
	f.Add("t.csv", []byte("id,repo,prompt\na,/r,p\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		tasks, err := ReadTasks(name, data, ReadOptions{Prompt: "p {id}", Repo: "/r"})
		if (err == nil) == (len(tasks) == 0) {
			t.Fatalf("%d tasks and error %v", len(tasks), err)
		}
		ids := map[string]bool{}
		for _, x := range tasks {
			if ids[x.ID] || x.ID == "" {
				t.Fatalf("id %q twice or empty", x.ID)
			}
			ids[x.ID] = true
		}
	})
}
