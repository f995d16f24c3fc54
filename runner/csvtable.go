package runner

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// csvTable is the input of a job: one row an item.
type csvTable struct {
	headers []string
	rows    []*csvRow
}

// csvRow is one item of a job and what has become of it.
type csvRow struct {
	index  int // from 0
	id     string
	source string // value of the id column, "" without one
	values []string

	status   string // pending, running, completed, failed
	attempts int
	problem  string
	result   json.RawMessage
	reported time.Time
	finished time.Time
}

// readTable reads the rows of a CSV file. idColumn names the column with their
// ids; "" numbers them. Its errors are texts for the model.
func readTable(data []byte, idColumn string) (*csvTable, error) {
	rd := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	rd.FieldsPerRecord = -1
	headers, err := rd.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("csv input must include a header row")
	}
	if err != nil {
		return nil, fmt.Errorf("failed to parse csv input: %w", err)
	}
	for i, h := range headers {
		if slices.Contains(headers[:i], h) {
			return nil, fmt.Errorf("csv header %s is duplicated", h)
		}
	}
	at := -1
	if idColumn != "" {
		if at = slices.Index(headers, idColumn); at < 0 {
			return nil, fmt.Errorf("id_column %s was not found in csv headers", idColumn)
		}
	}
	t := &csvTable{headers: headers}
	ids := map[string]bool{}
	for {
		values, err := rd.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("failed to parse csv input: %w", err)
		}
		if strings.Join(values, "") == "" {
			continue
		}
		if len(values) != len(headers) {
			return nil, fmt.Errorf("csv row %d has %d fields but header has %d", len(t.rows)+2, len(values), len(headers))
		}
		row := &csvRow{index: len(t.rows), values: values, status: rowPending}
		if at >= 0 && strings.TrimSpace(values[at]) != "" {
			row.source = values[at]
		}
		row.id = uniqueID(ids, row)
		t.rows = append(t.rows, row)
	}
}

// uniqueID names a row by its id column, or by its number; the second of a name
// gets "-2".
func uniqueID(taken map[string]bool, row *csvRow) string {
	base := row.source
	if base == "" {
		base = "row-" + strconv.Itoa(row.index+1)
	}
	id := base
	for n := 2; taken[id]; n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	taken[id] = true
	return id
}

// object is the row as JSON, its columns in the order of the file.
func (t *csvTable) object(row *csvRow) string {
	var b strings.Builder
	for i, h := range t.headers {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "  %s: %s", quote(h), quote(row.values[i]))
	}
	return "{\n" + b.String() + "\n}"
}

// fill replaces {column} by the row's value; {{ and }} stand for braces. What
// names no column stays as it is, as in the reference. Braces in a
// value are left alone.
func (t *csvTable) fill(template string, row *csvRow) string {
	var b strings.Builder
	for rest := template; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			b.WriteByte(rest[0])
			rest = rest[2:]
			continue
		case rest[0] == '{':
			if name, _, ok := strings.Cut(rest[1:], "}"); ok {
				if i := slices.Index(t.headers, name); i >= 0 {
					b.WriteString(row.values[i])
					rest = rest[len(name)+2:]
					continue
				}
			}
		}
		b.WriteByte(rest[0])
		rest = rest[1:]
	}
	return b.String()
}

// States of a row.
const (
	rowPending   = "pending"
	rowRunning   = "running"
	rowCompleted = "completed"
	rowFailed    = "failed"
)

// jobColumns follow the columns of the input.
var jobColumns = []string{"job_id", "item_id", "row_index", "source_id", "status", "attempt_count", "last_error", "result_json", "reported_at", "completed_at"}

// encode writes the table with what has become of each row.
func (t *csvTable) encode(jobID string) ([]byte, error) {
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	if err := w.Write(append(slices.Clone(t.headers), jobColumns...)); err != nil {
		return nil, err
	}
	for _, r := range t.rows {
		line := append(slices.Clone(r.values), jobID, r.id, strconv.Itoa(r.index), r.source, r.status, strconv.Itoa(r.attempts),
			r.problem, string(r.result), stamp(r.reported), stamp(r.finished))
		if err := w.Write(line); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return buf.Bytes(), w.Error()
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// count says how many rows are in a state.
func (t *csvTable) count(status string) int {
	n := 0
	for _, r := range t.rows {
		if r.status == status {
			n++
		}
	}
	return n
}
