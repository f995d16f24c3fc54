package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Sink takes the records of a run.
type Sink interface {
	// Handle is called in order, never concurrently; the record is already
	// redacted. An error is kept for Close and reported once: the run goes on,
	// and later records are still offered.
	Handle(Record) error
	// Close finishes files and flushes exporters. It is called once, also after
	// a failed run.
	Close(context.Context) error
}

// Flusher is a sink that must deliver before the last record is written, so
// that the last record can tell what was lost (telemetry).
type Flusher interface {
	Flush(context.Context) []Event
}

// Ender is a [Flusher] that needs the outcome in what it delivers. Ending gets
// the last record, without its number, before Flush; Handle gets it again.
type Ender interface {
	Ending(Record)
}

// Log numbers, encodes and redacts events and hands them to its sinks. Its
// methods may be called from any goroutine; sinks see one record at a time. A
// slow sink slows the run; nothing is dropped.
type Log struct {
	mu     sync.Mutex
	seq    uint64
	now    func() time.Time
	begin  time.Time // of the log
	last   time.Time // given to a record
	mask   Masker
	sinks  []Sink
	failed []error // first error of each sink, nil while it works
	// early are the records so far, kept until Settle, so that a sink that only
	// the configuration names (telemetry) sees them too.
	early   []Record
	settled bool
	items   int
	open    map[string]ItemDetails // started, not completed
	order   []string               // ids of open, in order
	flushed bool
	closed  bool
	rewrite func(Event) Event // nil: events stay as they are
}

// Rewrite makes the log write f(e) for each later event e. It serves logs that
// must come out equal: what a clock or the kernel measured can be left out.
func (l *Log) Rewrite(f func(Event) Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rewrite = f
}

// Masker removes secrets from text; see [Redactor].
type Masker interface {
	// MaskJSON masks in an encoded record: the result is valid JSON.
	MaskJSON([]byte) []byte
}

// NewLog returns a log that reads the time from now (nil: time.Now) and masks
// with m (nil: nothing).
func NewLog(now func() time.Time, m Masker, sinks ...Sink) *Log {
	if now == nil {
		now = time.Now
	}
	return &Log{now: now, mask: m, sinks: sinks, failed: make([]error, len(sinks))}
}

// Emit writes e to every sink.
func (l *Log) Emit(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit(e)
}

// time is the time of the next record. A wall clock that is set while the run goes on
// changes nothing: what passed since the log began is measured, and a clock that
// cannot do that never goes back.
func (l *Log) time() time.Time {
	t := l.now()
	if l.begin.IsZero() {
		l.begin = t
	}
	t = l.begin.Add(t.Sub(l.begin)) // both have a monotonic reading, if now is time.Now
	if t.Before(l.last) {
		t = l.last
	}
	l.last = t
	return t.UTC()
}

func (l *Log) emit(e Event) {
	if l.closed {
		return
	}
	if l.rewrite != nil {
		e = l.rewrite(e)
	}
	l.seq++
	rec := l.seal(Record{Seq: l.seq, Time: l.time(), Event: e})
	if !l.settled {
		l.early = append(l.early, rec)
	}
	for i := range l.sinks {
		l.hand(i, rec)
	}
}

// hand gives a record to one sink. A sink that panics has failed; the others,
// and the run, go on.
func (l *Log) hand(i int, rec Record) {
	l.fail(i, func() error { return l.sinks[i].Handle(rec) })
}

func (l *Log) fail(i int, f func() error) {
	defer func() {
		if v := recover(); v != nil && l.failed[i] == nil {
			l.failed[i] = fmt.Errorf("internal error in %T: %v", l.sinks[i], v)
		}
	}()
	if err := f(); err != nil && l.failed[i] == nil {
		l.failed[i] = err
	}
}

// seal encodes, masks and decodes rec: what sinks see is what the log holds.
func (l *Log) seal(rec Record) Record {
	line, err := json.Marshal(rec)
	if err == nil && l.mask != nil {
		line = l.mask.MaskJSON(line)
	}
	if err == nil {
		var seen Record
		if err = json.Unmarshal(line, &seen); err == nil {
			rec = seen
		}
	}
	if err != nil {
		// A record that cannot be encoded is our bug; it must not pass unmasked.
		rec.Event = Notice{Class: "internal", Message: fmt.Sprintf("an event of kind %s could not be encoded", rec.Event.kind())}
	}
	return rec
}

// Attach adds a sink and hands it what was emitted so far. It must come before
// Settle.
func (l *Log) Attach(s Sink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sinks = append(l.sinks, s)
	l.failed = append(l.failed, nil)
	for _, rec := range l.early {
		l.hand(len(l.sinks)-1, rec)
	}
}

// Settle says that no sink will be added any more.
func (l *Log) Settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled, l.early = true, nil
}

// NextItem returns the id of a new item: item_0, item_1, …
func (l *Log) NextItem() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := fmt.Sprintf("item_%d", l.items)
	l.items++
	return id
}

// Start emits item.started with a new id and returns the id.
func (l *Log) Start(d ItemDetails) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := fmt.Sprintf("item_%d", l.items)
	l.items++
	if l.open == nil {
		l.open = map[string]ItemDetails{}
	}
	l.open[id] = d
	l.order = append(l.order, id)
	l.emit(ItemStarted{Item{id, d}})
	return id
}

// Update emits item.updated for an item that is open; a completed one stays as
// it is.
func (l *Log) Update(id string, d ItemDetails) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[id]; ok {
		l.open[id] = d
		l.emit(ItemUpdated{Item{id, d}})
	}
}

// Complete emits item.completed, once for each item. An empty id stands for an
// item that was never started: it gets a new one. Complete returns the id.
func (l *Log) Complete(id string, d ItemDetails) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.complete(id, d)
}

func (l *Log) complete(id string, d ItemDetails) string {
	if id == "" {
		id = fmt.Sprintf("item_%d", l.items)
		l.items++
	} else if _, ok := l.open[id]; !ok {
		return id
	}
	delete(l.open, id)
	l.order = slices.DeleteFunc(l.order, func(o string) bool { return o == id })
	l.emit(ItemCompleted{Item{id, d}})
	return id
}

// CloseItems completes every item that is still open, as failed where the item
// can say so: whatever went wrong, a reader never waits for one.
func (l *Log) CloseItems() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Clone(l.order) {
		l.complete(id, abandoned(l.open[id]))
	}
}

// abandoned is the last state of an item that nobody finished.
func abandoned(d ItemDetails) ItemDetails {
	const why = "it was not finished"
	switch d := d.(type) {
	case CommandExecution:
		d.Status = Failed
		return d
	case FileChange:
		d.Status, d.Message = Failed, why
		return d
	case MCPToolCall:
		d.Status, d.Error = Failed, &MCPError{Message: why}
		return d
	case CollabToolCall:
		d.Status = Failed
		return d
	case ToolCall:
		d.Status = Failed
		return d
	}
	return d
}

// Errors returns the first error of every sink that failed.
func (l *Log) Errors() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.failed...)
}

// Flush tells last to the sinks that are an [Ender] and flushes those that can
// be flushed. It is done once; Finish does it where nobody has.
func (l *Log) Flush(ctx context.Context, last RunCompleted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush(ctx, last)
}

func (l *Log) flush(ctx context.Context, last RunCompleted) {
	if l.closed || l.flushed {
		return
	}
	l.flushed = true
	for i, s := range l.sinks {
		if e, ok := s.(Ender); ok {
			l.fail(i, func() error { e.Ending(l.seal(Record{Time: l.time(), Event: last})); return nil })
		}
	}
	for i, s := range l.sinks {
		if f, ok := s.(Flusher); ok {
			var more []Event
			l.fail(i, func() error { more = f.Flush(ctx); return nil })
			for _, e := range more {
				l.emit(e)
			}
		}
	}
}

// Finish flushes, emits last, closes all sinks and returns what went wrong in
// any of them.
func (l *Log) Finish(ctx context.Context, last RunCompleted) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.flush(ctx, last)
	l.emit(last)
	l.closed = true
	for i, s := range l.sinks {
		l.fail(i, func() error { return s.Close(ctx) })
	}
	return errors.Join(l.failed...)
}
