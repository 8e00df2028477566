#!/usr/bin/env python3
"""The heat equation of src/api/examples by two routes: through the library, in each language, and through files and the program.

measure_routes.py TERRACE EXAMPLES [--grid 200x300] [--steps 10]

TERRACE is the program, EXAMPLES a folder with heat, heat_c, heat_f (tests/consumer makes them) and, for Python, PYTHONPATH and
TERRACE_LIBRARY are set. Prints the seconds of a step: writing the right-hand side, `terrace band solve --factor`, reading x.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("terrace", type=os.path.abspath)
parser.add_argument("examples", type=os.path.abspath)
parser.add_argument("--grid", default="200x300")
parser.add_argument("--steps", type=int, default=10)
options = parser.parse_args()
nx, ny = (int(x) for x in options.grid.split("x"))
n, k = nx * ny, 0.4


def seconds(command, steps):
    """Of a whole run, the fastest of three; and what it printed."""
    best, text = float("inf"), ""
    for _ in range(3):
        start = time.perf_counter()
        text = subprocess.run([*command, str(nx), str(ny), str(steps)], check=True, capture_output=True, text=True).stdout
        best = min(best, time.perf_counter() - start)
    return best, float(re.search(r"steps: ([0-9.]+)", text).group(1))


here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "api", "examples", "heat.py")
heat = {}
print(f"{nx} x {ny} points, {options.steps} steps; ms of the run before the first step, and of a step")
for name, command in (("C++", [os.path.join(options.examples, "heat")]), ("C", [os.path.join(options.examples, "heat_c")]),
                      ("Fortran", [os.path.join(options.examples, "heat_f")]), ("Python", [sys.executable, here])):
    if name != "Python" and not os.path.exists(command[0]):
        continue
    first, _ = seconds(command, 1)
    last, heat[name] = seconds(command, 1 + options.steps)
    step = (last - first) / options.steps
    print(f"{name:8} {1e3 * (first - step):9.1f} {1e3 * step:9.1f}")

folder = tempfile.mkdtemp(prefix="terrace-routes-")
os.chdir(folder)
i = np.arange(n)
ab = np.zeros((nx + 1, n))
ab[0], ab[1], ab[nx] = 1 + 4 * k, np.where(i % nx + 1 < nx, -k, 0), -k
u = np.exp(-0.05 * (i % nx - nx // 2) ** 2)
run = [options.terrace, "band"]
start = time.perf_counter()
with h5py.File("a.h5", "w") as file:
    file["A"] = ab
    file["A"].attrs["format"] = "band"
subprocess.run([*run, "factor", "a.h5:/A", "-o", "l.h5", "--quiet"], check=True)
before = time.perf_counter() - start
parts = np.zeros(3)
for _ in range(1 + options.steps):
    times = [time.perf_counter()]
    with h5py.File("b.h5", "w") as file:
        file["b"] = u
    times.append(time.perf_counter())
    subprocess.run([*run, "solve", "a.h5:/A", "--factor", "l.h5", "--rhs", "b.h5:/b", "-o", "x.h5", "--force", "--quiet"], check=True)
    times.append(time.perf_counter())
    with h5py.File("x.h5", "r") as file:
        u = file["x"][()]
    times.append(time.perf_counter())
    parts += np.diff(times) / (1 + options.steps)
print(f"{'files':8} {1e3 * before:9.1f} {1e3 * parts.sum():9.1f}   = {1e3 * parts[0]:.1f} writing + {1e3 * parts[1]:.1f} terrace + "
      f"{1e3 * parts[2]:.1f} reading")
for name, value in heat.items():
    assert abs(value - u.sum()) < 1e-9 * u.sum(), f"{name} gives {value}, files {u.sum()}"
