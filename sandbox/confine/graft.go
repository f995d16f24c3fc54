//go:build linux

package confine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A grafter attaches a tree at another place, with everything mounted in it.
type grafter interface {
	name() string
	// graftRoot attaches the read-only copy of / at dst. stage is the folder
	// that was covered for staging.
	graftRoot(dst, stage string) error
	// graft attaches the tree of src at dst; attr applies to all of it.
	graft(src, dst int, attr uint64) error
	// setReadOnly makes the one mount at a path read-only.
	setReadOnly(at string) error
}

// newGrafter uses the mount calls of Linux 5.12 if there are any, and mount(2)
// otherwise. root is /, not yet covered anywhere.
func newGrafter(root int) (grafter, error) {
	tree, err := openTree(root)
	if err == nil {
		err = setAttr(tree, readOnlyAttr)
		if err == nil {
			return &treeGrafter{root: tree}, nil
		}
		CloseFD(tree)
	}
	if errors.Is(err, unix.ENOSYS) {
		return bindGrafter{root: root}, nil
	}
	return nil, atMount("copying", "/", err)
}

// treeGrafter copies a tree detached, changes it, and attaches it: nobody sees
// it half done.
type treeGrafter struct{ root int }

func (*treeGrafter) name() string { return treeMounts }

func (g *treeGrafter) graftRoot(dst, stage string) error {
	defer CloseFD(g.root)
	err := unix.MoveMount(g.root, "", unix.AT_FDCWD, dst, unix.MOVE_MOUNT_F_EMPTY_PATH)
	return atMount("attaching", "the copy of /", err)
}

func (g *treeGrafter) graft(src, dst int, attr uint64) error {
	tree, err := openTree(src)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer CloseFD(tree)
	if attr != 0 {
		if err := setAttr(tree, attr); err != nil {
			return fmt.Errorf("mount_setattr: %w", err)
		}
	}
	if err := unix.MoveMount(tree, "", dst, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

func (g *treeGrafter) setReadOnly(at string) error {
	return unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

func openTree(fd int) (int, error) {
	return unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

func setAttr(tree int, attr uint64) error {
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr})
}

// bindGrafter does it with mount(2), which can only make a tree read-only mount
// by mount, after it is attached.
type bindGrafter struct{ root int }

func (bindGrafter) name() string { return "mount" }

func (g bindGrafter) graftRoot(dst, stage string) error {
	fd, err := unix.Open(dst, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return atMount("opening", dst, err)
	}
	defer CloseFD(fd)
	if err := g.graft(g.root, fd, readOnlyAttr); err != nil {
		return atMount("copying", "/", err)
	}
	// The copy holds the staging tmpfs too, where the host's folder should be.
	return atMount("uncovering", stage, unix.Unmount(dst+stage, unix.MNT_DETACH))
}

func (bindGrafter) graft(src, dst int, attr uint64) error {
	at, err := os.Readlink(fdPath(dst))
	if err != nil {
		return err
	}
	if err := unix.Mount(fdPath(src), fdPath(dst), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if attr == 0 {
		return nil
	}
	return remountTree(at, attr)
}

func (bindGrafter) setReadOnly(at string) error {
	ms, err := mountsBelow(at)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if m.at == at {
			return remount(m, unix.MOUNT_ATTR_RDONLY)
		}
	}
	return unix.EINVAL
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// remountTree applies attr to every mount at or below a path.
func remountTree(at string, attr uint64) error {
	ms, err := mountsBelow(at)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if err := remount(m, attr); err != nil {
			return fmt.Errorf("remounting %s: %w", m.at, err)
		}
	}
	return nil
}

// remount adds attr to what the mount has: a mount of a more privileged
// namespace must keep its restrictions.
func remount(m mountPoint, attr uint64) error {
	flags := m.flags
	for bit, flag := range map[uint64]uintptr{unix.MOUNT_ATTR_RDONLY: unix.MS_RDONLY, unix.MOUNT_ATTR_NOSUID: unix.MS_NOSUID, unix.MOUNT_ATTR_NODEV: unix.MS_NODEV} {
		if attr&bit != 0 {
			flags |= flag
		}
	}
	err := unix.Mount("", m.at, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EINVAL) {
		// A later mount on a folder above covers this one: what can be seen at
		// this path is not a mount of its own and was or will be changed with its own.
		return nil
	}
	return err
}

// mountPoint is a line of mountinfo.
type mountPoint struct {
	at    string
	flags uintptr
}

var mountFlags = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
	"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME, "nosymfollow": unix.MS_NOSYMFOLLOW,
}

// mountsBelow lists the mounts at or below a path, parents first. Of several at
// one place only the last, which covers the others, is listed.
func mountsBelow(at string) ([]mountPoint, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []mountPoint
	last := map[string]int{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		// 36 35 98:0 /root /mount/point rw,noatime … - type source options
		fields := strings.Fields(sc.Text())
		if len(fields) < 6 {
			continue
		}
		m := mountPoint{at: unescapeMount(fields[4])}
		if !Below(m.at, at) {
			continue
		}
		for o := range strings.SplitSeq(fields[5], ",") {
			m.flags |= mountFlags[o]
		}
		if i, ok := last[m.at]; ok {
			out[i] = m
			continue
		}
		last[m.at] = len(out)
		out = append(out, m)
	}
	return out, sc.Err()
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
