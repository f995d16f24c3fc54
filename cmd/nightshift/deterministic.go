package main

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// fixedClock counts instead of looking: ids and times of --deterministic. The
// runs of a batch have ids of their own.
type fixedClock struct {
	t    time.Time
	task string
	mu   sync.Mutex
	n    int
}

func (c *fixedClock) now() time.Time { return c.t }

func (c *fixedClock) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	prefix := "00000000-0000"
	if c.task != "" {
		sum := sha256.Sum256([]byte(c.task))
		prefix = fmt.Sprintf("%x-%x", sum[:4], sum[4:6])
	}
	return fmt.Sprintf("%s-7000-8000-%012d", prefix, c.n)
}

// unmeasured is e without what a clock or the kernel measured.
func unmeasured(e event.Event) event.Event {
	switch x := e.(type) {
	case event.ModelResponse:
		x.FirstEventMS, x.DurationMS = 0, 0
		return x
	case event.ModelRetried:
		x.DelayMS = 0
		return x
	case event.ToolCompleted:
		x.DurationMS = 0
		if x.Resources != nil {
			r := *x.Resources
			r.CPUMS, r.PeakBytes = 0, 0
			x.Resources = &r
		}
		return x
	case event.HookCompleted:
		x.DurationMS = 0
		return x
	case event.VerifyCompleted:
		x.DurationMS = 0
		return x
	case event.ServerStatus:
		x.DurationMS = 0
		return x
	case event.AuthRefreshed:
		x.DurationMS = 0
		return x
	}
	return e
}
