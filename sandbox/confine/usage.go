//go:build linux

package confine

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// use is what a tree uses now.
type use struct {
	memory int64 // resident, shared pages counted for every process
	procs  int64 // threads included, as the kernel counts
}

// uses adds up what every running command uses.
func (in *initProcess) uses() map[uint32]use {
	out := map[uint32]use{}
	page := int64(os.Getpagesize())
	for id, pids := range in.trees() {
		u := use{}
		for _, pid := range pids {
			dir := "/proc/" + strconv.Itoa(pid)
			b, err := os.ReadFile(dir + "/statm")
			if err != nil {
				continue // gone
			}
			if f := bytes.Fields(b); len(f) > 1 {
				if n, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
					u.memory += n * page
				}
			}
			u.procs++
			if s, err := os.ReadFile(dir + "/status"); err == nil {
				if n := numberAfter(s, "Threads:"); n > 1 {
					u.procs += n - 1
				}
			}
		}
		out[id] = u
	}
	return out
}

// holding is the memory of a tree, every page counted once.
type holding struct {
	mapped int64           // what its processes have mapped
	shmem  int64           // the part of that which is files in memory
	files  map[inode]int64 // files in memory that are open, mapped or not
}

// inode names a file in memory.
type inode struct{ dev, ino uint64 }

// add counts what another tree holds, and a file that both have open once.
func (h *holding) add(o holding) {
	h.mapped += o.mapped
	h.shmem += o.shmem
	if h.files == nil {
		h.files = map[inode]int64{}
	}
	for i, n := range o.files {
		h.files[i] = n
	}
}

// bytes is all of it. Files in memory need not be mapped, and what is mapped need
// not be open any more: the larger of the two counts, with what belongs to nobody.
func (h holding) bytes(unowned int64) int64 {
	files := unowned
	for _, n := range h.files {
		files += n
	}
	return h.mapped - h.shmem + max(h.shmem, files)
}

// held looks at every process of a tree.
func (in *initProcess) held(id uint32) holding {
	h := holding{files: map[inode]int64{}}
	for _, pid := range in.trees()[id] {
		dir := "/proc/" + strconv.Itoa(pid)
		if b, err := os.ReadFile(dir + "/smaps_rollup"); err == nil {
			h.mapped += numberAfter(b, "Pss:") << 10
			h.shmem += numberAfter(b, "Pss_Shmem:") << 10
		}
		fds, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue // gone
		}
		for _, fd := range fds {
			name := dir + "/fd/" + fd.Name()
			// Only these: to look at a file of another kind could wait.
			if target, err := os.Readlink(name); err != nil || !strings.HasPrefix(target, "/memfd:") {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(name, &st) == nil {
				h.files[inode{uint64(st.Dev), st.Ino}] = st.Blocks * blockSize
			}
		}
	}
	return h
}

// blockSize is the unit of st_blocks.
const blockSize = 512

// unowned is the memory that stays without a process: the files of /dev/shm and
// the segments of shmget, which are this sandbox's own.
func (in *initProcess) unowned() int64 {
	if !in.plan.Namespaces {
		return 0 // closed to commands, and full of other people's
	}
	var sum int64
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) == nil && st.Type == unix.TMPFS_MAGIC {
		sum += int64(st.Blocks-st.Bfree) * st.Bsize
	}
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return sum // a kernel without them
	}
	const resident = 14 // of proc_sysvipc_shm(5), the column "rss" in bytes
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > resident {
			if n, err := strconv.ParseInt(f[resident], 10, 64); err == nil { // not the heading
				sum += n
			}
		}
	}
	return sum
}

// sharedPages is the memory of the whole machine that is in files in memory. Where
// it does not grow no command hides any there.
func sharedPages() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return numberAfter(b, "Shmem:") << 10
}

// numberAfter reads the number after a label at the beginning of a line.
func numberAfter(b []byte, label string) int64 {
	i := indexLine(b, label)
	if i < 0 {
		return 0
	}
	f := bytes.Fields(b[i:])
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
