// Package batch runs many tasks, bounded, each in a checkout of its own, and
// keeps exactly one result for each.
//
// A batch is a list of tasks ([ReadTasks]), a folder of results and a pool of
// workers ([Run]). Results are durable one by one, so a batch that was killed
// goes on where it stopped. Several processes may share one folder: they claim
// tasks with leases. The package knows neither flags nor reports; the caller
// gives it the function that runs one task.
package batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Task is one unit of work. Its JSON is a line of the tasks file.
type Task struct {
	ID           string          `json:"id"`
	Repo         string          `json:"repo,omitempty"` // path or URL; "" is the batch's default
	Ref          string          `json:"ref,omitempty"`  // branch, tag or commit; "" is HEAD
	Prompt       string          `json:"prompt,omitempty"`
	PromptFile   string          `json:"prompt_file,omitempty"`
	Config       Config          `json:"config,omitempty"`
	Limits       Limits          `json:"limits,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"` // a schema, or a path to one

	// Line is where the task stands in the file, from 1.
	Line int `json:"-"`
}

// schemaPath is the file that OutputSchema names, "" if it is the schema itself.
func (t Task) schemaPath() string {
	var path string
	if json.Unmarshal(t.OutputSchema, &path) != nil {
		return ""
	}
	return path
}

// Config are -c overrides: either {"key": value} or ["key=value"].
type Config []string

// UnmarshalJSON accepts both forms.
func (c *Config) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*c = list
		return nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return errors.New(`config is neither an object nor a list of "key=value"`)
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		*c = append(*c, k+"="+string(m[k]))
	}
	return nil
}

// Limits of one task; zero is none. Where the command line has a limit too, the
// stricter one holds.
type Limits struct {
	MaxTurns     int      `json:"max_turns,omitempty"`
	MaxToolCalls int      `json:"max_tool_calls,omitempty"`
	MaxWallTime  Duration `json:"max_wall_time,omitempty"`
	MaxIdleTime  Duration `json:"max_idle_time,omitempty"`
	MaxTokens    int64    `json:"max_tokens,omitempty"`
	MaxCost      float64  `json:"max_cost,omitempty"`
}

// check returns what is wrong with the numbers.
func (l Limits) check() error {
	var errs []error
	for _, limit := range []struct {
		name  string
		value float64
	}{{"max_turns", float64(l.MaxTurns)}, {"max_tool_calls", float64(l.MaxToolCalls)}, {"max_tokens", float64(l.MaxTokens)}, {"max_cost", l.MaxCost}} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("limits.%s must not be negative", limit.name))
		}
	}
	return errors.Join(errs...)
}

// Duration is a time.Duration, written as text ("10m") or as seconds.
type Duration time.Duration

// UnmarshalJSON reads "90s" or a number of seconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		v, err := time.ParseDuration(s)
		if err != nil || v < 0 {
			return fmt.Errorf("%q is not a duration like 90s or 15m", s)
		}
		*d = Duration(v)
		return nil
	}
	var sec float64
	if err := json.Unmarshal(b, &sec); err != nil || sec < 0 {
		return errors.New("a duration is text like \"15m\" or a number of seconds")
	}
	if sec > math.MaxInt64/float64(time.Second)/2 {
		return fmt.Errorf("%s seconds are more than a duration can hold; leave the limit out to have none", b)
	}
	*d = Duration(sec * float64(time.Second))
	return nil
}

// MarshalJSON writes text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Digest identifies what a task asks for: a result belongs to a task only while
// this stays the same.
func (t Task) Digest() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("a task does not encode: %v", err)) // its fields all come from JSON
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Dir is the task's folder name: readable, unique, and safe on any file system.
func (t Task) Dir() string {
	sum := sha256.Sum256([]byte(t.ID))
	name := unsafeName().ReplaceAllString(t.ID, "_")
	if len(name) > 60 {
		name = name[:60]
	}
	return name + "-" + hex.EncodeToString(sum[:4])
}

var unsafeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._-]+`) })

// FileError is everything that is wrong with a tasks file.
type FileError struct {
	Name     string
	Mistakes []Mistake
}

// Mistake is one of them.
type Mistake struct {
	Line int
	Text string
}

// Error lists all mistakes, one a line.
func (e *FileError) Error() string {
	var lines []string
	for _, m := range e.Mistakes {
		lines = append(lines, fmt.Sprintf("%s:%d: %s", e.Name, m.Line, m.Text))
	}
	return strings.Join(lines, "\n")
}

// Hint tells the format.
func (e *FileError) Hint() string {
	return `a task is a JSON line like {"id":"a","repo":"path or URL","ref":"main","prompt":"…"}, or a CSV row with these columns; nothing was started`
}

// ReadOptions are what a file does not say.
type ReadOptions struct {
	// Prompt is the template of tasks without one: {column} is replaced.
	Prompt string
	// Repo is the repository of tasks without one.
	Repo string
	// ReadFile reads the files that tasks name (prompt_file, output_schema),
	// relative to the tasks file. Nil leaves the names as they are.
	ReadFile func(name string) ([]byte, error)
	// Check looks at a task that reads well and may complete it. Its mistakes
	// join those of the file.
	Check func(*Task) []error
}

// ReadTasks reads JSONL, or CSV when name ends in .csv. The error is a
// *FileError with every mistake.
//
// A prompt in a JSON line stands for itself. In a CSV file the prompt, the
// content of prompt_file and the default prompt are templates.
func ReadTasks(name string, data []byte, o ReadOptions) ([]Task, error) {
	r := taskReader{name: name, o: o, ids: map[string]int{}}
	if strings.EqualFold(filepath.Ext(name), ".csv") {
		r.csv(data)
	} else {
		r.jsonl(data)
	}
	if len(r.tasks) == 0 && len(r.mistakes) == 0 {
		r.wrong(1, "no task in the file")
	}
	if len(r.mistakes) > 0 {
		slices.SortStableFunc(r.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
		return nil, &FileError{name, r.mistakes}
	}
	return r.tasks, nil
}

type taskReader struct {
	name     string
	o        ReadOptions
	tasks    []Task
	ids      map[string]int
	mistakes []Mistake
}

func (r *taskReader) wrong(line int, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{line, fmt.Sprintf(format, args...)})
}

func (r *taskReader) jsonl(data []byte) {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if i == 0 {
			line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		t := Task{Line: i + 1}
		if err := decodeStrict(line, &t); err != nil {
			r.wrong(i+1, "%v", err)
			continue
		}
		r.add(t, map[string]string{"id": t.ID, "repo": t.Repo, "ref": t.Ref}, false)
	}
}

// decodeStrict reads one JSON value without unknown fields.
func decodeStrict(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("a JSON object is wanted here, not %s", aKind(kind.Value))
	case errors.As(err, &kind):
		return fmt.Errorf("field %q cannot be %s", kind.Field, aKind(kind.Value))
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF { // More would take a closing bracket for the end
		return errors.New("something follows the JSON value on the line")
	}
	return nil
}

// aKind is a kind of JSON value with its article.
func aKind(kind string) string {
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}

func (r *taskReader) csv(data []byte) {
	cr := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))))
	header, err := cr.Read()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			r.wrong(1, "%v", err)
		}
		return
	}
	seen := map[string]bool{}
	for _, h := range header {
		if h == "" || seen[h] {
			r.wrong(1, "column %q has no name or is there twice", h)
		}
		seen[h] = true
	}
	for {
		row, err := cr.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			line := 1
			var pe *csv.ParseError
			if errors.As(err, &pe) {
				line, err = pe.Line, pe.Err
			}
			r.wrong(line, "%v", err)
			if !errors.Is(err, csv.ErrFieldCount) {
				return
			}
			continue
		}
		line, _ := cr.FieldPos(0)
		vars := map[string]string{}
		for i, h := range header {
			vars[h] = row[i]
		}
		t, err := fromRow(vars)
		if err != nil {
			r.wrong(line, "%v", err)
			continue
		}
		t.Line = line
		r.add(t, vars, true)
	}
}

// fromRow reads the columns that are fields of a task; all others are values
// for templates.
func fromRow(vars map[string]string) (Task, error) {
	t := Task{ID: vars["id"], Repo: vars["repo"], Ref: vars["ref"], Prompt: vars["prompt"], PromptFile: vars["prompt_file"]}
	if s := vars["config"]; s != "" {
		if err := json.Unmarshal([]byte(s), &t.Config); err != nil {
			return t, fmt.Errorf("column config: %w", err)
		}
	}
	if s := vars["limits"]; s != "" {
		if err := decodeStrict([]byte(s), &t.Limits); err != nil {
			return t, fmt.Errorf("column limits: %w", err)
		}
	}
	if s := vars["output_schema"]; s != "" {
		if json.Valid([]byte(s)) && strings.HasPrefix(strings.TrimSpace(s), "{") {
			t.OutputSchema = json.RawMessage(s)
		} else {
			name, err := json.Marshal(s)
			if err != nil {
				return t, fmt.Errorf("column output_schema: %w", err)
			}
			t.OutputSchema = name
		}
	}
	return t, nil
}

// add takes t if nothing is wrong with it. In a template file its own prompt is
// a template too.
func (r *taskReader) add(t Task, vars map[string]string, template bool) {
	n := len(r.mistakes)
	switch {
	case t.ID == "":
		r.wrong(t.Line, "the task has no id")
	case r.ids[t.ID] != 0:
		r.wrong(t.Line, "id %q is also on line %d", t.ID, r.ids[t.ID])
	case len(t.ID) > maxID || strings.ContainsFunc(t.ID, unicode.IsControl) || !utf8.ValidString(t.ID):
		r.wrong(t.Line, "the id has a control character or more than %d bytes", maxID)
	default:
		r.ids[t.ID] = t.Line
	}
	r.where(&t)
	r.prompt(&t, vars, template)
	if err := t.Limits.check(); err != nil {
		r.wrong(t.Line, "%v", err)
	}
	if path := t.schemaPath(); path != "" && r.o.ReadFile != nil {
		if b, err := r.o.ReadFile(path); err != nil {
			r.wrong(t.Line, "output_schema: %v", err)
			t.OutputSchema = nil // the path is no schema; one mistake is told once
		} else {
			t.OutputSchema = b
		}
	}
	if r.o.Check != nil && t.Repo != "" {
		for _, err := range r.o.Check(&t) {
			r.wrong(t.Line, "%v", err)
		}
	}
	if len(r.mistakes) == n {
		r.tasks = append(r.tasks, t)
	}
}

// maxID is how long an id may be, in bytes.
const maxID = 200

// where checks the repository and the ref.
func (r *taskReader) where(t *Task) {
	if t.Repo == "" {
		t.Repo = r.o.Repo
	}
	if t.Repo == "" {
		r.wrong(t.Line, "task %q names no repo, and there is no --repo", t.ID)
	}
	for _, s := range []string{t.Repo, t.Ref} {
		if strings.HasPrefix(s, "-") || strings.ContainsFunc(s, unicode.IsControl) {
			r.wrong(t.Line, "repo or ref begins with a dash or has a control character")
		}
	}
}

// prompt finds the prompt and fills its columns.
func (r *taskReader) prompt(t *Task, vars map[string]string, template bool) {
	switch {
	case t.Prompt != "" && t.PromptFile != "":
		r.wrong(t.Line, "prompt and prompt_file exclude each other")
		return
	case t.PromptFile != "" && r.o.ReadFile != nil:
		b, err := r.o.ReadFile(t.PromptFile)
		if err != nil {
			r.wrong(t.Line, "prompt_file: %v", err)
			return
		}
		t.Prompt, t.PromptFile = string(b), ""
	case t.Prompt == "" && t.PromptFile == "":
		t.Prompt, template = r.o.Prompt, true
	}
	if strings.TrimSpace(t.Prompt) == "" && t.PromptFile == "" {
		r.wrong(t.Line, "task %q has no prompt, and there is no --prompt", t.ID)
	}
	if !template {
		return
	}
	var err error
	if t.Prompt, err = Fill(t.Prompt, vars); err != nil {
		r.wrong(t.Line, "%v", err)
	}
}

var column = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}`) })

// Fill replaces {column} by its value; {{ and }} stand for braces. A column
// that does not exist is an error: a prompt with a hole in it asks for
// something else.
func Fill(template string, vars map[string]string) (string, error) {
	var missing []string
	out := column().ReplaceAllStringFunc(template, func(m string) string {
		switch m {
		case "{{":
			return "{"
		case "}}":
			return "}"
		}
		name := m[1 : len(m)-1]
		v, ok := vars[name]
		if !ok {
			missing = append(missing, name)
		}
		return v
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("the prompt names {%s}, but there is no such column; write {{ and }} for braces", strings.Join(missing, "}, {"))
	}
	return out, nil
}
