//go:build linux

package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// layerError is a refused step of one layer.
type layerError struct {
	layer, op string
	err       error
}

func (e *layerError) Error() string { return e.layer + ": " + e.op + ": " + e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

func atMount(op, what string, err error) error {
	if err == nil {
		return nil
	}
	if what != "" {
		op += " " + what
	}
	return &layerError{LayerMount, op, err}
}

// A view is the file system that the commands of a sandbox see, while it is
// built. Everything is read-only in it except the roots and /tmp.
//
// It is put together below a staging folder and becomes the root at the end.
// Sources are opened before anything is covered, and every place inside the new
// root is opened without following links: another sandbox may be busy in the
// same workspace and swap a folder for a link at any time.
type view struct {
	p       *Plan
	grafter grafter
	stage   string         // a tmpfs; "root" in it is the new root
	root    int            // the new root mount
	sources map[string]int // opened before anything changed
	masks   maskSources
	facts   *Facts
}

// maskSources cover what may not be seen. They lie on a read-only tmpfs that
// only the staging folder names.
type maskSources struct {
	empty int // an empty folder
	deny  int // a folder that cannot be opened
	none  int // a file that cannot be opened
}

// buildView makes the view of p the root of the mount namespace.
func buildView(p *Plan, f *Facts) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return atMount("making / private", "", err)
	}
	v := &view{p: p, facts: f, sources: map[string]int{}, root: -1}
	defer v.closeSources()
	v.mountOverlays()
	if err := v.openSources(); err != nil {
		return err
	}
	if err := v.stageRoot(); err != nil {
		return err
	}
	steps := []func() error{v.replaceTmp, v.replaceRun, v.replaceDev, v.replaceProc, v.graftShown, v.graftRoots, v.cover, v.seal}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return v.enter()
}

// devices are the ones commands get.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// runKeeps are folders below /run without which some systems have no programs.
var runKeeps = []string{"/run/current-system", "/run/booted-system", "/run/opengl-driver"}

// runFiles are files that /etc may link to in /run.
var runFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/nsswitch.conf", "/etc/machine-id"}

func (v *view) openSources() error {
	must := append([]string{"/"}, v.p.Roots...)
	must = append(append(must, v.p.Show...), v.p.Sockets...)
	if v.p.Tmp != "" {
		must = append(must, v.p.Tmp)
	}
	for _, name := range must {
		fd, err := OpenNoLinks(unix.AT_FDCWD, name)
		if err != nil {
			return atMount("opening", name, err)
		}
		v.keepSource(name, fd)
	}
	optional := append(append([]string(nil), devices...), v.p.Reveal...)
	optional = append(optional, runKeeps...)
	for _, name := range runFiles {
		if real, err := filepath.EvalSymlinks(name); err == nil && Below(real, "/run") {
			optional = append(optional, real)
		}
	}
	for _, name := range optional {
		if fd, err := OpenNoLinks(unix.AT_FDCWD, name); err == nil {
			v.keepSource(name, fd)
		}
	}
	return nil
}

func (v *view) keepSource(name string, fd int) {
	if old, ok := v.sources[name]; ok {
		CloseFD(old)
	}
	v.sources[name] = fd
}

func (v *view) closeSources() {
	for _, fd := range v.sources {
		CloseFD(fd)
	}
	for _, fd := range []int{v.root, v.masks.empty, v.masks.deny, v.masks.none} {
		if fd > 0 {
			CloseFD(fd)
		}
	}
}

// stageRoot mounts the staging tmpfs and the read-only copy of / in it.
func (v *view) stageRoot() error {
	if err := v.chooseStage(); err != nil {
		return err
	}
	// The copy of / is taken before the staging folder is covered.
	g, err := newGrafter(v.sources["/"])
	if err != nil {
		return err
	}
	v.grafter = g
	v.facts.Mounts = g.name()
	if err := unix.Mount("tmpfs", v.stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return atMount("mounting a tmpfs on", v.stage, err)
	}
	if err := v.makeMasks(); err != nil {
		return err
	}
	root := v.stage + "/root"
	if err := os.Mkdir(root, 0o755); err != nil {
		return atMount("staging", "", err)
	}
	if err := g.graftRoot(root, v.stage); err != nil {
		return err
	}
	v.root, err = unix.Open(root, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	return atMount("opening", "the new root", err)
}

// chooseStage finds a folder to cover for a while. A source that holds it would
// be copied with the staging tmpfs in it.
func (v *view) chooseStage() error {
	for _, d := range []string{"/tmp", "/var", "/usr", "/etc", "/home", "/opt", "/srv", "/mnt"} {
		free := true
		for name := range v.sources {
			free = free && (name == "/" || !Below(d, name))
		}
		if fi, err := os.Lstat(d); free && err == nil && fi.IsDir() {
			v.stage = d
			return nil
		}
	}
	return atMount("finding a folder to stage in", "", unix.ENOENT)
}

func (v *view) makeMasks() error {
	dir := v.stage + "/masks"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return atMount("staging", "", err)
	}
	if err := errors.Join(os.Mkdir(dir+"/empty", 0o555), os.Mkdir(dir+"/deny", 0), os.WriteFile(dir+"/none", nil, 0)); err != nil {
		return atMount("staging", "", err)
	}
	// mkdir and open obey the umask, which only takes away.
	if err := os.Chmod(dir+"/empty", 0o555); err != nil {
		return atMount("staging", "", err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return atMount("staging", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return atMount("staging", dir, err)
	}
	for name, fd := range map[string]*int{"empty": &v.masks.empty, "deny": &v.masks.deny, "none": &v.masks.none} {
		var err error
		if *fd, err = unix.Open(dir+"/"+name, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return atMount("staging", name, err)
		}
	}
	return nil
}

// at gives the staged name of a path of the view.
func (v *view) at(name string) string { return v.stage + "/root" + name }

// open opens a place of the new root.
func (v *view) open(name string) (int, error) {
	if name == "/" {
		return unix.Dup(v.root)
	}
	return OpenNoLinks(v.root, strings.TrimPrefix(name, "/"))
}

// put grafts a source at a place, which is made if it does not exist (which can
// only be in a replaced folder: everything else is read-only already).
func (v *view) put(source int, name string, attr uint64) error {
	dst, err := v.open(name)
	if errors.Is(err, unix.ENOENT) {
		if dst, err = v.makePlace(source, name); err != nil {
			return atMount("making a place for", name, err)
		}
	}
	if err != nil {
		return atMount("opening", name, err)
	}
	defer CloseFD(dst)
	return atMount("mounting on", name, v.grafter.graft(source, dst, attr))
}

// makePlace makes the folders on the way to name and name itself, of the kind
// that source is.
func (v *view) makePlace(source int, name string) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return -1, err
	}
	dir, err := unix.Dup(v.root)
	if err != nil {
		return -1, err
	}
	parts := strings.Split(strings.Trim(name, "/"), "/")
	for i, part := range parts {
		folder := i < len(parts)-1 || st.Mode&unix.S_IFMT == unix.S_IFDIR
		next, err := OpenNoLinks(dir, part)
		if errors.Is(err, unix.ENOENT) {
			if folder {
				err = unix.Mkdirat(dir, part, 0o755)
			} else {
				err = unix.Mknodat(dir, part, unix.S_IFREG|0o644, 0)
			}
			if err == nil || errors.Is(err, unix.EEXIST) {
				next, err = OpenNoLinks(dir, part)
			}
		}
		CloseFD(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

// isFolder tells whether name is a real folder of the view.
func (v *view) isFolder(name string) bool {
	fd, err := v.open(name)
	if err != nil {
		return false
	}
	defer CloseFD(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// replaceTmp puts the private folder where the host's /tmp was.
func (v *view) replaceTmp() error {
	if v.p.Tmp == "" {
		return nil
	}
	for _, d := range []string{"/tmp", "/var/tmp"} {
		if v.isFolder(d) {
			if err := v.put(v.sources[v.p.Tmp], d, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceRun hides the sockets and state of the host's services.
func (v *view) replaceRun() error {
	for _, d := range []string{"/run", "/var/run"} {
		if !v.isFolder(d) {
			continue
		}
		if err := unix.Mount("tmpfs", v.at(d), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
			return atMount("mounting a tmpfs on", d, err)
		}
	}
	for name, fd := range v.sources {
		if Below(name, "/run") && !slices.Contains(v.p.Roots, name) && !slices.Contains(v.p.Show, name) && !slices.Contains(v.p.Sockets, name) && name != v.p.Tmp {
			if err := v.put(fd, name, readOnlyAttr); err != nil {
				return err
			}
		}
	}
	return nil
}

// readOnlyAttr is what everything gets that is not a root.
const readOnlyAttr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// shmSize bounds /dev/shm where no memory limit says less. Its pages count as
// memory of the sandbox where there is a cgroup.
const shmSize = 1 << 30

// replaceDev makes a /dev of harmless devices, an own terminal instance and own
// shared memory.
func (v *view) replaceDev() error {
	dev := v.at("/dev")
	if err := unix.Mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=1m"); err != nil {
		return atMount("mounting a tmpfs on", "/dev", err)
	}
	for _, name := range devices {
		if fd, ok := v.sources[name]; ok {
			if err := v.put(fd, name, 0); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(os.Mkdir(dev+"/pts", 0o755), os.Mkdir(dev+"/shm", 0o1777)); err != nil {
		return atMount("filling", "/dev", err)
	}
	if err := unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return atMount("mounting", "/dev/pts", err)
	}
	size := int64(shmSize)
	if m := v.p.Limits.MemoryBytes; m > 0 && m < 2*size {
		size = m / 2
	}
	if err := unix.Mount("tmpfs", dev+"/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d", size)); err != nil {
		return atMount("mounting", "/dev/shm", err)
	}
	links := map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
	for name, target := range links {
		if err := os.Symlink(target, dev+"/"+name); err != nil {
			return atMount("filling", "/dev", err)
		}
	}
	return nil
}

// replaceProc mounts a /proc of the own pid namespace. A container whose /proc
// is masked does not allow that: then the outer one stays, read-only.
func (v *view) replaceProc() error {
	err := unix.Mount("proc", v.at("/proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err == nil {
		v.facts.Proc = "own"
		return nil
	}
	v.facts.Proc = "outer"
	v.facts.fail(&layerError{LayerProc, "mounting a new /proc", err})
	return nil
}

// graftShown keeps folders visible that a replaced one would hide.
func (v *view) graftShown() error {
	for _, name := range v.p.Show {
		if err := v.put(v.sources[name], name, readOnlyAttr); err != nil {
			return err
		}
	}
	for _, name := range v.p.Sockets {
		if err := v.put(v.sources[name], name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
			return err
		}
	}
	return nil
}

// graftRoots attaches the writable roots and what is protected in them, the
// shorter path first, so that a root inside a protected folder stays writable
// and a protected folder inside a root does not.
func (v *view) graftRoots() error {
	type place struct {
		name string
		do   func(string) error
	}
	var places []place
	for _, r := range v.p.Roots {
		places = append(places, place{r, func(name string) error {
			return v.put(v.sources[name], name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
		}})
	}
	for _, name := range v.p.Protect {
		places = append(places, place{name, v.protect})
	}
	for _, name := range v.p.Hold {
		places = append(places, place{name, func(name string) error { return v.put(v.masks.empty, name, 0) }})
	}
	slices.SortStableFunc(places, func(a, b place) int { return len(a.name) - len(b.name) })
	for _, p := range places {
		if err := p.do(p.name); err != nil {
			return err
		}
	}
	return nil
}

// protect makes a path read-only where it is. As a mount point it can be
// neither renamed nor removed.
func (v *view) protect(name string) error {
	fd, err := v.open(name)
	if err != nil {
		return atMount("opening", name, err)
	}
	defer CloseFD(fd)
	return atMount("protecting", name, v.grafter.graft(fd, fd, readOnlyAttr))
}

// kernelFolders of /sys show the kernel's insides to user 0, who owns them also
// without any capability.
var kernelFolders = []string{"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/kernel/config", "/sys/fs/pstore",
	"/sys/fs/bpf", "/sys/firmware"}

// cover hides the denied paths, shows what is revealed in them, and covers the
// sockets of the host.
func (v *view) cover() error {
	for _, name := range kernelFolders {
		if v.isFolder(name) {
			if err := v.hide(name, v.masks.deny); err != nil {
				return err
			}
		}
	}
	if err := v.pin(); err != nil {
		return err
	}
	for _, name := range v.p.Deny {
		if err := v.deny(name); err != nil {
			return err
		}
	}
	for _, name := range v.p.Mask {
		if err := v.hide(name, v.masks.none); err != nil {
			return err
		}
	}
	return nil
}

// hide covers a path with a mask. One that cannot be reached needs none.
func (v *view) hide(name string, mask int) error {
	fd, err := v.open(name)
	if err != nil {
		return nil
	}
	defer CloseFD(fd)
	return atMount("covering", name, v.grafter.graft(mask, fd, 0))
}

// pin makes the folders between a root and a denied path in it mount points, so
// that they cannot be renamed: the next sandbox would not find the path there,
// and leave open what was moved.
func (v *view) pin() error {
	var pins []string
	for _, name := range v.p.Deny {
		for _, root := range v.p.Roots {
			if !Below(name, root) {
				continue
			}
			for d := path.Dir(name); d != root && Below(d, root); d = path.Dir(d) {
				pins = append(pins, d)
			}
		}
	}
	slices.Sort(pins) // the outer folder first
	for _, d := range slices.Compact(pins) {
		if slices.Contains(v.p.Roots, d) || slices.Contains(v.p.Protect, d) {
			continue // a mount point already
		}
		fd, err := v.open(d)
		if err != nil {
			continue // the path in it does not exist either
		}
		err = v.grafter.graft(fd, fd, 0)
		CloseFD(fd)
		if err != nil {
			return atMount("pinning", d, err)
		}
	}
	return nil
}

func (v *view) deny(name string) error {
	fd, err := v.open(name)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return nil // nothing to read
	case errors.Is(err, unix.EACCES):
		return nil // the commands, with fewer rights, cannot get there either
	case err != nil:
		return atMount("opening the denied path", name, err)
	}
	defer CloseFD(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return atMount("looking at", name, err)
	}
	v.facts.Denied++
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return atMount("covering", name, v.grafter.graft(v.masks.none, fd, 0))
	}
	var shown []string
	for _, r := range v.p.Reveal {
		if _, ok := v.sources[r]; ok && Below(r, name) {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
		return atMount("covering", name, v.grafter.graft(v.masks.deny, fd, 0))
	}
	if err := unix.Mount("tmpfs", v.at(name), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=1m"); err != nil {
		return atMount("mounting a tmpfs on", name, err)
	}
	for _, r := range shown {
		if err := v.put(v.sources[r], r, readOnlyAttr); err != nil {
			return err
		}
	}
	return atMount("sealing", name, v.grafter.setReadOnly(v.at(name)))
}

// seal makes the replaced folders read-only, now that all places are made.
func (v *view) seal() error {
	names := []string{"/dev"}
	for _, d := range []string{"/run", "/var/run"} {
		if v.isFolder(d) {
			names = append(names, d)
		}
	}
	if !v.p.TmpWrite {
		names = append(names, "/dev/shm")
		if v.p.Tmp != "" {
			for _, d := range []string{"/tmp", "/var/tmp"} {
				if v.isFolder(d) {
					names = append(names, d)
				}
			}
		}
	}
	for _, name := range names {
		if err := v.grafter.setReadOnly(v.at(name)); err != nil {
			return atMount("sealing", name, err)
		}
	}
	return nil
}

// enter makes the view the root. pivot_root is refused in some containers and
// on an initial ramdisk; moving the mount onto / does the same there.
func (v *view) enter() error {
	if err := unix.Chdir(v.at("")); err != nil {
		return atMount("entering", "the new root", err)
	}
	err := unix.PivotRoot(".", ".")
	if err == nil {
		v.facts.Root = "pivot_root"
		// The old root lies on top of the new one now.
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return atMount("detaching", "the old root", err)
		}
		return atMount("entering", "/", unix.Chdir("/"))
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return atMount("pivot_root", "", err)
	}
	v.facts.Root = "chroot"
	if err := unix.Mount(v.at(""), "/", "", unix.MS_MOVE, ""); err != nil {
		return atMount("moving the new root to", "/", err)
	}
	if err := unix.Chroot("."); err != nil {
		return atMount("chroot", "", err)
	}
	return atMount("entering", "/", unix.Chdir("/"))
}

// OpenNoLinks opens a place without following any link on the way.
func OpenNoLinks(dir int, name string) (int, error) {
	// Not with O_NOFOLLOW: that would open a link at the end of the path itself.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(dir, name, &how)
	if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	return walkNoLinks(dir, name) // before Linux 5.6, and where a filter refuses it
}

// walkNoLinks does the same one name at a time.
func walkNoLinks(dir int, name string) (int, error) {
	if strings.HasPrefix(name, "/") {
		root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
		if err != nil {
			return -1, err
		}
		defer CloseFD(root)
		dir, name = root, strings.TrimPrefix(path.Clean(name), "/")
	}
	if name == "" {
		return unix.Dup(dir)
	}
	cur := -1
	for part := range strings.SplitSeq(name, "/") {
		at := cur
		if at < 0 {
			at = dir
		}
		next, err := unix.Openat(at, part, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		CloseFD(cur)
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(next, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
			CloseFD(next)
			if err == nil {
				err = unix.ELOOP
			}
			return -1, err
		}
		cur = next
	}
	return cur, nil
}

// Below tells whether name is dir or lies in it.
func Below(name, dir string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// Errno digs the kernel's number out of an error; 0 if there is none.
func Errno(err error) unix.Errno {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	var pe *fs.PathError
	if errors.As(err, &pe) && errors.As(pe.Err, &e) {
		return e
	}
	return 0
}

// fail records a refused step; the first of a layer is kept.
func (f *Facts) fail(err error) {
	var le *layerError
	if !errors.As(err, &le) {
		le = &layerError{"sandbox", "setting up", err}
	}
	if f.Failed == nil {
		f.Failed = map[string]LayerFailure{}
	}
	if _, ok := f.Failed[le.layer]; !ok {
		f.Failed[le.layer] = LayerFailure{Op: le.op, Errno: int(Errno(le.err)), Text: le.err.Error()}
	}
}
