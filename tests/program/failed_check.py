#!/usr/bin/env python3
"""A check that fails after the unfinished output was made leaves nothing behind: failed_check.py TERRACE

The output is made beside the check. Here it fails: by growth of pivots, or as the matrix was changed between its two readings.
Each time the kernel's own record of new files shows that the unfinished output was there. Needs h5py and numpy, and a build with
tests.
"""
import ctypes
import os
import shutil
import struct
import sys
import threading

import h5py
import numpy as np

from given import band, change_after_stamp, growth, write_band
from terrace import Program, left_over, remove

test = Program(sys.argv[1])
check = test.check
rng = np.random.default_rng(3)
libc = ctypes.CDLL(None, use_errno=True)


class Created:
    """Names that appeared in the current folder since this was made (inotify)."""

    def __init__(self):
        self.file = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self.file, b".", 0x100 | 0x80)  # IN_CREATE, IN_MOVED_TO

    def names(self):
        found = set()
        try:
            while data := os.read(self.file, 1 << 16):
                at = 0
                while at < len(data):
                    length = struct.unpack_from("iIII", data, at)[3]
                    found.add(data[at + 16 : at + 16 + length].rstrip(b"\0").decode())
                    at += 16 + length
        except BlockingIOError:
            pass
        os.close(self.file)
        return found


def fails(command, output, ranks, code, words, **how):
    """Exit `code` with one line that has `words`, no new file, `output` as it was, and yet an unfinished one in between."""
    before = {name: os.stat(name).st_ino for name in os.listdir(".")}
    old = open(output, "rb").read() if os.path.exists(output) else None
    created = Created()
    done = test.run(command, ranks, code, **how)
    names = created.names()
    check(command, any(output in name and name.endswith(".tmp") for name in names), f"{ranks} ranks: no unfinished output was made: {names}")
    check(command, len(done.said) == 1 and all(word in done.said[0] for word in words), f"{ranks} ranks: {done.said or done.err[:300]}")
    remove("stamp")
    after = {name: os.stat(name).st_ino for name in os.listdir(".")}
    check(command, after == before and not left_over(), f"{ranks} ranks: {sorted(set(after.items()) ^ set(before.items()))}")
    check(command, old is None or open(output, "rb").read() == old, f"{ranks} ranks: {output} was changed")


# --- no digit is left: pivots grow 2^59 times ------------------------------------------------------
n = 60
with h5py.File("grows.h5", "w") as f:
    f["A"] = growth(n) * rng.uniform(1, 2, n)
    f["A"][:, -1] = np.pi
    f["b"] = rng.normal(size=n)
with h5py.File("old.h5", "w") as f:
    f["kept"] = np.arange(5)
for ranks in (1, 3):
    for command in ("dense invert grows.h5:/A", "dense solve grows.h5:/A --rhs :/b"):
        said = ("residual check failed", "nothing was written")
        fails(f"{command} -o new.h5", "new.h5", ranks, 4, said)
        fails(f"{command} -o old.h5 --force", "old.h5", ranks, 4, said)
        fails(f"{command} -o old.h5:/group", "old.h5", ranks, 4, said)

# --- the matrix is changed before the check reads it again -----------------------------------------
n = 300
write_band(band(rng, n, 5), rng.normal(size=n), "band.h5")
with h5py.File("in.h5", "w") as f:
    f["A"] = rng.normal(size=(n, n)) + n * np.eye(n)
    f["b"] = rng.normal(size=n)
    f["right"] = rng.integers(0, 2, (n, 3), dtype=np.uint8)
    f["bits"] = np.triu(rng.integers(0, 2, (n, n), dtype=np.uint8), 1) | np.eye(n, dtype=np.uint8)

for ranks in (1, 3):
    for command, name, path in (("dense invert in.h5:/A", "in.h5", "A"), ("dense solve in.h5:/A --rhs :/b", "in.h5", "A"),
                                ("band factor band.h5:/A", "band.h5", "A"), ("band solve band.h5:/A --rhs :/b", "band.h5", "A"),
                                ("gf2 rref in.h5:/bits", "in.h5", "bits"), ("gf2 inverse in.h5:/bits", "in.h5", "bits"),
                                ("gf2 solve in.h5:/bits --rhs :/right", "in.h5", "bits")):
        shutil.copy(name, "whole")
        with h5py.File(name) as f:
            value = f[path][0, 7] ^ 1 if path == "bits" else 9 + 2 * f[path][0, 7]
        thread = threading.Thread(target=change_after_stamp, args=(name, path, (0, 7), value))
        thread.start()
        # h5py would lock the file that the program has open.
        fails(f"{command} -o new.h5", "new.h5", ranks, 3, ("was changed during the run", name),
              env={"TERRACE_TEST_FAULT": "0:check:wait", "TERRACE_TEST_WAIT": "2", "TERRACE_TEST_STAMP": "stamp", "HDF5_USE_FILE_LOCKING": "FALSE"})
        thread.join()
        with open("whole", "rb") as source, open(name, "r+b") as to:  # its inode stays
            to.write(source.read())
            to.truncate()
        remove("whole")
test.finish()
