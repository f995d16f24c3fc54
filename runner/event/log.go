package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	mask   Masker
	sinks  []Sink
	failed []error // first error of each sink, nil while it works
	// early are the records so far, kept until Settle, so that a sink that only
	// the configuration names (telemetry) sees them too.
	early   []Record
	settled bool
	items   int
	closed  bool
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

func (l *Log) emit(e Event) {
	if l.closed {
		return
	}
	l.seq++
	rec := l.seal(Record{Seq: l.seq, Time: l.now().UTC(), Event: e})
	if !l.settled {
		l.early = append(l.early, rec)
	}
	for i, s := range l.sinks {
		if err := s.Handle(rec); err != nil && l.failed[i] == nil {
			l.failed[i] = err
		}
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
	i := len(l.sinks) - 1
	for _, rec := range l.early {
		if err := s.Handle(rec); err != nil && l.failed[i] == nil {
			l.failed[i] = err
		}
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
	l.emit(ItemStarted{Item{id, d}})
	return id
}

// Update emits item.updated.
func (l *Log) Update(id string, d ItemDetails) { l.Emit(ItemUpdated{Item{id, d}}) }

// Complete emits item.completed. An empty id stands for an item that was never
// started: it gets a new one. Complete returns the id.
func (l *Log) Complete(id string, d ItemDetails) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" {
		id = fmt.Sprintf("item_%d", l.items)
		l.items++
	}
	l.emit(ItemCompleted{Item{id, d}})
	return id
}

// Errors returns the first error of every sink that failed.
func (l *Log) Errors() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.failed...)
}

// Finish tells last to the sinks that are an [Ender], flushes those that can be
// flushed, emits last, closes all sinks
// and returns what went wrong in any of them.
func (l *Log) Finish(ctx context.Context, last RunCompleted) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	for _, s := range l.sinks {
		if e, ok := s.(Ender); ok {
			e.Ending(l.seal(Record{Time: l.now().UTC(), Event: last}))
		}
	}
	for _, s := range l.sinks {
		if f, ok := s.(Flusher); ok {
			for _, e := range f.Flush(ctx) {
				l.emit(e)
			}
		}
	}
	l.emit(last)
	l.closed = true
	for i, s := range l.sinks {
		if err := s.Close(ctx); err != nil && l.failed[i] == nil {
			l.failed[i] = err
		}
	}
	return errors.Join(l.failed...)
}
