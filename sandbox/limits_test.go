//go:build linux

package sandbox

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const hog = `
import mmap, ctypes, time, sys
m = mmap.mmap(-1, int(sys.argv[1]) << 20)
ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(m)), 1, len(m))
time.sleep(float(sys.argv[2])); print("had it")`

func TestMemoryLimit(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: Limits{MemoryBytes: 256 << 20}})
	got, x := py(t, b, hog, "64", "0.3")
	if got != "had it" || x.Killed != "" {
		t.Errorf("below the limit: %q %+v", got, x)
	}
	got, x = py(t, b, hog, "600", "20")
	if got == "had it" || x.Signal != 9 || x.Killed != "memory" {
		t.Errorf("above the limit: %q %+v", got, x)
	}
	if out, _ := sh(t, b, "echo fine"); out != "fine" {
		t.Errorf("afterwards: %q", out)
	}
	if x.Measured == "cgroup" && x.PeakBytes < 128<<20 {
		t.Errorf("peak %d", x.PeakBytes)
	}
}

// TestMemoryLimitEndsTheWholeCommand: the kernel chooses one process when memory
// runs out; what is left of its command ends too, and no other command does.
func TestMemoryLimitEndsTheWholeCommand(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: Limits{MemoryBytes: 256 << 20}})
	if b.group == nil {
		t.Skipf("no control group: %v", b.groupErr)
	}
	neighbour := start(t, b, Command{Argv: []string{"sh", "-c", "read x; echo lives"}, Stdin: strings.NewReader(""), KeepStdin: true})
	got, x := sh(t, b, `for i in 1 2 3 4; do dd if=/dev/zero of=/dev/null bs=120M count=100000 2>/dev/null & done; wait $!; sleep 10; echo went on without one`)
	if got != "" || x.Killed != "memory" || x.OOMKills == 0 {
		t.Errorf("%q %+v", got, x)
	}
	if err := neighbour.CloseStdin(); err != nil {
		t.Error(err)
	}
	if out, x := finish(t, neighbour); strings.TrimSpace(out) != "lives" || x.Killed != "" || x.OOMKills != 0 {
		t.Errorf("the neighbour: %q %+v", out, x)
	}
}

// unmappedMemory takes 600 MiB that no process has mapped.
var unmappedMemory = map[string]string{
	"memory files": `
import os, time
files = [os.memfd_create("m") for i in range(6)]
for f in files:
    for i in range(100): os.write(f, b"x" * (1 << 20))
time.sleep(20)
print("had it")`,
	"System V segments": `
import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for i in range(6):
    at = libc.shmat(libc.shmget(0, 100 << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, 100 << 20)
    libc.shmdt(ctypes.c_void_p(at))
time.sleep(20)
print("had it")`,
}

// Without a control group the init watches.
func TestWatchedLimits(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := &Sandbox{spec: Spec{Mode: WorkspaceWrite, Workspace: ws, Limits: Limits{MemoryBytes: 256 << 20, Processes: 60}}, noGroup: true}
	if err := b.open(testContext(t), nil); err != nil {
		unsupported(t, err)
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, x := py(t, b, hog, "600", "20")
	if got == "had it" || x.Killed != "memory" {
		t.Errorf("memory: %q %+v", got, x)
	}
	for name, script := range unmappedMemory {
		if got, x := py(t, b, script); got == "had it" || x.Killed != "memory" {
			t.Errorf("memory in %s: %q %+v", name, got, x)
		}
	}
	got, x = py(t, b, `
import os, time
n = 0
try:
    for n in range(700):
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
    time.sleep(20)
    print("all")
except OSError: print("stopped at", n)`)
	if strings.Contains(got, "all") && x.Killed != "processes" {
		t.Errorf("processes: %q %+v", got, x)
	}
	for _, s := range b.Report().Guarantees {
		if s.Guarantee == Limited && (s.Held || s.Why == "" || s.Mechanism == "") {
			t.Errorf("the report claims %+v", s)
		}
	}
}

// TestCPULimit compares what a loop gets with and without a limit.
func TestCPULimit(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	share := func(percent int64) float64 {
		b := openBox(t, Spec{Workspace: ws, Limits: Limits{CPUPercent: percent}})
		if percent > 0 && b.group == nil {
			t.Skipf("no control group: %v", b.groupErr)
		}
		out, x := py(t, b, `
import time
begin = time.monotonic()
while time.process_time() < 0.4: pass
print(time.process_time() / (time.monotonic() - begin))`)
		f, err := strconv.ParseFloat(out, 64)
		if err != nil {
			t.Fatalf("%q %+v", out, x)
		}
		return f
	}
	if limited := share(20); limited > 0.3 {
		t.Errorf("a fifth of a core: the loop had %.2f of one (%.2f without a limit)", limited, share(0))
	}
}

// TestRealTimePriority: a job of the real-time class is confined like any other.
func TestRealTimePriority(t *testing.T) {
	schedule := func(policy, priority uint32) error {
		threads, err := os.ReadDir("/proc/self/task")
		for _, thread := range threads {
			tid, _ := strconv.Atoi(thread.Name())
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
			if e := unix.SchedSetAttr(tid, &attr, 0); e != nil && !errors.Is(e, unix.ESRCH) {
				err = e
			}
		}
		return err
	}
	if err := schedule(unix.SCHED_RR, 1); err != nil {
		t.Skipf("no right to the real-time class: %v", err)
	}
	defer func() {
		if err := schedule(unix.SCHED_NORMAL, 0); err != nil {
			t.Error(err)
		}
	}()
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: Limits{MemoryBytes: 256 << 20}})
	if out, x := sh(t, b, "chrt -p $$ | grep -c SCHED_RR"); out != "1" {
		t.Errorf("%q %+v", out, x)
	}
	for _, s := range b.Report().Guarantees {
		if !s.Held {
			t.Errorf("not held: %+v", s)
		}
	}
}

func TestLimitsOfOneCommand(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws})
	p := start(t, b, Command{Argv: []string{"python3", "-c", hog, "600", "20"}, Limits: Limits{MemoryBytes: 128 << 20}})
	out, x := finish(t, p)
	if strings.Contains(out, "had it") || x.Killed != "memory" {
		t.Errorf("%q %+v", out, x)
	}
	p = start(t, b, Command{Argv: []string{"sh", "-c", "ulimit -n; ulimit -f; ulimit -c"}, Limits: Limits{OpenFiles: 77, FileBytes: 1 << 20}})
	if out, _ := finish(t, p); out != "77\n2048\n0\n" {
		t.Errorf("%q", out)
	}
}

// The same without any program of the machine: memory, processes and what the
// figures say of it.
func TestLimitsOfHelpers(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: Limits{MemoryBytes: 256 << 20, Processes: 100}})
	hog := func(mib string) (string, Exit) {
		return finish(t, start(t, b, Command{Helper: "hog", Argv: []string{mib}}))
	}
	out, x := hog("64")
	if !strings.HasPrefix(out, "had it") || x.Code != 0 || x.PeakBytes < 64<<20 || x.PeakBytes > 256<<20 {
		t.Errorf("below the limit: %q %+v", out, x)
	}
	out, x = hog("600")
	if strings.HasPrefix(out, "had it") || x.Killed != "memory" || x.Measured == "cgroup" && x.OOMKills == 0 {
		t.Errorf("above the limit: %q %+v", out, x)
	}
	_, x = sh(t, b, "i=0; while [ $i -lt 400 ]; do sleep 20 & i=$((i+1)); done 2>/dev/null; wait")
	if b.group != nil && x.Code == 0 {
		t.Errorf("400 processes: %+v", x)
	}
	if out, x := hog("8"); !strings.HasPrefix(out, "had it") || x.OOMKills != 0 {
		t.Errorf("afterwards: %q %+v", out, x)
	}
	if want := os.Getenv("NIGHTSHIFT_CGROUP"); want != "" && (b.group == nil || b.group.name() != want) {
		t.Errorf("the limits are held by %v (%v), want %s", b.group, b.groupErr, want)
	}
}

func TestFileSizeLimit(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: Limits{FileBytes: 1 << 20}})
	if _, x := sh(t, b, "head -c 3000000 /dev/zero > big"); x.Code == 0 {
		t.Error("a file above the limit was written")
	}
	if n := size(t, filepath.Join(ws, "big")); n > 1<<20 {
		t.Errorf("%d bytes", n)
	}
}

func TestDiskLimit(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: Limits{DiskBytes: 64 << 20}})
	// Blocks are given when data is flushed.
	_, x := sh(t, b, "for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/zero of=f$i bs=1M count=50 conv=fsync 2>/dev/null; done; sleep 20")
	if x.Killed != "disk" {
		t.Errorf("%+v", x)
	}
	if _, x := sh(t, b, "rm f*"); x.Code != 0 {
		t.Errorf("%+v", x)
	}
}

func TestFallocateIsNotInstant(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws})
	got, _ := py(t, b, `
import os, ctypes
fd = os.open("f", os.O_CREAT | os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
r = libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(1 << 30)); print(r, ctypes.get_errno())
os.posix_fallocate(fd, 0, 1 << 20); print(os.fstat(fd).st_size)`)
	if got != "-1 95\n1048576" {
		t.Errorf("%q", got)
	}
}

func TestFigures(t *testing.T) {
	needPython(t)
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: DefaultLimits()})
	_, x := py(t, b, `
import time
x = bytearray(80 << 20)
end = time.process_time() + 0.3
while time.process_time() < end: pass`)
	if x.CPU < 250*time.Millisecond || x.CPU > 20*time.Second {
		t.Errorf("cpu %s", x.CPU)
	}
	if x.PeakBytes < 80<<20 || x.PeakBytes > 1<<30 {
		t.Errorf("peak %d", x.PeakBytes)
	}
	if x.Measured != "cgroup" && x.Measured != "rusage" {
		t.Errorf("measured by %q", x.Measured)
	}
	// What background children used counts too.
	_, x = sh(t, b, `(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait; exit 0`)
	if x.CPU < 5*time.Millisecond {
		t.Errorf("cpu of a child: %s", x.CPU)
	}
}

// Killed runners leave groups behind; the next one sweeps what nobody uses.
func TestGroupsAreRemoved(t *testing.T) {
	_, ws, _ := world(t)
	b := openBox(t, Spec{Workspace: ws, Limits: DefaultLimits()})
	if b.group == nil {
		t.Skipf("no control group here: %v", b.groupErr)
	}
	dirs := b.group.folders()
	sh(t, b, "true")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if exists(d) {
			t.Errorf("%s is still there", d)
		}
		stale := filepath.Join(filepath.Dir(d), cgroupPrefix+"999999999-1")
		if err := os.Mkdir(stale, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g, err := limitedGroup(DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.remove(); err != nil {
		t.Error(err)
	}
	for _, d := range dirs {
		if stale := filepath.Join(filepath.Dir(d), cgroupPrefix+"999999999-1"); exists(stale) {
			t.Errorf("%s was not swept", stale)
		}
	}
}

// folders are the group's own, one for each hierarchy.
func (g *group) folders() []string {
	if g.v2 != nil {
		return []string{g.dir}
	}
	return slices.Sorted(maps.Values(g.dirs))
}
