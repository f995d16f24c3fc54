//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Sandbox is one confinement in which any number of commands is started, one
// after the other or at once. They share /tmp and, on localhost, their servers.
//
// Its methods may be called concurrently.
type Sandbox struct {
	spec     Spec
	res      *resolved
	plan     confine.Plan
	report   Report
	tmp      tmpFolder
	holds    placeholders
	group    *group // nil where none can be made: groupErr says why
	groupErr error
	noGroup  bool // do without, as where none is writable

	mu      sync.Mutex
	init    *initConn // confined commands, or all of them under danger-full-access
	proxy   *proxyListener
	outside *initConn // Command.Unsandboxed; made when first needed
	settled bool
	closed  bool
}

// Open checks the Spec, prepares the confinement and reports what it holds. The
// error is a [*SpecError] (or several, joined) for a Spec that cannot be, and an
// [*UnsupportedError] when a required guarantee cannot be had; in both cases
// nothing was left behind.
//
// Open takes some milliseconds, most of them waiting: it is meant to run beside
// other start-up work. ctx only bounds Open itself.
func Open(ctx context.Context, s Spec) (*Sandbox, error) { return openFrom(ctx, nil, s) }

// openFrom is Open with an init that may have been started already.
func openFrom(ctx context.Context, first *ascent, s Spec) (*Sandbox, error) {
	b := &Sandbox{spec: s}
	if err := b.open(ctx, first); err != nil {
		return nil, errors.Join(setupError(ctx, err), b.Close())
	}
	return b, nil
}

// setupError marks what is neither the Spec's fault nor a known lack of this
// machine, nor the end of ctx.
func setupError(ctx context.Context, err error) error {
	var (
		spec  *SpecError
		lack  *UnsupportedError
		setup *SetupError
	)
	if errors.As(err, &spec) || errors.As(err, &lack) || errors.As(err, &setup) || ctx.Err() != nil {
		return err
	}
	return &SetupError{err}
}

func (b *Sandbox) open(ctx context.Context, first *ascent) error {
	if first == nil {
		first = b.launch() // it starts while the paths are looked at
	}
	b.spec.Limits.Processes = withinRoom(b.spec.Limits.Processes)
	first.spec = &b.spec
	err := b.prepare(first)
	if err != nil {
		return errors.Join(err, first.discard())
	}
	tried := first.climb(ctx, &b.plan, b.group)
	b.init = tried.conn
	b.report = b.makeReport(tried)
	if err := first.group.remove(); err != nil { // one that could not hold the limits
		return err
	}
	if missing := missingOf(b.report, b.spec.Require); len(missing) > 0 {
		return &UnsupportedError{Missing: missing}
	}
	if b.init == nil {
		return tried.err
	}
	if b.init.proxy != nil {
		b.proxy = newProxyListener(b.init.proxy)
	}
	return nil
}

// launch starts the init of the first way, with its group if limits want one.
func (b *Sandbox) launch() *ascent {
	if b.noGroup || !wantsGroup(b.spec.Limits) {
		return launchFirst(&b.spec, nil)
	}
	return launchInGroup(&b.spec)
}

// prepare resolves the Spec and makes what must be there before the init works.
func (b *Sandbox) prepare(first *ascent) error {
	b.makeGroup(first)
	r, err := resolve(&b.spec)
	if err != nil {
		return err
	}
	b.res = r
	if err := b.tmp.make(&b.spec); err != nil {
		return err
	}
	held, found, err := b.holds.hold(r.hold)
	if err != nil {
		return err
	}
	b.plan = confine.Plan{
		Confined: b.spec.Mode != FullAccess, UID: os.Geteuid(), GID: os.Getegid(), Workspace: r.workspace,
		Roots: r.write, Show: r.show, Tmp: b.tmp.path, TmpWrite: b.spec.Mode == WorkspaceWrite && !b.spec.TmpReadOnly,
		Protect: append(r.protect, found...), Hold: held, Deny: slices.Concat(r.deny, r.alias), Late: r.missing, Reveal: r.reveal, Mask: r.mask, Sockets: r.sockets,
		Side: r.side, Net: confine.Net(b.spec.Net.Mode), Limits: confine.Limits(b.spec.Limits), Accept: b.spec.Degrade,
	}
	for _, o := range r.overlays {
		b.plan.Overlays = append(b.plan.Overlays, confine.Overlay(o))
	}
	if b.spec.HostTmp {
		b.plan.Tmp = ""
	}
	if b.group == nil {
		b.plan.Watch = true
	}
	return nil
}

// makeGroup takes the control group that was made with the init, or makes one
// and begins to move the init into it.
func (b *Sandbox) makeGroup(first *ascent) {
	l := b.spec.Limits
	if b.group = first.takeGroup(l); b.group != nil || b.noGroup || !wantsGroup(l) {
		return
	}
	if first.group == nil && first.groupErr != nil {
		b.groupErr = first.groupErr
		return
	}
	if b.group, b.groupErr = limitedGroup(l); b.group != nil && first.err == nil {
		first.launched.join(b.group)
	}
}

// Report says what is enforced, guarantee by guarantee.
func (b *Sandbox) Report() Report { return b.report }

// TmpDir is the host folder that commands see as /tmp.
func (b *Sandbox) TmpDir() string {
	if b.spec.HostTmp || b.spec.Mode == FullAccess {
		return "/tmp"
	}
	return b.tmp.path
}

// ProxyListener accepts the connections that commands make to the proxy; nil
// without NetProxy. Close closes it.
func (b *Sandbox) ProxyListener() net.Listener {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proxy == nil {
		return nil
	}
	return b.proxy
}

// ProxyAddr is the proxy's address as commands see it; "" without NetProxy.
func (b *Sandbox) ProxyAddr() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.init == nil {
		return ""
	}
	return b.init.addr
}

// errClosed is returned after Close.
var errClosed = errors.New("sandbox: closed")

// conn gives the init that a command belongs to.
func (b *Sandbox) conn(ctx context.Context, c *Command) (*initConn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.settled && !c.Side {
		return nil, errClosed
	}
	if c.Unsandboxed && b.spec.Mode != FullAccess {
		if b.outside == nil || b.outside.isLost() != nil {
			l, err := launch(0, nil)
			if err != nil {
				return nil, fmt.Errorf("sandbox: starting an init: %w", err)
			}
			if err := l.configure(ctx, &confine.Plan{Workspace: b.plan.Workspace}); err != nil {
				return nil, errors.Join(err, l.c.stop())
			}
			b.outside = l.c
		}
		return b.outside, nil
	}
	if b.init.isLost() != nil {
		if err := b.reopen(ctx); err != nil {
			return nil, err
		}
	}
	return b.init, nil
}

// reopen replaces an init that was killed, for example when the machine ran out
// of memory. The new one must hold what the old one held.
func (b *Sandbox) reopen(ctx context.Context) error {
	old := b.init
	if err := old.stop(); err != nil {
		return err
	}
	p := b.plan
	if _, port, err := net.SplitHostPort(old.addr); err == nil {
		p.ProxyPort = port // commands may have it in their environment
	}
	tried := launchFirst(&b.spec, b.group).climb(ctx, &p, b.group)
	if tried.conn == nil {
		return tried.err
	}
	r := b.makeReport(tried)
	for i, s := range r.Guarantees {
		if b.report.Guarantees[i].Held && !s.Held {
			return errors.Join(&UnsupportedError{Missing: []Support{s}}, tried.conn.stop())
		}
	}
	b.init = tried.conn
	if b.proxy != nil {
		b.proxy.replace(b.init.proxy)
	}
	return nil
}

func (c *initConn) isLost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// HasSide tells whether commands with Command.Side can be started: Spec.Side was
// given, this machine can narrow a confinement, and there is no network.
func (b *Sandbox) HasSide() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed && b.init != nil && b.init.facts.Side && b.spec.Net.Mode == NetOff
}

// Shows tells whether commands see at a path what the host has there, as far as it
// is not denied: that it is in no folder that is replaced.
func (b *Sandbox) Shows(name string) bool {
	real, _, err := realPath(name)
	if err != nil || b.res == nil {
		return false
	}
	shown := func(dir string) bool { return confine.Below(real, dir) }
	return !slices.ContainsFunc(replacedFolders(&b.spec), shown) ||
		slices.ContainsFunc(slices.Concat(b.res.write, b.res.show), shown)
}

// Rest gives back memory that is not needed while the run waits for the model:
// the pages of the program's file that this process and the sandbox's own have
// mapped. It costs less than a millisecond and may be called at any time.
func (b *Sandbox) Rest() {
	b.mu.Lock()
	conn := b.init
	b.mu.Unlock()
	if conn != nil {
		// An init that is gone has nothing to give back.
		_ = conn.wire.SendRequest(confine.Request{Op: "rest"})
	}
	confine.ReleaseImage()
}

// Settle kills every command that is left and waits until it is gone. After it
// only commands with Command.Side are started. It may be called again, and Close
// must follow.
func (b *Sandbox) Settle() error {
	b.mu.Lock()
	if b.closed || b.settled {
		b.mu.Unlock()
		return nil
	}
	b.settled = true
	inside, outside := b.init, b.outside
	b.mu.Unlock()
	var err error
	if b.proxy != nil {
		err = b.proxy.Close()
	}
	if outside != nil {
		err = errors.Join(err, outside.stop())
	}
	if inside != nil {
		inside.settle()
	}
	return err
}

// Close kills everything that is left, waits until it is gone, and removes the
// placeholders and the private /tmp. It may be called again.
func (b *Sandbox) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	conns := []*initConn{b.init, b.outside}
	b.mu.Unlock()
	var errs []error
	if b.spec.Mode == FullAccess {
		b.group.kill()
	}
	if b.proxy != nil {
		errs = append(errs, b.proxy.Close())
	}
	for _, c := range conns {
		if c != nil {
			errs = append(errs, c.stop())
		}
	}
	errs = append(errs, b.group.remove(), b.holds.release(), b.tmp.remove())
	return errors.Join(errs...)
}

// tmpFolder is the private /tmp.
type tmpFolder struct {
	path string // what commands see
	made string // what to remove: a private folder around it
}

// make uses Spec.TmpDir or makes a folder.
func (t *tmpFolder) make(s *Spec) error {
	if s.Mode == FullAccess || s.HostTmp {
		return nil
	}
	if s.TmpDir != "" {
		dir, err := realFolder("tmp folder", s.TmpDir)
		t.path = dir
		return err
	}
	var inner string
	var err error
	if s.Private != "" { // which keeps others out already
		inner, err = os.MkdirTemp(s.Private, "tmp-")
		t.made = inner
	} else if t.made, err = os.MkdirTemp("/tmp", "nightshift-"); err == nil {
		inner = filepath.Join(t.made, "tmp")
		err = os.Mkdir(inner, 0o700)
	}
	if err != nil {
		return fmt.Errorf("sandbox: a private /tmp: %w", err)
	}
	// As /tmp is everywhere; the folder around it keeps others out.
	if err := os.Chmod(inner, 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("sandbox: a private /tmp: %w", err)
	}
	t.path, err = filepath.EvalSymlinks(inner)
	return err
}

// remove deletes the folder, also what a command made unreadable.
func (t *tmpFolder) remove() error {
	if t.made == "" {
		return nil
	}
	dir := t.made
	t.made = ""
	return RemoveTree(dir)
}
