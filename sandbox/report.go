//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// Probe finds out what this machine can give, by doing it: it opens a sandbox
// under workspace-write with every guarantee and closes it again.
func Probe() Report {
	b := &Sandbox{spec: Spec{Mode: WorkspaceWrite, Limits: DefaultLimits()}}
	err := b.open(context.Background(), nil)
	r := b.report
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	if r.Mode == "" {
		r = Report{Mode: WorkspaceWrite, Level: LevelNone}
		for _, g := range AllGuarantees {
			r.Guarantees = append(r.Guarantees, Support{Guarantee: g, Name: g.String(), Why: "the sandbox could not be tried"})
		}
	}
	if err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	return r
}

// Levels of a Report.
const (
	LevelFull     = "full"     // every guarantee of DefaultRequire by its full mechanism
	LevelDegraded = "degraded" // something is missing or stands on a weaker mechanism
	LevelNone     = "none"     // danger-full-access
)

// makeReport maps what the init found to guarantees.
func (b *Sandbox) makeReport(o *outcome) Report {
	r := Report{Mode: b.spec.Mode, Level: LevelFull, Notes: b.res.notes}
	var f confine.Facts
	if o.conn != nil {
		f = o.conn.facts
	}
	r.LandlockABI = f.Landlock
	for _, n := range f.NoOverlay {
		r.Notes = append(r.Notes, "begins empty, since the kernel lays no overlay there: "+n)
	}
	j := judge{spec: &b.spec, plan: &o.plan, facts: &f, failed: o.failed, running: o.conn != nil, group: b.group, groupErr: b.groupErr}
	if o.conn == nil && o.err != nil {
		j.broken = o.err.Error()
	}
	if b.spec.Mode == FullAccess {
		r.Level = LevelNone
	}
	for _, g := range AllGuarantees {
		s := j.support(g)
		s.Guarantee, s.Name = g, g.String()
		r.Guarantees = append(r.Guarantees, s)
		if r.Level == LevelFull && DefaultRequire&g != 0 && !s.Held {
			r.Level = LevelDegraded
		}
	}
	if j.weaker && r.Level == LevelFull {
		r.Level = LevelDegraded
	}
	if b.spec.Mode != FullAccess {
		r.Writable = b.res.write
		if b.plan.TmpWrite && b.plan.Tmp != "" {
			r.Writable = append(slices.Clone(b.res.write), "/tmp", "/var/tmp")
		}
		r.Protected = append(slices.Clone(b.plan.Protect), b.plan.Hold...)
		slices.Sort(r.Protected)
		r.Denied = b.res.deny
	}
	if b.spec.Mode != FullAccess && o.conn != nil && f.Landlock == 0 {
		r.Notes = append(r.Notes, "without Landlock commands can write to named pipes and devices that they can see outside the roots")
	}
	return r
}

func missingOf(r Report, require Guarantee) []Support {
	var out []Support
	for _, s := range r.Guarantees {
		if require&s.Guarantee != 0 && !s.Held {
			out = append(out, s)
		}
	}
	return out
}

// judge says for each guarantee what carries it.
type judge struct {
	spec     *Spec
	plan     *confine.Plan
	facts    *confine.Facts
	failed   map[string]confine.LayerFailure
	running  bool
	group    *group
	groupErr error
	broken   string
	weaker   bool // a mechanism of Spec.Degrade stands in
}

func (j *judge) support(g Guarantee) Support {
	switch {
	case !j.running:
		return Support{Why: j.why(confine.LayerUser, confine.LayerMount, confine.LayerPID, confine.LayerNet, confine.LayerProc, confine.LayerSeccomp), Hint: j.hint()}
	case j.spec.Mode == FullAccess && g != TreeDies && g != Limited:
		return Support{Why: "danger-full-access confines nothing"}
	}
	switch g {
	case WritesConfined:
		return j.writes()
	case ReadsConfined:
		return j.reads()
	case NetConfined:
		return j.net()
	case TreeDies:
		return j.tree()
	case SyscallsConfined:
		return j.syscalls()
	case SecretsHidden:
		return j.secrets()
	}
	return j.limited()
}

func (j *judge) held(parts ...string) Support {
	return Support{Held: true, Mechanism: strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")}
}

func (j *judge) notHeld(why string) Support { return Support{Why: why, Hint: j.hint()} }

// accepts tells whether the Spec names a weaker mechanism, and notes its use.
func (j *judge) accepts(name string) bool {
	if slices.Contains(j.plan.Accept, name) {
		j.weaker = true
		return true
	}
	return false
}

func (j *judge) landlock() string {
	if j.facts.Landlock == 0 {
		return ""
	}
	return fmt.Sprintf("Landlock ABI %d", j.facts.Landlock)
}

func (j *judge) ok(layers ...string) bool {
	for _, l := range layers {
		if _, bad := j.failed[l]; bad && j.facts.Failed != nil {
			if _, now := j.facts.Failed[l]; now {
				return false
			}
		}
	}
	return true
}

// why is the first refusal among the layers in words.
func (j *judge) why(layers ...string) string {
	for _, l := range layers {
		if f, ok := j.failed[l]; ok {
			return refusedLayer(l, f)
		}
	}
	if j.broken != "" {
		return strings.TrimPrefix(j.broken, "sandbox: ")
	}
	for _, l := range slices.Sorted(maps.Keys(j.failed)) { // whatever it was, it is what stands in the way
		return refusedLayer(l, j.failed[l])
	}
	return layers[0] + " unavailable"
}

// refusedLayer names the call and, if there is one, its errno.
func refusedLayer(layer string, f confine.LayerFailure) string {
	reason := unix.ErrnoName(unix.Errno(f.Errno))
	if reason == "" {
		reason = f.Text
	}
	return fmt.Sprintf("%s unavailable (%s: %s)", layer, f.Op, reason)
}

func (j *judge) mounted() bool {
	return j.plan.Namespaces && j.facts.Mounts != "" && j.ok(confine.LayerMount)
}

func (j *judge) writes() Support {
	if j.mounted() {
		second := j.landlock()
		if second == "" {
			second = "without Landlock not for named pipes outside"
		}
		return j.held("read-only mounts ("+j.facts.Mounts+", "+j.facts.Root+")", second)
	}
	const truncateABI = 3
	if j.facts.Landlock >= truncateABI && j.facts.Unix != "" && j.accepts(DegradeLandlock) {
		return j.held(j.landlock()+" alone (nothing new at the top of a root)", "seccomp (no change of modes, owners and times)")
	}
	return j.notHeld(j.why(confine.LayerUser, confine.LayerMount))
}

func (j *judge) reads() Support {
	if j.mounted() {
		return j.held("covering mounts")
	}
	if j.facts.Landlock > 0 && j.accepts(DegradeLandlock) {
		return j.held(j.landlock() + " alone (folders that hold a denied path cannot be listed)")
	}
	return j.notHeld(j.why(confine.LayerUser, confine.LayerMount))
}

func (j *judge) net() Support {
	unixPart := map[confine.UnixSockets]string{
		confine.UnixByLandlock: "unix sockets by Landlock", confine.UnixByNotify: "unix sockets by seccomp notification", confine.UnixRefused: "no unix sockets but pairs",
	}[j.facts.Unix]
	switch {
	case j.facts.Unix == "":
		return j.notHeld(j.why(confine.LayerSeccomp))
	case j.spec.Net.Mode == NetHost:
		return j.held("the host's network, as asked", unixPart)
	case j.plan.Namespaces && j.ok(confine.LayerNet):
		return j.held("network namespace", "seccomp (families)", unixPart)
	case j.spec.Net.Mode == NetProxy:
		return j.notHeld("an allow list of hosts needs a network namespace: " + j.why(confine.LayerUser, confine.LayerNet))
	}
	return j.held("seccomp (no sockets at all, not even localhost)")
}

func (j *judge) tree() Support {
	if j.plan.Namespaces {
		return j.held("pid namespace of each command, within one of the sandbox")
	}
	if _, bad := j.facts.Failed[confine.LayerPID]; bad {
		return j.notHeld(j.why(confine.LayerPID))
	}
	group := ""
	if j.group != nil {
		group = j.group.name()
	}
	const signalABI = 6
	if j.spec.Mode != FullAccess && j.facts.Landlock < signalABI {
		return j.notHeld("without a pid namespace a command can kill what would end it (signals are confined from Landlock ABI 6)")
	}
	return j.held("reaper of orphans", group)
}

func (j *judge) syscalls() Support {
	if j.facts.Unix == "" {
		return j.notHeld(j.why(confine.LayerSeccomp))
	}
	if _, bad := j.facts.Failed[confine.LayerPrivs]; bad {
		return j.notHeld(j.why(confine.LayerPrivs))
	}
	return j.held("seccomp", "no_new_privs", "no capabilities")
}

func (j *judge) secrets() Support {
	switch {
	case j.plan.Namespaces && j.facts.Proc == "own":
		user := ""
		if j.plan.UserNS {
			user = "user namespace"
		}
		return j.held("pid namespace with its own /proc", user, "no inherited descriptors")
	case (j.plan.UserNS || j.facts.Landlock > 0) && j.accepts(DegradeOuterProc):
		return j.held("memory and environment of other processes closed by "+map[bool]string{true: "the user namespace", false: "Landlock"}[j.plan.UserNS]+
			" (their names and command lines can be seen)", "no inherited descriptors")
	}
	return j.notHeld(j.why(confine.LayerUser, confine.LayerProc, confine.LayerPID))
}

func (j *judge) limited() Support {
	if j.group != nil {
		return j.held(j.group.name(), "rlimits")
	}
	l := j.spec.Limits
	if l.MemoryBytes == 0 && l.Processes == 0 && l.CPUPercent == 0 {
		return j.held("nothing but rlimits was asked for")
	}
	why := "no control group"
	if j.groupErr != nil {
		why += ": " + j.groupErr.Error()
	}
	s := Support{Why: why, Mechanism: "rlimits, a look at memory and processes every " + confine.WatchEvery.String(),
		Hint: "run as root, or delegate a control group to the user (`systemd-run --user --scope -p Delegate=yes`)"}
	return s
}

// hint says what to do on this machine.
func (j *judge) hint() string {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	for _, f := range j.failed {
		if hint := makeRoom(unix.Errno(f.Errno)); hint != "" {
			return hint
		}
	}
	outer := "or use danger-full-access inside an outer sandbox"
	user, refused := j.failed[confine.LayerUser]
	_, proc := j.failed[confine.LayerProc]
	switch {
	case refused && read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0:
		return "run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give the program an AppArmor profile with `userns,`, or start it as root, " + outer
	case refused && read("/proc/sys/kernel/unprivileged_userns_clone") == "0" && os.Geteuid() != 0:
		return "run `sudo sysctl -w kernel.unprivileged_userns_clone=1`, " + outer
	case refused && (unix.Errno(user.Errno) == unix.ENOSPC || read("/proc/sys/user/max_user_namespaces") == "0"):
		return "run `sudo sysctl -w user.max_user_namespaces=15000`, " + outer
	case refused:
		return "in a container, start it with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`, " +
			"or with a seccomp profile that allows clone, unshare and mount with new namespaces, " + outer
	case proc:
		return "start the container with `--security-opt systempaths=unconfined`, or accept the outer /proc with sandbox.degrade = [\"" + DegradeOuterProc + "\"]"
	}
	if _, ok := j.failed[confine.LayerSeccomp]; ok {
		return "use a kernel with CONFIG_SECCOMP_FILTER, " + outer
	}
	return outer[len("or "):]
}
