package confine

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Landlock is the second wall: the same plan again, enforced by another part of
// the kernel. It is used at exactly the version the kernel has, never with
// best effort, which succeeds although nothing is enforced.

// landlockABIs are the versions this program knows, by number.
var landlockABIs = []landlock.Config{
	{}, landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
}

// landlockABI asks the kernel for its version; a newer one than the newest known
// is used as that.
func landlockABI() (int, error) {
	n, err := ll.LandlockGetABIVersion()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, &layerError{LayerLandlock, "landlock_create_ruleset (the kernel is older than 5.13 or built without it)", err}
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, &layerError{LayerLandlock, "landlock_create_ruleset (not in the kernel's lsm= list)", err}
	case err != nil:
		return 0, &layerError{LayerLandlock, "landlock_create_ruleset", err}
	case n < 1:
		return 0, &layerError{LayerLandlock, "landlock_create_ruleset", fmt.Errorf("version %d", n)}
	}
	return min(n, len(landlockABIs)-1), nil
}

// rights on files, as landlock names them.
const (
	rightsRead = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir)
	// rightsOnProc are for what a process may write about itself: name, OOM score.
	// /proc/sys and the like are read-only mounts.
	rightsOnProc = landlock.AccessFSSet(ll.AccessFSWriteFile | ll.AccessFSTruncate)
)

// landlockRuleset makes the ruleset of one command, open until it is used.
func landlockRuleset(abi int, p *Plan) (fd int, handled landlock.AccessFSSet, err error) {
	cfg := landlockABIs[abi]
	// An own network namespace confines the network, and Landlock, which sees
	// ports and no addresses, would break servers on localhost. Without one it is
	// used to refuse all of TCP (and UDP from version 10).
	if p.Namespaces || p.Net == NetHost {
		cfg.HandledAccessNet = 0
	}
	all := cfg.HandledAccessFS
	write := all &^ landlock.AccessFSSet(ll.AccessFSIoctlDev|ll.AccessFSResolveUnix)
	rules := []landlock.Rule{landlock.PathAccess(rightsRead, "/")}
	grant := func(rights landlock.AccessFSSet, paths ...string) {
		if len(paths) > 0 && rights&all != 0 {
			rules = append(rules, landlock.PathAccess(rights&all, paths...).IgnoreIfMissing())
		}
	}
	grant(landlock.AccessFSSet(ll.AccessFSIoctlDev|ll.AccessFSWriteFile|ll.AccessFSTruncate)|rightsRead, "/dev")
	grant(write, p.Roots...)
	if p.TmpWrite && p.Tmp != "" {
		grant(write, "/tmp", "/var/tmp")
	}
	if p.TmpWrite {
		grant(write, "/dev/shm")
	}
	grant(landlock.AccessFSSet(ll.AccessFSResolveUnix|ll.AccessFSWriteFile), p.Sockets...)
	fd, _, err = cfg.NewRulesetFD(rules...)
	if err != nil {
		return -1, 0, &layerError{LayerLandlock, "making a ruleset", err}
	}
	return fd, all, nil
}
