package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Set is several runs in one report: report merge, and batch. Its JSON is
// itself an input of a later merge.
type Set struct {
	SchemaVersion int        `json:"schema_version"`
	Runs          []*Summary `json:"runs"`
}

// Merge joins runs. The order of the arguments does not matter, and a run that
// is given twice counts once: Merge(a, b, a) is Merge(b, a). Two different
// records of one run (a broken one and the whole one) count as one too: the
// one that saw more of it stays.
func Merge(runs ...*Summary) *Set {
	best := map[string]*Summary{}
	for _, s := range runs {
		if s == nil {
			continue
		}
		k := runKey(s)
		if old := best[k]; old == nil || better(s, old) {
			best[k] = s
		}
	}
	set := &Set{SchemaVersion: SchemaVersion, Runs: make([]*Summary, 0, len(best))}
	for _, s := range best {
		set.Runs = append(set.Runs, s)
	}
	slices.SortFunc(set.Runs, func(a, b *Summary) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(runKey(a), runKey(b)))
	})
	return set
}

// runKey tells runs apart: a thread may be resumed, each time with a new start.
func runKey(s *Summary) string {
	return s.Run.ThreadID + " " + s.StartedAt.UTC().Format("2006-01-02T15:04:05.000000000")
}

func better(a, b *Summary) bool {
	if a.Complete != b.Complete {
		return a.Complete
	}
	if a.Records != b.Records {
		return a.Records > b.Records
	}
	x, _ := json.Marshal(a) // equal in rank: any fixed choice will do
	y, _ := json.Marshal(b)
	return string(x) > string(y)
}

// ReadRuns reads the runs of a report.json, of a merged report or of an event
// log.
func ReadRuns(r io.Reader) ([]*Summary, error) {
	br := newPeeker(r)
	if br.looksLikeLog() {
		s, err := ReadSummary(br)
		if err != nil {
			return nil, err
		}
		return []*Summary{s}, nil
	}
	var raw struct {
		SchemaVersion int               `json:"schema_version"`
		Runs          []json.RawMessage `json:"runs"`
	}
	data, err := io.ReadAll(io.LimitReader(br, maxReport+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxReport {
		return nil, fmt.Errorf("the report is larger than %d MiB", maxReport>>20)
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("neither a report nor an event log: %w", err)
	}
	if raw.SchemaVersion != SchemaVersion {
		return nil, fmt.Errorf("this is a report of schema version %d; this program reads version %d", raw.SchemaVersion, SchemaVersion)
	}
	if raw.Runs == nil {
		raw.Runs = []json.RawMessage{data}
	}
	var out []*Summary
	for _, one := range raw.Runs {
		var s Summary
		if err := json.Unmarshal(one, &s); err != nil {
			return nil, fmt.Errorf("read the report: %w", err)
		}
		out = append(out, &s)
	}
	return out, nil
}

const maxReport = 256 << 20

// peeker looks at the first line without losing it.
type peeker struct {
	r    io.Reader
	head []byte
}

func newPeeker(r io.Reader) *peeker {
	head := make([]byte, 512)
	n, _ := io.ReadFull(r, head)
	return &peeker{r: r, head: head[:n]}
}

func (p *peeker) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.r.Read(b)
}

// looksLikeLog: a record has its "type" among the first keys of the first line;
// reports are indented and have none.
func (p *peeker) looksLikeLog() bool {
	dec := json.NewDecoder(bytes.NewReader(p.head))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for range 3 {
		key, err := dec.Token()
		if err != nil {
			return false
		}
		if key == "type" {
			return true
		}
		if key == "schema_version" {
			return false
		}
		if _, err := dec.Token(); err != nil {
			return false
		}
	}
	return false
}
