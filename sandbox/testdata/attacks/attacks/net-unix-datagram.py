#!/usr/bin/env python3
# class: net
# tries: datagrams to a socket of a process outside that began after the sandbox, from every kind of Unix socket the kernel makes one of
from atk import *
open("want-late", "w").close()
p = E["OUT"] + "/late-dgram.sock"
for _ in range(30):
    if os.path.exists(p):
        break
    time.sleep(0.1)
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_RDM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    for make in (lambda: socket.socket(socket.AF_UNIX, kind), lambda: socket.socketpair(socket.AF_UNIX, kind)[0]):
        for how in ("sendto", "connect", "sendmsg"):
            try:
                s = make()
                if how == "sendto":
                    s.sendto(b"x", p)
                elif how == "connect":
                    s.connect(p)
                    s.send(b"x")
                else:
                    s.sendmsg([b"x"], [], 0, p)
                escaped("sent a datagram outside with a socket of kind %d" % kind)
            except OSError:
                pass
os.unlink("want-late")
held()
