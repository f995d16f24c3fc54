package auth

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// renewal is why the login is to be renewed.
type renewal struct {
	reason  string
	refused Secret // the token that got 401
	forced  bool   // refresh even if the token in auth.json is good
}

// flight is one renewal under way. Callers share it.
type flight struct {
	done    chan struct{}
	err     *Error // set before done is closed
	waiting int    // callers; guarded by Credential.mu
	// ctx ends when nobody waits any more. It ends the wait for the lock and
	// further attempts, never a request that is out.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// renew joins the renewal under way or starts one.
func (c *Credential) renew(ctx context.Context, r renewal) error {
	c.mu.Lock()
	f := c.flight
	if f == nil {
		if c.closed {
			c.mu.Unlock()
			return &Error{Class: ClassLockTimeout, Message: "the login was not refreshed: the run is ending", Retryable: true}
		}
		f = &flight{done: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		c.flight = f
		go c.fly(f, r)
	}
	f.waiting++
	c.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		c.mu.Lock()
		if f.waiting--; f.waiting == 0 {
			f.cancel(context.Cause(ctx))
		}
		c.mu.Unlock()
		select {
		case <-f.done: // both at once: the result counts
		default:
			return context.Cause(ctx)
		}
	}
	if f.err != nil {
		return f.err
	}
	return nil
}

// fly makes the renewal and hands the result to the write-back.
func (c *Credential) fly(f *flight, r renewal) {
	start := time.Now()
	said := event.AuthRefreshed{Reason: r.reason, Path: c.store.path}
	fresh, e := c.renewStored(f, r, &said)
	if fresh != nil {
		e = c.handOver(fresh, e, &said)
	}
	said.DurationMS = time.Since(start).Milliseconds()
	if e != nil {
		said.Outcome, said.Class, said.Message = "failed", e.Class, e.Message
	}
	c.src.Emit(said)
	c.mu.Lock()
	f.err = e
	c.flight = nil
	c.mu.Unlock()
	f.cancel(nil)
	close(f.done)
}

// renewStored takes the lock, reads auth.json again and refreshes if the token
// in it is no better. It returns the new bundle if there is one, stored or not.
func (c *Credential) renewStored(f *flight, r renewal, said *event.AuthRefreshed) ([]byte, *Error) {
	l, e := c.store.lock(f.ctx)
	if e != nil {
		return nil, e
	}
	fresh, e := c.renewLocked(f, l, r, said)
	l.release()
	if e != nil && e.Class == ClassRefreshReused && c.othersWon(f.ctx) {
		said.Outcome = "reloaded"
		return nil, nil
	}
	return fresh, e
}

func (c *Credential) renewLocked(f *flight, l *lock, r renewal, said *event.AuthRefreshed) ([]byte, *Error) {
	snap, notices, e := c.store.settleLocked()
	for _, n := range notices {
		c.src.Emit(n)
	}
	if e != nil {
		return nil, e
	}
	if done, e := c.reload(snap.bundle, r); done || e != nil {
		said.Outcome = "reloaded"
		return nil, e
	}
	refresh := snap.bundle.refresh
	if e := c.mayRefresh(l, snap.bundle, r); e != nil {
		return nil, e
	}
	// From here on the refresh token is spent, so everything that can go wrong
	// on our side goes wrong before.
	slot, e := c.store.prepare(snap)
	if e != nil {
		if !c.src.ReadOnlyOK {
			return nil, e
		}
		c.src.Emit(c.unstored(e))
	}
	if f.ctx.Err() != nil {
		if slot != nil {
			slot.abort()
		}
		return nil, &Error{Class: ClassLockTimeout, Message: "the login was not refreshed: the run was ended first", Retryable: true, cause: context.Cause(f.ctx)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), c.src.bounds.spend)
	defer cancel()
	n, fail := c.endpoint.exchange(ctx, refresh, r.reason, f.ctx.Done())
	c.learn(n.access, n.refresh, n.idToken)
	if fail == nil {
		fail = c.examine(snap.bundle, &n)
	}
	if fail != nil {
		// The failure is held against the token that is there from now on.
		token := refresh
		if !n.refresh.Empty() {
			token = n.refresh
		}
		c.remember(l, token, fail)
	}
	if fail != nil && (n.refresh.Empty() || n.refresh.Equal(refresh)) {
		if slot != nil {
			slot.abort()
		}
		return nil, fail
	}
	if fail != nil {
		// The answer is not a login, but it replaced the refresh token: that much
		// is kept, or the next run has nothing.
		n = renewed{refresh: n.refresh}
	}
	return c.keep(l, snap, slot, n, r, said, fail)
}

// reload takes the login that auth.json holds now. done means that it is
// another one than before and good enough for the renewal.
func (c *Credential) reload(b *bundle, r renewal) (done bool, e *Error) {
	c.mu.Lock()
	was, is := c.login.bundle.user(), b.user()
	c.mu.Unlock()
	if b.mode != fileChatGPT && b.mode != fileExternal || b.account != c.account || was != "" && is != "" && was != is {
		return false, &Error{
			Class:   ClassAccountChanged,
			Message: fmt.Sprintf("%s no longer holds the login that the run began with: somebody logged out or signed in to another account", c.store.path),
			hint:    "start the run again",
		}
	}
	if e := c.src.allow("the login in "+c.store.path, methodChatGPT, b.accounts()); e != nil {
		return false, e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := !b.access.Equal(c.login.bundle.access)
	if changed {
		c.adopt(b, c.src.Now())
	}
	good := changed && !b.access.Equal(r.refused) && !c.login.expired(c.src.Now())
	if _, due := c.login.due(c.src.Now()); due && c.login.expires.IsZero() {
		good = false
	}
	return good && !r.forced, nil
}

// mayRefresh tells why the refresh token of b must not be spent.
func (c *Credential) mayRefresh(l *lock, b *bundle, r renewal) *Error {
	switch {
	case b.mode == fileExternal:
		return &Error{
			Class:   ClassTokenExpired,
			Message: fmt.Sprintf("the access token in %s has to be renewed by the program that put it there", c.store.path),
			hint:    "have that program write a new auth.json before the run",
		}
	case b.refresh.Empty():
		return &Error{
			Class:   ClassNoRefreshToken,
			Message: fmt.Sprintf("the login in %s has to be refreshed and has no refresh token", c.store.path),
			hint:    reseedHint,
		}
	case !headerSafe(b.refresh):
		return c.store.corrupt(errors.New("has a tokens.refresh_token with characters that a token cannot have"))
	case r.forced:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.setBackNow(b.refresh); e != nil {
		return e
	}
	return l.readNote().failure(b.refresh, c.src.Now())
}

// remember keeps a failure for this process and for the others.
func (c *Credential) remember(l *lock, token Secret, e *Error) {
	c.mu.Lock()
	s := c.setBack(token, e)
	c.mu.Unlock()
	n := l.readNote()
	n.Token, n.Class, n.Message, n.Retryable, n.Until = tokenDigest(token), e.Class, e.Message, e.Retryable, s.until
	if s.until.IsZero() {
		n.Until = c.src.Now().Add(maxCooling)
	}
	l.writeNote(n)
}

// examine looks at an answer as a login. What is merely odd is repaired in n.
func (c *Credential) examine(old *bundle, n *renewed) *Error {
	is, jwt := readJWT(n.access)
	bad := func(what, hint string) *Error {
		return &Error{Class: ClassRefreshBadAnswer, Message: "the login could not be refreshed: the token endpoint answered HTTP 200 with " + what, Retryable: true, hint: hint}
	}
	switch {
	case n.access.Equal(old.access):
		return bad("the access token that was to be replaced", "run again later")
	case jwt && !is.expires.IsZero() && !c.src.Now().Before(is.expires):
		return bad("an access token that had already run out", "check the clock of this machine")
	}
	if e := c.sameLogin(old, is, old.access, old.idToken); e != nil {
		return e
	}
	if n.idToken.Empty() {
		return nil
	}
	newID, ok := readJWT(n.idToken)
	if !ok {
		n.idToken = Secret{}
		c.src.Emit(event.Notice{Class: "auth_id_token", Message: "the token endpoint sent an id token that is not a JSON web token; the old one was kept"})
		return nil
	}
	return c.sameLogin(old, newID, old.idToken, old.access)
}

// sameLogin tells whether a new token names another account or user than the
// login before. The first of the old tokens that names one counts, and for the
// account then auth.json; what is named nowhere is not compared.
func (c *Credential) sameLogin(old *bundle, is claims, tokens ...Secret) *Error {
	var account, user string
	for _, t := range tokens {
		was, _ := readJWT(t)
		account, user = cmp.Or(account, was.account), cmp.Or(user, was.user)
	}
	if is.account != "" && is.account != cmp.Or(account, old.account) {
		return c.otherAccount(is.account)
	}
	if is.user != "" && user != "" && is.user != user {
		return &Error{
			Class:   ClassAccountChanged,
			Message: fmt.Sprintf("the token endpoint answered with a login of the user %s, and the run began with %s", suffix(is.user), suffix(user)),
			hint:    reseedHint,
		}
	}
	return nil
}

func (c *Credential) otherAccount(id string) *Error {
	return &Error{
		Class:   ClassAccountChanged,
		Message: fmt.Sprintf("the token endpoint answered with a login of the account %s, and the run began with %s", suffix(id), suffix(c.account)),
		hint:    reseedHint,
	}
}

// keep stores the answer and takes it into use. before is the failure that the
// answer meant, if only a part of it is kept.
func (c *Credential) keep(l *lock, snap *snapshot, slot *slot, n renewed, r renewal, said *event.AuthRefreshed, before *Error) ([]byte, *Error) {
	text, err := snap.bundle.with(n, c.src.Now())
	var b *bundle
	if err == nil {
		b, err = parseBundle(text)
	}
	if err != nil {
		if slot != nil {
			slot.abort()
		}
		return nil, &Error{Class: ClassNotStored, Message: fmt.Sprintf("internal error: the refreshed login does not fit into auth.json: it %v", err), hint: "please report this; " + reseedHint, cause: err}
	}
	noted := l.readNote()
	if c.src.Writeback != nil {
		// Before the bundle is in auth.json: a debt that is noted too early is not
		// one, since the digest does not fit.
		n := note{}
		if before != nil {
			n = noted
		}
		n.Unsent = digest(text)
		l.writeNote(n)
	}
	at := stored{how: nowhere}
	if slot != nil {
		at = slot.commit(text)
	}
	if c.src.Writeback == nil && before == nil && noted != (note{}) {
		l.writeNote(note{})
	}
	said.Persisted, said.Outcome = at.how, "refreshed"
	if at.path != "" {
		said.Path = at.path
	}
	var e *Error
	if slot != nil && at.how != byRename && at.how != inPlace {
		e = c.rescue(text, at, said)
	} else if at.err != nil {
		c.src.Emit(event.Notice{Class: "auth_sync", Message: fmt.Sprintf("the refreshed login is in %s, but a step after it failed: %v; it may not outlive a power cut", at.path, reason(at.err))})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fatal = e
	if before == nil {
		c.adopt(b, c.src.Now())
		c.login.recovered = r.reason == reasonRefused
	} else {
		c.login.bundle = b
		c.learnLocked(b.refresh)
	}
	if e == nil {
		e = before
	}
	return text, e
}

// rescue tells where a bundle is that did not get into auth.json, and puts it
// into the rescue folder if it is nowhere.
func (c *Credential) rescue(text []byte, at stored, said *event.AuthRefreshed) *Error {
	where := at.path
	if at.how == nowhere {
		if path, err := c.rescueFile(text); err == nil {
			where, said.Persisted, said.Path = path, byRecovery, path
		}
	}
	e := &Error{Class: ClassNotStored, cause: at.err}
	if where == "" {
		e.Message = fmt.Sprintf("the login was refreshed, but could not be stored in %s: %v; the new login is lost", c.store.path, reason(at.err))
		e.hint = reseedHint
		return e
	}
	e.Message = fmt.Sprintf("the login was refreshed, but could not be stored in %s: %v; it is in %s", c.store.path, reason(at.err), where)
	e.hint = fmt.Sprintf("when the disk is well again: `nightshift auth import --force < %s`, then remove that file", where)
	return e
}

// rescueFile puts text into a new private folder under the rescue folder, and
// remembers it for the write-back. The bundle of an earlier call is kept.
func (c *Credential) rescueFile(text []byte) (string, error) {
	if c.src.RescueDir == "" {
		return "", errors.New("no rescue folder")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, err := c.store.readFile(c.rescued); err == nil && bytes.Equal(have, text) {
		return c.rescued, nil
	}
	dir, err := os.MkdirTemp(c.src.RescueDir, "nightshift-login-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rescued-"+fileName)
	f, err := c.src.disk.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(overwrite(f, text), f.Close())
	}
	if err != nil {
		return "", err
	}
	c.rescued = path
	return path, nil
}

// dropRescued removes a rescued bundle that has reached its place; one login in
// one place.
func (c *Credential) dropRescued(path string) {
	err := errors.Join(c.src.disk.Remove(path), os.Remove(filepath.Dir(path)))
	if err != nil {
		c.src.Emit(event.Notice{Class: "auth_rescue", Message: fmt.Sprintf("%s holds a login and is not needed any more, but cannot be removed: %v", path, reason(err))})
	}
}

// unstored is the loud notice of a refresh whose result auth.json cannot take.
func (c *Credential) unstored(e *Error) event.Notice {
	where := "the new login is lost when this run ends"
	if c.src.Writeback != nil {
		where = "the new login exists only where the write-back puts it"
	}
	return event.Notice{
		Class: "auth_not_stored", Origin: c.store.path,
		Message: fmt.Sprintf("%s cannot be written (%v) and this was allowed: its refresh token is spent now, and %s", c.store.path, reason(e.cause), where),
		Hint:    "a second run with the same auth.json will fail",
	}
}

// othersWon waits a moment for another program, which does not hold the lock
// while it refreshes, to store what it got for the same refresh token.
func (c *Credential) othersWon(ctx context.Context) bool {
	for range 8 {
		snap, err := c.store.read()
		if err == nil && snap.bundle != nil {
			if done, e := c.reload(snap.bundle, renewal{}); done && e == nil {
				return true
			}
		}
		timer := time.NewTimer(c.src.bounds.pause / 2)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
	return false
}
