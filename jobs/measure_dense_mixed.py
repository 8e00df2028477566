#!/usr/bin/env python3
"""LU in FP64 and --precision mixed by turns, as rows of jobs/results/dense.md.

measure_dense_mixed.py TERRACE [--backend cpu] [--n 2000,4000,8000] [--rhs 1] [--ranks 1] [--turns 5] [--rivals lapack] [--block 0]

A turn starts `bench dense --solve` once: FP64, then mixed, then rivals. Printed are the median and the least of all turns' medians of three
runs, the steps of refinement, and the load of the machine before and after. On GPUs: --backend cuda --n 8192,16384,32768,65536 --rivals
cusolver,cusolver-mixed.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess

parser = argparse.ArgumentParser()
parser.add_argument("terrace", type=os.path.abspath)
parser.add_argument("--backend", default="cpu")
parser.add_argument("--n", default="2000,4000,8000")
parser.add_argument("--rhs", default="1")
parser.add_argument("--ranks", type=int, default=1)
parser.add_argument("--turns", type=int, default=5)
parser.add_argument("--rivals", default="")
parser.add_argument("--block", default="0")
options = parser.parse_args()
os.environ["TERRACE_TEST_BOUNDS"] = "1"  # the bound is not what is asked for
for n in options.n.split(","):
    seconds, steps, before = collections.defaultdict(list), set(), os.getloadavg()[0]
    words = ["mpirun", "-n", str(options.ranks)] * (options.ranks > 1) + [options.terrace, "bench", "dense", "--solve", "--n", n]
    words += ["--rhs", options.rhs, "--precision", "mixed", "--backend", options.backend, "--json"]
    words += ["--rivals", options.rivals] * bool(options.rivals) + ["--block", options.block] * (options.block != "0")
    for _ in range(options.turns):
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        for run in json.loads(done.stdout)["runs"]:
            if run["seconds"] is not None:
                seconds[run["who"]].append(run["seconds"])
            if "refinement_steps" in run:
                steps.add(f"{run['precision']}, {run['refinement_steps']} steps, {run['gmres_steps']} of GMRES")
    cells = [f"{who} {statistics.median(s):.4g} s (least {min(s):.4g})" for who, s in seconds.items()]
    print(f"n = {n}: " + "; ".join(cells) + f"; {'; '.join(sorted(steps))}; load {before:.1f} to {os.getloadavg()[0]:.1f}", flush=True)
