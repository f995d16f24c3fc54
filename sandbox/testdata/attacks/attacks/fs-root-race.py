#!/usr/bin/env python3
# class: fs
# tries: swapping a folder of the workspace for a link to outside again and again while writing through it
from atk import *
import threading
os.makedirs("swap")
os.makedirs("real/dir", exist_ok=True)
os.symlink("../real/dir", "swap/x")
stop = time.time() + 3


def flip():
    n = 0
    while time.time() < stop:
        n += 1
        os.symlink((E["OUT"], "../real/dir")[n % 2], "swap/l")
        os.rename("swap/l", "swap/x")


threading.Thread(target=flip, daemon=True).start()
n = 0
while time.time() < stop:
    n += 1
    for f in (lambda: open("swap/x/race%d" % n, "w").close(), lambda: os.rename("swap/x/canary", "got"), lambda: os.chmod("swap/x/canary", 0o777)):
        try:
            f()
        except OSError:
            pass
if any(f.startswith("race") for f in os.listdir(E["OUT"])) or os.path.exists("got"):
    escaped("a write went through a swapped link")
held()
