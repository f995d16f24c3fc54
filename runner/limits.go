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

// startClock arms the timers of l. hurry is called when the time is really up.
// stop must be called.
func startClock(l policy.Limits, work, run context.CancelCauseFunc, hurry func()) *clock {
	c := &clock{idleIn: l.MaxIdleTime}
	if w := l.MaxWallTime; w > 0 {
		limit := &LimitError{Limit: "max_wall", Max: w.String(), Used: w.String()}
		soft := w
		if !l.NoFinalAnswer {
			soft -= min(w/wallReserve, wallReserveMax)
		}
		c.timers = append(c.timers, time.AfterFunc(soft, func() { work(limit) }), time.AfterFunc(w, func() { run(limit); hurry() }))
	}
	if l.MaxIdleTime > 0 {
		c.idle = time.AfterFunc(l.MaxIdleTime, func() {
			work(&LimitError{Limit: "max_idle", Max: l.MaxIdleTime.String(), Used: l.MaxIdleTime.String()})
			hurry()
		})
	}
	return c
}

// touch notes progress: a finished response or item. A trickle of bytes does
// not count.
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

// spending is what a run and its sub-agents used together: the limits bound the
// whole, or an agent would be a way around them. Requests that are under way
// when a limit is reached are finished. It is safe for concurrent use.
type spending struct {
	mu        sync.Mutex
	responses int
	toolCalls int
	tokens    int64
	cost      float64
}

func (s *spending) add(responses, toolCalls int, tokens int64, cost float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responses += responses
	s.toolCalls += toolCalls
	s.tokens += tokens
	s.cost += cost
}

// sum is the state at one moment.
func (s *spending) sum() (responses, toolCalls int, tokens int64, cost float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.responses, s.toolCalls, s.tokens, s.cost
}

// meter counts what one run used, without its sub-agents, and compares what all
// of them used with the limits. It is used by the turn loop only.
type meter struct {
	limits policy.Limits
	prices map[string]policy.ModelPrice
	spent  *spending
	usage  event.Usage
	cost   float64
	// failure is the fingerprint of the last failed step, repeats how often it
	// came in a row.
	failure string
	repeats int
}

// response counts one model response.
func (m *meter) response(modelName string, u event.Usage) {
	m.spentOn(modelName, u)
	m.spent.add(1, 0, 0, 0)
}

// spentOn counts tokens and money.
func (m *meter) spentOn(modelName string, u event.Usage) {
	m.usage = m.usage.Add(u)
	cost := 0.0
	if p, ok := m.prices[modelName]; ok {
		cost = event.Price(p).Cost(u)
	}
	m.cost += cost
	m.spent.add(0, 0, u.Total(), cost)
}

// call counts one tool call.
func (m *meter) call() { m.spent.add(0, 1, 0, 0) }

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
	responses, _, tokens, cost := m.spent.sum()
	switch {
	case l.MaxTurns > 0 && responses >= l.MaxTurns:
		return &LimitError{"max_turns", strconv.Itoa(l.MaxTurns), strconv.Itoa(responses)}
	case l.MaxTokens > 0 && tokens >= l.MaxTokens:
		return &LimitError{"max_tokens", strconv.FormatInt(l.MaxTokens, 10), strconv.FormatInt(tokens, 10)}
	case l.MaxCostUSD > 0 && cost >= l.MaxCostUSD:
		return &LimitError{"max_cost", fmt.Sprintf("$%.4f", l.MaxCostUSD), fmt.Sprintf("$%.4f", cost)}
	case l.MaxRepeatedFailures > 0 && m.repeats >= l.MaxRepeatedFailures:
		return &LimitError{"repeated_failure", strconv.Itoa(l.MaxRepeatedFailures), strconv.Itoa(m.repeats)}
	}
	return nil
}

// beforeWork is beforeRequest for a request that is not the closing summary: the
// last response that max_turns allows is kept for that one.
func (m *meter) beforeWork() *LimitError {
	if l := m.beforeRequest(); l != nil {
		return l
	}
	l := m.limits
	responses, _, _, _ := m.spent.sum()
	if l.MaxTurns > 1 && responses >= l.MaxTurns-1 && !l.NoFinalAnswer {
		return &LimitError{"max_turns", strconv.Itoa(l.MaxTurns), strconv.Itoa(l.MaxTurns)}
	}
	return nil
}

// maySumUp tells whether a closing summary is due and allowed.
func (m *meter) maySumUp() bool {
	responses, _, _, _ := m.spent.sum()
	return !m.limits.NoFinalAnswer && responses > 0 && (m.limits.MaxTurns == 0 || responses < m.limits.MaxTurns)
}

// beforeCalls returns the limit that n more tool calls would pass.
func (m *meter) beforeCalls(n int) *LimitError {
	_, calls, _, _ := m.spent.sum()
	if l := m.limits.MaxToolCalls; l > 0 && calls+n > l {
		return &LimitError{"max_tool_calls", strconv.Itoa(l), strconv.Itoa(calls)}
	}
	return nil
}
