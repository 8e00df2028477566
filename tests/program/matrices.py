#!/usr/bin/env python3
"""bench matrix and the study of jobs/cg_seed.sh on the CPU: matrices.py TERRACE"""
import csv
import shutil
import sys

from terrace import JOBS, Program, drawn, read_json

test = Program(sys.argv[1])
check = test.check


def bench(words, ranks=1):
    return test.run(f"bench matrix --backend cpu --repeat 1 {words}", ranks)


done = bench("--n 4,9,33 --report r.json")
check("bench matrix", done.code == 0, done.err[-300:])
rows = read_json()["runs"]
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
check("--most-serial", [(r["who"], r["n"]) for r in read_json()["runs"]] == [("textbook", 20), ("terrace", 20), ("terrace", 40)])
done = bench("--n 1 --what bounds --report r.json")
rows = {r["what"]: r for r in read_json()["bounds"]}
check("bounds", {what: r["matrices"] for what, r in rows.items()} == {"sum": 3, "product-element": 3, "sum-operand-moved": 2, "sum-copied": 4} and
      all(r["most"] == r["memory"] > 100 and r["by"] == "memory" for r in rows.values()), rows)
for words, ranks, named in (("--what difference", 1, "difference"), ("--n 8", 2, "one rank"), ("--n 0", 1, "--n")):
    done = bench(words, ranks)
    check(f"refused: {words}", done.code == 2 and named in done.err, done.err)

jq = shutil.which("jq")
if not jq:
    test.skipped("jq is not here, the study was not tried; all else was")
else:
    done = test.script(f"{JOBS}/cg_seed.sh", "study", BACKENDS="cpu", SIZES_CPU="4 16 48", MEMORY_CPU="50", REPEAT="1")
    check("cg_seed.sh", done.code == 0 and done.err == "", done.err[-300:])
    with open("study.csv", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    found = {(r["what"], r["who"], int(r["n"])) for r in rows}
    check("study.csv", {("cg", w, n) for w in ("textbook", "terrace") for n in (4, 16, 48)} <= found and
          {(r["what"], r["who"]) for r in rows if r["what"] == "bound"} == {("bound", w) for w in ("sum", "product-element", "sum-operand-moved", "sum-copied")} and
          {("cramer", "expansion", 10), ("cramer", "elimination", 32), ("memory", "copied", 50)} <= found, found)
    lines = drawn("study.svg", done)
    check("study.svg", lines is None or len(lines) == 3 + 2 + 2 + 2, lines)
# The tables and the figure from known numbers.
with open("known.csv", "w") as file:
    file.write("# two lines\nwhat,who,backend,n,seconds,rate,unit,fraction,iterations,residual,peak_bytes,matrices\n"
               "product,textbook-block,cuda,64,0.002,5,GFLOP/s,0.25,,0.5,,\nproduct,terrace,cuda,64,0.001,10,GFLOP/s,0.5,,0.5,,\n"
               "product,terrace,cuda,128,0.004,20,GFLOP/s,0.75,,0.5,,\n"
               "bound,product-block,cuda,70000,0,1024,memory,2147483647,,,70000,3\nbound,sum-copied,cuda,66000,0,,memory,,,,66000,4\nmemory,copied,cuda,100,0.1,1,GB/s,,,0,320000,4\n")
done = test.script(f"{JOBS}/cg_seed_plot.py", "known.csv", "known")
check("plot", done.code == 0, done.err)
with open("known.md") as file:
    table = file.read()
check("tables", "| product block | cuda | 1,024 | 2,147,483,647 | 70,000 | 3 | 70,000 | memory |" in table and
      "| sum copied | cuda | - | - | 66,000 | 4 | 66,000 | memory |" in table and "| 64 | 1.00 | 2.00 |" in table and "| 128 | 4.00 | - |" in table and "| 0.00032 | 4.00 |" in table, table)
lines = drawn("known.svg", done)
check("figure", lines is None or sorted(lines.values()) == [1, 2] and "cuBLAS" in open("known.svg").read(), lines)

test.finish(not jq)
