#!/usr/bin/env python3
# class: secrets
# tries: memory, environment, descriptors and folders of the processes above, and what their numbers allow: signals, limits, priorities
from atk import *
import glob, resource
mine = {os.getpid()}  # and what started it inside: a shell, for one
while True:
    up = int(open("/proc/%d/stat" % min(mine, key=lambda p: (p == 1, p))).read().rsplit(")", 1)[1].split()[1])
    if up <= 1 or up in mine or up == int(E["RUNNER_PID"]):
        break
    mine.add(up)
for p in set([1, int(E["VICTIM_PID"]), int(E["RUNNER_PID"])] + pids()) - mine:
    for f in ("environ", "mem", "maps", "auxv", "syscall", "stack", "personality", "cwd/.", "root/etc/passwd"):
        n = "/proc/%d/%s" % (p, f)
        try:
            if os.path.isdir(n) or open(n, "rb").read(1):
                escaped("%s of process %d" % (f, p))
        except OSError:
            pass
    for n in glob.glob("/proc/%d/fd/*" % p) + glob.glob("/proc/%d/map_files/*" % p)[:4] + ["/proc/%d/exe" % p, "/proc/%d/cwd" % p, "/proc/%d/ns/mnt" % p]:
        try:
            os.readlink(n)
            escaped("followed " + n)
        except OSError:
            pass
    r, e = sc("pidfd_open", p, 0)
    if r >= 0:
        for fd in range(12):
            if sc("pidfd_getfd", r, fd, 0)[0] >= 0:
                escaped("took a descriptor of process %d" % p)
        for ns in (0x20000, 0x10000000, 0x40000000, 0x20000000):
            if sc("setns", r, ns)[0] == 0:
                escaped("joined a namespace of process %d" % p)
    b = ctypes.create_string_buffer(64)
    if sc("process_vm_readv", p, struct.pack("PN", ctypes.addressof(b), 8), 1, struct.pack("PN", ctypes.addressof(b), 8), 1, 0)[0] > 0:
        escaped("read memory of process %d" % p)
for p in (int(E["VICTIM_PID"]), int(E["RUNNER_PID"])):
    if p in pids():
        continue  # by chance one of ours has this number inside
    for name, f in (("limits", lambda: resource.prlimit(p, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))), ("priority", lambda: os.setpriority(os.PRIO_PROCESS, p, os.getpriority(os.PRIO_PROCESS, p))),
                    ("processors", lambda: os.sched_setaffinity(p, os.sched_getaffinity(p))), ("signal", lambda: os.kill(p, 10))):
        try:
            f()
            escaped(name + " of a process outside")
        except OSError:
            pass
held()
