//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nightshift-ci/nightshift/sandbox/confine"
)

// resolved is a Spec with real paths and everything found that it protects.
type resolved struct {
	workspace string
	side      string
	write     []string // real, each once, shortest first
	protect   []string
	hold      []string
	deny      []string // those that exist
	missing   []string // denied paths that do not exist (yet)
	overlays  []Overlay
	alias     []string // where overlays would show what is denied
	reveal    []string
	show      []string
	sockets   []string
	mask      []string
	notes     []string
}

// resolve checks the paths of a Spec. All mistakes are reported together.
func resolve(s *Spec) (*resolved, error) {
	r := &resolved{}
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	note(checkMode(s.Mode))
	note(checkLimits(s.Limits))
	if s.Mode == FullAccess {
		if s.Workspace != "" {
			dir, err := realFolder("workspace", s.Workspace)
			note(err)
			r.workspace = dir
		}
		return r, errors.Join(errs...)
	}
	note(r.roots(s))
	note(r.denied(s))
	note(r.overlaid(s))
	note(r.beside(s))
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if err := r.findProtected(s); err != nil {
		return nil, err
	}
	return r, r.findVisible(s)
}

func checkMode(m Mode) error {
	switch m {
	case ReadOnly, WorkspaceWrite, FullAccess:
		return nil
	}
	return &SpecError{Field: "mode", Reason: fmt.Sprintf("%q is not one of %s, %s, %s", string(m), ReadOnly, WorkspaceWrite, FullAccess)}
}

// Smallest limits under which a program can be started at all.
const (
	minMemory    = 16 << 20
	minProcesses = 8
	minOpenFiles = 16
	minFileBytes = 4 << 10
)

func checkLimits(l Limits) error {
	var errs []error
	check := func(name string, v, least int64) {
		if v < 0 || v > 0 && v < least {
			errs = append(errs, &SpecError{Field: "limit of " + name, Reason: fmt.Sprintf("%d cannot work: the minimum is %d", v, least), Advice: "0 means no limit"})
		}
	}
	check("memory", l.MemoryBytes, minMemory)
	check("processes", l.Processes, minProcesses)
	check("cpu", l.CPUPercent, 1)
	check("file size", l.FileBytes, minFileBytes)
	check("disk space", l.DiskBytes, minFileBytes)
	check("open files", l.OpenFiles, minOpenFiles)
	return errors.Join(errs...)
}

// realFolder resolves a folder that must exist.
func realFolder(field, name string) (string, error) {
	if !filepath.IsAbs(name) {
		return "", &SpecError{Field: field, Path: name, Reason: "is not an absolute path"}
	}
	if strings.ContainsRune(name, 0) {
		return "", &SpecError{Field: field, Path: strings.ReplaceAll(name, "\x00", "\\0"), Reason: "holds a zero byte"}
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", &SpecError{Field: field, Path: name, Reason: reasonOf(err)}
	}
	fi, err := os.Stat(real)
	if err != nil {
		return "", &SpecError{Field: field, Path: name, Reason: reasonOf(err)}
	}
	if !fi.IsDir() {
		return "", &SpecError{Field: field, Path: name, Reason: "is a file, not a folder", Advice: "list the folder that holds it"}
	}
	return real, nil
}

// reasonOf is the kernel's reason in plain words, without the path again.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "does not exist"
	case errors.Is(err, os.ErrPermission):
		return "may not be read by this user"
	case errors.Is(err, unix.ELOOP):
		return "is a circle of links"
	}
	if e := confine.Errno(err); e != 0 {
		return e.Error()
	}
	return err.Error()
}

// roots finds the writable roots.
func (r *resolved) roots(s *Spec) error {
	var errs []error
	list := s.Write
	if s.Workspace != "" {
		dir, err := realFolder("workspace", s.Workspace)
		if err != nil {
			errs = append(errs, err)
		}
		r.workspace = dir
		if s.Mode == WorkspaceWrite && err == nil && !slices.Contains(list, s.Workspace) {
			list = append([]string{s.Workspace}, list...)
		}
	}
	for _, name := range list {
		dir, err := realFolder("writable root", name)
		if err == nil {
			err = checkRoot(name, dir)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.write = append(r.write, dir)
		r.noteOwner(dir)
	}
	slices.SortFunc(r.write, byLength)
	r.write = slices.Compact(r.write)
	return errors.Join(errs...)
}

// noteOwner tells when commands, which have no privileges even as user 0, may not
// write a root: in containers the workspace often belongs to somebody else.
func (r *resolved) noteOwner(dir string) {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return
	}
	groups, err := os.Getgroups()
	inGroup := int(st.Gid) == os.Getegid() || err == nil && slices.Contains(groups, int(st.Gid))
	var bits uint32
	switch {
	case int(st.Uid) == os.Geteuid():
		bits = st.Mode & unix.S_IWUSR
	case inGroup:
		bits = st.Mode & unix.S_IWGRP
	default:
		bits = st.Mode & unix.S_IWOTH
	}
	if bits == 0 {
		r.notes = append(r.notes, fmt.Sprintf("commands run as user %d without privileges and may not write in %s, which belongs to user %d (mode %#o): give it to them in a step before (chown -R), or run as that user",
			os.Geteuid(), dir, st.Uid, st.Mode&0o7777))
	}
}

func byLength(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// checkRoot refuses roots that would undo the confinement.
func checkRoot(name, dir string) error {
	if dir != "/dev/shm" && confine.Below(dir, "/dev/shm") {
		return nil // memory, and hidden otherwise
	}
	for _, bad := range []string{"/", "/proc", "/sys", "/dev"} {
		if dir == bad || bad != "/" && confine.Below(dir, bad) {
			return &SpecError{Field: "writable root", Path: name, Reason: "would let commands change the system itself",
				Advice: "list the folder the work is done in"}
		}
	}
	return nil
}

// denied resolves the denied and revealed paths.
func (r *resolved) denied(s *Spec) error {
	var errs []error
	list := s.Deny
	if s.Private != "" {
		list = append(append([]string(nil), list...), s.Private)
	}
	for _, name := range list {
		real, exists, err := realPath(name)
		if err != nil {
			errs = append(errs, &SpecError{Field: "denied path", Path: name, Reason: err.Error()})
			continue
		}
		if !exists {
			r.missing = append(r.missing, real)
			continue
		}
		for _, root := range r.write {
			if confine.Below(root, real) {
				errs = append(errs, &SpecError{Field: "denied path", Path: name, Reason: "holds the writable root " + root,
					Advice: "deny the folders beside it, or do not make it writable"})
			}
		}
		r.deny = append(r.deny, real)
	}
	slices.SortFunc(r.deny, byLength)
	r.deny = slices.Compact(r.deny)
	for _, name := range s.Reveal {
		if real, exists, err := realPath(name); err == nil && exists {
			r.reveal = append(r.reveal, real)
		}
	}
	return errors.Join(errs...)
}

// beside checks the folder for Command.Side: commands must not reach it by a root,
// nor may a denied folder hide it.
func (r *resolved) beside(s *Spec) error {
	if s.Side == "" {
		return nil
	}
	dir, err := realFolder("side folder", s.Side)
	if err != nil {
		return err
	}
	for _, other := range slices.Concat(r.write, r.deny) {
		if confine.Below(dir, other) || confine.Below(other, dir) {
			return &SpecError{Field: "side folder", Path: s.Side, Reason: "overlaps with " + other, Advice: "choose a folder beside the writable and the denied ones"}
		}
	}
	r.side = dir
	return nil
}

// overlaid finds what overlays would show although it is denied where it is: the
// copy is denied too, and a folder that is denied as a whole is not laid.
func (r *resolved) overlaid(s *Spec) error {
	var errs []error
	for _, o := range s.Overlays {
		lower, _, err := realPath(o.Lower)
		if err != nil {
			errs = append(errs, &SpecError{Field: "overlay", Path: o.Lower, Reason: err.Error()})
			continue
		}
		o.Lower = lower
		hidden := false
		for _, d := range r.deny {
			switch {
			case confine.Below(lower, d) && !slices.ContainsFunc(r.reveal, func(v string) bool { return confine.Below(lower, v) }):
				hidden = true
			case confine.Below(d, lower):
				r.alias = append(r.alias, o.At+d[len(lower):])
			}
		}
		if hidden {
			r.notes = append(r.notes, "begins empty, since what it would begin with is denied: "+o.At)
			continue
		}
		r.overlays = append(r.overlays, o)
	}
	return errors.Join(errs...)
}

// RealPath resolves the links of a path that may be missing: then its longest
// existing part is resolved. A path that is not absolute is only cleaned.
func RealPath(name string) string {
	real, _, err := realPath(name)
	if err != nil {
		return filepath.Clean(name)
	}
	return real
}

// realPath is RealPath, which also tells whether there is such a path.
func realPath(name string) (real string, exists bool, err error) {
	if !filepath.IsAbs(name) {
		return "", false, errors.New("is not an absolute path")
	}
	if strings.ContainsRune(name, 0) {
		return "", false, errors.New("holds a zero byte")
	}
	name = filepath.Clean(name)
	// Nearly always there is no link on the way, and one call tells, also that
	// there is none up to where the path ends.
	fd, err := confine.OpenNoLinks(unix.AT_FDCWD, name)
	if err == nil {
		confine.CloseFD(fd)
		return name, true, nil
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return name, false, nil
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real, true, nil
	}
	if name == "/" {
		return name, true, nil
	}
	parent, _, err := realPath(filepath.Dir(name))
	return filepath.Join(parent, filepath.Base(name)), false, err
}

// findVisible lists what must stay visible although its folder is replaced, and
// the sockets of the host.
func (r *resolved) findVisible(s *Spec) error {
	replaced := replacedFolders(s)
	hidden := func(name string) bool {
		return slices.ContainsFunc(replaced, func(d string) bool { return confine.Below(name, d) })
	}
	var errs []error
	for _, name := range append([]string{r.workspace}, s.Show...) {
		if name == "" {
			continue
		}
		real, exists, err := realPath(name)
		if err != nil {
			errs = append(errs, &SpecError{Field: "shown path", Path: name, Reason: err.Error()})
		} else if exists && hidden(real) && !slices.Contains(r.write, real) && !slices.Contains(replaced, real) {
			r.show = append(r.show, real)
		}
	}
	for _, name := range s.Net.UnixSockets {
		real, exists, err := realPath(name)
		if err != nil {
			errs = append(errs, &SpecError{Field: "unix socket", Path: name, Reason: err.Error()})
			continue
		}
		if fi, serr := os.Lstat(real); !exists || serr != nil || fi.Mode()&os.ModeSocket == 0 {
			r.notes = append(r.notes, "unix socket "+name+" does not exist and stays closed")
			continue
		}
		r.sockets = append(r.sockets, real)
	}
	for _, name := range confine.BoundNames() {
		if len(r.mask) == maxMasks {
			break // a second wall: what connects is looked at anyway
		}
		if fi, err := os.Lstat(name); err != nil || fi.Mode()&os.ModeSocket == 0 {
			continue
		}
		if !slices.Contains(r.sockets, name) && (!hidden(name) || slices.ContainsFunc(r.write, func(w string) bool { return confine.Below(name, w) })) {
			r.mask = append(r.mask, name)
		}
	}
	return errors.Join(errs...)
}

// replacedFolders are those of which commands see another one.
func replacedFolders(s *Spec) []string {
	if s.HostTmp {
		return []string{"/run", "/dev"}
	}
	return []string{"/run", "/dev", "/tmp", "/var/tmp"}
}

// maxMasks bounds the sockets that are covered.
const maxMasks = 1024
