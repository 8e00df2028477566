#!/usr/bin/env python3
"""A disk that fills, and a limit on file sizes, at every size around the result's: exit code 5 and an empty folder,
or a whole result that verifies; never a hang, a signal or a rest of a file.

disk_full.py TERRACE     Needs h5py and numpy, and a right to mount for the disk (else only the limits are tried).
"""
import os
import subprocess
import sys

import h5py
import numpy as np

from terrace import Program

if len(sys.argv) == 2:  # again, in a mount namespace of its own where one is to be had
    command = [sys.executable, __file__, sys.argv[1]]
    for own in (["unshare", "-m"], ["unshare", "-r", "-m"]):
        if subprocess.run(own + ["mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0:
            sys.exit(subprocess.run(own + command + ["mount"]).returncode)
    sys.exit(subprocess.run(command + ["limits"]).returncode)

test, kind = Program(sys.argv[1]), sys.argv[2]
os.mkdir("out")
rng = np.random.default_rng(3)
n, kib = 300, 1024
with h5py.File("in.h5", "w") as f:
    f["A"] = rng.normal(size=(n, n)) + n * np.eye(n)
    f["bits"] = np.triu(rng.integers(0, 2, (2000, 2000), dtype=np.uint8), 1) | np.eye(2000, dtype=np.uint8)
    f["large"] = rng.normal(size=(1000, 3150))
    for name, columns in (("band", 5000), ("long", 150_000)):
        f[name] = np.full((21, columns), 0.1)
        f[name][0] = 10
        f[name].attrs["format"] = "band"
jobs = [("dense invert in.h5:/A -o out/r.h5", n * n * 8),
        ("band factor in.h5:/band -o out/r.h5", 21 * 5000 * 8), ("gf2 inverse in.h5:/bits -o out/r.h5", 2000 * 256),
        ("convert in.h5:/A out/r.npy", n * n * 8),
        # 313 tile columns of 16 in scratch files, 33 numbers each, beside the result.
        ("band factor in.h5:/band --method streamed --scratch-dir out -o out/r.h5", 313 * 16 * 33 * 8 + 21 * 5000 * 8)]
large = 21 * 150_000 * 8  # Open MPI itself needs files of some megabytes
codes = {}


def attempt(arguments, limit, what):
    command = f"ulimit -f {limit}; exec {test.path} {arguments} --force"
    try:
        done = subprocess.run(["mpirun", "-n", "3", "bash", "-c", command], capture_output=True, text=True, timeout=60)
        code, lines = done.returncode, [x for x in done.stderr.splitlines() if x.startswith("terrace: ")]
    except subprocess.TimeoutExpired:
        code, lines = "hung", []
    left = os.listdir("out")
    good = (code == 5 and not left and len(lines) == 1) or (code == 0 and left == [arguments.split("/")[-1]])
    if code == 0 and "invert" in arguments:
        good = good and test.run("verify out/r.h5", 2).code == 0
    codes[code] = codes.get(code, 0) + 1
    test.check(f"{arguments}, {what}", good, f"exit {code}, left {left}, said {lines}")
    for name in left:
        os.unlink("out/" + name)


for arguments in ("band factor in.h5:/long -o out/r.h5", "convert in.h5:/large out/r.npy"):
    for spare in (-large // 4, 8 * kib, 300 * kib, 4096 * kib):
        attempt(arguments, (large + spare) // kib, f"files limited to result {spare:+} bytes")
if kind == "mount":
    for arguments, size in jobs:
        for spare in (-size // 2, -4 * kib, 4 * kib, 256 * kib, 272 * kib, 4096 * kib):
            room = max(4096, size + spare)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "none", "out"], check=True)
            attempt(arguments, "unlimited", f"disk of result {spare:+} bytes")
            subprocess.run(["umount", "out"], check=True)
else:
    test.skipped("no right to mount, only limits on file sizes were tried")
test.check("exit codes seen", {0, 5} <= set(codes), codes)
print(f"exit codes seen: {codes}")
test.finish(kind != "mount")
