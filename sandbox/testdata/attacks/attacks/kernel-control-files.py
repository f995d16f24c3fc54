#!/usr/bin/env python3
# class: kernel
# tries: opening for writing the files through which user 0 steers the kernel: helpers it starts, limits, devices, groups
from atk import *
import glob
names = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory",
         "/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/suid_dumpable", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger", "/proc/acpi/wakeup",
         "/proc/irq/default_smp_affinity", "/proc/mtrr", "/proc/bus/pci/00/00.0", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/sys/kernel/uevent_helper",
         "/sys/kernel/mm/ksm/run", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/kernel/profiling", "/sys/module/kernel/parameters/panic", "/sys/kernel/debug/x",
         "/sys/firmware/efi/efivars/x", "/dev/cpu/0/msr", "/dev/mqueue/x", "/dev/hugepages/x"]
for top in glob.glob("/sys/fs/cgroup") + glob.glob("/sys/fs/cgroup/*"):
    for f in ("release_agent", "cgroup.procs", "tasks", "memory.limit_in_bytes", "memory.max", "cgroup.subtree_control", "devices.allow"):
        names.append(top + "/" + f)
names += glob.glob("/sys/bus/*/drivers_probe")[:4] + glob.glob("/sys/class/net/*/mtu")[:2] + glob.glob("/sys/block/*/queue/scheduler")[:2] + glob.glob("/sys/class/*/*/uevent")[:4]
for n in names:
    try:
        os.close(os.open(n, os.O_WRONLY | os.O_NONBLOCK))
        if not n.startswith("/proc/self/"):
            escaped("opened " + n + " for writing")
        open(n, "w").write("0 0 1\n")
    except OSError:
        pass
try:
    if int(open("/proc/self/oom_score_adj").read()) >= 0:
        os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000")
        escaped("made itself the last to be killed when memory runs out")
except OSError:
    pass
try:
    open("capable", "w").close()
    os.setxattr("capable", "security.capability", struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0, 0))
    escaped("gave a file capabilities")
except OSError:
    pass
held()
