#!/usr/bin/env python3
"""dense invert --method textbook: results against NumPy, refusals, the article's text files, and the grid study's job.

textbook.py TERRACE     Needs h5py and numpy; runs in a temporary folder.
"""
import csv
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np

from terrace import JOBS, Program, drawn, read_json

test = Program(sys.argv[1])
check, refused = test.check, test.refused
rng = np.random.default_rng(11)


def run(command, ranks=1, code=0):
    return test.run(command, ranks, code)


matrices = {}
for n in (1, 2, 15, 16, 17, 33, 100):
    matrices[f"random{n}"] = rng.uniform(-1, 1, (n, n))
matrices["permuted"] = np.diag(rng.uniform(1, 2, 40))[rng.permutation(40)]
block = rng.uniform(-1, 1, (40, 40))
block[:20, :20] = 0
matrices["block"] = block
singular = {}
for column in (0, 20, 39):
    singular[column] = rng.uniform(-1, 1, (40, 40))
    singular[column][:, column] = 0
with h5py.File("in.h5", "w") as f:
    for name, a in matrices.items():
        f[name] = a
    for column, a in singular.items():
        f[f"singular{column}"] = a
    f["wide"] = np.ones((3, 4))

for name, a in matrices.items():
    run(f"dense invert in.h5:/{name} --method textbook --backend cpu -o x.h5 --report r.json --force")
    sign, log = np.linalg.slogdet(a)
    report = read_json()
    with h5py.File("x.h5") as f:
        attributes = f["inverse"].attrs
        check(name, np.allclose(f["inverse"][:], np.linalg.inv(a), rtol=1e-9, atol=1e-9))
        check(f"determinant of {name}", np.isclose(attributes["log_abs_determinant"], log, atol=1e-10) and attributes["determinant_sign"] == sign)
        check(f"report of {name}", report["method"] == "textbook" and report["pivoting"] == "partial" and report["residual"] < 30
              and "grid" not in report, report)
    check(f"verify {name}", "PASS" in run("verify x.h5").out)
for column in singular:
    command = f"dense invert in.h5:/singular{column} --method textbook --backend cpu -o bad.h5"
    refused(command, 4, "singular", f"column {column};")
    run(command + " --report r.json", code=4)
    check(f"column {column} in the report", read_json()["result"]["first_zero_pivot"] == column)

# --- what does not go together -------------------------------------------------------------------
command = "dense invert in.h5:/random17 -o bad.h5 --backend cpu"
refused(command + " --method textbook", 2, "one rank", "--method", ranks=2)
refused(command + " --method textbook --block 16", 2, "--block")
refused(command + " --method textbook --pivoting tournament", 2, "--pivoting")
refused(command + " --method textbook --precision mixed", 2, "--precision")
refused(command + " --method textbook --precision emulated", 2, "--precision")
refused(command + " --method textbook --grid 8", 2, "CPU", "--grid")
refused(command + " --method textbook --threads 16", 2, "CPU", "--threads")
refused(command + " --method textbook --grid 7", 2, "--grid")
refused(command + " --method textbook --threads 64", 2, "--threads")
refused(command + " --grid 8", 2, "--grid", "--method textbook")
refused(command + " --threads 32", 2, "--threads", "--method textbook")
refused(command + " --method schoolbook", 2, "schoolbook", "--method", "textbook")
refused("dense solve in.h5:/random17 --rhs :/random17 -o bad.h5 --method textbook", 2, "textbook", "--method")
refused("dense invert in.h5:/wide -o bad.h5 --method textbook", 3, "not square")
refused("bench dense --n 20 --method schoolbook", 2, "schoolbook", "--method")
refused("bench dense --n 20 --method textbook", 2, "one rank", ranks=2)
refused("bench dense --n 20 --grid 8,16", 2, "--grid", "--method textbook")
refused("bench dense --n 20 --backend cpu --method textbook --grid 8,16", 2, "CPU", "--grid")
run(command.replace("bad", "good") + " --method textbook --pivoting partial --no-check")
check("--no-check", os.path.exists("good.h5"))
check("--plan", "column by column" in run("dense invert in.h5:/random17 --method textbook --backend cpu --plan").out)

# --- the article's files: n, then n x n numbers, blanks or tabs, also at the ends of lines ----------
a = matrices["random33"]
for name, mark in (("blanks", " "), ("tabs", "\t")):
    text = "33\n" + "".join("".join("%.6e%s" % (v, mark) for v in row) + "\n" for row in a)
    with open(f"{name}.txt", "w") as f:
        f.write(text)
    run(f"convert {name}.txt {name}.h5")
    with h5py.File(f"{name}.h5") as f:
        held = f["A"][:]
        check(f"numbers of {name}", np.array_equal(held, [[float("%.6e" % v) for v in row] for row in a]))
    run(f"convert {name}.h5:/A back.txt --force" + (" --tabs" if mark == "\t" else ""))
    with open("back.txt") as f:
        check(f"round trip of {name}", f.read() == text.replace(mark + "\n", "\n"))
    run(f"dense invert {name}.h5:/A --method textbook --backend cpu -o inverse.h5 --force")
    run("convert inverse.h5:/inverse inverse.txt --force" + (" --tabs" if mark == "\t" else ""))
    with open("inverse.txt") as f:
        lines = f.read().splitlines()
    found = np.array([[float(v) for v in line.split(mark)] for line in lines[1:]])
    check(f"inverse of {name}", lines[0] == "33" and np.allclose(found, np.linalg.inv(held), rtol=2e-6, atol=1e-9))

# --- the seed's own output, and standard input and output -------------------------------------------
def pipe(command, text, ranks=1, code=0):
    return test.run(command, ranks, code, text=False, input=text.encode())


def gauss_jordan(a):
    """The method as the article's Python program has it: rows below, rows above, then divide."""
    n = len(a)
    a = [list(map(float, row)) + [float(i == j) for j in range(n)] for i, row in enumerate(a)]
    for k in range(n):
        largest = max(range(k, n), key=lambda i: abs(a[i][k]))
        a[k], a[largest] = a[largest], a[k]
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            a[i] = a[i][:k] + [x - factor * y for x, y in zip(a[i][k:], a[k][k:])]
    for k in reversed(range(n)):
        for i in reversed(range(k)):
            factor = a[i][k] / a[k][k]
            a[i] = [x - factor * y for x, y in zip(a[i], a[k])]
    return [[x / row[i] for x in row[n:]] for i, row in enumerate(a)]


def printed(rows, cpp=False):
    """What print('{:.6e}'.format(round(v, 10)), end=' ') and cout << scientific << v << tab print."""
    return "".join("".join("%.6e\t" % v if cpp else "{:.6e} ".format(round(v, 10)) for v in row) + "\n" for row in rows)


for n, ranks in ((1, 1), (5, 1), (40, 3)):
    text = f"{n}\n" + "\n".join(" ".join("%.6e" % v for v in row) for row in rng.uniform(-1, 1, (n, n)))
    numbers = [float(word) for word in text.split()[1:]]
    wanted = gauss_jordan([numbers[i * n : (i + 1) * n] for i in range(n)])
    pipe("convert - piped.h5 --force", text, ranks)
    run("dense invert piped.h5:/A --method textbook --backend cpu -o inverse.h5 --force")
    done = pipe("convert inverse.h5:/inverse - --seed-format", "", ranks)
    check(f"the seed's Python output, n = {n}", done.out.decode() == printed(wanted), done.out[:200])
    done = pipe("convert inverse.h5:/inverse - --seed-format --tabs", "", ranks)
    check(f"the seed's C++ output, n = {n}", done.out.decode() == printed(wanted, True), done.out[:200])
    run("convert inverse.h5:/inverse seed.txt --seed-format --force", ranks)
    with open("seed.txt") as f:
        check(f"the same in a file, n = {n}", f.read() == printed(wanted))
# Digits alone: ten places cut, ties between them, signs of zero, the ends of the range.
digits = np.array([1 / 3e11, -1 / 3e11, 2.0**-11, 3 * 2.0**-11, -(2.0**-11), 0.1, 5e-11, 4.9999999999e-11, -5e-11, 1.00000000005, 0.00012345675,
                   1e16, 2.0**53, -(2.0**52) - 0.5, 1.7976931348623157e308, 5e-324, -0.0, 123456.7890625, 9.9999999999999e9, 0.9999999999999, 12345678.5])
digits = np.concatenate([digits, rng.uniform(-1, 1, 2500 - len(digits)) * 10.0 ** rng.integers(-13, 17, 2500 - len(digits))]).reshape(50, 50)
with h5py.File("digits.h5", "w") as f:
    f["A"] = digits
check("digits as Python's", pipe("convert digits.h5 - --seed-format", "", 2).out.decode() == printed(digits.tolist()))
check("digits as C++'s", pipe("convert digits.h5 - --seed-format --tabs", "").out.decode() == printed(digits.tolist(), True))
plain = pipe("convert digits.h5 -", "").out.decode()
check("plain text to standard output", plain == "50\n" + "".join(" ".join("%.6e" % v for v in row) + "\n" for row in digits.tolist()))
market = pipe("convert digits.h5 - --as mtx", "").out.decode()
pipe("convert - back.h5 --as mtx --force", market, 3)
with h5py.File("back.h5") as f:
    check("Matrix Market by way of standard streams", np.array_equal(f["A"][:], digits))
    check("the source", f["terrace"].attrs["source"] == "standard input", dict(f["terrace"].attrs))
with open("piped.npy", "wb") as f:
    f.write(pipe("convert digits.h5 - --as npy", "").out)
check("NumPy by way of standard output", np.array_equal(np.load("piped.npy"), digits))
check("a short text", b"standard input line 2;" in pipe("convert - bad.h5", "2\n1 2 3\n", 2, 3).err)
check("nothing to read", b"standard input line 1;" in pipe("convert - bad.h5", "", 1, 3).err and not os.path.exists("bad.h5"))
refused("convert digits.h5 bad.npy --seed-format", 2, "--seed-format")
refused("convert blanks.txt bad.h5 --tabs", 2, "--tabs")
refused("convert digits.h5 bad.txt --as mtx", 2, "--as mtx")
refused("convert - bad.h5 --as npy", 2, "standard input")
refused("convert - -", 2, "HDF5")
refused("convert digits.h5 - --as csv", 2, "--as")
# Without mpirun, which would stand between, the program sees the device itself.
with open("/dev/full", "w") as full:
    done = test.run("convert digits.h5 -", capture_output=False, stdout=full, stderr=subprocess.PIPE)
check("a full standard output", done.code == 5 and "standard output" in done.err, done.err)
if shutil.which("script"):  # a terminal
    done = test.script("script", "-qec", f"{test.path} convert digits.h5 - --as npy", "/dev/null")
    check("binary on a terminal", done.code == 2 and "terminal" in done.out, done.out[:300])

# --- the benchmark and the study -----------------------------------------------------------------
run("bench dense --n 20,33 --method textbook --backend cpu --rivals lapack --repeat 1 --report r.json")
rows = read_json()["runs"]
check("rows", [(r["who"], r["n"]) for r in rows] == [(w, n) for n in (20, 33) for w in ("terrace", "textbook", "lapack")], rows)
check("residuals", all(0 < r["residual"] < 30 for r in rows if r["who"] != "lapack"))
check("rate", all(np.isclose(r["rate"]["value"], 2e-9 * r["n"] ** 3 / r["seconds"]) for r in rows))
jq = shutil.which("jq")
if not jq:
    test.skipped("jq is not here, the study was not tried; all else was")
else:
    done = test.script(f"{JOBS}/dense_seed.sh", "study", BACKEND="cpu", SIZES="10,20,33,50 64", REPEAT="1")
    check("dense_seed.sh", done.code == 0, done.err[-300:])
    with open("study.csv", newline="") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    check("study.csv", sorted({(r["who"], int(r["n"])) for r in rows}) ==
          sorted((w, n) for w in ("lapack", "terrace", "textbook") for n in (10, 20, 33, 50, 64)), rows)
    lines = drawn("study.svg", done)
    check("study.svg", lines is None or len(lines) == 6 + 2 and sum(lines.values()) == 2 * 15, lines)  # one name for the curves of a panel
    with open("study.md") as f:
        check("study.md", "| x^3 |" in f.read() and "x = n / 1,000" in done.out)
# The fit itself: a cubic is found again.
cubic = {n: 3e-10 * n**3 + 2e-8 * n**2 + 1e-6 * n + 4e-5 for n in (100, 300, 500, 1000, 2000, 3000)}
with open("cubic.csv", "w") as f:
    f.write("who,backend,n,grid,threads,seconds,gflops,fraction,residual\n")
    for n, seconds in cubic.items():
        f.write(f"textbook,cuda,{n},8,16,{seconds!r},1,0.1,0.5\n")
done = test.script(f"{JOBS}/dense_seed_plot.py", "cubic.csv", "cubic")
check("cubic", "| blocks 8x8, threads 16x16 | 300 | 20 | 1 | 0.04 | 0.0 % |" in done.out, done.out + done.err[-300:])

test.finish(not jq)
