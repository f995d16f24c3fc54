package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/sandbox"
)

const (
	// maxSessions bounds the commands that run at the same time, and so the
	// memory of their outputs.
	maxSessions = 64
	// endBound is how long a call waits for a tree that was told to die. The
	// sandbox needs about a second (SIGTERM, grace, SIGKILL).
	endBound = 5 * time.Second
)

// session is one running command.
type session struct {
	id      int
	itemID  string
	command string // as displayed
	tty     bool
	// confined: the sandbox stands between the command and the machine.
	confined bool
	proc     *sandbox.Process
	began    time.Time
	stop     context.CancelFunc
	once     sync.Once
	done     chan struct{} // closed when the item is completed

	mu      sync.Mutex
	whole   *output // for the item
	fresh   *output // what no answer has returned yet
	held    []byte  // the start of a character, or of "\r\n" on a terminal
	stopped bool    // the run ended it
	exit    sandbox.Exit
	status  event.Status
}

// sessions are the commands of a run that are not over or not yet answered for.
type sessions struct {
	set *Set

	mu      sync.Mutex
	byID    map[int]*session
	running map[*session]struct{}
}

func newSessions(s *Set) *sessions {
	return &sessions{set: s, byID: map[int]*session{}, running: map[*session]struct{}{}}
}

// start runs a command whose item is already open. The process lives as long as
// the run, not as long as ctx.
func (ss *sessions) start(ctx context.Context, itemID, display string, box *sandbox.Sandbox, c sandbox.Command) (*session, error) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	began := time.Now()
	p, err := box.Start(life, c)
	if err != nil {
		stop()
		return nil, err
	}
	s := &session{itemID: itemID, command: display, tty: c.TTY != nil, proc: p, began: began, stop: stop,
		confined: !c.Unsandboxed && box.Report().Mode != sandbox.FullAccess, done: make(chan struct{}), whole: newOutput(itemBytes), fresh: newOutput(itemBytes)}
	ss.mu.Lock()
	ss.running[s] = struct{}{}
	ss.mu.Unlock()
	go ss.follow(s)
	return s, nil
}

// follow reads a command to its end and completes its item.
func (ss *sessions) follow(s *session) {
	defer s.stop()
	buf := make([]byte, 32<<10)
	masked := ss.set.deps.Mask.Writer(taker{s})
	var readErr error
	for readErr == nil {
		var n int
		n, readErr = s.proc.Output().Read(buf)
		_, _ = masked.Write(buf[:n]) // a taker never fails
	}
	_ = masked.Close()
	exit, err := s.proc.Wait()
	if err == nil && !errors.Is(readErr, io.EOF) {
		err = fmt.Errorf("reading its output: %w", readErr)
	}
	ss.complete(s, s.ended(exit, err))
}

// complete closes the item of a session, once.
func (ss *sessions) complete(s *session, item event.CommandExecution) {
	s.once.Do(func() {
		ss.set.deps.Log.Complete(s.itemID, item)
		ss.mu.Lock()
		delete(ss.running, s)
		ss.mu.Unlock()
		close(s.done)
	})
}

// taker is the writer to a session.
type taker struct{ s *session }

func (t taker) Write(b []byte) (int, error) {
	t.s.take(b)
	return len(b), nil
}

// take adds a chunk. A character cut by the chunk's end waits for its rest.
func (s *session) take(chunk []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole.write(chunk)
	if len(s.held) > 0 {
		chunk = append(s.held, chunk...)
		s.held = nil
	}
	keep := len(chunk) - cutRune(chunk)
	if s.tty && keep == len(chunk) && keep > 0 && chunk[keep-1] == '\r' {
		keep--
	}
	s.fresh.write(chunk[:keep])
	if keep < len(chunk) {
		s.held = append([]byte(nil), chunk[keep:]...)
	}
}

// ended records the end and returns the item's last state.
func (s *session) ended(exit sandbox.Exit, err error) event.CommandExecution {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh.write(s.held)
	s.held = nil
	s.exit, s.status = exit, event.Completed
	if err != nil {
		s.exit.Code = -1
		s.note(fmt.Sprintf("[the sandbox failed: %v]", err))
	}
	if exit.Killed != "" {
		s.note("[ended by the sandbox: the limit on " + exit.Killed + " was reached]")
	}
	if s.exit.Code != 0 || s.stopped {
		s.status = event.Failed
	}
	if s.stopped && s.exit.Code == 0 {
		s.exit.Code = 128 + int(syscall.SIGTERM) // it said goodbye, but it was told to go
	}
	code := s.exit.Code
	return event.CommandExecution{Command: s.command, AggregatedOutput: s.whole.text(), ExitCode: &code, Status: s.status}
}

// note adds a line of ours to the output.
func (s *session) note(line string) {
	b := []byte("\n" + line + "\n")
	s.whole.write(b)
	s.fresh.write(b)
}

// drain takes the new output.
func (s *session) drain() *output {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.fresh
	s.fresh = newOutput(itemBytes)
	return out
}

// result is the state of the command: over or not, and how it ended.
func (s *session) result() (over bool, exit sandbox.Exit, status event.Status) {
	select {
	case <-s.done:
	default:
		return false, sandbox.Exit{}, event.InProgress
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return true, s.exit, s.status
}

// wait returns when the command is over, d has passed, or ctx ended; then the
// command is ended too.
func (s *session) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
	case <-ctx.Done():
		s.end()
		select {
		case <-s.done:
		case <-time.After(endBound):
		}
	}
}

// end tells the command's tree to die.
func (s *session) end() {
	s.mu.Lock()
	select {
	case <-s.proc.Done(): // it was faster
	default:
		s.stopped = true
	}
	s.mu.Unlock()
	s.stop()
}

// keep gives a running session an id under which it can be polled.
func (ss *sessions) keep(s *session) int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s.id == 0 || ss.byID[s.id] != nil {
		s.id = 10_000 + rand.IntN(90_000)
	}
	ss.byID[s.id] = s
	ss.forget()
	return s.id
}

// forget drops finished sessions that nobody asked for, oldest first, while
// there are too many.
func (ss *sessions) forget() {
	for len(ss.byID) > maxSessions {
		var oldest *session
		for _, s := range ss.byID {
			if _, live := ss.running[s]; !live && (oldest == nil || s.began.Before(oldest.began)) {
				oldest = s
			}
		}
		if oldest == nil {
			return
		}
		delete(ss.byID, oldest.id)
	}
}

// full tells whether another command may not be started.
func (ss *sessions) full() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.running) >= maxSessions
}

func (ss *sessions) find(id int) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.byID[id]
}

func (ss *sessions) drop(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.id] == s {
		delete(ss.byID, s.id)
	}
}

// closeAll ends all sessions side by side. Whatever happens, their items are
// closed when it returns.
func (ss *sessions) closeAll(ctx context.Context) {
	ss.mu.Lock()
	var left []*session
	for s := range ss.running {
		left = append(left, s)
	}
	ss.mu.Unlock()
	for _, s := range left {
		s.end()
	}
	for _, s := range left {
		select {
		case <-s.done:
		case <-ctx.Done():
			ss.complete(s, s.ended(sandbox.Exit{Code: 128 + int(syscall.SIGKILL)}, nil))
		}
		if _, _, status := s.result(); status == event.Failed {
			ss.set.deps.Log.Emit(event.Notice{Class: "session_stopped", Message: "a command was still running at the end and was stopped: " + s.command})
		}
	}
}
