//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// The ways an init can be started, best first:
//
//  1. a user namespace with all the others in it;
//  2. as root where user namespaces are refused, the others without it;
//  3. none: then Landlock and the system call filter are all there is.
//
// What was refused on the way is kept for the report. Whether the result is good
// enough is decided by what the Spec requires, never here.

// ascent is an init that is being found.
type ascent struct {
	spec     *Spec
	launched *launched
	err      error // of launching

	// group is the sandbox's control group, still without limits, if it was made
	// together with the init.
	group    *group
	groupErr error
}

// outcome is the init that was found.
type outcome struct {
	conn   *initConn
	group  *group
	plan   confine.Plan
	failed map[string]confine.LayerFailure // of every way tried
	err    error                           // when there is no init at all
}

func cloneFlags(s *Spec) uintptr {
	flags := uintptr(allNamespaces)
	if s.Net.Mode != NetHost {
		flags |= unix.CLONE_NEWNET
	}
	return flags
}

// launchFirst starts the init of the first way, in the group if there is one; it
// waits for its plan.
func launchFirst(s *Spec, g *group) *ascent {
	a := &ascent{spec: s}
	if s.Mode == FullAccess {
		a.launched, a.err = launch(0, g)
	} else {
		a.launched, a.err = launch(cloneFlags(s)|unix.CLONE_NEWUSER, g)
	}
	return a
}

// launchInGroup is launchFirst in a group that is made for it.
func launchInGroup(s *Spec) *ascent {
	g, err := newGroup(s.Limits.CPUPercent > 0)
	a := launchFirst(s, g)
	a.group, a.groupErr = g, err
	if g != nil && a.err == nil {
		a.launched.join(g)
	}
	return a
}

// takeGroup gives the group to the sandbox, with its limits. There is none when
// it was not made, or cannot hold them.
func (a *ascent) takeGroup(l Limits) *group {
	g := a.group
	if g == nil || l.CPUPercent > 0 && !g.canLimitCPU() || g.limit(l) != nil {
		return nil
	}
	a.group = nil
	return g
}

// discard gives up the init, which has no plan yet, and its group.
func (a *ascent) discard() error {
	var err error
	if a.launched != nil {
		err = errors.Join(a.launched.planPipe.Close(), a.launched.c.stop())
		if a.launched.joined != nil {
			<-a.launched.joined
		}
	}
	return errors.Join(err, a.group.remove())
}

// climb tries the ways until one gives all the mounts and namespaces.
func (a *ascent) climb(ctx context.Context, p *confine.Plan, g *group) *outcome {
	o := &outcome{group: g, plan: *p, failed: map[string]confine.LayerFailure{}}
	if !p.Confined {
		o.try(ctx, a.launched, a.err, "")
		return o
	}
	o.plan.UserNS, o.plan.Namespaces = true, true
	if o.try(ctx, a.launched, a.err, confine.LayerUser) || ctx.Err() != nil {
		return o
	}
	if confine.HasCapability(unix.CAP_SYS_ADMIN) {
		l, err := launch(cloneFlags(a.spec), g)
		o.plan.UserNS = false
		if o.try(ctx, l, err, confine.LayerMount) || ctx.Err() != nil {
			return o
		}
	}
	l, err := launch(0, g)
	o.plan.UserNS, o.plan.Namespaces = false, false
	o.try(ctx, l, err, "")
	return o
}

// try configures an init. It is true when nothing that namespaces carry was
// refused; otherwise the init is stopped, unless it is the last way (no layer).
func (o *outcome) try(ctx context.Context, l *launched, err error, layer string) bool {
	if err == nil {
		l.c.group = o.group
		if l.joined == nil {
			l.join(o.group)
		}
		err = l.configure(ctx, &o.plan)
		if l.joined != nil {
			if aerr := <-l.joined; err == nil && aerr != nil {
				err = fmt.Errorf("sandbox: moving the init into its control group: %w", aerr)
			}
		}
		if err != nil {
			err = errors.Join(err, l.c.stop())
		}
	} else if layer != "" {
		o.failed[layer] = confine.LayerFailure{Op: "clone", Errno: int(confine.Errno(err)), Text: confine.Errno(err).Error()}
		return false
	}
	if err != nil {
		o.err = err
		if layer != "" {
			o.failed[layer] = confine.LayerFailure{Op: "starting the init", Text: err.Error()}
		}
		return false
	}
	f := l.c.facts
	bad := slices.ContainsFunc([]string{confine.LayerUser, confine.LayerMount, confine.LayerNet}, func(name string) bool { _, ok := f.Failed[name]; return ok })
	if bad && layer != "" {
		maps.Copy(o.failed, f.Failed)
		o.err = fmt.Errorf("sandbox: %s", describe(f.Failed))
		if err := l.c.stop(); err != nil {
			o.err = errors.Join(o.err, err)
		}
		return false
	}
	maps.Copy(o.failed, f.Failed)
	o.conn, o.err = l.c, nil
	return true
}

func describe(m map[string]confine.LayerFailure) string {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		return k + ": " + m[k].Op + ": " + m[k].Text
	}
	return "refused"
}
