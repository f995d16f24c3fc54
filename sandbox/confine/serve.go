//go:build linux

package confine

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// start forks the supervisor of one command. It runs on the locked thread.
func (in *initProcess) start(r Request, fds []int) {
	all := fds
	defer func() { CloseAll(all) }()
	refuse := func(step string, err error) {
		// When the runner cannot be reached it is gone, and so is everything here soon.
		_ = in.wire.sendJSON(MsgRefused, r.ID, RefusedMessage{ID: r.ID, Step: step, Text: err.Error(), Errno: int(Errno(err))})
	}
	groupFD := -1
	if (r.Group || r.Move) && len(fds) > 0 {
		groupFD, fds = fds[len(fds)-1], fds[:len(fds)-1]
	}
	st, done, err := in.streams(&r, fds)
	if err != nil {
		refuse("preparing input and output", err)
		return
	}
	defer done()
	if r.Side && !in.facts.Side {
		refuse("narrowing the view", unix.ENOTSUP)
		return
	}
	if err := in.keep.check(); err != nil {
		refuse("protected paths", err)
		return
	}
	ruleset := -1
	if in.plan.Confined && in.facts.Landlock > 0 {
		if ruleset, _, err = landlockRuleset(in.facts.Landlock, in.planOf(&r)); err != nil {
			refuse("landlock", err)
			return
		}
		defer CloseFD(ruleset)
	}
	a := &arena{}
	r.Path = pathOf(r.Env)
	sup, cmd, after := in.supervisorScript(a, r.Side), in.commandScript(a, &r, st, groupFD, ruleset), in.afterScript(a)
	f := in.family(a, &r, groupFD, sup, cmd, after)
	if a.err != nil {
		refuse("memory", a.err)
		return
	}
	in.watch.begin(r.ID, r.Limits)
	// Locked, so that nobody sees a supervisor that is not on the list yet.
	in.mu.Lock()
	pid, err := fork(f)
	if err == nil {
		in.running[r.ID] = pid
	}
	in.mu.Unlock()
	if err != nil {
		in.watch.end(r.ID)
		refuse("fork", err)
		if err := a.release(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	go in.reap(r.ID, pid, f, a, [2][]string{sup.names, cmd.names})
}

// family collects what the supervisor needs.
func (in *initProcess) family(a *arena, r *Request, groupFD int, sup, cmd, after *script) *family {
	f := family{control: uintptr(in.controlFD), mask: ^uint64(0), tick: unix.Timespec{Nsec: 1e6}}
	f.msg.ID = r.ID
	for which, s := range []*script{ofSupervisor: sup, ofCommand: cmd, ofAfter: after} {
		in.room[which] = s.calls
	}
	f.prepare, f.nPrepare = sup.store()
	f.command, f.nCommand = cmd.store()
	f.after, f.nAfter = after.store()
	if in.plan.Namespaces {
		f.cloneFlags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	} else {
		f.subreaper, f.parent = 1, uintptr(unix.Getpid())
		f.list, f.children = a.str("/proc/thread-self/children"), address(a.bytes(childrenSize))
	}
	if r.Group && groupFD >= 0 {
		f.inGroup = 1
		f.args = cloneArgs{flags: uint64(f.cloneFlags) | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(groupFD)}
	}
	return place(a, f)
}

// fork blocks all signals around the clone: a handler must not run in the child.
func fork(f *family) (int, error) {
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, fmt.Errorf("blocking signals: %w", err)
	}
	pid, errno := spawn(f)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		return 0, fmt.Errorf("unblocking signals: %w", err)
	}
	if errno != 0 {
		return 0, fmt.Errorf("clone: %w", errno)
	}
	return int(pid), nil
}

// reap waits until the supervisor, and with it its pid namespace, is gone.
func (in *initProcess) reap(id uint32, pid int, f *family, a *arena, names [2][]string) {
	awaitEnd(pid)
	var ws unix.WaitStatus
	var ru unix.Rusage
	in.mu.Lock()
	for {
		if _, err := unix.Wait4(pid, &ws, 0, &ru); err != unix.EINTR {
			break
		}
	}
	delete(in.running, id)
	in.mu.Unlock()
	if in.listeners != nil {
		in.listeners.drop(id)
	}
	if !in.plan.Namespaces {
		in.killOrphans()
	}
	if err := in.lastMessage(id, in.watch.end(id), ws, &ru, f, names); err != nil {
		in.end(err)
	}
	if err := a.release(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// awaitEnd waits until a child has ended, and leaves its number taken: nobody else
// may be signalled by it. With a descriptor of the process no thread waits, nor is
// one needed to take its place.
func awaitEnd(pid int) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == nil {
		f := os.NewFile(uintptr(fd), "process")
		defer f.Close()
		if c, err := f.SyscallConn(); err == nil && c.Read(func(uintptr) bool { return ended(pid, unix.WNOHANG) }) == nil {
			return
		}
	}
	ended(pid, 0)
}

// ended tells whether a child has ended, or waits for it.
func ended(pid, options int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
		if err != unix.EINTR {
			return err != nil || info.Signo != 0
		}
	}
}

// lastMessage tells the runner that a tree is gone, or that it never was.
func (in *initProcess) lastMessage(id, cause uint32, ws unix.WaitStatus, ru *unix.Rusage, f *family, names [2][]string) error {
	if f.failedErrno == 0 {
		return in.wire.sendStatus(Status{Kind: MsgGone, ID: id, Cause: cause, Wait: int32(ws), Utime: ru.Utime, Stime: ru.Stime, RSS: ru.Maxrss})
	}
	e := unix.Errno(f.failedErrno)
	m := RefusedMessage{ID: id, Step: "fork", Errno: int(e), Text: e.Error()}
	list, at := names[1], f.failedStep
	if at&stepOfSupervisor != 0 {
		list, at = names[0], at&^stepOfSupervisor
	}
	if at >= 1 && at <= uintptr(len(list)) {
		m.Step = list[at-1]
	}
	return in.wire.sendJSON(MsgRefused, id, m)
}

// streams finds the command's standard descriptors: those that came with the
// request, a terminal of the sandbox's own instance, or /dev/null.
func (in *initProcess) streams(r *Request, fds []int) (st streams, done func(), err error) {
	if r.TTY != nil {
		return in.terminal(r)
	}
	next := func(have bool) (int, error) {
		if have && len(fds) == 0 {
			return -1, fmt.Errorf("a descriptor is missing from the request")
		}
		if !have {
			return -1, nil
		}
		fd := fds[0]
		fds = fds[1:]
		return fd, nil
	}
	null := -1
	done = func() { CloseFD(null) }
	for _, s := range []struct {
		have bool
		fd   *int
	}{{r.Stdin, &st.in}, {r.Stdout, &st.out}, {r.Stderr, &st.err}} {
		if *s.fd, err = next(s.have); err != nil {
			return st, done, err
		}
	}
	if st.err < 0 {
		st.err = st.out
	}
	if st.in < 0 {
		if null, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return st, done, fmt.Errorf("/dev/null: %w", err)
		}
		st.in = null
	}
	return st, done, nil
}

// terminal opens one and sends its master to the runner.
func (in *initProcess) terminal(r *Request) (st streams, done func(), err error) {
	master, slave, err := openTerminal()
	if err != nil {
		return st, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	done = func() {
		CloseFD(master) // the runner holds the master, the command the slave
		CloseFD(slave)
	}
	if err := unix.IoctlSetWinsize(slave, unix.TIOCSWINSZ, &unix.Winsize{Row: r.TTY.Rows, Col: r.TTY.Cols}); err != nil {
		done()
		return st, nil, fmt.Errorf("setting the terminal's size: %w", err)
	}
	if err := in.wire.sendStatus(Status{Kind: MsgTerminal, ID: r.ID}, master); err != nil {
		done()
		return st, nil, err
	}
	return streams{slave, slave, slave}, done, nil
}

// openTerminal opens a pair of the view's own terminals. A library that does the
// same also starts programs, and what that needs to be initialised would come
// before the init of every sandbox.
func openTerminal() (master, slave int, err error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	if master, err = unix.Open("/dev/ptmx", flags, 0); err != nil {
		return -1, -1, err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0) // it is locked at first
	}
	if err == nil {
		slave, err = unix.Open("/dev/pts/"+strconv.Itoa(number), flags, 0)
	}
	if err != nil {
		CloseFD(master)
		return -1, -1, err
	}
	return master, slave, nil
}

// pathOf is PATH in an environment; of two the last wins.
func pathOf(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return v
		}
	}
	return ""
}
