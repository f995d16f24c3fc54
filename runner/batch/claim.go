package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// errLost is the cause that ends the work on a task whose claim was taken over.
var errLost = errors.New("the claim on the task was lost: it was not renewed in time, and another process took it over")

// holder is what a claim file says of the process that made it. Token is
// unique; the rest lets a process on the same machine see at once that the
// holder has died, instead of waiting for its lease to end.
type holder struct {
	Token string `json:"token"`
	Host  string `json:"host,omitempty"`
	Boot  string `json:"boot,omitempty"`
	PIDNS string `json:"pidns,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Start string `json:"start,omitempty"`
}

// thisProcess describes the caller. What cannot be read stays empty; then only
// the lease counts.
func thisProcess(token string) holder {
	h := holder{Token: token, PID: os.Getpid()}
	if name, err := os.Hostname(); err == nil {
		h.Host = name
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		h.Boot = strings.TrimSpace(string(b))
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		h.PIDNS = ns
	}
	h.Start = startTime(h.PID)
	return h
}

// startTime is when a process began, in ticks since boot: with it a process
// number names one process only. "" when there is no such process.
func startTime(pid int) string {
	_, fields, err := sandbox.ProcStat(pid)
	const state, start = 0, 22 - 3 // fields begins with the third, the state
	if err != nil || len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return ""
	}
	return fields[start]
}

// dead tells whether h is a process of the same pid namespace as me that is
// gone. False also means "cannot tell".
func (h holder) dead(me holder) bool {
	same := h.Host != "" && h.Host == me.Host && h.Boot != "" && h.Boot == me.Boot && h.PIDNS != "" && h.PIDNS == me.PIDNS
	return same && h.Start != "" && startTime(h.PID) != h.Start
}

// claims are the rights to work on tasks, one file each. Its methods are safe
// for concurrent use, and several processes may share the folder.
type claims struct {
	dir   string
	me    holder
	lease time.Duration

	mu   sync.Mutex
	seen map[string]sighting
}

// sighting is when a claim of somebody else was first seen in its present
// state. Leases are measured from it with our own clock, so clocks of machines
// that share the folder need not agree.
type sighting struct {
	mod   time.Time
	since time.Time
}

// claim is the right to work on a task for a while. It is a file that exactly
// one process can create; its holder renews it by touching it. A claim whose
// holder is dead, or that was not renewed for a whole lease, is taken over by
// renaming it away, which again exactly one process can do.
type claim struct {
	path string
	all  *claims
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// take claims t, or returns nil when somebody else has it. lost is called when
// the claim is taken away from us.
func (c *claims) take(t Task, lost context.CancelCauseFunc) (*claim, error) {
	path := filepath.Join(c.dir, t.Dir())
	for range 2 {
		got, err := c.create(path)
		if err != nil {
			return nil, err
		}
		if got {
			cl := &claim{path: path, all: c, stop: make(chan struct{}), done: make(chan struct{})}
			go cl.renew(lost)
			return cl, nil
		}
		switch _, v := c.look(path); v {
		case kept:
			return nil, nil
		case abandoned:
			if err := c.evict(path); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (c *claims) create(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = json.NewEncoder(f).Encode(c.me)
	if err = errors.Join(err, f.Close()); err != nil {
		return false, errors.Join(err, os.Remove(path))
	}
	return true, nil
}

// read returns who holds the claim; an unreadable one has no token.
func (c *claims) read(path string) holder {
	var h holder
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &h) != nil {
		return holder{} // being written at this moment, or by something else
	}
	return h
}

// verdict is what a look at a claim tells.
type verdict int

const (
	kept      verdict = iota // somebody works under it
	abandoned                // nobody does any more
	gone                     // it was given back
)

// look tells whether anybody works under a claim, and who made it.
func (c *claims) look(path string) (holder, verdict) {
	fi, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return holder{}, gone
		}
		return holder{}, kept
	}
	h := c.read(path)
	if h.dead(c.me) {
		return h, abandoned
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.seen[path]
	if !ok || !s.mod.Equal(fi.ModTime()) {
		c.seen[path] = sighting{fi.ModTime(), time.Now()}
		return h, kept
	}
	if time.Since(s.since) >= c.lease {
		return h, abandoned
	}
	return h, kept
}

// lockFile is held by whoever removes abandoned claims.
const lockFile = ".lock"

// staleMark ends the name of an abandoned claim that was moved away. No name of
// a task's folder holds it.
const staleMark = "~"

// sweepWait bounds how long a sweep waits for another process that removes
// claims; each takes microseconds.
const sweepWait = time.Second

// lock lets one process at a time remove abandoned claims. Busy means that
// another one is still at it after wait. Where files cannot be locked nobody is
// kept out; safe tells whether somebody is.
func (c *claims) lock(wait time.Duration) (unlock func(), safe, busy bool) {
	l := flock.New(filepath.Join(c.dir, lockFile))
	unlock = func() { _ = l.Close() } // the lock ends with its descriptor
	for until := time.Now().Add(wait); ; time.Sleep(10 * time.Millisecond) {
		switch ok, err := l.TryLock(); {
		case err != nil:
			return unlock, false, false
		case ok:
			return unlock, true, false
		case !time.Now().Before(until):
			unlock()
			return nil, false, true
		}
	}
}

// evict removes an abandoned claim, unless somebody else is doing it.
func (c *claims) evict(path string) error {
	unlock, _, busy := c.lock(0)
	if busy {
		return nil
	}
	defer unlock()
	return c.remove(path)
}

// remove removes an abandoned claim; the lock is held. If the file that was
// moved away is no longer the abandoned one (a third process was faster) it is
// put back. Should that go wrong all the same, two processes work on one task
// for a moment: the one whose token is not in the file notices when it renews,
// and has no result.
func (c *claims) remove(path string) error {
	before, v := c.look(path)
	if v != abandoned {
		return nil
	}
	stale := path + "." + unsafeName().ReplaceAllString(c.me.Token, "_") + staleMark
	if err := os.Rename(path, stale); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if moved := c.read(stale); moved != before {
		if err := os.Link(stale, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Remove(stale)
}

// sweep removes the claims that nobody works under any more, and what a process
// that was killed while it removed one has left. A task without a result is
// free afterwards, as it would be for whoever wants to run it.
func (c *claims) sweep() error {
	unlock, safe, busy := c.lock(sweepWait)
	if busy {
		return nil // the next sweep finds them
	}
	defer unlock()
	entries, err := os.ReadDir(c.dir)
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(c.dir, e.Name())
		switch {
		case e.Name() == lockFile || !e.Type().IsRegular():
		case !strings.HasSuffix(e.Name(), staleMark):
			errs = append(errs, c.remove(path))
		case safe: // whoever moves a claim away holds the lock until it is removed
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing abandoned claims: %w", err)
	}
	return nil
}

// held tells whether the claim is still ours.
func (c *claim) held() bool { return c.all.read(c.path).Token == c.all.me.Token }

// renew touches the claim until it is given back or lost.
func (c *claim) renew(lost context.CancelCauseFunc) {
	defer close(c.done)
	t := time.NewTicker(max(c.all.lease/3, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			now := time.Now()
			if !c.held() || os.Chtimes(c.path, now, now) != nil {
				lost(errLost)
				return
			}
		case <-c.stop:
			return
		}
	}
}

// give ends the claim, if it is still ours.
func (c *claim) give() error {
	c.once.Do(func() { close(c.stop) })
	<-c.done
	if !c.held() {
		return nil
	}
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("giving the claim back: %w", err)
	}
	return nil
}
