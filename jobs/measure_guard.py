#!/usr/bin/env python3
"""What --guard costs on this machine: seconds of the solve phase without and with it, by turns, as rows of jobs/results/guard.md.

measure_guard.py TERRACE [--backend cuda] [--repeat 5] [--only gf2,dense,band,cg] [--scale 1] [--limit 500] [--output FILE]

One unmeasured run first; medians of --repeat processes each; the answers must have the same bits. No problem begins
after --limit seconds. --scale 0.1 for small machines.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("terrace", type=os.path.abspath)
parser.add_argument("--backend", default="cuda")
parser.add_argument("--repeat", type=int, default=5)
parser.add_argument("--only", default="gf2,dense,band,cg")
parser.add_argument("--scale", type=float, default=1, help="of the orders")
parser.add_argument("--limit", type=float, default=500)
parser.add_argument("--output", help="a JSON file with every figure")
options = parser.parse_args()
folder = tempfile.mkdtemp(prefix="terrace-guard-")


def n(order):
    return max(64, int(order * options.scale))


PROBLEMS = [  # family, input, command, what must not change
    ("band", f"band-spd --n {n(200000)} --half-bandwidth 2000 --rhs 1", "band solve in.h5:/A --rhs :/b --method tile-columns", "x"),
    ("band", f"band-spd --n {n(2000000)} --half-bandwidth 300 --rhs 1", "band solve in.h5:/A --rhs :/b --method tile-columns", "x"),
    ("band", f"band-spd --n {n(2000000)} --half-bandwidth 300 --rhs 1", "band solve in.h5:/A --rhs :/b", "x"),
    ("gf2", f"gf2-random --rows {n(65536)}", "gf2 rank in.h5:/A", None),
    ("gf2", f"gf2-random --rows {n(131072)}", "gf2 rank in.h5:/A", None),
    ("gf2", f"gf2-random --rows {n(200000)}", "gf2 rank in.h5:/A", None),
    ("dense", f"dense-random --n {n(12000)} --rhs 1", "dense solve in.h5:/A --rhs :/b", "x"),
    ("dense", f"dense-random --n {n(12000)}", "dense invert in.h5:/A", "inverse"),
    ("dense", f"dense-random --n {n(30000)}", "dense invert in.h5:/A", None),
    ("cg", f"csr-laplace --dim 3 --points {n(200)} --rhs 1", "cg in.h5:/A --rhs :/b", "x"),
    ("cg", f"band-spd --n {n(4000000)} --half-bandwidth 100 --rhs 1", "cg in.h5:/A --rhs :/b", "x"),
]


def terrace(words, **more):
    return subprocess.run([options.terrace] + words.split(), cwd=folder, capture_output=True, text=True, **more)


def run(command, output):
    """The report of one run."""
    write = f"-o {output} --force" if output else ""
    done = terrace(f"{command} {write} --report report.json --backend {options.backend} --quiet")
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    with open(os.path.join(folder, "report.json")) as f:
        return json.load(f)


start = time.time()
rows, failures, made = [], 0, ""
for family, make, command, answer in PROBLEMS:
    if family not in options.only.split(",") or time.time() - start > options.limit:
        continue
    try:
        if make != made and terrace(f"generate {make} -o in.h5 --force --quiet").returncode != 0:
            raise RuntimeError(f"generate {make} failed")
        made = make
        outputs = ("plain.h5", "guarded.h5") if answer else ("", "")
        run(command, outputs[0])
        plain, guarded = [], []
        for _ in range(options.repeat):
            plain.append(run(command, outputs[0])["seconds"]["solve"])
            guarded.append(run(command + " --guard", outputs[1])["seconds"]["solve"])
        same = ""
        if answer:
            import h5py
            values = []
            for name in outputs:
                with h5py.File(os.path.join(folder, name)) as f:
                    values.append(f[answer][()].tobytes())
            same = "same bits" if values[0] == values[1] else "OTHER BITS"
            failures += values[0] != values[1]
        a, b = statistics.median(plain), statistics.median(guarded)
        rows.append({"input": make, "command": command, "plain": plain, "guarded": guarded})
        print(f"{command} of {make}: {a:.4f} and {b:.4f} s ({100 * (b / a - 1):+.1f} %; best {min(plain):.4f}, {min(guarded):.4f}) {same}", flush=True)
    except (RuntimeError, KeyError, OSError) as e:
        failures += 1
        print(f"{command} of {make}: FAILED: {e}", flush=True)
if options.output:
    with open(options.output, "w") as f:
        json.dump(rows, f, indent=1)
shutil.rmtree(folder)
print(f"{len(rows)} measured, {failures} failed, {time.time() - start:.0f} s")
sys.exit(failures != 0)
