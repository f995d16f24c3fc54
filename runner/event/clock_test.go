package event

import (
	"context"
	"testing"
	"time"
)

type times []time.Time

func (s *times) Handle(r Record) error       { *s = append(*s, r.Time); return nil }
func (s *times) Close(context.Context) error { return nil }

// TestFaultClock sets the clock back and forth: the times of a log never go back,
// and by a clock that measures they do not jump.
func TestFaultClock(t *testing.T) {
	base := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	jumps := []time.Duration{0, time.Second, -time.Hour, 2 * time.Second, 3 * time.Second, 48 * time.Hour, time.Minute, -100 * 365 * 24 * time.Hour}
	var got times
	i := 0
	l := NewLog(func() time.Time { i++; return base.Add(jumps[i-1]) }, nil, &got)
	for range jumps {
		l.Emit(Notice{Class: "x", Message: "y"})
	}
	want := []time.Duration{0, time.Second, time.Second, 2 * time.Second, 3 * time.Second, 48 * time.Hour, 48 * time.Hour, 48 * time.Hour}
	for i, w := range want {
		if !got[i].Equal(base.Add(w)) {
			t.Errorf("record %d has %s, want %s", i, got[i], base.Add(w))
		}
	}
	got = nil
	l = NewLog(nil, nil, &got)
	begin := time.Now()
	for range 3 {
		l.Emit(Notice{Class: "x", Message: "y"})
	}
	for i, at := range got {
		if d := at.Sub(begin); d < 0 || d > time.Minute || i > 0 && at.Before(got[i-1]) {
			t.Errorf("record %d has %s, the log began at %s", i, at, begin)
		}
	}
	t.Logf("FAULT the clock is set while a log is written | %d | by an injected clock", len(jumps))
}
