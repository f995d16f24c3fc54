//go:build linux

package confine

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

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
	g := grants{all: all}
	// Helpers are this program, which may lie on a file system that the view does
	// not have.
	g.add(rightsRead&rightsOnFiles, "/proc/self/exe")
	if p.Namespaces {
		g.besideMounts(p)
	} else {
		g.alone(p)
	}
	fd, _, err = cfg.NewRulesetFD(g.rules...)
	if err != nil {
		return -1, 0, &layerError{LayerLandlock, "making a ruleset", err}
	}
	return fd, all, nil
}

// grants collects rules; a right that the kernel's version does not know is left
// out, since it does not refuse it either.
type grants struct {
	all   landlock.AccessFSSet
	rules []landlock.Rule
}

func (g *grants) add(rights landlock.AccessFSSet, paths ...string) {
	if len(paths) > 0 && rights&g.all != 0 {
		g.rules = append(g.rules, landlock.PathAccess(rights&g.all, paths...).IgnoreIfMissing())
	}
}

// write is everything but what needs a right of its own.
func (g *grants) write() landlock.AccessFSSet {
	return g.all &^ landlock.AccessFSSet(ll.AccessFSIoctlDev|ll.AccessFSResolveUnix)
}

const (
	rightsOnDevices = landlock.AccessFSSet(ll.AccessFSIoctlDev | ll.AccessFSWriteFile | ll.AccessFSTruncate)
	rightsOnSockets = landlock.AccessFSSet(ll.AccessFSResolveUnix | ll.AccessFSWriteFile)
)

// besideMounts repeats what the mounts enforce.
func (g *grants) besideMounts(p *Plan) {
	g.add(rightsRead, "/")
	g.add(rightsOnDevices, "/dev")
	g.add(g.write(), p.Roots...)
	if p.TmpWrite {
		g.add(g.write(), "/dev/shm", "/dev/mqueue")
		if p.Tmp != "" {
			g.add(g.write(), "/tmp", "/var/tmp")
		}
	}
	g.add(rightsOnSockets, p.Sockets...)
}

// alone is for where nothing but Landlock confines files (DegradeLandlock). It
// can only allow, so whatever is to be closed inside an open folder is reached
// by opening its neighbours one by one. The folders on the way to a closed path
// are not granted themselves: nothing can be created in them, nor can they be
// listed.
func (g *grants) alone(p *Plan) {
	closed := append([]string{"/dev/shm", "/dev/mqueue"}, p.Deny...)
	closed = append(closed, p.Late...)
	files, folders := carve("/", closed)
	g.add(rightsRead&^landlock.AccessFSSet(ll.AccessFSReadDir), files...)
	g.add(rightsRead, folders...)
	g.add(rightsOnDevices, devices...)
	g.add(rightsOnDevices, "/dev/ptmx", "/dev/pts")
	g.add(rightsOnProc, "/proc/self")
	closed = append(append(closed, p.Protect...), p.Hold...)
	roots := p.Roots
	if p.Tmp != "" && p.TmpWrite {
		roots = append([]string{p.Tmp}, roots...)
	}
	for _, r := range roots {
		files, folders := carve(r, slices.DeleteFunc(slices.Clone(closed), func(c string) bool { return slices.ContainsFunc(roots, func(w string) bool { return w == c }) }))
		g.add(g.write()&rightsOnFiles, files...)
		g.add(g.write(), folders...)
	}
}

// rightsOnFiles are those that a rule on a single file may name.
const rightsOnFiles = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev)

// maxCarved bounds the rules of one folder with many entries.
const maxCarved = 20000

// carve lists the files and folders that together hold everything below root
// except what is closed and the folders on the way to it.
func carve(root string, closed []string) (files, folders []string) {
	inside := false
	for _, c := range closed {
		if Below(root, c) {
			return nil, nil
		}
		inside = inside || Below(c, root)
	}
	if !inside {
		return nil, []string{root}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, nil // what cannot be listed is not opened
	}
	for _, e := range entries {
		name := path.Join(root, e.Name())
		switch {
		case len(files)+len(folders) > maxCarved:
			return files, folders
		case e.IsDir():
			f, d := carve(name, closed)
			files, folders = append(files, f...), append(folders, d...)
		case e.Type()&os.ModeSymlink == 0 && !slices.Contains(closed, name):
			files = append(files, name)
		}
	}
	return files, folders
}
