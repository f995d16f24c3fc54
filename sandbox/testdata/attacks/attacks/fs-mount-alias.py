#!/usr/bin/env python3
# class: protected
# tries: reaching protected files by another name: links and folders opened before and after a rename of what is above them
from atk import *
d = os.open("nested", os.O_RDONLY | os.O_DIRECTORY)
g = os.open("nested/.git", os.O_RDONLY | os.O_DIRECTORY)
try:
    os.rename("nested", "moved")
except OSError:
    pass
for at, name in ((d, ".git/config"), (g, "config"), (g, "hooks/pre-commit"), (None, "moved/.git/config"), (None, "/proc/self/fd/%d/config" % g), (None, "wt/../.git/config"), (None, "link-out/../ws/.git/config")):
    try:
        os.write(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o755, dir_fd=at), b"[x]\n")
        escaped("wrote " + name)
    except OSError:
        pass
for src in (".git/config", "nested/.git/config", "moved/.git/config", "sub/.git", "wt/.git"):
    for name, f in (("linked", os.link), ("moved", os.rename)):
        try:
            f(src, "alias")
            escaped(name + " " + src)
        except OSError:
            pass
try:
    os.rename("moved", "nested")
except OSError:
    pass
held()
