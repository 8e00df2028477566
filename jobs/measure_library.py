#!/usr/bin/env python3
"""What a call of the library takes beside the same verb inside `terrace bench`.

measure_library.py BUILD [--backend cpu|cuda] [--only dense,solve,gf2,band,factor,cg] [--repeat 7] [--rounds 3] [--scale 1] [--output FILE]

BUILD is a build with tests (build-test/terrace, build-test/tests/api_overhead). On CUDA the caller's arrays lie on the device, in and
out. Each takes the median of its calls in a process; processes alternate, and the
best round counts, so that what else runs on the machine counts little. `over` is the call less the verb; good below 5 % or 0.2 ms. --scale 0.1 for small machines.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("build", type=os.path.abspath)
parser.add_argument("--backend", default="cuda", choices=["cpu", "cuda"])
parser.add_argument("--only", default="dense,solve,gf2,band,factor,cg")
parser.add_argument("--repeat", type=int, default=7)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--scale", type=float, default=1, help="of the orders")
parser.add_argument("--output", help="a JSON file with every figure")
options = parser.parse_args()
program, calls = (os.path.join(options.build, name) for name in ("terrace", "tests/api_overhead"))


def n(order):
    return max(64, int(order * options.scale))


POINTS = [max(8, int(p * options.scale ** (1 / 3))) for p in (50, 100, 200)]
CASES = [("dense", f"inverse, n = {k}", [k], f"dense --n {k}") for k in (n(1000), n(4000), n(12000))]
CASES += [("solve", f"LU, n = {k}", [k], f"dense --solve --n {k}") for k in (n(1000), n(4000), n(12000))]
CASES += [("gf2", f"rref, n = {k}", [k], f"gf2 --n {k}") for k in (n(4096), n(16384), n(65536))]
CASES += [(family, f"{k} x {m}", [k, m], f"band --n {k} --half-bandwidth {m}") for family in ("band", "factor") for k, m in
          ((n(20000), 64), (n(100000), 300), (n(60000), 1500))]
CASES += [("cg", f"CSR, {p}^3, to 1e-8", [p, 1], f"cg --kind csr --stencil 7 --points {p} --rtol 1e-8") for p in POINTS]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TERRACE_API_BACKEND": options.backend})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def verb(family, command):
    """Seconds of the verb, and iterations; a band's are factor and solve, those of a factor one more solve."""
    runs = output([program, "bench", *command.split(), "--backend", options.backend, "--no-check", "--json", "--repeat",
                   str(options.repeat)])["runs"]
    runs = [r for r in runs if r.get("who", "terrace") == "terrace"]
    phases = {}
    for r in runs:
        phases.setdefault(r.get("phase", "all"), (r["seconds"], r.get("iterations", 0)))
    if family == "factor":
        phases = {"solve": phases["solve"]}
    return sum(seconds for seconds, _ in phases.values()), max(count for _, count in phases.values())


rows = []
print(f"{'verb':26} {'bench':>10} {'call':>10} {'prepare':>10} {'give':>10} {'over':>10}")
for family, name, arguments, command in CASES:
    if family not in options.only.split(","):
        continue
    arguments = [str(a) for a in arguments + [0] * (2 - len(arguments))]
    inside, whole, prepare, give = [], [], [], []
    for _ in range(options.rounds):
        seconds, iterations = verb(family, command)
        found = output([calls, family, *arguments, str(options.repeat)])
        if family == "cg" and iterations:  # other right-hand sides: iterations differ
            seconds *= found["iterations"] / iterations
        inside.append(seconds)
        whole.append(statistics.median(found["call"]))
        prepare.append(statistics.median(found["prepare"]))
        give.append(statistics.median(found["give"]))
    bench, call = min(inside), min(whole)
    over = call - bench
    good = over < max(0.05 * bench, 2e-4)
    rows.append({"family": family, "case": name, "bench": bench, "call": call, "prepare": min(prepare),
                 "give": min(give), "good": good})
    print(f"{family + ', ' + name:26} " + " ".join(f"{1e3 * t:7.3f} ms" for t in (bench, call, rows[-1]["prepare"], rows[-1]["give"], over))
          + f"  {100 * over / bench:5.1f} %  {'good' if good else 'too much'}", flush=True)
if options.output:
    with open(options.output, "w") as file:
        json.dump({"backend": options.backend, "rows": rows}, file, indent=1)
