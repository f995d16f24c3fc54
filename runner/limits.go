package runner

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/policy"
	"github.com/nightshift-ci/nightshift/runner/event"
)

// LimitError is a run that reached one of its limits. It is the cause of the
// run's context, or the error of the turn.
type LimitError struct {
	Limit string // max_turns, max_tool_calls, max_wall, max_idle, max_tokens, max_cost, repeated_failure
	Max   string
	Used  string
}

// Error names the limit and both numbers.
func (e *LimitError) Error() string {
	return fmt.Sprintf("limit reached: %s is %s, used %s", e.Limit, e.Max, e.Used)
}

// Hint tells how to go on.
func (e *LimitError) Hint() string {
	return "the work so far is kept: see the report and the patch, or go on with `nightshift exec resume ID`"
}

// clock watches wall and idle time. It stops the work a little before the wall
// limit, so that the closing summary still fits, and the run at the limit
// itself. touch may be called from any goroutine.
type clock struct {
	timers []*time.Timer
	idleIn time.Duration

	mu   sync.Mutex
	idle *time.Timer
}

// wallReserve is the share of the wall limit that is kept for the summary, at
// most wallReserveMax.
const (
	wallReserve    = 10
	wallReserveMax = 30 * time.Second
)

// startClock arms the timers of l. stop must be called.
func startClock(l policy.Limits, work, run context.CancelCauseFunc) *clock {
	c := &clock{idleIn: l.MaxIdleTime}
	if w := l.MaxWallTime; w > 0 {
		limit := &LimitError{Limit: "max_wall", Max: w.String(), Used: w.String()}
		soft := w
		if !l.NoFinalAnswer {
			soft -= min(w/wallReserve, wallReserveMax)
		}
		c.timers = append(c.timers, time.AfterFunc(soft, func() { work(limit) }), time.AfterFunc(w, func() { run(limit) }))
	}
	if l.MaxIdleTime > 0 {
		c.idle = time.AfterFunc(l.MaxIdleTime, func() {
			work(&LimitError{Limit: "max_idle", Max: l.MaxIdleTime.String(), Used: l.MaxIdleTime.String()})
		})
	}
	return c
}

// touch notes progress: a finished response or item. A trickle of bytes is no
// progress.
func (c *clock) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		c.idle.Reset(c.idleIn)
	}
}

func (c *clock) stop() {
	for _, t := range c.timers {
		t.Stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
}

// meter counts what the limits bound. It is used by the turn loop only.
type meter struct {
	limits    policy.Limits
	prices    map[string]policy.ModelPrice
	responses int
	toolCalls int
	usage     event.Usage
	cost      float64
	// failure is the fingerprint of the last failed step, repeats how often it
	// came in a row.
	failure string
	repeats int
}

// response counts one model response.
func (m *meter) response(modelName string, u event.Usage) {
	m.responses++
	m.usage = m.usage.Add(u)
	if p, ok := m.prices[modelName]; ok {
		m.cost += event.Price(p).Cost(u)
	}
}

// step notes the outcome of one tool call: the same call failing in the same
// way again and again is a loop that costs money and never ends.
func (m *meter) step(fingerprint string, failed bool) {
	switch {
	case !failed:
		m.failure, m.repeats = "", 0
	case fingerprint == m.failure:
		m.repeats++
	default:
		m.failure, m.repeats = fingerprint, 1
	}
}

// beforeRequest returns the limit that forbids another model request.
func (m *meter) beforeRequest() *LimitError {
	l := m.limits
	switch {
	case l.MaxTurns > 0 && m.responses >= l.MaxTurns:
		return &LimitError{"max_turns", strconv.Itoa(l.MaxTurns), strconv.Itoa(m.responses)}
	case l.MaxTokens > 0 && m.usage.Total() >= l.MaxTokens:
		return &LimitError{"max_tokens", strconv.FormatInt(l.MaxTokens, 10), strconv.FormatInt(m.usage.Total(), 10)}
	case l.MaxCostUSD > 0 && m.cost >= l.MaxCostUSD:
		return &LimitError{"max_cost", fmt.Sprintf("$%.4f", l.MaxCostUSD), fmt.Sprintf("$%.4f", m.cost)}
	case l.MaxRepeatedFailures > 0 && m.repeats >= l.MaxRepeatedFailures:
		return &LimitError{"repeated_failure", strconv.Itoa(l.MaxRepeatedFailures), strconv.Itoa(m.repeats)}
	}
	return nil
}

// beforeCalls returns the limit that n more tool calls would pass.
func (m *meter) beforeCalls(n int) *LimitError {
	if l := m.limits.MaxToolCalls; l > 0 && m.toolCalls+n > l {
		return &LimitError{"max_tool_calls", strconv.Itoa(l), strconv.Itoa(m.toolCalls)}
	}
	return nil
}
