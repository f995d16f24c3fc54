package telemetry

import (
	"context"
	"sync"
	"time"
)

// delivery is one signal on its way to the collector.
type delivery interface {
	drain(context.Context) result
	close()
}

type result struct {
	exported, lost int64
	message        string // why something was lost
}

// exporter is the part of the SDK's exporters that we use.
type exporter[T any] interface {
	export(context.Context, []T) error
	shutdown(context.Context)
}

const (
	queueSize   = 8192             // items kept while the collector cannot take them
	batchSize   = 512              // items of one request
	sendAt      = 2048             // items that wake the sender before its time
	sendEvery   = 30 * time.Second // so that a long run can be followed
	sendTimeout = 10 * time.Second // of one request during the run
	retryFirst  = 200 * time.Millisecond
	retryMost   = 2 * time.Second
	// refusedTries is how often an address is tried that does not answer at
	// all: a dead collector must not hold the exit until the bound.
	refusedTries = 3
)

// queue holds what is to be exported. put never waits: a full queue counts what
// it cannot hold. A goroutine sends batches while a long run goes on; it starts
// with the first item and is joined by drain.
type queue[T any] struct {
	t    *transport
	open func(context.Context) (exporter[T], error)

	mu      sync.Mutex
	items   []T
	dropped int64
	started bool
	ended   bool

	wake     chan struct{}
	quit     chan struct{}      // ends the sender after the request it is making
	stop     context.CancelFunc // ends that request
	done     chan struct{}
	exporter exporter[T] // owned by the sender, then by drain
	total    result
}

func newQueue[T any](t *transport, open func(context.Context) (exporter[T], error)) *queue[T] {
	return &queue[T]{t: t, open: open, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

func (q *queue[T]) put(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended || len(q.items) >= queueSize {
		q.dropped++
		return
	}
	q.items = append(q.items, item)
	if !q.started {
		q.started = true
		ctx, cancel := context.WithCancel(context.Background())
		q.stop = cancel
		go q.send(ctx)
	}
	if len(q.items) >= sendAt {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// send exports in the background. What fails stays in the queue for later.
func (q *queue[T]) send(ctx context.Context) {
	defer close(q.done)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for {
		select {
		case <-q.quit:
			return
		case <-tick.C:
		case <-q.wake:
		}
		for q.size() > 0 && !q.quitting() {
			one, cancel := context.WithTimeout(ctx, sendTimeout)
			ok := q.batch(one, false)
			cancel()
			if !ok {
				break
			}
		}
	}
}

func (q *queue[T]) quitting() bool {
	select {
	case <-q.quit:
		return true
	default:
		return false
	}
}

func (q *queue[T]) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// batch exports the first items of the queue and removes them when they were
// taken, or refused for good.
func (q *queue[T]) batch(ctx context.Context, last bool) bool {
	q.mu.Lock()
	items := q.items[:min(len(q.items), batchSize)]
	q.mu.Unlock()
	o := q.try(ctx, items, last)
	if o.err != nil && o.again {
		q.total.message = o.err.Error()
		return false
	}
	q.mu.Lock()
	q.items = append([]T(nil), q.items[len(items):]...)
	q.mu.Unlock()
	if o.err != nil {
		q.total.lost += int64(len(items))
		q.total.message = o.err.Error()
		return true
	}
	rejected := min(o.rejected, int64(len(items)))
	q.total.exported += int64(len(items)) - rejected
	q.total.lost += rejected
	if rejected > 0 {
		q.total.message = o.message
	}
	return true
}

// try exports items, again and again at the end of a run.
func (q *queue[T]) try(ctx context.Context, items []T, last bool) outcome {
	if q.exporter == nil {
		e, err := q.open(ctx)
		if err != nil {
			return outcome{err: err}
		}
		q.exporter = e
	}
	return q.t.attempt(ctx, last, func(ctx context.Context) error { return q.exporter.export(ctx, items) })
}

// drain stops the sender and exports the rest until ctx ends.
func (q *queue[T]) drain(ctx context.Context) result {
	q.mu.Lock()
	q.ended = true
	started, stop := q.started, q.stop
	q.mu.Unlock()
	if started {
		close(q.quit)
		select { // a request on its way may still arrive: cutting it would send it twice
		case <-q.done:
		case <-ctx.Done():
		}
		stop()
		<-q.done
	}
	for q.size() > 0 && q.batch(ctx, true) {
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total.lost += int64(len(q.items)) + q.dropped
	if q.dropped > 0 && q.total.message == "" {
		q.total.message = "the queue was full"
	}
	q.items = nil
	if q.total.lost == 0 {
		q.total.message = "" // what failed at first was delivered later
	}
	return q.total
}

func (q *queue[T]) close() {
	q.mu.Lock()
	open := q.started && !q.ended
	q.mu.Unlock()
	if open {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		q.drain(ctx)
	}
	if q.exporter != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		q.exporter.shutdown(ctx)
	}
	q.t.close()
}
