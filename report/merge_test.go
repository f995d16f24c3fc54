package report

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// several are runs of different threads, one of them twice: broken and whole.
func several(t *testing.T) []*Summary {
	t.Helper()
	var out []*Summary
	for i, sc := range scenarios() {
		s := sc.summary(t)
		s.Run.ThreadID = "thread-" + sc.name
		s.StartedAt = s.StartedAt.Add(-time.Duration(i) * time.Minute)
		out = append(out, s)
	}
	broken := *out[0]
	broken.Complete, broken.Records = false, 3
	return append(out, &broken)
}

// The order of the inputs does not matter, twice is once, and merging merged
// reports is merging all.
func TestMergeIsASet(t *testing.T) {
	runs := several(t)
	render := func(s *Set) map[string]string {
		out := map[string]string{}
		for _, f := range formats {
			if !f.Many {
				continue
			}
			var b bytes.Buffer
			if err := Render(&b, f.Name, s.Runs, nil); err != nil {
				t.Fatal(err)
			}
			out[f.Name] = b.String()
		}
		return out
	}
	want := render(Merge(runs...))
	if n := len(Merge(runs...).Runs); n != len(runs)-1 {
		t.Errorf("%d runs, want %d", n, len(runs)-1)
	}
	for range 5 {
		mixed := append([]*Summary{}, runs...)
		mixed = append(mixed, runs[rand.IntN(len(runs))], nil)
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		k := rand.IntN(len(mixed))
		nested := Merge(append(Merge(mixed[:k]...).Runs, Merge(mixed[k:]...).Runs...)...)
		for name, text := range render(nested) {
			if text != want[name] {
				t.Fatalf("%s differs:\n%s", name, firstDifference(want[name], text))
			}
		}
	}
}

// What a merge reads: reports, merged reports and logs.
func TestReadRuns(t *testing.T) {
	sc := scenarios()[0]
	s := sc.summary(t)
	var one, many bytes.Buffer
	if err := Render(&one, "json", []*Summary{s}, nil); err != nil {
		t.Fatal(err)
	}
	if err := Render(&many, "json", []*Summary{s, scenarios()[1].summary(t)}, nil); err != nil {
		t.Fatal(err)
	}
	var wire bytes.Buffer
	log := sc.record(t, NewWire(&wire))
	for name, c := range map[string]struct {
		in string
		n  int
	}{"report": {one.String(), 1}, "merged": {many.String(), 2}, "log": {string(log), 1}, "wire stream": {wire.String(), 1}} {
		runs, err := ReadRuns(strings.NewReader(c.in))
		if err != nil || len(runs) != c.n {
			t.Errorf("%s: %d runs, %v", name, len(runs), err)
		}
	}
	back, err := ReadRuns(bytes.NewReader(one.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := Render(&again, "json", back, nil); err != nil || again.String() != one.String() {
		t.Errorf("a report changes by being read: %v\n%s", err, firstDifference(one.String(), again.String()))
	}
	for name, in := range map[string]string{"empty": "", "text": "hello", "another version": `{"schema_version": 99}`, "no version": `{"x": 1}`, "list": `[]`} {
		if runs, err := ReadRuns(strings.NewReader(in)); err == nil {
			t.Errorf("%s: %d runs", name, len(runs))
		}
	}
}

func FuzzReadRuns(f *testing.F) {
	f.Add([]byte(`{"schema_version":1,"runs":[{},null]}`))
	f.Add([]byte(`{"type":"run.started","model":"x"}`))
	f.Add([]byte(`{"schema_version":1,"sandbox":{"guarantees":[{}]},"turns":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		runs, err := ReadRuns(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, format := range formats { // whatever was read can be rendered
			if format.Many {
				var out bytes.Buffer
				if err := Render(&out, format.Name, Merge(runs...).Runs, nil); err != nil {
					t.Errorf("%s: %v", format.Name, err)
				}
			}
		}
	})
}

// TestMergedRunsHaveNames: a person finds a run by its task or by what was
// asked; its thread says nothing to them.
func TestMergedRunsHaveNames(t *testing.T) {
	a, b, c := &Summary{}, &Summary{}, &Summary{}
	a.Run = Run{ThreadID: "thread-a", Prompt: "\n Fix the | build\nand more"}
	b.Run = Run{ThreadID: "thread-b", Prompt: "x", Task: "task-7"}
	c.Run = Run{ThreadID: "thread-c"}
	runs := []*Summary{a, b, c}
	for _, format := range []string{"markdown", "html"} {
		var out strings.Builder
		if err := Render(&out, format, runs, nil); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"build: ", "task-7: ", "thread-c: ", "thread-a", "thread-b"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q", format, want)
			}
		}
		if strings.Contains(out.String(), "and more: ") {
			t.Errorf("%s: the whole prompt is a title", format)
		}
	}
}
