package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/runner/batch"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// Bounds of a job over a CSV file; those of the reference.
const (
	csvWorkers    = 16 // workers of a job that names no number
	csvMaxWorkers = 64
	csvRuntime    = 30 * time.Minute // of one worker
	csvFailures   = 5                // failed rows that the answer names
	// csvExport is how often the results are written while the job runs: a run
	// that is killed leaves what was finished.
	csvExport = 10 * time.Second
)

// fanout is the feature that offers the job tools. The reference had them behind
// it; its newest versions have neither.
const fanout = "enable_fanout"

// csvTool is spawn_agents_on_csv: one sub-agent for each row of a CSV file, on
// the engine of `nightshift batch`.
type csvTool struct{ agents *agents }

func (t *csvTool) Name() string { return "spawn_agents_on_csv" }

// Parallel is false: its workers are the parallel work, in the same folder.
func (t *csvTool) Parallel() bool { return false }

// Spec describes the tool.
func (t *csvTool) Spec() json.RawMessage {
	return json.RawMessage(agentFunction(t.Name(), "Runs one agent for each row of a CSV file, a bounded number at a time, and waits for all of them. "+
		"Each agent gets the instruction with the row's values in it, works in the same folder under the same policy, and reports one JSON object; an agent that ends without a report has failed. "+
		"The rows with their results are written to a CSV file, also while the job runs.",
		`"csv_path":{"type":"string","description":"The input; its first row names the columns."},`+
			`"instruction":{"type":"string","description":"Template of the task. {column} stands for the row's value, {{ and }} for braces."},`+
			`"id_column":{"type":"string","description":"Column with a name for each row. Without it rows are numbered."},`+
			`"output_csv_path":{"type":"string","description":"The output. Without it a file beside the input."},`+
			`"output_schema":{"type":"object","description":"JSON Schema that every report must fit. Without it any object does."},`+
			`"max_concurrency":{"type":"number","description":"Agents at once: 16 unless said, never more than the configuration allows."},`+
			`"max_workers":{"type":"number","description":"Another name of max_concurrency."},`+
			`"max_runtime_seconds":{"type":"number","description":"Time for each agent: 1800 unless said here or in the configuration."}`,
		"csv_path", "instruction"))
}

// csvArgs are the arguments of a call.
type csvArgs struct {
	Path        *string         `json:"csv_path"`
	Instruction *string         `json:"instruction"`
	IDColumn    string          `json:"id_column"`
	Output      string          `json:"output_csv_path"`
	Schema      json.RawMessage `json:"output_schema"`
	Concurrency *uint32         `json:"max_concurrency"`
	Workers     *uint32         `json:"max_workers"`
	MaxRuntime  *uint32         `json:"max_runtime_seconds"`
}

// csvJob is one call of csvTool.
type csvJob struct {
	a           *agents
	call        tool.Call
	id          string
	instruction string
	out         string // absolute path of the output
	schema      *Schema
	schemaText  string
	workers     int
	runtime     time.Duration
	files       tool.Tables

	mu       sync.Mutex
	table    *csvTable
	byID     map[string]*csvRow
	threads  []string // of the workers
	stopped  bool     // a worker asked to begin no further row
	exported time.Time
}

// Call runs a job to its end.
func (t *csvTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	j, err := t.agents.newJob(ctx, c)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return tool.Result{}, cause
		}
		return t.agents.refused(c, t.Name(), err.Error()), nil
	}
	item := t.agents.item(c, "", t.Name(), []string{}, &j.instruction, event.InProgress)
	status, err := j.run(ctx)
	if err != nil {
		t.agents.item(c, item, t.Name(), j.threads, &j.instruction, event.Failed)
		if cause := context.Cause(ctx); cause != nil {
			return tool.Result{}, cause
		}
		text := fmt.Sprintf("agent job %s failed: %v", j.id, err)
		return tool.Result{Output: quote(text), Status: event.Failed, ItemID: item, Message: text}, nil
	}
	return j.end(item, status), nil
}

// newJob checks everything that can be checked before the first worker starts.
// The error is a text for the model.
func (a *agents) newJob(ctx context.Context, c tool.Call) (*csvJob, error) {
	var args csvArgs
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return nil, fmt.Errorf("failed to parse function arguments: %w", err)
	}
	switch {
	case args.Path == nil:
		return nil, errors.New("failed to parse function arguments: missing field `csv_path`")
	case args.Instruction == nil:
		return nil, errors.New("failed to parse function arguments: missing field `instruction`")
	case strings.TrimSpace(*args.Instruction) == "":
		return nil, errors.New("instruction must be non-empty")
	case args.MaxRuntime != nil && *args.MaxRuntime == 0:
		return nil, errors.New("max_runtime_seconds must be >= 1")
	}
	r := a.r
	j := &csvJob{a: a, call: c, id: r.NewID(), instruction: *args.Instruction, schemaText: "{}",
		files: tool.Tables{Box: r.box, Dir: r.Workdir, Env: r.childEnv(c.ID)}}
	if s := strings.TrimSpace(string(args.Schema)); s != "" && s != "null" {
		var err error
		if j.schema, err = ParseSchema("output_schema", args.Schema); err != nil {
			return nil, err
		}
		j.schemaText = s
	}
	j.bounds(args)
	in := r.absolute(*args.Path)
	data, err := j.files.Read(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("failed to read csv input %s: %w", in, err)
	}
	if j.table, err = readTable(data, args.IDColumn); err != nil {
		return nil, err
	}
	j.byID = map[string]*csvRow{}
	for _, row := range j.table.rows {
		j.byID[row.id] = row
	}
	// The last part of the id is the random one.
	j.out = strings.TrimSuffix(in, filepath.Ext(in)) + ".agent-job-" + j.id[len(j.id)-8:] + ".csv"
	if args.Output != "" {
		j.out = r.absolute(args.Output)
	}
	if j.out == in {
		return nil, errors.New("output_csv_path is the input; name another file")
	}
	// Whether the results can be written is found out before anything is spent.
	if err := j.export(ctx); err != nil {
		return nil, fmt.Errorf("the output %s cannot be written: %w", j.out, err)
	}
	return j, nil
}

// bounds settles how many workers there are, and for how long.
func (j *csvJob) bounds(args csvArgs) {
	j.workers = csvWorkers
	if n := cmp.Or(args.Concurrency, args.Workers); n != nil {
		j.workers = int(min(max(*n, 1), csvMaxWorkers))
	}
	j.workers = min(j.workers, j.a.r.Agents.slots.max())
	j.runtime = cmp.Or(j.a.r.cfg.Agents.JobMaxRuntime, csvRuntime)
	if args.MaxRuntime != nil {
		j.runtime = time.Duration(*args.MaxRuntime) * time.Second
	}
}

// absolute is a path of the model, seen from the working folder.
func (r *run) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(r.Workdir, path)
}

// run gives the rows to the batch engine: it starts them, bounds them, and keeps
// one result for each. It returns the status of the job.
func (j *csvJob) run(ctx context.Context) (string, error) {
	tasks := make([]batch.Task, 0, len(j.table.rows))
	for _, row := range j.table.rows {
		tasks = append(tasks, batch.Task{ID: row.id, Prompt: j.prompt(row)})
	}
	_, err := batch.Run(ctx, batch.Options{Tasks: tasks, Out: filepath.Join(j.a.r.Private, "job-"+j.id), Workers: j.workers, Owner: j.id,
		Shard: batch.Shard{Count: 1}, Now: j.a.r.Now, Work: j.work,
		Checkout: func(context.Context, batch.Task, string) (string, error) { return "", nil }, // all work in the run's folder
		Progress: func(p batch.Progress) { j.progress(ctx, p) }})
	j.unfinished()
	// What is finished is written, also when the run is being stopped.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
	defer cancel()
	if xerr := j.export(last); xerr != nil && err == nil {
		err = fmt.Errorf("failed to export output csv %s: %w", j.out, xerr)
	}
	if err != nil {
		return "", err
	}
	if j.stopped {
		return "cancelled", nil
	}
	return "completed", nil
}

// unfinished marks the rows whose work the end of the run cut off.
func (j *csvJob) unfinished() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, row := range j.table.rows {
		if row.status == rowRunning {
			row.status, row.problem = rowPending, "the run ended before this row was finished"
		}
	}
}

// prompt is what the worker of a row is told.
func (j *csvJob) prompt(row *csvRow) string {
	return fmt.Sprintf("You handle one row of a table; other agents handle the others.\n\n"+
		"Job: %s\nItem: %s\n\nTask:\n%s\n\nThe row:\n%s\n\nYour result is a JSON object that fits this schema ({} allows any):\n%s\n\n"+
		"Hand it in by calling `report_agent_job_result` once, with job_id %q, item_id %q and the object as result. "+
		"A row without this call has failed. Set stop to true only if the rest of the table should not be begun. The call ends your work.",
		j.id, row.id, j.table.fill(j.instruction, row), j.table.object(row), j.schemaText, j.id, row.id)
}

// classNotBegun is the class of rows that a stopped job did not begin.
const classNotBegun = "not_begun"

// work runs one row. Whatever goes wrong is the row's result.
func (j *csvJob) work(ctx context.Context, t batch.Task, _ batch.Workspace) (batch.Result, error) {
	if j.isStopped() {
		return batch.Result{Outcome: "failed", Class: classNotBegun, ExitCode: ExitFailed}, nil
	}
	if err := j.a.r.Agents.slots.wait(ctx); err != nil {
		return batch.Result{}, err
	}
	defer j.a.r.Agents.slots.give()
	opts, err := j.a.options(t.Prompt, "")
	if err != nil {
		return batch.Result{}, err
	}
	rep := &rowReport{job: j, itemID: t.ID}
	opts.row = rep
	j.begin(t.ID, opts.Thread.ID)
	ctx, cancel := context.WithTimeoutCause(ctx, j.runtime, errWorkerTime)
	defer cancel()
	res := j.a.hire(ctx, opts)
	out := batch.Result{Outcome: res.Completed.Outcome, Class: res.Completed.Class, ExitCode: res.ExitCode, Message: res.Message,
		Usage: res.Completed.Usage, CostUSD: res.Completed.CostUSD, Thread: opts.Thread.ID}
	result, _ := rep.get()
	switch {
	case result != nil:
		out.Outcome, out.Class, out.ExitCode, out.Final = "success", "completed", ExitSuccess, string(result)
	case errors.Is(context.Cause(ctx), errWorkerTime):
		out.Outcome, out.ExitCode, out.Message = "failed", ExitFailed, fmt.Sprintf("worker exceeded max runtime of %s", j.runtime)
	case res.ExitCode == ExitSuccess:
		out.Outcome, out.ExitCode, out.Message = "failed", ExitFailed, "worker finished without calling report_agent_job_result"
	}
	return out, nil
}

var errWorkerTime = errors.New("the worker's time is up")

// hire runs one agent's only turn to its end.
func (a *agents) hire(ctx context.Context, opts Options) Result {
	done := make(chan struct{})
	defer close(done)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.mu.Lock()
	ag := &agent{id: opts.Thread.ID, name: agentNames[len(a.byID)%len(agentNames)], cancel: cancel, done: done, closed: true,
		state: event.AgentState{Status: "running"}}
	a.byID[ag.id] = ag
	a.mu.Unlock()
	res := Run(ctx, opts)
	err := errors.Join(opts.Log.Finish(ctx, res.Completed), os.RemoveAll(opts.Private))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.account(res.Completed)
	text := res.Completed.FinalMessage
	ag.state = event.AgentState{Status: "completed", Message: &text}
	if res.ExitCode != ExitSuccess {
		text = res.Message
		ag.state.Status = "errored"
	}
	if err != nil {
		a.r.logError("the worker "+ag.id, err)
	}
	return res
}

func (j *csvJob) begin(itemID, thread string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.byID[itemID].status = rowRunning
	j.threads = append(j.threads, thread)
}

func (j *csvJob) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
}

func (j *csvJob) isStopped() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopped
}

// progress takes the result of one row into the table.
func (j *csvJob) progress(ctx context.Context, p batch.Progress) {
	if p.Last == nil {
		return
	}
	j.mu.Lock()
	r := p.Last
	row := j.byID[r.ID]
	switch {
	case r.Class == classNotBegun:
		row.status = rowPending
	case r.OK():
		row.status, row.result = rowCompleted, json.RawMessage(r.Final)
	default:
		row.status, row.problem = rowFailed, cmp.Or(r.Message, r.Class)
	}
	if row.status != rowPending {
		row.attempts, row.finished = r.Attempt, j.a.r.Now()
	}
	due := time.Since(j.exported) >= csvExport
	j.mu.Unlock()
	j.a.r.progress("%d of %d rows done, %d failed", p.Done, p.Total, p.Failed)
	if due {
		if err := j.export(ctx); err != nil {
			j.a.r.notice("csv_export", fmt.Sprintf("the results so far could not be written to %s: %v", j.out, err), "")
		}
	}
}

// export writes the table as it is at the moment.
func (j *csvJob) export(ctx context.Context) error {
	j.mu.Lock()
	data, err := j.table.encode(j.id)
	j.exported = time.Now()
	j.mu.Unlock()
	if err != nil {
		return err
	}
	return j.files.Write(ctx, j.out, data)
}

// rowFailure names a failed row to the model.
type rowFailure struct {
	ItemID   string  `json:"item_id"`
	SourceID *string `json:"source_id"`
	Error    string  `json:"last_error"`
}

// end tells the model what became of the job.
func (j *csvJob) end(item, status string) tool.Result {
	var answer struct {
		JobID     string       `json:"job_id"`
		Status    string       `json:"status"`
		Output    string       `json:"output_csv_path"`
		Total     int          `json:"total_items"`
		Completed int          `json:"completed_items"`
		Failed    int          `json:"failed_items"`
		JobError  *string      `json:"job_error"`
		Failures  []rowFailure `json:"failed_item_errors"`
	}
	answer.JobID, answer.Status, answer.Output, answer.Total = j.id, status, j.out, len(j.table.rows)
	answer.Completed, answer.Failed = j.table.count(rowCompleted), j.table.count(rowFailed)
	st := event.Completed
	if status == "cancelled" {
		text := "cancelled by worker request"
		answer.JobError, st = &text, event.Failed
	}
	for _, row := range j.table.rows {
		if row.status != rowFailed || len(answer.Failures) == csvFailures {
			continue
		}
		f := rowFailure{ItemID: row.id, Error: row.problem}
		if row.source != "" {
			f.SourceID = &row.source
		}
		answer.Failures, st = append(answer.Failures, f), event.Failed
	}
	id := j.a.item(j.call, item, "spawn_agents_on_csv", j.threads, &j.instruction, st)
	res := j.a.result(id, answer)
	res.Status = st
	if st == event.Failed {
		res.Message = fmt.Sprintf("%d of %d rows completed, %d failed", answer.Completed, answer.Total, answer.Failed)
	}
	return res
}
