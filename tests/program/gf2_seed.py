#!/usr/bin/env python3
"""The seed's methods over GF(2) against NumPy, and its studies on the CPU: gf2_seed.py TERRACE"""
import csv
import os
import re
import sys

import h5py
import numpy as np

from given import bits, rref
from terrace import JOBS, Program, drawn, read_json

test = Program(sys.argv[1])
check = test.check
beside = os.path.join(os.path.dirname(test.path), "tests", "m4ri_bench")
m4ri = [beside] if os.path.exists(beside) else []
os.environ["TERRACE_PROFILE"] = os.path.abspath("profile.json")
rng = np.random.default_rng(13)


def run(command, code=0, ranks=1):
    return test.run(command + " --backend cpu", ranks, code)


# --- answers: column by column, and other numbers of candidates -----------------------------------
low = rng.integers(0, 2, (150, 37), dtype=np.uint8) @ rng.integers(0, 2, (37, 200), dtype=np.uint8) % 2
square = np.eye(130, dtype=np.uint8)
for _ in range(2000):  # regular: row operations on the identity
    i, j = rng.integers(0, 130, 2)
    if i != j:
        square[i] ^= square[j]
matrices = {"dense": rng.integers(0, 2, (140, 131), dtype=np.uint8), "low": low.astype(np.uint8),
            "sparse": (rng.random((200, 190)) < 0.004).astype(np.uint8), "wide": rng.integers(0, 2, (9, 700), dtype=np.uint8),
            "tall": rng.integers(0, 2, (700, 9), dtype=np.uint8), "zero": np.zeros((70, 65), np.uint8),
            "one": np.ones((1, 1), np.uint8)}
with h5py.File("in.h5", "w") as f:
    for name, a in matrices.items():
        f[name] = a
    f["square"] = square
    f["right"] = matrices["dense"] @ rng.integers(0, 2, (131, 3), dtype=np.uint8) % 2
for method in ("--method columns", "--method columns --guard", "--candidates 1 --block 64", "--candidates 3"):
    for name, a in matrices.items():
        if "candidates" in method and name not in ("dense", "low", "wide"):
            continue
        form, pivots = rref(a)
        run(f"gf2 rref in.h5:/{name} -o out.h5 --force {method}")
        with h5py.File("out.h5") as f:
            check(f"{name} {method}", np.array_equal(bits(f["rref"]), form) and list(f["pivots"][:]) == pivots)
        check(f"verify {name} {method}", test.run("verify out.h5").code == 0)
        run(f"gf2 rref in.h5:/{name} -o out.h5 --force --echelon {method}")
        with h5py.File("out.h5") as f:
            got = bits(f["rref"])
            right = list(f["pivots"][:]) == pivots and np.array_equal(rref(got)[0], form)
            for q, j in enumerate(pivots):
                right &= not got[q, :j].any() and got[q, j] == 1
            check(f"{name} --echelon {method}", right and not got[len(pivots):].any())
    out = run(f"gf2 rank in.h5:/low {method}").out
    check(f"rank {method}", "rank 37\n" in out, out)
    run(f"gf2 solve in.h5:/dense --rhs :/right -o out.h5 --force {method}")
    with h5py.File("out.h5") as f, h5py.File("in.h5") as g:
        check(f"solve {method}", np.array_equal(matrices["dense"] @ bits(f["x"]) % 2, g["right"][:]))
    run(f"gf2 kernel in.h5:/low -o out.h5 --force {method}")
    with h5py.File("out.h5") as f:
        basis = bits(f["kernel"])
        check(f"kernel {method}", basis.shape == (163, 200) and not (low @ basis.T % 2).any() and len(rref(basis)[1]) == 163)
    run(f"gf2 inverse in.h5:/square -o out.h5 --force {method}")
    with h5py.File("out.h5") as f:
        check(f"inverse {method}", np.array_equal(square @ bits(f["inverse"]) % 2, np.eye(130, dtype=np.uint8)))
with h5py.File("in.h5", "a") as f:
    singular = square.copy()
    singular[:, 100] = singular[:, 7] ^ singular[:, 9]
    f["singular"] = singular
for method in ("--method columns", "--method tables"):
    err = run(f"gf2 inverse in.h5:/singular -o none.h5 {method}", 4).err
    check(f"singular {method}", "column 100" in err and not os.path.exists("none.h5"), err)

done = run("gf2 rref in.h5:/dense -o out2.h5 --method columns", 2, ranks=2)
check("two ranks", "one rank" in done.err and "--method columns" in done.err and not os.path.exists("out2.h5"), done.err)
out = run("gf2 rref in.h5:/dense --method columns --plan").out
check("--plan", "column by column" in out, out)
out = run("gf2 rref in.h5:/dense --candidates 3 --plan").out
check("--plan --candidates", "320 columns" in out or "256 columns" in out, out)

# --- bench, studies, calibration ------------------------------------------------------------------
run("bench gf2 --n 65,130 --method columns --echelon --repeat 2 --energy --stages --report r.json")
report = read_json()
check("bench", report["method"] == "columns" and [r["certificate"] for r in report["runs"]] == ["passed"] * 2, report)
for r in report["runs"]:
    check("energy: joules, or null and why", r["energy"] is not None or r["energy_reason"], r)
run("bench gf2 --n 100 --inverse --method columns --repeat 1")
run("bench gf2 --n 90,200 --study=rows --report r.json")
runs = read_json()["runs"]
ranks = {}
for r in runs:
    ranks.setdefault((r["n"], r["density"]), set()).add(r["rank"])
check("study", {r["rows"] for r in runs} == {"swapped", "index array"} and all(r["certificate"] == "passed" for r in runs) and
      all(len(found) == 1 for found in ranks.values()), runs)
run("bench gf2 --calibrate=tables --report r.json")
report = read_json()
gains = report["gains"]["tables"]
check("calibrate", len(gains) == 4 and all(0 < g["gain"] <= g["most_gain"] * 1.001 for g in gains), gains)
check("profile", "shapes" in next(iter(read_json("profile.json").values()))["gf2"])

command = [f"{JOBS}/gf2_study.py", "study", "--terrace", test.path, "--backend", "cpu", "--first", "6", "--last", "9",
           "--m4ri-last", "8", "--small", "--seconds", "100", "--parts", "table,rows,candidates,energy,calibrate,m4ri-all,m4ri"]
if m4ri:
    command += ["--m4ri", m4ri[0]]
done = test.script(*command)
check("gf2_study.py", done.code == 0, done.out[-1500:] + done.err[-500:])
with open("study/gf2_seed.csv") as f:
    table = list(csv.DictReader(line for line in f if not line.startswith("#")))
points = {(row["method"], int(row["N"])) for row in table}
ours = ["GPU Gauss", "GPU k = 1", "GPU k = 4", "GPU k = 8", "GPU k = 14", "GPU block form"]
check("table", {(m, n) for m in ours for n in (6, 7, 8, 9)} <= points and all(float(row["seconds"]) > 0 for row in table), points)
if m4ri:
    check("M4RI", {(m, n) for m in ("M4RI m4ri", "M4RI pluq") for n in (6, 7, 8)} <= points, points)
with open("study/gf2_study.csv") as f:
    study = list(csv.DictReader(line for line in f if not line.startswith("#")))
check("parts", {row["study"] for row in study} == {"rows", "candidates", "energy"}, study)
check("energy", all(row["value"] or row["check"].startswith("null: ") for row in study if row["study"] == "energy"), study)
check("checked", all(row["check"] == "passed" for row in study if row["study"] in ("rows", "candidates")), study)
done = test.script(f"{JOBS}/gf2_seed_plot.py", "study/gf2_seed.csv", f"{JOBS}/gf2_seed_2013.csv", "page", "--study", "study/gf2_study.csv")
with open("page.md") as f:
    page = f.read()
check("page", done.code == 0 and "nearer to" in page and "Rows swapped" in page and
      re.search(r"\| 130 \| tables, k = 8 \|", page) and (drawn("page.svg", done) is None or os.path.getsize("page.svg") > 2000), done.err + page[-1500:])

# A program that gives wrong ranks, or stops: failed, and said so.
with open("wrong", "w") as f:
    f.write("#!/bin/sh\necho 'seconds 1 threads 1 rank 3 checksum 0 joules none, nothing'\n")
os.chmod("wrong", 0o755)
done = test.script(f"{JOBS}/gf2_study.py", "broken", "--terrace", test.path, "--backend", "cpu", "--first", "6", "--last", "6",
                   "--m4ri-last", "6", "--m4ri", "./wrong", "--parts", "m4ri")
with open("broken/gf2_seed.csv") as f:
    check("a wrong rank", done.code == 1 and "# failed" in f.read(), done.out)

test.finish()
