package batch

import (
	"errors"
	"os/exec"
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
			"t.jsonl:2: id \"a\" is also on line 1|t.jsonl:3: the task has no id|t.jsonl:4: task \"c\" names no repo|t.jsonl:5: unknown field \"promt\"|t.jsonl:6: invalid character"},
		{"hole", "t.csv", "id,repo\na,/r\n", ReadOptions{Prompt: "{lang}"}, "t.csv:2: the prompt names {lang}"},
		{"both prompts", "t.jsonl", `{"id":"a","repo":"/r","prompt":"p","prompt_file":"f"}`, ReadOptions{}, "exclude each other"},
		{"dash", "t.jsonl", `{"id":"a","repo":"--upload-pack=x","prompt":"p"}`, ReadOptions{}, "begins with a dash"},
		{"braces of a JSON prompt stand for themselves", "t.jsonl", `{"id":"a","repo":"/r","prompt":"func main() {x}"}`, ReadOptions{}, "a"},
		{"template columns of JSON", "t.jsonl", `{"id":"a","repo":"/r"}`, ReadOptions{Prompt: "{id} {nope}"}, "names {nope}"},
		{"kinds", "t.jsonl", `{"id":7,"repo":"/r","prompt":"p"}` + "\n" + `{"id":"b","repo":"/r","prompt":"p","limits":{"max_turns":"3"}}` + "\n[]\n" + `{"id":"c"} {}`, ReadOptions{Prompt: "p", Repo: "/r"},
			`t.jsonl:1: field "id" cannot be a number|t.jsonl:2: field "limits.max_turns" cannot be a string|t.jsonl:3: a JSON object is wanted here, not an array|t.jsonl:4: something follows the JSON value`},
		{"brackets too many", "t.jsonl", `{"id":"a"}}` + "\n" + `{"id":"b"}]`, ReadOptions{Prompt: "p", Repo: "/r"},
			"t.jsonl:1: something follows|t.jsonl:2: something follows"},
		{"endless limits", "t.jsonl", `{"id":"a","limits":{"max_wall_time":1e12}}`, ReadOptions{Prompt: "p", Repo: "/r"}, "1e12 seconds are more than a duration can hold"},
		{"negative limits", "t.jsonl", `{"id":"a","repo":"/r","prompt":"p","limits":{"max_cost":-1}}`, ReadOptions{}, "limits.max_cost must not be negative"},
		{"control characters", "t.jsonl", `{"id":"a\tb","repo":"/r","prompt":"p"}` + "\n" + `{"id":"c","repo":"/r","ref":"x\ny","prompt":"p"}`, ReadOptions{}, "t.jsonl:1: the id has a control|t.jsonl:2: repo or ref"},
		{"csv limits", "t.csv", "id,limits\na,\"{\"\"max_turns\"\":2,\"\"x\"\":1}\"\n", ReadOptions{Prompt: "p", Repo: "/r"}, `column limits: unknown field "x"`},
		{"csv prompt is a template", "t.csv", "id,prompt,n\na,{n} {m},1\n", ReadOptions{Repo: "/r"}, "t.csv:2: the prompt names {m}"},
		{"missing files", "t.jsonl", `{"id":"a","repo":"/r","prompt_file":"no"}` + "\n" + `{"id":"b","repo":"/r","prompt":"p","output_schema":"no"}`,
			ReadOptions{ReadFile: func(string) ([]byte, error) { return nil, errors.New("gone") }}, "t.jsonl:1: prompt_file: gone|t.jsonl:2: output_schema: gone"},
		{"checks join", "t.jsonl", `{"id":"a","repo":"/r"}` + "\n" + `{"id":"b","repo":"/r"}` + "\n" + `{"id":"b","repo":"/r"}`,
			ReadOptions{Prompt: "p", Check: func(t *Task) []error { return []error{errors.New("not " + t.ID)} }},
			"t.jsonl:1: not a|t.jsonl:2: not b|t.jsonl:3: id \"b\" is also on line 2|t.jsonl:3: not b"},
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

// The content of a prompt file is a template in CSV, and itself in JSON lines.
func TestPromptFiles(t *testing.T) {
	o := ReadOptions{Repo: "/r", ReadFile: func(name string) ([]byte, error) { return []byte(name + " {id}"), nil }}
	for file, data := range map[string]string{"t.jsonl": `{"id":"a","prompt_file":"f"}`, "t.csv": "id,prompt_file\na,f\n"} {
		want := "f {id}"
		if file == "t.csv" {
			want = "f a"
		}
		tasks, err := ReadTasks(file, []byte(data), o)
		if err != nil || tasks[0].Prompt != want || tasks[0].PromptFile != "" {
			t.Errorf("%s: %+v, %v", file, tasks, err)
		}
	}
}

func TestBranchNames(t *testing.T) {
	for _, id := range []string{"a", "a..b", "...", ".hidden", "org/repo", "x.lock", "@{", "a b~^:?*[", "é"} {
		name := (Task{ID: id}).Branch()
		if out, err := exec.Command("git", "check-ref-format", "--branch", name).CombinedOutput(); err != nil {
			t.Errorf("%q: %s: %v %s", id, name, err, out)
		}
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

// A path to a schema may hold what Go quotes in its own way and JSON in another.
func TestSchemaPathOfARow(t *testing.T) {
	const path = "a\aschema\u200b.json"
	tasks, err := ReadTasks("t.csv", []byte("id,output_schema\na,"+path+"\n"), ReadOptions{Prompt: "p", Repo: "/r"})
	if err != nil || len(tasks) != 1 || tasks[0].schemaPath() != path {
		t.Fatalf("%+v, %v", tasks, err)
	}
	if d := tasks[0].Digest(); !strings.HasPrefix(d, "sha256:") {
		t.Error(d)
	}
}
