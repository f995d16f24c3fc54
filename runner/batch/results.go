package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Result is what became of one task: a line of results.jsonl.
type Result struct {
	ID         string      `json:"id"`
	Digest     string      `json:"task_digest"`
	Outcome    string      `json:"outcome"`
	Class      string      `json:"class,omitempty"` // of the run, or "checkout", "apply", "internal"
	ExitCode   int         `json:"exit_code"`
	Message    string      `json:"message,omitempty"`
	Final      string      `json:"final_message,omitempty"`
	Repo       string      `json:"repo"`             // without credentials
	Base       string      `json:"base,omitempty"`   // commit the work began at
	Branch     string      `json:"branch,omitempty"` // of --apply
	Files      int         `json:"files_changed"`
	Patch      string      `json:"patch_digest,omitempty"`
	Usage      event.Usage `json:"usage"`
	CostUSD    float64     `json:"cost_usd,omitempty"`
	Started    time.Time   `json:"started_at,omitzero"`
	DurationMS int64       `json:"duration_ms"`
	Attempt    int         `json:"attempt"`
	Dir        string      `json:"dir"`            // of this attempt, relative to the results folder
	Tree       string      `json:"tree,omitempty"` // the checkout, where it was kept
	Thread     string      `json:"thread_id,omitempty"`

	// KeepTree is set by whoever ran the task when the change lives in the
	// checkout.
	KeepTree bool `json:"-"`
}

// OK tells whether the task succeeded.
func (r Result) OK() bool { return r.ExitCode == 0 && r.Outcome == "success" }

// Root is the results folder, found from the checkout that the task worked in.
func (r Result) Root(checkout string) (string, bool) {
	root, ok := strings.CutSuffix(checkout, string(filepath.Separator)+filepath.Join(r.Dir, treeDir))
	return root, ok && root != "" && r.Dir != ""
}

// The layout of a results folder.
const (
	doneDir    = "done"   // one file per finished task: the truth
	claimDir   = "claims" // leases of workers
	spentDir   = "spent"  // ledgers, one file a process
	taskDir    = "tasks"  // what each task leaves, one folder an attempt
	treeDir    = "tree"   // the checkout, in the folder of the attempt
	resultFile = "results.jsonl"
)

// store keeps one result for each task in a folder that many processes may
// share. A result is a file that appears in one step; results.jsonl is made
// from them.
type store struct{ root string }

func openStore(root string) (*store, error) {
	for _, d := range []string{doneDir, claimDir, spentDir, taskDir} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return nil, fmt.Errorf("the results folder: %w", err)
		}
	}
	return &store{root}, nil
}

func (s *store) path(parts ...string) string {
	return filepath.Join(append([]string{s.root}, parts...)...)
}

func (s *store) donePath(t Task) string { return s.path(doneDir, t.Dir()+".json") }

// done returns the result of t, if it has one that still belongs to it.
func (s *store) done(t Task) (Result, bool, error) {
	data, err := os.ReadFile(s.donePath(t))
	if errors.Is(err, fs.ErrNotExist) {
		return Result{}, false, nil
	}
	if err != nil {
		return Result{}, false, fmt.Errorf("result of task %q: %w", t.ID, err)
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return Result{}, false, fmt.Errorf("result of task %q: %s is damaged: %w", t.ID, s.donePath(t), err)
	}
	return r, r.Digest == t.Digest(), nil
}

// put stores r durably. It replaces an older result of the same task.
func (s *store) put(t Task, r Result) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("result of task %q: %w", t.ID, err)
	}
	return writeDurable(s.donePath(t), append(data, '\n'))
}

// writeDurable makes path hold data after any crash, or what it held before.
func writeDurable(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	tmp := f.Name()
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadResults reads the results of a folder: the single ones where a batch has
// left them (also one that was killed), otherwise results.jsonl, as a merge
// leaves it.
func ReadResults(root string) ([]Result, error) {
	s := &store{root}
	if _, err := os.Stat(s.path(doneDir)); err == nil {
		return s.all()
	}
	f, err := os.Open(s.path(resultFile))
	if err != nil {
		return nil, err
	}
	rs, err := DecodeResults(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(resultFile), err)
	}
	return rs, nil
}

// all reads every result, ordered by task id.
func (s *store) all() ([]Result, error) {
	entries, err := os.ReadDir(s.path(doneDir))
	if err != nil {
		return nil, err
	}
	var out []Result
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		data, err := os.ReadFile(s.path(doneDir, e.Name()))
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w", e.Name(), err)
		}
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out, nil
}

// writeList makes results.jsonl from the single results: the same bytes from
// whatever process, in whatever order they came.
func (s *store) writeList() error {
	rs, err := s.all()
	if err != nil {
		return err
	}
	data, err := EncodeResults(rs)
	if err != nil {
		return err
	}
	return writeDurable(s.path(resultFile), data)
}

// EncodeResults writes one result a line, ordered by id.
func EncodeResults(rs []Result) ([]byte, error) {
	rs = append([]Result(nil), rs...)
	sort.Slice(rs, func(i, j int) bool { return rs[i].ID < rs[j].ID })
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for _, r := range rs {
		if err := enc.Encode(r); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

// DecodeResults reads results.jsonl.
func DecodeResults(r io.Reader) ([]Result, error) {
	var out []Result
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for n := 1; sc.Scan(); n++ {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		var one Result
		if err := json.Unmarshal(sc.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, one)
	}
	return out, sc.Err()
}
