#!/usr/bin/env python3
# class: fs
# tries: mode, owner, times, attributes, flags, length and content of an outside file by every call that takes a descriptor or a path
from atk import *
import fcntl
p = E["OUT"] + "/canary"
fd = os.open(p, os.O_RDONLY)
AT = ctypes.c_long(-100)
tries = {
    "fchmod": lambda: os.fchmod(fd, 0o777), "fchown": lambda: os.fchown(fd, os.getuid(), os.getgid()), "utime": lambda: os.utime(p, (1, 1)),
    "utime by descriptor": lambda: os.utime(fd, (1, 1)), "chmod through /proc": lambda: os.chmod("/proc/self/fd/%d" % fd, 0o777),
    "open with O_TRUNC for reading": lambda: os.open(p, os.O_RDONLY | os.O_TRUNC), "truncate": lambda: os.truncate(p, 0),
    "truncate through /proc": lambda: os.truncate("/proc/self/fd/%d" % fd, 0), "setxattr": lambda: os.setxattr(p, "user.x", b"1"),
    "setxattr by descriptor": lambda: os.setxattr(fd, "user.x", b"1"), "removexattr": lambda: os.removexattr(p, "user.x"),
    "flags": lambda: fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0x10)), "project": lambda: fcntl.ioctl(fd, 0x401C5820, bytes(28)),
    "fallocate": lambda: os.posix_fallocate(fd, 0, 1 << 20), "lease": lambda: fcntl.fcntl(fd, 1024, 1),
    "append": lambda: os.open(p, os.O_WRONLY | os.O_APPEND), "clone into": lambda: fcntl.ioctl(os.open(p, os.O_WRONLY), 0x40049409, os.open("README", os.O_RDONLY)),
    "tmpfile": lambda: os.open(E["OUT"], os.O_WRONLY | 0o20200000, 0o600), "mkfifo": lambda: os.mkfifo(E["OUT"] + "/f"),
    "link": lambda: os.link(p, E["OUT"] + "/l"), "symlink": lambda: os.symlink("x", E["OUT"] + "/s"), "exchange": lambda: raw("renameat2", AT, p.encode(), AT, b"README", 2),
    "whiteout": lambda: raw("renameat2", AT, p.encode(), AT, (E["OUT"] + "/w").encode(), 4),
}


def raw(*a):
    r, e = sc(*a)
    if r < 0:
        raise OSError(e, "")


for name, f in tries.items():
    try:
        f()
    except (OSError, ValueError):
        continue
    escaped(name)
held()
