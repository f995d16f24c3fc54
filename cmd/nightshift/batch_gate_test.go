package main

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/runner/batch"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// fakeService yields what it holds, and notes when it is asked for more.
type fakeService struct {
	deltas []model.Delta
	err    error
	log    *[]string
}

func (f *fakeService) Stream(context.Context, model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		*f.log = append(*f.log, "request")
		for _, d := range f.deltas {
			if !yield(d, nil) {
				return
			}
			*f.log = append(*f.log, "request")
		}
		yield(model.Delta{}, f.err)
	}
}

// Every request of a task passes the batch's rate, also one that is made again,
// and every wait that the service asks for is told to the other tasks, also one
// that comes with the last refusal.
func TestBatchGatesEveryRequest(t *testing.T) {
	refused := &model.APIError{Class: "rate_limit", Message: "slow down", RetryAfter: 3 * time.Second}
	last := &model.APIError{Class: "rate_limit", Message: "slow down", RetryAfter: 5 * time.Second}
	var log []string
	g := &gated{&fakeService{[]model.Delta{{Retrying: &model.Retrying{Err: refused}}, {Retrying: &model.Retrying{}}}, last, &log}, batch.Workspace{
		Gate:  func(context.Context) error { log = append(log, "gate"); return nil },
		Again: func(_ context.Context, d time.Duration) error { log = append(log, "again "+d.String()); return nil },
		Pause: func(_ context.Context, d time.Duration) error { log = append(log, "pause "+d.String()); return nil },
	}}
	var end error
	for _, err := range g.Stream(context.Background(), model.Request{}) {
		if err != nil {
			end = err
		}
	}
	want := []string{"gate", "request", "again 3s", "request", "again 0s", "request", "pause 5s"}
	if !slices.Equal(log, want) {
		t.Errorf("%q, want %q", log, want)
	}
	if !errors.Is(end, last) {
		t.Errorf("ended with %v", end)
	}
	// A wait that the end of the batch cuts off makes no further request.
	log = nil
	g.w.Again = func(context.Context, time.Duration) error { return context.Canceled }
	end = nil
	for _, err := range g.Stream(context.Background(), model.Request{}) {
		if err != nil {
			end = err
		}
	}
	if !errors.Is(end, context.Canceled) || !slices.Equal(log, []string{"gate", "request"}) {
		t.Errorf("%v after %q", end, log)
	}
}
