//go:build linux

package confine

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// devices are the ones commands get.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// runKeeps are folders below /run without which some systems have no programs.
var runKeeps = []string{"/run/current-system", "/run/booted-system", "/run/opengl-driver"}

// runFiles are files that /etc may link to in /run.
var runFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/nsswitch.conf", "/etc/machine-id"}

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
		if Below(name, "/run") && !slices.Contains(v.p.Roots, name) && !slices.Contains(v.p.Show, name) && !slices.Contains(v.p.Sockets, name) && name != v.p.Tmp && name != v.p.Side {
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
	if err := mountQueues(dev + "/mqueue"); err != nil {
		return err
	}
	links := map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
	for name, target := range links {
		if err := os.Symlink(target, dev+"/"+name); err != nil {
			return atMount("filling", "/dev", err)
		}
	}
	return nil
}

// mountQueues shows the message queues of the own ipc namespace, so that Landlock
// can be told of them: it takes them for files. Where they cannot be shown, the
// kernel has none or they stay closed.
func mountQueues(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return atMount("filling", "/dev", err)
	}
	err := unix.Mount("mqueue", dir, "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil {
		return atMount("filling", "/dev", os.Remove(dir))
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
