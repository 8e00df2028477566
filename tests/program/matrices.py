#!/usr/bin/env python3
"""bench matrix and the study of jobs/cg_seed.sh on the CPU: matrices.py TERRACE"""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile

terrace = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
folder = tempfile.mkdtemp()
os.chdir(folder)
failures = 0


def check(what, good, seen=""):
    global failures
    if not good:
        failures += 1
        print(f"FAILED {what}: {seen}")


def bench(words, ranks=1):
    return subprocess.run(["mpirun", "-n", str(ranks), terrace, "bench", "matrix", "--backend", "cpu", "--repeat", "1"] +
                          words.split(), capture_output=True, text=True, timeout=120)


done = bench("--n 4,9,33 --report r.json")
check("bench matrix", done.returncode == 0, done.stderr[-300:])
with open("r.json") as file:
    rows = json.load(file)["runs"]
lines = {(r["what"], r["who"], r["n"]): r for r in rows}
expected = {(what, who, n) for n in (4, 9, 33) for what, who in
            [("sum", w) for w in ("textbook", "terrace", "container")] + [("product", w) for w in ("textbook", "terrace")] +
            [("cg", "textbook")] + [("memory", w) for w in ("operand-moved", "result-moved", "copied")]}
expected |= {("cramer", "elimination", n) for n in (4, 9)} | {("cramer", "expansion", n) for n in (4, 9)}
check("lines", set(lines) == expected and len(rows) == len(expected), set(lines) ^ expected)
for (what, who, n), r in lines.items():
    limit = {"sum": 0, "product": 30, "cg": 1e-9, "cramer": 1e-12, "memory": 0}[what]
    check(f"{what} {who} {n}", 0 <= r["residual"] <= limit and r["seconds"] >= 0, r)
check("iterations", all(1 <= lines["cg", "textbook", n]["iterations"] <= n + 5 for n in (4, 9, 33)))
for who, matrices in (("operand-moved", 2), ("result-moved", 3), ("copied", 4)):
    r = lines["memory", who, 33]
    check(f"memory {who}", r["matrices"] == matrices and r["peak_bytes"] == matrices * 8 * 33 * 33, r)

done = bench("--n 20,40 --what product --most-serial 30 --report r.json")
with open("r.json") as file:
    check("--most-serial", [(r["who"], r["n"]) for r in json.load(file)["runs"]] ==
          [("textbook", 20), ("terrace", 20), ("terrace", 40)])
done = bench("--n 1 --what bounds --report r.json")
with open("r.json") as file:
    rows = {r["what"]: r for r in json.load(file)["bounds"]}
check("bounds", {what: r["matrices"] for what, r in rows.items()} == {"sum": 3, "product-element": 3, "sum-operand-moved": 2, "sum-copied": 4} and
      all(r["most"] == r["memory"] > 100 and r["by"] == "memory" for r in rows.values()), rows)
for words, ranks, named in (("--what difference", 1, "difference"), ("--n 8", 2, "one rank"), ("--n 0", 1, "--n")):
    done = bench(words, ranks)
    check(f"refused: {words}", done.returncode == 2 and named in done.stderr, done.stderr)

jq = shutil.which("jq")
if not jq:
    print("skipped: jq is not here, the study was not tried; all else was")
else:
    environment = {**os.environ, "TERRACE": terrace, "BACKENDS": "cpu", "SIZES_CPU": "4 16 48", "MEMORY_CPU": "50", "REPEAT": "1"}
    done = subprocess.run([f"{root}/jobs/cg_seed.sh", "study"], capture_output=True, text=True, timeout=300, env=environment)
    check("cg_seed.sh", done.returncode == 0 and done.stderr == "", done.stderr[-300:])
    with open("study.csv", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    found = {(r["what"], r["who"], int(r["n"])) for r in rows}
    check("study.csv", {("cg", w, n) for w in ("textbook", "terrace") for n in (4, 16, 48)} <= found and
          {(r["what"], r["who"]) for r in rows if r["what"] == "bound"} == {("bound", w) for w in ("sum", "product-element", "sum-operand-moved", "sum-copied")} and
          {("cramer", "expansion", 10), ("cramer", "elimination", 32), ("memory", "copied", 50)} <= found, found)
    with open("study.svg") as file:
        check("study.svg", file.read().count("<polyline") == 3 + 2 + 2 + 2)
# The tables and the figure from known numbers.
with open("known.csv", "w") as file:
    file.write("# two lines\nwhat,who,backend,n,seconds,rate,unit,fraction,iterations,residual,peak_bytes,matrices\n"
               "product,textbook-block,cuda,64,0.002,5,GFLOP/s,0.25,,0.5,,\nproduct,terrace,cuda,64,0.001,10,GFLOP/s,0.5,,0.5,,\n"
               "product,terrace,cuda,128,0.004,20,GFLOP/s,0.75,,0.5,,\n"
               "bound,product-block,cuda,70000,0,1024,memory,2147483647,,,70000,3\nbound,sum-copied,cuda,66000,0,,memory,,,,66000,4\nmemory,copied,cuda,100,0.1,1,GB/s,,,0,320000,4\n")
done = subprocess.run([sys.executable, f"{root}/jobs/cg_seed_plot.py", "known.csv", "known"], capture_output=True, text=True, timeout=60)
check("plot", done.returncode == 0, done.stderr)
with open("known.md") as file:
    table = file.read()
check("tables", "| product block | cuda | 1,024 | 2,147,483,647 | 70,000 | 3 | 70,000 | memory |" in table and
      "| sum copied | cuda | - | - | 66,000 | 4 | 66,000 | memory |" in table and "| 64 | 1.00 | 2.00 |" in table and "| 128 | 4.00 | - |" in table and "| 0.00032 | 4.00 |" in table, table)
with open("known.svg") as file:
    svg = file.read()
check("figure", svg.count("<circle") == 3 and svg.count("<polyline") == 2 and "cuBLAS" in svg)

os.chdir("/")
shutil.rmtree(folder)
print("all passed" if failures == 0 else f"{failures} failed")
sys.exit(1 if failures else 0 if jq else 77)
