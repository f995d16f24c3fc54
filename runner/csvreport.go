package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// rowReport is what the worker of one row hands in. A nil *rowReport belongs to
// a run that is not a worker. It is safe for concurrent use.
type rowReport struct {
	job    *csvJob
	itemID string

	mu     sync.Mutex
	result json.RawMessage
}

// get is the report, if there is one.
func (w *rowReport) get() (json.RawMessage, bool) {
	if w == nil {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.result, w.result != nil
}

// reportTool is report_agent_job_result, which only workers have.
type reportTool struct {
	r      *run
	report *rowReport
}

// Name is the tool's name.
func (t *reportTool) Name() string { return "report_agent_job_result" }

// Parallel is false: what is called before it is finished before it.
func (t *reportTool) Parallel() bool { return false }

// Spec describes the tool.
func (t *reportTool) Spec() json.RawMessage {
	return json.RawMessage(agentFunction(t.Name(), "Hands in the result of your row and ends your work.",
		`"job_id":{"type":"string"},"item_id":{"type":"string"},"result":{"type":"object","description":"The result."},`+
			`"stop":{"type":"boolean","description":"true: no further row of the job is begun."}`,
		"job_id", "item_id", "result"))
}

// Call takes the report. One that does not fit is refused with the reasons, so
// that the worker can mend it; the first good one counts.
func (t *reportTool) Call(_ context.Context, c tool.Call) (tool.Result, error) {
	var args struct {
		JobID  *string         `json:"job_id"`
		ItemID *string         `json:"item_id"`
		Result json.RawMessage `json:"result"`
		Stop   bool            `json:"stop"`
	}
	err := json.Unmarshal(c.Arguments, &args)
	switch {
	case err != nil:
		err = fmt.Errorf("failed to parse function arguments: %w", err)
	case args.JobID == nil:
		err = errors.New("failed to parse function arguments: missing field `job_id`")
	case args.ItemID == nil:
		err = errors.New("failed to parse function arguments: missing field `item_id`")
	case len(args.Result) == 0:
		err = errors.New("failed to parse function arguments: missing field `result`")
	case !strings.HasPrefix(strings.TrimSpace(string(args.Result)), "{"):
		err = errors.New("result must be a JSON object")
	case t.report.job.schema != nil:
		if problems := t.report.job.schema.Check(args.Result); len(problems) > 0 {
			err = fmt.Errorf("the result does not fit the schema: %s", strings.Join(problems, "; "))
		}
	}
	if err != nil {
		id := t.r.log.Complete("", event.ToolCall{Message: err.Error(), Tool: t.Name(), Status: event.Failed})
		return t.done(c, tool.Result{Output: quote(err.Error()), Status: event.Failed, ItemID: id, Message: err.Error()}), nil
	}
	accepted := t.report.accept(*args.JobID, *args.ItemID, args.Result, args.Stop)
	res := tool.Result{Output: quote(fmt.Sprintf(`{"accepted":%t}`, accepted)), Status: event.Completed}
	if !accepted {
		res.Status, res.Message = event.Failed, "the report is not of this worker's row, or it has one already"
	}
	return t.done(c, res), nil
}

func (t *reportTool) done(c tool.Call, res tool.Result) tool.Result {
	t.r.log.Emit(event.ToolCompleted{Tool: t.Name(), CallID: c.ID, ItemID: res.ItemID, Status: res.Status, Message: res.Message})
	return res
}

// accept takes the first report of this worker's own row.
func (w *rowReport) accept(jobID, itemID string, result json.RawMessage, stop bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if jobID != w.job.id || itemID != w.itemID || w.result != nil {
		return false
	}
	w.result = result
	w.job.reportedNow(itemID)
	if stop {
		w.job.stop()
	}
	return true
}

func (j *csvJob) reportedNow(itemID string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.byID[itemID].reported = j.a.r.Now()
}
