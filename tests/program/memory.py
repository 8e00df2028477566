#!/usr/bin/env python3
"""No rank holds the whole matrix: each solver on 4 ranks, each rank's resident memory (anonymous:
the pages of CUDA's libraries are not its own) capped below half the matrix.

memory.py TERRACE [--large]     Needs h5py and numpy; runs in a temporary folder (0.7 GB of disk; --large, for the night: 1.3 GB).
"""
import sys
import time

import h5py
import numpy as np

from terrace import Program

test = Program(sys.argv[1], TERRACE_THREADS="1")
PART = 0.48
large = "--large" in sys.argv
with open("capped.py", "w") as f:  # ends the rank when its resident memory passes the cap
    f.write("""import re, subprocess, sys, time
cap, child = int(sys.argv[1]), subprocess.Popen(sys.argv[2:])
most = 0
while child.poll() is None:
    try:
        most = max(most, int(re.search(r"RssAnon:\\s+(\\d+)", open(f"/proc/{child.pid}/status").read())[1]))
    except (OSError, TypeError):
        pass
    if most > cap:
        print(f"over the cap: {most} kB", file=sys.stderr)
        child.kill()
        sys.exit(99)
    time.sleep(0.02)
print(f"peak {most} kB")
sys.exit(child.returncode)
""")
def write_csr(n, width):
    """2 width off-diagonals a row: a matrix much larger than its vectors."""
    with h5py.File("in.h5", "w") as f:
        columns = np.arange(n)[:, None] + np.arange(-width, width + 1)
        inside = (columns >= 0) & (columns < n)
        values = np.where(np.arange(-width, width + 1) == 0, 2.5 * width, -1.0) * np.ones((n, 1))
        f["A/indices"], f["A/data"] = columns[inside], values[inside]
        f["A/indptr"] = np.concatenate([[0], np.cumsum(inside.sum(1))])
        f["A"].attrs["shape"] = [n, n]
        f["b"] = np.ones(n)


def capped(problem, command):
    """Solves the generated (or written) problem under the cap; the solver's own check judges the answer."""
    if problem and test.run(f"generate {problem} -o in.h5 --force --quiet", 2, code=0, timeout=400).code != 0:
        return
    with h5py.File("in.h5") as f:
        matrix = f["A"]
        size = matrix.nbytes if isinstance(matrix, h5py.Dataset) else sum(matrix[k].nbytes for k in matrix)
    start = time.time()
    done = test.run(command + " -o out.h5 --force --quiet --backend cpu --progress never", 4, timeout=400,
                    wrapper=[sys.executable, "capped.py", str(int(PART * size) >> 10)])
    peaks = [int(line.split()[1]) for line in done.out.splitlines() if line.startswith("peak ")]
    test.check(command, done.code == 0, done.err[:1500])
    print(f"{command}: matrix {size >> 20} MiB, cap {int(PART * size) >> 20} MiB, "
          f"peak {max(peaks, default=0) >> 10} MiB, {time.time() - start:.1f} s", flush=True)


capped(f"band-spd --n {150000 if large else 80000} --half-bandwidth 1000 --rhs 1", "band solve in.h5:/A --rhs :/b")
bits = 92000 if large else 46000
capped(f"gf2-rank --rows {bits} --columns {bits} --rank 400", "gf2 rank in.h5:/A")
n = 12000 if large else 8600
capped(f"dense-spd --n {n} --condition 10 --rhs 1", "cg in.h5:/A --rhs :/b")
write_csr(1_200_000 if large else 640_000, 30)
capped("", "cg in.h5:/A --rhs :/b")
capped(f"dense-random --n {n} --rhs 1", "dense solve in.h5:/A --rhs :/b")
test.finish()
