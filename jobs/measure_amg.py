#!/usr/bin/env python3
"""Conjugate gradients without a preconditioner, with jacobi and with amg on meshes, graphs, springs and elastic bodies, as rows of jobs/results/cg.md.

measure_amg.py TERRACE [--points 64] [--ranks 1] [--backend cpu] [--repeat 3] [--only laplace,jumps] [--limit 4000]

Elastic bodies also with --near-null-space, their rigid body modes.
Seconds of the solve phase, set-up included: the fastest of --repeat. Beside them processor seconds of the whole process, where other jobs
share the machine. No run makes more than --limit iterations. Needs h5py, numpy and SciPy.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "program"))
from amg_matrices import cube, elasticity, graph, jumps, random_spd, solid, stretched  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("terrace", type=os.path.abspath)
parser.add_argument("--points", type=int, default=64)
parser.add_argument("--ranks", type=int, default=1)
parser.add_argument("--backend", default="cpu")
parser.add_argument("--repeat", type=int, default=3)
parser.add_argument("--only", default="")
parser.add_argument("--limit", type=int, default=4000)
parser.add_argument("--hypre", action="store_true", help="too, where terrace has it")
options = parser.parse_args()
p = options.points
rng = np.random.default_rng(1)
side = max(8, round(p * 3 ** (-1 / 3)))  # about p^3 rows in all; of a body of cubes


def beam():
    return solid((8 * side // 2, side // 2, side // 2))


def mixture():
    blocks = -(-side // 4)
    return solid((side,) * 3, 0.3, np.kron(np.where(rng.integers(0, 2, (blocks,) * 3) > 0, 1e4, 1.0), np.ones((4,) * 3))[:side, : side - 1, : side - 1])


MATRICES = {
    "laplace": ("7-point Laplace", lambda: cube(p)),
    "layers": ("weights 1, 1, 1/1000", lambda: cube(p, (1, 1, 1e-3))),
    "lines": ("weights 1/1000, 1, 1/1000", lambda: cube(p, (1e-3, 1, 1e-3))),
    "stretched": ("cells that grow 100 times along each axis", lambda: stretched(p, 100)),
    "jumps": ("jumps of 10^4, blocks of 8^3", lambda: jumps(p, 8, 1e4, rng)),
    "graph": ("graph of near points, shift 1e-4", lambda: graph(p**3 // 2, 6, 1e-4, rng)),
    "elasticity": ("springs on a plane grid, two unknowns per node", lambda: elasticity(int((p**3 / 4) ** 0.5))),
    "plane": ("elastic plate of squares, two unknowns per node", lambda: solid((int((p**3 / 2) ** 0.5),) * 2)),
    "body": ("elastic cube of cubes, three unknowns per node", lambda: solid((side,) * 3)),
    "soft": ("the same, Poisson's ratio 0.45", lambda: solid((side,) * 3, 0.45)),
    "beam": ("elastic beam, 8 times as long as thick", beam),
    "mixture": ("elastic cube, jumps of 10^4 in blocks of 4^3", mixture),
    "random": ("random signs, diagonals from 1 to 10^6", lambda: random_spd(p**3 // 8, 1e6, rng)),
}


def processor():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(preconditioner):
    command = [options.terrace, "cg", "in.h5:/A", "--rhs", ":/b", "-o", "x.h5", "--force", "--backend", options.backend, "--report", "r.json",
               "--max-iterations", str(options.limit), "--preconditioner"] + preconditioner.split()
    best = None
    for _ in range(options.repeat):
        before = processor()
        done = subprocess.run((["mpirun", "-n", str(options.ranks)] if options.ranks > 1 else []) + command, capture_output=True, text=True)
        if done.returncode not in (0, 4):
            sys.exit(done.stderr)
        with open("r.json") as f:
            report = json.load(f)
        row = report["seconds"]["solve"], processor() - before, report
        best = row if best is None else min(best, row, key=lambda r: r[0])
        if report["result"]["reason"] == "max-iterations":
            break
    return best


print("| matrix | rows | nonzeros | `--preconditioner` | iterations | solve, s | of it set-up, s | processor, s | rows of the levels | operator complexity |")
print("|---|---|---|---|---|---|---|---|---|---|")
os.chdir(tempfile.mkdtemp(prefix="terrace-amg-"))
for name, (words, make) in MATRICES.items():
    if options.only and name not in options.only.split(","):
        continue
    a = make()
    a, modes = a if isinstance(a, tuple) else (a, None)
    a.sum_duplicates()
    with h5py.File("in.h5", "w") as f:
        g = f.create_group("A")
        g["data"], g["indices"], g["indptr"] = a.data, a.indices, a.indptr
        g.attrs["shape"] = a.shape
        f["b"] = rng.standard_normal(a.shape[0])
        if modes is not None:
            f["V"] = modes
    for preconditioner in ["none", "jacobi", "amg"] + ["hypre"] * options.hypre + ["amg --near-null-space :/V"] * (modes is not None):
        seconds, used, report = measured(preconditioner)
        result, details = report["result"], report.get("preconditioner_details", {})
        levels = ", ".join(f"{level['rows']:,}" for level in details.get("levels", []))
        print(f"| {words} | {a.shape[0]:,} | {a.nnz:,} | `{preconditioner}` | "
              f"{result['iterations'] if result['converged'] else 'not in ' + format(options.limit, ',')} | {seconds:.3g} | "
              f"{format(details['setup_seconds'], '.3g') if 'setup_seconds' in details else ''} | {used:.3g} | {levels} | "
              f"{format(details['operator_complexity'], '.2f') if 'levels' in details else ''} |", flush=True)
