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
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
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

// Limits of one task; zero is none. Durations are Go's ("10m").
type Limits struct {
	MaxTurns     int      `json:"max_turns,omitempty"`
	MaxToolCalls int      `json:"max_tool_calls,omitempty"`
	MaxWallTime  Duration `json:"max_wall_time,omitempty"`
	MaxIdleTime  Duration `json:"max_idle_time,omitempty"`
	MaxTokens    int64    `json:"max_tokens,omitempty"`
	MaxCost      float64  `json:"max_cost,omitempty"`
}

// Duration is a time.Duration written as text.
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
	name := unsafeName.ReplaceAllString(t.ID, "_")
	if len(name) > 60 {
		name = name[:60]
	}
	return name + "-" + hex.EncodeToString(sum[:4])
}

var unsafeName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

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
}

// ReadTasks reads JSONL, or CSV when name ends in .csv. The error is a
// *FileError with every mistake.
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
		line = bytes.TrimSpace(line)
		if i == 0 {
			line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
		}
		if len(line) == 0 {
			continue
		}
		var t Task
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&t); err != nil {
			r.wrong(i+1, "%v", err)
			continue
		}
		if dec.More() {
			r.wrong(i+1, "more than one JSON value on the line")
			continue
		}
		var vars map[string]any
		if err := json.Unmarshal(line, &vars); err != nil {
			r.wrong(i+1, "%v", err)
			continue
		}
		text := map[string]string{}
		for k, v := range vars {
			if s, ok := v.(string); ok {
				text[k] = s
			}
		}
		t.Line = i + 1
		r.add(t, text)
	}
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
			r.wrong(1, "column %q is empty or there twice", h)
		}
		seen[h] = true
	}
	for {
		row, err := cr.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		line, _ := cr.FieldPos(0)
		if err != nil {
			var pe *csv.ParseError
			if errors.As(err, &pe) {
				line = pe.Line
				err = pe.Err
			}
			r.wrong(line, "%v", err)
			if !errors.Is(err, csv.ErrFieldCount) {
				return
			}
			continue
		}
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
		r.add(t, vars)
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
		dec := json.NewDecoder(strings.NewReader(s))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&t.Limits); err != nil {
			return t, fmt.Errorf("column limits: %w", err)
		}
	}
	if s := vars["output_schema"]; s != "" {
		if json.Valid([]byte(s)) && strings.HasPrefix(strings.TrimSpace(s), "{") {
			t.OutputSchema = json.RawMessage(s)
		} else {
			t.OutputSchema = json.RawMessage(fmt.Sprintf("%q", s))
		}
	}
	return t, nil
}

func (r *taskReader) add(t Task, vars map[string]string) {
	n := len(r.mistakes)
	switch {
	case t.ID == "":
		r.wrong(t.Line, "the task has no id")
	case r.ids[t.ID] != 0:
		r.wrong(t.Line, "id %q is also on line %d", t.ID, r.ids[t.ID])
	case strings.ContainsAny(t.ID, "\x00\n\r") || len(t.ID) > 200:
		r.wrong(t.Line, "the id has a line break or more than 200 bytes")
	default:
		r.ids[t.ID] = t.Line
	}
	if t.Repo == "" {
		t.Repo = r.o.Repo
	}
	if t.Repo == "" {
		r.wrong(t.Line, "task %q names no repo, and there is no --repo", t.ID)
	}
	if strings.HasPrefix(t.Repo, "-") || strings.HasPrefix(t.Ref, "-") {
		r.wrong(t.Line, "repo or ref begins with a dash")
	}
	if t.Prompt != "" && t.PromptFile != "" {
		r.wrong(t.Line, "prompt and prompt_file exclude each other")
	}
	if t.Prompt == "" && t.PromptFile == "" {
		t.Prompt = r.o.Prompt
	}
	if t.Prompt == "" && t.PromptFile == "" {
		r.wrong(t.Line, "task %q has no prompt, and there is no --prompt", t.ID)
	}
	var err error
	if t.Prompt, err = Fill(t.Prompt, vars); err != nil {
		r.wrong(t.Line, "%v", err)
	}
	if len(r.mistakes) == n {
		r.tasks = append(r.tasks, t)
	}
}

var column = regexp.MustCompile(`\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}`)

// Fill replaces {column} by its value; {{ and }} stand for braces. A column
// that does not exist is an error: a prompt with a hole in it asks for
// something else.
func Fill(template string, vars map[string]string) (string, error) {
	var missing []string
	out := column.ReplaceAllStringFunc(template, func(m string) string {
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
