#!/usr/bin/env python3
"""No rank holds the whole matrix: each solver on 4 ranks, each rank's memory capped below half the matrix.

memory.py TERRACE     Needs h5py; runs in a temporary folder (1.5 GB of disk).
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import h5py

terrace = os.path.abspath(sys.argv[1])
folder = tempfile.mkdtemp()
os.chdir(folder)
failures = 0
# Private memory of a process, its stacks and heap arenas included; MPI itself takes about 140 MiB of it.
PART = 0.48
with open("capped.sh", "w") as f:
    f.write("#!/bin/bash\nulimit -s 1024 && ulimit -d $1 && shift && exec \"$@\"\n")
os.chmod("capped.sh", 0o755)
env = {**os.environ, "MALLOC_ARENA_MAX": "2", "TERRACE_THREADS": "1"}


def run(command, ranks, wrapper=()):
    return subprocess.run(["mpirun", "-n", str(ranks), *wrapper, terrace] + command.split(), capture_output=True,
                          text=True, env=env, timeout=400)


def capped(problem, command, dataset="A"):
    """Generates the problem, solves it under the cap; the solver's own check judges the answer."""
    global failures
    made = run(f"generate {problem} -o in.h5 --force --quiet", 2)
    with h5py.File("in.h5") as f:
        matrix = f[dataset]
        size = matrix.nbytes if isinstance(matrix, h5py.Dataset) else sum(matrix[k].nbytes for k in matrix)
    start = time.time()
    done = run(command + " -o out.h5 --force --quiet --backend cpu --progress never", 4,
               ["./capped.sh", str(int(PART * size) >> 10)])
    good = made.returncode == 0 and done.returncode == 0
    failures += not good
    print(f"{'ok' if good else 'FAILED'}  {command}: matrix {size >> 20} MiB, cap {int(PART * size) >> 20} MiB, {time.time() - start:.1f} s"
          + ("" if good else "\n" + made.stderr[:500] + done.stderr[:1500]), flush=True)


capped("band-spd --n 131000 --half-bandwidth 1000 --rhs 1", "band solve in.h5:/A --rhs :/b")
capped("gf2-rank --rows 92000 --columns 92000 --rank 600", "gf2 rank in.h5:/A")
capped("dense-spd --n 11500 --condition 10 --rhs 1", "cg in.h5:/A --rhs :/b")
capped("csr-laplace --dim 3 --points 215 --rhs 1", "cg in.h5:/A --rhs :/b --rtol 0.1")
capped("dense-random --n 11500 --rhs 1", "dense solve in.h5:/A --rhs :/b")
os.chdir("/")
shutil.rmtree(folder)
sys.exit(failures != 0)
