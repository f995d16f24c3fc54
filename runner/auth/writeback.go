package auth

import (
	"context"
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// handOver gives a new bundle to the write-back. Its failure does not end the
// run: Close tries again, and only then it is an error. e is what went wrong
// before, and stays.
func (c *Credential) handOver(text []byte, e *Error, said *event.AuthRefreshed) *Error {
	if c.src.Writeback == nil {
		return e
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.src.bounds.writeback)
	defer cancel()
	if err := c.src.Writeback(ctx, text); err != nil {
		said.Writeback = "failed"
		c.mu.Lock()
		c.unsent = text
		c.mu.Unlock()
		c.src.Emit(event.Notice{
			Class:   "auth_writeback",
			Message: fmt.Sprintf("the write-back of the refreshed login failed: %s; it will be tried again at the end of the run", c.unsecret(err.Error())),
		})
		if said.Persisted == nowhere {
			if path, err := c.rescueFile(text); err == nil {
				said.Persisted, said.Path = byRecovery, path
			}
		}
		return e
	}
	said.Writeback = "ok"
	if said.Persisted == nowhere {
		said.Persisted = byCommand
	}
	c.settleDebt(context.Background())
	return e
}

// settleDebt notes that the store outside has the newest bundle.
func (c *Credential) settleDebt(ctx context.Context) {
	c.mu.Lock()
	c.unsent, c.owed = nil, false
	c.mu.Unlock()
	l, e := c.store.lock(ctx)
	if e != nil {
		return // the note stays, and the next run sends the bundle once more
	}
	defer l.release()
	n := l.readNote()
	n.Unsent = ""
	l.writeNote(n)
}

// Close ends the credential: it waits for a refresh whose request is out until
// ctx ends, and makes the write-back that failed before, in this run or in an
// earlier one on this machine. An error of class writeback_failed means that
// the store outside still has an old login; auth.json has the new one.
//
// Close belongs before the end of the event log, on every ending of a run.
func (c *Credential) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	f := c.flight
	c.mu.Unlock()
	if f != nil {
		f.cancel(context.Canceled)
		select {
		case <-f.done:
		case <-ctx.Done():
			return &Error{
				Class: ClassRefreshUnavailable, Retryable: true, cause: context.Cause(ctx),
				Message: "the run ended while the answer to a refresh was on its way; the login in auth.json may be spent",
				hint:    "look at `nightshift auth status`, and " + reseedHint + " if the next run cannot refresh",
			}
		}
	}
	return c.lastWriteback(ctx)
}

func (c *Credential) lastWriteback(ctx context.Context) error {
	c.mu.Lock()
	text, owed, rescued := c.unsent, c.owed, c.rescued
	c.mu.Unlock()
	if c.src.Writeback == nil || text == nil && !owed {
		return nil
	}
	where := ""
	// Another run may have refreshed meanwhile: only the newest bundle counts.
	if snap, err := c.store.read(); err == nil && snap.bundle != nil && !older(snap.bundle, text) {
		text, where = snap.bundle.raw, snap.target
	}
	if text == nil {
		return nil // auth.json is gone, and with it the debt
	}
	bounded, cancel := context.WithTimeout(ctx, c.src.bounds.writeback)
	defer cancel()
	err := c.src.Writeback(bounded, text)
	if err == nil {
		c.settleDebt(ctx)
		if rescued != "" && where == "" {
			c.dropRescued(rescued)
		}
		c.src.Emit(event.Notice{Class: "auth_writeback", Message: "the write-back of the refreshed login succeeded at the end of the run"})
		return nil
	}
	if where == "" {
		where, _ = c.rescueFile(text) // no folder for it: said below
	}
	e := &Error{
		Class:   ClassWriteback,
		Message: fmt.Sprintf("the write-back of the refreshed login failed again: %s; the new login is kept in %s", c.unsecret(err.Error()), where),
		hint:    "store that file where the next run gets its login from, before that run starts: the old refresh token is spent",
	}
	if where == "" {
		e.Message = fmt.Sprintf("the write-back of the refreshed login failed again: %s; the new login is lost, since auth.json cannot be written", c.unsecret(err.Error()))
		e.hint = reseedHint
	}
	return e
}

// older tells whether b is an earlier login than the one in text.
func older(b *bundle, text []byte) bool {
	if text == nil {
		return false
	}
	t, err := parseBundle(text)
	return err == nil && b.lastRefresh.Before(t.lastRefresh)
}

// unsecret removes the known secrets from a text that came from outside.
func (c *Credential) unsecret(text string) string {
	for _, s := range c.Secrets() {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return text
}
