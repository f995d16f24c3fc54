//go:build linux

package confine

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
	side    int // the folder of Plan.Side in the view, as it is below its cover
}

// maskSources cover what may not be seen. They lie on a read-only tmpfs that
// only the staging folder names.
type maskSources struct {
	empty int            // an empty folder
	deny  int            // a folder that cannot be opened
	none  int            // a file that cannot be opened
	blank map[string]int // files of which only the text can be read
}

// buildView makes the view of p the root of the mount namespace. side is the open
// folder of p.Side, or -1.
func buildView(p *Plan, f *Facts) (side int, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, atMount("making / private", "", err)
	}
	v := &view{p: p, facts: f, sources: map[string]int{}, root: -1, side: -1}
	defer v.closeSources()
	if err := v.build(); err != nil {
		CloseFD(v.side)
		return -1, err
	}
	f.Side = v.side >= 0 && f.Mounts == treeMounts && f.Root == pivoted
	return v.side, nil
}

func (v *view) build() error {
	v.mountOverlays()
	if err := v.openSources(); err != nil {
		return err
	}
	if err := v.stageRoot(); err != nil {
		return err
	}
	steps := []func() error{v.replaceTmp, v.replaceRun, v.replaceDev, v.replaceProc, v.graftShown, v.graftRoots, v.cover, v.coverSide, v.seal}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return v.enter()
}

func (v *view) openSources() error {
	must := append([]string{"/"}, v.p.Roots...)
	must = append(append(must, v.p.Show...), v.p.Sockets...)
	for _, name := range []string{v.p.Tmp, v.p.Side} {
		if name != "" {
			must = append(must, name)
		}
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
		if real, err := realName(name); err == nil && Below(real, "/run") {
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

// realName is where the links of name lead in the end.
func realName(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer CloseFD(fd)
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
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
	for _, fd := range append(slices.Collect(maps.Values(v.masks.blank)), v.root, v.masks.empty, v.masks.deny, v.masks.none) {
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
	for i, text := range slices.Sorted(maps.Values(blanks)) {
		if err := os.WriteFile(dir+"/blank"+strconv.Itoa(i), []byte(text), 0o444); err != nil {
			return atMount("staging", "", err)
		}
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
	v.masks.blank = map[string]int{}
	for i, text := range slices.Sorted(maps.Values(blanks)) {
		fd, err := unix.Open(dir+"/blank"+strconv.Itoa(i), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return atMount("staging", "blank", err)
		}
		if old, ok := v.masks.blank[text]; ok {
			CloseFD(old) // the same text under another name
		}
		v.masks.blank[text] = fd
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

// How a view was made, in Facts.
const (
	treeMounts = "mount_setattr"
	pivoted    = "pivot_root"
)

// enter makes the view the root. pivot_root is refused in some containers and
// on an initial ramdisk; moving the mount onto / does the same there.
func (v *view) enter() error {
	if err := unix.Chdir(v.at("")); err != nil {
		return atMount("entering", "the new root", err)
	}
	err := unix.PivotRoot(".", ".")
	if err == nil {
		v.facts.Root = pivoted
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
