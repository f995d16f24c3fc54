package batch

import (
	"context"
	"sync"
	"time"
)

// rate is one token bucket for all workers: at most n requests a minute, and a
// pause for everybody when the service asks one of them to wait. It is safe for
// concurrent use.
type rate struct {
	every time.Duration // between two requests; 0: no bound

	mu   sync.Mutex
	next time.Time
}

func newRate(perMinute int) *rate {
	r := &rate{}
	if perMinute > 0 {
		r.every = time.Minute / time.Duration(perMinute)
	}
	return r
}

// wait blocks until the next request may be made.
func (r *rate) wait(ctx context.Context) error {
	r.mu.Lock()
	now := time.Now()
	at := r.next
	if at.Before(now) {
		at = now
	}
	if r.every > 0 || at.After(now) {
		r.next = at.Add(r.every)
	}
	r.mu.Unlock()
	if d := time.Until(at); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pause keeps every worker from asking for d: one Retry-After is meant for all
// who share the account.
func (r *rate) pause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := time.Now().Add(d); at.After(r.next) {
		r.next = at
	}
}
