package auth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Status is what `auth status` says: which credential a run would use now and
// what would come of it. It holds no secret.
type Status struct {
	OK       bool           `json:"ok"` // a run would have a credential
	Would    string         `json:"would"`
	Source   string         `json:"source,omitempty"`
	Mode     string         `json:"mode,omitempty"`
	Account  string         `json:"account,omitempty"` // its last characters
	Plan     string         `json:"plan,omitempty"`
	Ignored  []string       `json:"ignored,omitempty"`
	File     *FileStatus    `json:"file,omitempty"` // auth.json, if it is there
	Login    *LoginStatus   `json:"login,omitempty"`
	Notices  []event.Notice `json:"notices,omitempty"`
	Problem  *ProblemStatus `json:"problem,omitempty"` // why OK is false
	BaseURL  string         `json:"base_url,omitempty"`
	Provider string         `json:"provider"`
}

// FileStatus is auth.json as a file.
type FileStatus struct {
	Path   string `json:"path"`
	Target string `json:"target,omitempty"` // behind symbolic links, if another
	Mode   string `json:"mode"`             // "0600"
	UID    int    `json:"uid"`
	// Storing is how a refreshed login would be stored: rename, in_place, or
	// none.
	Storing string `json:"storing,omitempty"`
}

// LoginStatus is a ChatGPT login.
type LoginStatus struct {
	Expires     *time.Time `json:"expires,omitempty"` // of the access token; absent: opaque
	LastRefresh *time.Time `json:"last_refresh,omitempty"`
	Refreshable bool       `json:"refreshable"`
	Due         bool       `json:"refresh_due"`
	Reason      string     `json:"refresh_reason,omitempty"`
}

// ProblemStatus is an [Error].
type ProblemStatus struct {
	Class     string `json:"class"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
}

// Inspect looks at the credential without using it. It makes no request; like
// [Load] it finishes an interrupted write of auth.json, and it tries whether a
// new login could be stored.
func Inspect(ctx context.Context, s Sources) Status {
	s.fill()
	out := Status{Provider: s.Provider.Name}
	st := &store{path: s.path(), disk: s.disk, bounds: s.bounds}
	out.File = st.fileStatus()
	c, err := Load(ctx, s)
	if err != nil {
		out.fail(err)
		return out
	}
	sum := c.Summary()
	out.Source, out.Mode, out.Account, out.Ignored = sum.Source, sum.Mode, sum.Account, sum.Ignored
	out.Notices, out.BaseURL = c.Notices(), c.BaseURL()
	out.OK, out.Would = true, "use "+c.choice.name
	if c.store != nil {
		out.inspectLogin(ctx, c)
	} else if sum.Mode == modeNone {
		out.Would = "send no credential: the provider " + s.Provider.Name + " names none"
	}
	return out
}

// inspectLogin tells what a run would do with a ChatGPT login.
func (out *Status) inspectLogin(ctx context.Context, c *Credential) {
	l := c.login
	if jwt, ok := readJWT(l.bundle.idToken); ok {
		out.Plan = jwt.plan
	}
	reason, due := c.Due()
	out.Login = &LoginStatus{
		Refreshable: l.renewable(),
		Due:         due, Reason: reason,
	}
	if !l.expires.IsZero() {
		out.Login.Expires = &l.expires
	}
	if !l.bundle.lastRefresh.IsZero() {
		out.Login.LastRefresh = &l.bundle.lastRefresh
	}
	how, e := c.tryStoring(ctx)
	if out.File != nil {
		out.File.Storing = how
	}
	switch {
	case !due && e != nil:
		out.Notices = append(out.Notices, event.Notice{Class: "auth_" + e.Class, Message: "not needed now, but: " + e.Message, Hint: e.hint})
	case !due:
	case e != nil && c.mayGoOn(e):
		out.Would = "use the access token it has, since a refresh failed a moment ago"
	case e != nil && !(c.src.ReadOnlyOK && isStoring(e)):
		out.fail(e)
	default:
		out.Would = fmt.Sprintf("refresh %s first (%s), store it (%s), then use it", c.choice.name, reason, how)
	}
}

func isStoring(e *Error) bool { return e.Class == ClassNotWritable || e.Class == ClassWrongOwner }

// tryStoring does what a refresh does before it spends anything, and undoes it.
func (c *Credential) tryStoring(ctx context.Context) (how string, e *Error) {
	l, e := c.store.lock(ctx)
	if e != nil {
		return nowhere, e
	}
	defer l.release()
	snap, err := c.store.read()
	if err != nil {
		return nowhere, c.store.unreadable(err)
	}
	if snap.bundle == nil {
		return nowhere, c.store.corrupt(snap.bad)
	}
	if e := c.mayRefresh(l, snap.bundle, renewal{}); e != nil {
		return nowhere, e
	}
	slot, e := c.store.prepare(snap)
	if e != nil {
		return nowhere, e
	}
	defer slot.abort()
	if slot.main != nil {
		return inPlace, nil
	}
	return byRename, nil
}

// fileStatus is nil if there is no auth.json.
func (s *store) fileStatus() *FileStatus {
	target, err := s.disk.Resolve(s.path)
	if err != nil {
		return nil
	}
	t, err := s.disk.Traits(target)
	if err != nil {
		return nil
	}
	f := &FileStatus{Path: s.path, Mode: fmt.Sprintf("%04o", t.mode), UID: t.uid}
	if target != s.path {
		f.Target = target
	}
	return f
}

func (out *Status) fail(err error) {
	out.OK, out.Would = false, "end with exit code 5 before its first request"
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Class: ClassUnreadable, Message: err.Error()}
	}
	out.Problem = &ProblemStatus{Class: e.Class, Message: e.Message, Hint: e.hint, Retryable: e.Retryable}
}

// Tighten sets the mode of auth.json in home to 0600. changed is false if it
// was not wider, or if there is no auth.json.
func Tighten(home string) (changed bool, err error) {
	st := &store{path: (&Sources{Home: home}).path(), disk: osDisk{}}
	target, err := st.disk.Resolve(st.path)
	if err != nil {
		return false, st.unreadable(err)
	}
	t, err := st.disk.Traits(target)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, st.unreadable(err)
	}
	if t.mode&0o077 == 0 {
		return false, nil
	}
	if err := os.Chmod(target, 0o600); err != nil {
		return false, &Error{
			Class:   ClassNotWritable,
			Message: fmt.Sprintf("the mode of %s cannot be changed: %v", target, reason(err)),
			hint:    fmt.Sprintf("only its owner (uid %d) can do that", t.uid),
			cause:   err,
		}
	}
	return true, nil
}
