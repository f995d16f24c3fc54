package model

import (
	"context"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Defaults of the reference.
const (
	defaultRequestRetries = 4
	defaultStreamRetries  = 5
	defaultIdleTimeout    = 300 * time.Second
)

// Bounds of ours.
const (
	// defaultRetryBudget is what a job can lose to waiting before it is better
	// to hand the decision back to the people who run it.
	defaultRetryBudget = 5 * time.Minute
	// defaultResponseTimeout ends an attempt that keeps sending without ever
	// finishing.
	defaultResponseTimeout = time.Hour
	// firstDelay is the wait before the first retry; it doubles from there.
	firstDelay = 200 * time.Millisecond
	// jitter is the part by which a delay may differ, up or down.
	jitter = 0.1
	// maxRenewals bounds the retries after a renewed credential: one for a file
	// that another process refreshed, one for a refresh of our own.
	maxRenewals = 2
)

// schedule decides what follows a failed attempt. One lives for one Stream call.
type schedule struct {
	requestMax, streamMax int
	budget                time.Duration
	rand                  func() float64

	requestTry, streamTry int
	renewals              int
	waited                time.Duration
}

// next returns the retry that f asks for, or false when there is none; then
// f.err may have been changed to say why.
func (s *schedule) next(f *failure) (Retrying, bool) {
	re := Retrying{Err: f.err}
	streamMax := min(s.streamMax, f.streamMax())
	switch {
	case f.retryRequest && s.requestTry < s.requestMax:
		s.requestTry++
		re.Layer, re.Attempt, re.Max = LayerRequest, s.requestTry, s.requestMax
	case f.retryStream && s.streamTry < streamMax:
		s.streamTry++
		s.requestTry = 0
		re.Layer, re.Attempt, re.Max = LayerStream, s.streamTry, streamMax
	default:
		return re, false
	}
	re.Delay = s.delay(re.Attempt)
	if f.hasWait {
		re.Delay = max(f.wait, 0)
		if f.wait <= 0 {
			re.Delay = s.delay(re.Attempt)
		}
	}
	if re.Delay > s.budget-s.waited {
		f.overBudget(re.Delay, s.budget)
		return re, false
	}
	s.waited += re.Delay
	return re, true
}

// renewed returns the retry after a renewed credential.
func (s *schedule) renewed(f *failure) Retrying {
	s.renewals++
	return Retrying{Err: f.err, Layer: LayerCredential, Attempt: s.renewals, Max: maxRenewals}
}

// spend counts an attempt that brought nothing against the budget.
func (s *schedule) spend(d time.Duration) { s.waited += d }

func (s *schedule) delay(attempt int) time.Duration {
	// Past 2^20 (two days) the budget has long decided.
	d := float64(firstDelay) * math.Pow(2, float64(min(attempt, 20)-1))
	return time.Duration(d * (1 - jitter + 2*jitter*s.rand()))
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
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

// retryAfter reads the wait a response asks for: retry-after-ms, or Retry-After
// in seconds or as a date. Values that are neither are as good as absent; one
// that is too large for a Duration is the largest Duration.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d, true
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if d, ok := number(v, time.Second); ok {
		return d, true
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0), true
	}
	return 0, false
}

func number(s string, unit time.Duration) (time.Duration, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil && !math.IsInf(f, 1) {
		return 0, false
	}
	if math.IsNaN(f) || f < 0 {
		return 0, false
	}
	if f >= float64(math.MaxInt64)/float64(unit) {
		return math.MaxInt64, true
	}
	return time.Duration(f * float64(unit)), true
}

var (
	tryAgainShort = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)try again in\s+((?:\d+(?:\.\d+)?(?:ms|s|m|h))+)\b`)
	})
	tryAgainLong = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)try again in\s+(\d+(?:\.\d+)?)\s*(milliseconds?|seconds?|secs?|minutes?|mins?|hours?)\b`)
	})
)

// tryAgainIn reads the wait that the service's rate-limit messages name: "try
// again in 1.5s", "in 6m0s", "in 20 seconds".
func tryAgainIn(message string) (time.Duration, bool) {
	if m := tryAgainShort().FindStringSubmatch(message); m != nil {
		if d, err := time.ParseDuration(strings.ToLower(m[1])); err == nil {
			return d, true
		}
		return math.MaxInt64, true // too large for a Duration
	}
	if m := tryAgainLong().FindStringSubmatch(message); m != nil {
		unit := time.Second
		switch word := strings.ToLower(m[2]); {
		case strings.HasPrefix(word, "milli"):
			unit = time.Millisecond
		case strings.HasPrefix(word, "min"):
			unit = time.Minute
		case strings.HasPrefix(word, "hour"):
			unit = time.Hour
		}
		return number(m[1], unit)
	}
	return 0, false
}
