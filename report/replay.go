package report

import (
	"context"
	"errors"
	"io"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Replay hands the records of a log to sinks and closes them, as the run did.
// The bytes they write are those of the live run. A log that breaks off is no
// error: the sinks say so ([Summary].Complete). A line that is not a record is an
// error that names the line; what came before it has been handed on, and the
// sinks are closed all the same.
func Replay(ctx context.Context, r io.Reader, sinks ...event.Sink) error {
	var errs []error
	failed := make([]error, len(sinks))
	for rec, err := range event.Decode(r) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		if err := ctx.Err(); err != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		for i, s := range sinks {
			if err := s.Handle(rec); err != nil && failed[i] == nil {
				failed[i] = err
			}
		}
	}
	for i, s := range sinks {
		if err := s.Close(ctx); err != nil && failed[i] == nil {
			failed[i] = err
		}
	}
	return errors.Join(append(errs, failed...)...)
}

// ReadSummary folds a whole log.
func ReadSummary(r io.Reader) (*Summary, error) {
	f := NewFold()
	for rec, err := range event.Decode(r) {
		if err != nil {
			return f.Summary(), err
		}
		f.Add(rec)
	}
	return f.Summary(), nil
}
