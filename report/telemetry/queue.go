package telemetry

import (
	"context"
	"slices"
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
	queueBytes  = 32 << 20         // what they hold, about
	batchSize   = 512              // items of one request
	batchBytes  = 2 << 20          // what they hold, about: collectors take 4 MiB over gRPC
	sendAt      = 2048             // items that wake the sender before its time
	sendAtBytes = queueBytes / 4   // bytes that do
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
	t      *transport
	open   func(context.Context) (exporter[T], error)
	sizeOf func(T) int

	mu      sync.Mutex
	items   []T
	sizes   []int // of the items
	bytes   int   // of all of them
	dropped int64
	started bool
	ended   bool

	wake     chan struct{}
	quit     chan struct{}      // ends the sender after the request it is making
	stop     context.CancelFunc // ends that request
	done     chan struct{}
	exporter exporter[T] // owned by the sender, then by drain
	most     int         // items of a request that this collector takes; as exporter
	total    result
}

func newQueue[T any](t *transport, sizeOf func(T) int, open func(context.Context) (exporter[T], error)) *queue[T] {
	return &queue[T]{t: t, open: open, sizeOf: sizeOf, most: batchSize, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

func (q *queue[T]) put(item T) {
	size := q.sizeOf(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended || len(q.items) >= queueSize || q.bytes+size > queueBytes {
		q.dropped++
		return
	}
	q.items, q.sizes, q.bytes = append(q.items, item), append(q.sizes, size), q.bytes+size
	if !q.started {
		q.started = true
		ctx, cancel := context.WithCancel(context.Background())
		q.stop = cancel
		go q.send(ctx)
	}
	if len(q.items) >= sendAt || q.bytes >= sendAtBytes {
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

// first returns the items of the next request: as many as fit, and at least one.
func (q *queue[T]) first() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(q.items), q.most) && (n == 0 || bytes+q.sizes[n] <= batchBytes) {
		bytes += q.sizes[n]
		n++
	}
	return q.items[:n]
}

// remove forgets the first n items.
func (q *queue[T]) remove(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, size := range q.sizes[:n] {
		q.bytes -= size
	}
	q.items, q.sizes = slices.Clone(q.items[n:]), slices.Clone(q.sizes[n:]) // the old array must not be kept
}

// batch exports the first items of the queue and removes them when they were
// taken, or refused for good. It tells whether to go on.
func (q *queue[T]) batch(ctx context.Context, last bool) bool {
	items := q.first()
	o := q.try(ctx, items, last)
	if o.large && len(items) > 1 {
		q.most = len(items) / 2
		return true
	}
	if o.err != nil && o.again {
		q.total.message = o.err.Error()
		return false
	}
	q.remove(len(items))
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
	q.items, q.sizes, q.bytes = nil, nil, 0
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
