package report

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// memory collects created files.
type memory map[string]*memFile

type memFile struct {
	bytes.Buffer
	closed bool
}

func (f *memFile) Close() error { f.closed = true; return nil }
func (f *memFile) Abort() error { return nil }

func (m memory) create(path string) (io.WriteCloser, error) {
	f := &memFile{}
	m[path] = f
	return f, nil
}

// allSinks are every format there is, in memory.
func allSinks(t testing.TB) (memory, []event.Sink) {
	t.Helper()
	m := memory{}
	o := Options{Create: m.create, Append: m.create, PatchFile: "out/changes.patch", ReportDir: "out", Sign: testSigner(t)}
	for _, f := range formats {
		name := f.File
		if name == "" {
			name = f.Name
		}
		o.Outputs = append(o.Outputs, Output{f.Name, name})
	}
	r, err := NewReporter(o)
	if err != nil {
		t.Fatal(err)
	}
	human, brief, color, final, wire, notes := &memFile{}, &memFile{}, &memFile{}, &memFile{}, &memFile{}, &memFile{}
	m["human.txt"], m["brief.txt"], m["color.txt"], m["final.txt"], m["wire.jsonl"], m["annotations.txt"] = human, brief, color, final, wire, notes
	return m, []event.Sink{r, NewHuman(human, HumanOptions{}), NewHuman(brief, HumanOptions{Brief: true}), NewHuman(color, HumanOptions{Color: true}),
		NewFinal(final), NewWire(wire), NewLastMessage("last.txt", m.create, nil), NewJSONLFile("events.jsonl", m.create), &annotator{r, notes}}
}

type annotator struct {
	r *Reporter
	w io.Writer
}

func (a *annotator) Handle(event.Record) error   { return nil }
func (a *annotator) Close(context.Context) error { return Annotate(a.w, a.r.Summary()) }

// Live equals replay, for every run and every format.
func TestLiveEqualsReplay(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			live, sinks := allSinks(t)
			log := sc.record(t, sinks...)
			again, sinks := allSinks(t)
			_ = Replay(t.Context(), bytes.NewReader(log), sinks...) // what cannot be written is missing on both sides
			if len(live) != len(again) {
				t.Errorf("%d files live, %d by replay", len(live), len(again))
			}
			for name, f := range live {
				if again[name] == nil {
					t.Errorf("%s: replay did not write it", name)
				} else if !bytes.Equal(f.Bytes(), again[name].Bytes()) {
					t.Errorf("%s differs:\n%s", name, firstDifference(f.String(), again[name].String()))
				}
			}
			if got := again["events.jsonl"].Bytes(); !bytes.Equal(got, log) {
				t.Errorf("the log differs:\n%s", firstDifference(string(log), string(got)))
			}
		})
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d:\n- %s\n+ %s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// golden lists what is kept of each run: everything of an ordinary one, and of
// the others the text that a person would read.
func TestGolden(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			files, sinks := allSinks(t)
			sc.record(t, sinks...)
			keep := []string{"report.md", "human.txt", "report.json"}
			if sc.name == "success" || sc.name == "denied" {
				keep = nil
				for name := range files {
					keep = append(keep, name)
				}
			}
			dir := filepath.Join("testdata", "runs", sc.name)
			if *update {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range append(keep, "events.jsonl") {
				path := filepath.Join(dir, name)
				got := []byte{}
				if f := files[name]; f != nil {
					got = f.Bytes()
				}
				if *update {
					if err := os.WriteFile(path, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s changed (-update takes it):\n%s", path, firstDifference(string(want), string(got)))
				}
			}
		})
	}
}

// The logs in testdata were recorded by an earlier build: what it wrote must be
// rendered the same way by this one.
func TestReplayOfRecordedLogs(t *testing.T) {
	logs, err := filepath.Glob("testdata/runs/*/events.jsonl")
	if err != nil || len(logs) == 0 {
		t.Fatal("no recorded logs", err)
	}
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files, sinks := allSinks(t)
		_ = Replay(t.Context(), bytes.NewReader(log), sinks...)
		kept, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range kept {
			want, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got := files[e.Name()]
			if got == nil && len(want) == 0 {
				continue
			}
			if got == nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s: replay does not give %s", path, e.Name())
			}
		}
	}
}

func compileSchema(t testing.TB, raw []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:schema", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every report and every log line fits its published schema.
func TestOutputsFitTheSchemas(t *testing.T) {
	report, events := compileSchema(t, Schema), compileSchema(t, event.Schema)
	for _, sc := range scenarios() {
		files, sinks := allSinks(t)
		log := sc.record(t, sinks...)
		validate(t, sc.name+" report.json", report, files["report.json"].Bytes())
		for i, line := range bytes.Split(bytes.TrimSpace(log), []byte("\n")) {
			validate(t, fmt.Sprintf("%s line %d", sc.name, i+1), events, line)
		}
	}
}

func validate(t *testing.T, what string, s *jsonschema.Schema, raw []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err == nil {
		err = s.Validate(v)
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
