#!/usr/bin/env python3
"""What --plan is worth on this machine: predicted and measured seconds of one run per problem.

measure_plan.py TERRACE [--backend cuda] [--repeat 2] [--only dense,gf2,band,cg] [--scale 1] [--built-in] [--touch 16] [--output FILE]

Measures a profile first (bench --profile, kept beside the output; --built-in: none), then generates, predicts and runs each problem
--repeat times in fresh processes, round after round; the last round counts. Whole runs are wall seconds, from the prompt to the prompt.
--scale 0.1 for small machines; --touch: GiB of memory that are used once before, as a virtual machine gives new pages slowly.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("terrace", type=os.path.abspath)
parser.add_argument("--backend", default="cuda")
parser.add_argument("--repeat", type=int, default=2)
parser.add_argument("--only", default="dense,gf2,band,cg")
parser.add_argument("--scale", type=float, default=1, help="of the orders")
parser.add_argument("--built-in", action="store_true", help="no profile: the program's own rates")
parser.add_argument("--touch", type=float, default=0, help="GiB")
parser.add_argument("--output", help="a JSON file with every figure")
options = parser.parse_args()
folder = tempfile.mkdtemp(prefix="terrace-plan-")
env = {**os.environ, "TERRACE_PROFILE": os.path.join(folder, "profile.json")}


def n(order):
    return max(64, int(order * options.scale))


PROBLEMS = [
    ("dense", f"inverse, n = {n(3000)}", f"dense-random --n {n(3000)}", "dense invert in.h5:/A"),
    ("dense", f"inverse, n = {n(6000)}", f"dense-random --n {n(6000)}", "dense invert in.h5:/A"),
    ("dense", f"inverse, n = {n(11000)}", f"dense-random --n {n(11000)}", "dense invert in.h5:/A"),
    ("dense", f"solve, n = {n(9000)}", f"dense-random --n {n(9000)} --rhs 1", "dense solve in.h5:/A --rhs :/b"),
    ("gf2", f"rref, n = {n(12000)}", f"gf2-random --rows {n(12000)}", "gf2 rref in.h5:/A"),
    ("gf2", f"rref, n = {n(30000)}", f"gf2-random --rows {n(30000)}", "gf2 rref in.h5:/A"),
    ("gf2", f"rref, n = {n(70000)}", f"gf2-random --rows {n(70000)}", "gf2 rref in.h5:/A"),
    ("gf2", f"rank, n = {n(50000)}", f"gf2-random --rows {n(50000)}", "gf2 rank in.h5:/A"),
    ("band", f"{n(200000)} x 300", f"band-spd --n {n(200000)} --half-bandwidth 300 --rhs 1", "band solve in.h5:/A --rhs :/b"),
    ("band", f"{n(60000)} x 1500", f"band-spd --n {n(60000)} --half-bandwidth 1500 --rhs 1", "band solve in.h5:/A --rhs :/b"),
    ("band", f"{n(30000)} x 3000", f"band-spd --n {n(30000)} --half-bandwidth 3000 --rhs 1", "band solve in.h5:/A --rhs :/b"),
    ("cg", f"dense, n = {n(9000)}", f"dense-spd --n {n(9000)} --rhs 1", "cg in.h5:/A --rhs :/b"),
    ("cg", f"CSR, {n(1000)}^2", f"csr-laplace --dim 2 --points {n(1000)} --rhs 1", "cg in.h5:/A --rhs :/b"),
    ("cg", f"CSR, {n(200)}^3", f"csr-laplace --dim 3 --points {n(200)} --rhs 1", "cg in.h5:/A --rhs :/b"),
    ("cg", f"band, {n(4000000)} x 100", f"band-spd --n {n(4000000)} --half-bandwidth 100 --rhs 1", "cg in.h5:/A --rhs :/b"),
]


def run(command):
    """The report of one run, with its wall seconds."""
    report = os.path.join(folder, "report.json")
    if os.path.exists(report):
        os.remove(report)
    start = time.monotonic()
    done = subprocess.run([options.terrace] + command.split() + ["--report", report, "--backend", options.backend, "--quiet"],
                          cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    wall = time.monotonic() - start
    with open(report) as f:
        return {**json.load(f), "wall": wall}


failures = 0
rows = []
start = time.time()
if options.touch > 0:
    subprocess.run([sys.executable, "-c", f"b = bytearray({int(options.touch * 2**30)}); b[::4096] = bytes(len(b[::4096]))"], check=True)
if not options.built_in:
    run("bench --profile")
    shutil.copy(env["TERRACE_PROFILE"], (options.output or os.path.join(folder, "x")) + ".profile.json")
    print(f"profile: {time.time() - start:.0f} s", flush=True)
for family, name, make, command in PROBLEMS:
    if family not in options.only.split(","):
        continue
    try:
        subprocess.run([options.terrace, "generate"] + make.split() + ["-o", "in.h5", "--force", "--quiet"], cwd=folder, env=env, check=True)
        os.sync()  # a disk that still writes the input makes the first output wait
        for _ in range(options.repeat):
            plan = None
            if command.startswith("cg"):  # the number of iterations is the matrix's own
                done = run(f"{command} -o out.h5 --force")
                whole = run(f"{command} -o out.h5 --force --plan")["result"]["plan"]
                plan, iterations = whole["seconds"], done["result"]["iterations"]
                said = plan["solve"] + (iterations - whole["iterations_assumed"]) * plan["iteration"]
                total = plan["total"] - plan["solve"] + said
            else:
                plan = run(f"{command} -o out.h5 --force --plan")["result"]["plan"]["seconds"]
                done = run(f"{command} -o out.h5 --force")
                iterations, said, total = None, plan["solve"], plan["total"]
        row = {"family": family, "problem": name, "predicted": said, "measured": done["seconds"]["solve"], "predicted_total": total,
               "measured_total": done["wall"], "iterations": iterations, "plan": plan, "seconds": done["seconds"]}
        rows.append(row)
        ratio, whole = said / row["measured"], total / row["measured_total"]
        print(f"{family:5} {name:22} solve {said:8.4f} / {row['measured']:8.4f} ({ratio:.2f})   whole {total:7.3f} / {row['measured_total']:7.3f} "
              f"({whole:.2f}){f'   {iterations} iterations' if iterations else ''}   parts "
              + ", ".join(f"{k} {plan[k]:.3f}/{done['seconds'].get(k, 0):.3f}" for k in ("read", "check", "write")), flush=True)
    except (RuntimeError, subprocess.CalledProcessError) as e:
        failures += 1
        print(f"{family:5} {name:22} FAILED: {e}", flush=True)
if options.output:
    with open(options.output, "w") as f:
        json.dump(rows, f, indent=1)
shutil.rmtree(folder)
outside = sum(not 1 / 2 <= r["predicted"] / r["measured"] <= 2 for r in rows)
whole = sum(not 1 / 2 <= r["predicted_total"] / r["measured_total"] <= 2 for r in rows)
print(f"{len(rows)} problems, {outside} solves and {whole} whole runs outside a factor of two, {failures} failed, {time.time() - start:.0f} s")
sys.exit(failures != 0)
