package runner

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// heap is the memory in use, garbage excluded, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestManyCalls makes 500 calls, one a response. The cost of a call must not
// grow with their number, and neither must the memory beyond the history itself.
func TestManyCalls(t *testing.T) {
	const calls, part = 500, 100
	var times [calls + 1]time.Time
	var first, last uint64
	n := 0
	l := newLoop(t)
	l.tools = []tool.Tool{&fakeTool{"act", true, func(context.Context, tool.Call) (tool.Result, error) { return done("acted") }}}
	var steps []step
	for i := range calls {
		s := reply(callOf(fmt.Sprint("c", i), "act", object{"n": i}))
		steps = append(steps, after(func() {
			times[n] = time.Now()
			if n++; n == part {
				first = heap()
			}
		}, s))
	}
	l.says(append(steps, after(func() { times[calls] = time.Now(); last = heap() }, says("done")))...)
	// The rig itself would keep every record and every request.
	l.opts.Log = event.NewLog(nil, l.opts.Mask)
	l.opts.Log.Settle()
	r := newRun(l.opts)
	l.model.first = func() { r.tools.list = append(r.tools.list, l.tools...) }
	l.want(r.carryOut(t.Context()), "success", "completed", 0)

	early, late := times[part].Sub(times[0]), times[calls].Sub(times[calls-part])
	t.Logf("calls 1–%d: %s each, %d–%d: %s each; memory %d KiB after %d calls, %d KiB after %d", part, early/part, calls-part, calls, late/part, first>>10, part, last>>10, calls)
	if late > 5*early && late > 500*time.Millisecond {
		t.Errorf("the last %d calls took %s, the first %s", part, late, early)
	}
	if grown := int64(last) - int64(first); grown > 4<<20 {
		t.Errorf("%d calls more took %d KiB more memory", calls-part, grown>>10)
	}
}

// TestManyDeltas reads an answer of 20 000 deltas. What was yielded must not be
// kept by the loop.
func TestManyDeltas(t *testing.T) {
	const deltas = 20_000
	var begin, most uint64
	chunk := strings.Repeat("x", 1000)
	l := newLoop(t).says(func(_ context.Context, _ model.Request, yield func(model.Delta, error) bool) {
		begin = heap()
		for i := range deltas {
			if !yield(model.Delta{Progress: &model.Progress{Event: "response.output_text.delta", Text: strings.Clone(chunk)}}, nil) {
				return
			}
			if i%5000 == 4999 {
				most = max(most, heap())
			}
		}
		says("done")(context.Background(), model.Request{}, yield)
	})
	l.want(l.play(), "success", "completed", 0)
	if most > begin+2<<20 {
		t.Errorf("20 MB of deltas took %d KiB", (most-begin)>>10)
	}
	if n := len(l.seen.records()); n > 40 {
		t.Errorf("%d records", n)
	}
}
