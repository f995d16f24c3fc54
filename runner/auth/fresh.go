package auth

import (
	"context"
	"fmt"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Reasons of a refresh, as the token endpoint and the events name them.
const (
	reasonExpiry    = "proactive_expiry"
	reasonScheduled = "scheduled"
	reasonRefused   = "unauthorized_recovery"
)

const (
	// skew is how long before its end a token is renewed.
	skew = 5 * time.Minute
	// maxAge is how old an opaque token may get: its end cannot be read.
	maxAge = 8 * 24 * time.Hour
	// stragglers is how long after a renewal a 401 may belong to a request that
	// was sent with the token before.
	stragglers = 10 * time.Second
)

// login is the ChatGPT login in force.
type login struct {
	bundle  *bundle
	expires time.Time // zero: opaque
	got     time.Time // when this process was handed the token; zero: it was there
	// recovered: the token came after a 401, so that another 401 is final.
	recovered bool
	uses      []time.Time // recent requests with this token, minus refused ones
	late      int         // requests with the token before that may still be refused
}

// expired tells whether the token is known to be useless.
func (l *login) expired(now time.Time) bool {
	return !l.expires.IsZero() && !now.Before(l.expires)
}

// renewable tells whether this process can renew the login. Tokens that another
// program renews, and a copy without a refresh token, which cannot be used up,
// are taken as long as they last.
func (l *login) renewable() bool {
	return l.bundle.mode == fileChatGPT && !l.bundle.refresh.Empty()
}

// due tells whether the token should be renewed, and why.
func (l *login) due(now time.Time) (reason string, due bool) {
	if !l.renewable() {
		return reasonExpiry, l.expired(now)
	}
	if l.expires.IsZero() {
		return reasonScheduled, now.Sub(l.bundle.lastRefresh) > maxAge
	}
	window := skew
	if !l.got.IsZero() {
		// A token that lives shorter than the window must not be renewed with
		// each request.
		window = min(window, l.expires.Sub(l.got)/2)
	}
	return reasonExpiry, l.expires.Sub(now) <= window
}

// adopt makes b the login in force. The caller must hold mu, or be Load.
func (c *Credential) adopt(b *bundle, got time.Time) {
	c.learnLocked(b.access, b.refresh, b.idToken)
	late := 0
	for _, t := range c.login.uses {
		if c.src.Now().Sub(t) < stragglers {
			late++
		}
	}
	c.login = login{bundle: b, got: got, late: late}
	if jwt, ok := readJWT(b.access); ok {
		c.login.expires = jwt.expires
	}
}

// setback remembers that a refresh token brought nothing.
type setback struct {
	err   *Error
	until time.Time // zero: forever
	count int
}

// maxCooling bounds the time without attempts after transient failures.
const maxCooling = 10 * time.Minute

// setBack remembers e about the refresh token; the caller must hold mu.
func (c *Credential) setBack(token Secret, e *Error) *setback {
	s := c.fails[tokenDigest(token)]
	if s == nil {
		s = &setback{}
		c.fails[tokenDigest(token)] = s
	}
	s.err, s.until = e, time.Time{}
	if e.Retryable {
		wait := min(c.src.bounds.cooling<<min(s.count, 10), maxCooling)
		s.until = c.src.Now().Add(min(max(wait, e.after), maxCooling))
	}
	s.count++
	return s
}

// setBackNow returns what forbids to spend the token now; the caller must hold
// mu.
func (c *Credential) setBackNow(token Secret) *Error {
	s := c.fails[tokenDigest(token)]
	if s == nil || !s.until.IsZero() && !c.src.Now().Before(s.until) {
		return nil
	}
	return s.err
}

// fresh returns the access token to use, renewed if that is due.
func (c *Credential) fresh(ctx context.Context) (Secret, error) {
	c.mu.Lock()
	now := c.src.Now()
	reason, due := c.login.due(now)
	if due && c.fatal == nil {
		if e := c.setBackNow(c.login.bundle.refresh); e != nil && !c.mayGoOn(e) {
			c.mu.Unlock()
			return Secret{}, e
		} else if e != nil {
			due = false
		}
	}
	if due {
		c.mu.Unlock()
		if err := c.renew(ctx, renewal{reason: reason}); err != nil {
			if e, ok := err.(*Error); !ok || !c.goesOn(e) {
				return Secret{}, err
			}
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if c.fatal != nil {
		return Secret{}, c.fatal
	}
	c.login.uses = append(c.login.uses, c.src.Now())
	if n := len(c.login.uses); n > 64 {
		c.login.uses = append([]time.Time(nil), c.login.uses[n-64:]...)
	}
	return c.login.bundle.access, nil
}

// mayGoOn tells whether the run can use its token although a refresh failed
// with e; the caller must hold mu.
func (c *Credential) mayGoOn(e *Error) bool {
	switch e.Class {
	case ClassRefreshUnavailable, ClassRefreshRateLimited, ClassRefreshBadAnswer, ClassLockTimeout:
		return !c.login.expired(c.src.Now())
	}
	return false
}

// goesOn says aloud that the run goes on with its token, if it may.
func (c *Credential) goesOn(e *Error) bool {
	c.mu.Lock()
	ok := c.mayGoOn(e)
	c.mu.Unlock()
	if ok {
		c.src.Emit(event.Notice{
			Class:   "auth_refresh_failed",
			Message: fmt.Sprintf("%s; the run goes on with the access token it has, which has not run out", e.Message),
			Hint:    e.hint,
		})
	}
	return ok
}

// Refused reacts to a 401 that the service gave to a request of this
// credential. Nil means that the credential is another one now and one retry is
// worth it: auth.json had changed, or the login was refreshed. Everything else
// is an *[Error].
func (c *Credential) Refused(ctx context.Context) error {
	if c.choice.mode != modeChatGPT {
		return c.keyRefused()
	}
	c.mu.Lock()
	l := &c.login
	if c.fatal != nil {
		defer c.mu.Unlock()
		return c.fatal
	}
	if !l.got.IsZero() && (len(l.uses) == 0 || l.late > 0 && c.src.Now().Sub(l.got) < stragglers) {
		// The refused request carried the token before: this one was not sent
		// yet, or a request with the old one was still on its way.
		l.late = 0
		c.mu.Unlock()
		return nil
	}
	if n := len(l.uses); n > 0 {
		l.uses = l.uses[:n-1]
	}
	if l.recovered {
		defer c.mu.Unlock()
		return &Error{
			Class:   ClassTokenRefused,
			Message: fmt.Sprintf("the model service refused the access token of %s (401), and the renewed one as well", c.store.path),
			hint:    "the account may have lost its access, or the service does not know this kind of login; check the account, then " + reseedHint,
		}
	}
	refused := l.bundle.access
	c.mu.Unlock()
	return c.renew(ctx, renewal{reason: reasonRefused, refused: refused})
}

// keyRefused is a 401 to something that cannot be renewed.
func (c *Credential) keyRefused() error {
	e := &Error{
		Class:   ClassKeyRefused,
		Message: fmt.Sprintf("the model service refused %s (401 Unauthorized)", c.choice.name),
		hint:    c.choice.hint,
	}
	if c.choice.mode == modeNone {
		e.Message = fmt.Sprintf("the model service wants a credential (401 Unauthorized), and the provider %s names none", c.src.Provider.Name)
		e.hint = "set env_key, or requires_openai_auth = true, in [model_providers." + c.src.Provider.Name + "]"
	}
	return e
}

// Refresh renews the login now, due or not: the maintenance job. It ignores
// what earlier failures advise. It is an error for a credential that cannot be
// refreshed.
func (c *Credential) Refresh(ctx context.Context) error {
	if c.choice.mode != modeChatGPT {
		return &Error{
			Class:   ClassUnsupported,
			Message: c.choice.name + " cannot be refreshed: only a ChatGPT login in auth.json can",
			hint:    "nothing needs to be done for an API key",
		}
	}
	return c.renew(ctx, renewal{reason: reasonScheduled, forced: true})
}

// Due tells whether a run that starts now would refresh, and for which reason.
func (c *Credential) Due() (reason string, due bool) {
	if c.choice.mode != modeChatGPT {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason, due = c.login.due(c.src.Now()); !due {
		reason = ""
	}
	return reason, due
}
