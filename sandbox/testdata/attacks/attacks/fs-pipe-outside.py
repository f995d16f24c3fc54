#!/usr/bin/env python3
# class: fs
# tries: writing into a named pipe of a process outside, which a read-only mount alone allows
from atk import *
try:
    fd = os.open(E["OUT"] + "/pipe", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"pwned\n")
    escaped("wrote into a pipe outside")
except OSError:
    pass
held()
