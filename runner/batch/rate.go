package batch

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Bounds of the rate.
const (
	// rateFile holds the time of the next free slot, shared by all processes that
	// work in one results folder.
	rateFile = "rate"
	// pauseStep spaces the requests that come out of a common pause, so that they
	// do not meet the service all at once.
	pauseStep = 100 * time.Millisecond
	// rateBacklog is how far ahead slots may be given away before no further task
	// is begun: a task that only waits for requests uses up its own time limits.
	rateBacklog = 5 * time.Second
	// maxPause is how long a batch waits when the service asks it to. Longer waits
	// are those for a usage limit of hours; they end the batch, whose runner would
	// only be paid for doing nothing.
	maxPause = 15 * time.Minute
	// rateAhead is the furthest a slot can be: one that is further was written by
	// a clock that was set back since.
	rateAhead = 24 * time.Hour
	// rateLock is how long the file may be locked by another process, which needs
	// microseconds: after it, that process is stopped or the file system is.
	rateLock = 30 * time.Second
	rateTry  = 2 * time.Millisecond // between two attempts to lock it
)

// rate is one token bucket for all workers of all processes that share a
// results folder: at most n requests a minute, and a pause for everybody when
// the service asks one of them to wait. It is safe for concurrent use.
type rate struct {
	every time.Duration // between two requests; 0: no bound
	path  string        // "": not shared

	mu   sync.Mutex
	next time.Time
}

// newRate shares the bucket through a file below root. Where files cannot be
// locked, a bound on requests cannot be kept by several processes, so that is
// an error; pauses alone are then kept by each process for itself.
func newRate(root string, perMinute int) (*rate, error) {
	r := &rate{path: filepath.Join(root, rateFile)}
	if perMinute > 0 {
		r.every = time.Minute / time.Duration(perMinute)
	}
	if err := r.shared(context.Background(), func(t time.Time) time.Time { return t }); err != nil {
		if r.every > 0 {
			return nil, fmt.Errorf("the requests a minute cannot be shared through %s: %w", r.path, err)
		}
		r.path = ""
	}
	return r, nil
}

// shared lets change move the next slot, as all processes see it. mu is held.
func (r *rate) shared(ctx context.Context, change func(time.Time) time.Time) error {
	if r.path == "" {
		r.next = change(r.next)
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rateLock, fmt.Errorf("another process has locked %s for %s", r.path, rateLock))
	defer cancel()
	lock := flock.New(r.path)
	if _, err := lock.TryLockContext(ctx, rateTry); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer func() { _ = lock.Close() }() // the lock ends with its descriptor
	f, err := os.OpenFile(r.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [8]byte
	was := time.Time{}
	if _, err := io.ReadFull(f, b[:]); err == nil {
		was = time.Unix(0, int64(binary.BigEndian.Uint64(b[:])))
	}
	if was.After(time.Now().Add(rateAhead)) {
		was = time.Time{}
	}
	if r.next = change(was); !r.next.Equal(was) {
		binary.BigEndian.PutUint64(b[:], uint64(r.next.UnixNano()))
		if _, err := f.WriteAt(b[:], 0); err != nil {
			return err
		}
	}
	return nil
}

// wait blocks until the next request may be made.
func (r *rate) wait(ctx context.Context) error {
	at, err := r.take(ctx)
	if err != nil {
		return err
	}
	return sleep(ctx, time.Until(at))
}

// again is wait for a request that is made once more, after a time that its
// sender waits by itself. Its slot is taken first: the pause that the service
// asked for, which holds for everybody, does not hold for it twice.
func (r *rate) again(ctx context.Context, asked time.Duration) error {
	at, err := r.take(ctx)
	if err != nil {
		return err
	}
	if asked > 0 {
		if err := r.pause(ctx, asked); err != nil {
			return err
		}
	}
	return sleep(ctx, time.Until(at))
}

// take takes the next slot and says when it is.
func (r *rate) take(ctx context.Context) (at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.shared(ctx, func(next time.Time) time.Time {
		now := time.Now()
		at = now
		if next.After(now) {
			at = next
			return next.Add(max(r.every, pauseStep))
		}
		return now.Add(r.every)
	})
	if err != nil {
		return at, fmt.Errorf("the batch's rate: %w", err)
	}
	return at, nil
}

// calm blocks while slots are given away further ahead than a task should wait.
func (r *rate) calm(ctx context.Context) error {
	for {
		r.mu.Lock()
		err := r.shared(ctx, func(next time.Time) time.Time { return next })
		ahead := time.Until(r.next)
		r.mu.Unlock()
		if err != nil || ahead <= rateBacklog {
			return err
		}
		if err := sleep(ctx, min(ahead-rateBacklog, time.Second)); err != nil {
			return err
		}
	}
}

// ahead is how long the next request will wait, as far as this process knows.
func (r *rate) ahead() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, time.Until(r.next))
}

// pause keeps every worker from asking for d: one Retry-After is meant for all
// who share the account.
func (r *rate) pause(ctx context.Context, d time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared(ctx, func(next time.Time) time.Time {
		if at := time.Now().Add(d); at.After(next) {
			return at
		}
		return next
	})
}

// sleep waits for d, or returns the cause of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
