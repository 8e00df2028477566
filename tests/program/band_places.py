#!/usr/bin/env python3
"""Band systems with diagonal blocks and substitution by the CPU, in memory and streamed, and the study of jobs/band_seed.sh.

band_places.py TERRACE     Needs h5py, numpy and scipy; runs in a temporary folder, on every backend that is there.
"""
import csv
import itertools
import os
import shutil
import sys

import h5py
import numpy as np
import scipy.linalg

from given import band, write_band
from terrace import JOBS, Program, drawn, gpus

test = Program(sys.argv[1])
check, run = test.check, test.reported
rng = np.random.default_rng(5)


for backend, places in [("cpu", ("", "cpu"))] + ([("cuda", ("gpu", "cpu"))] if gpus() else []):
    one = f"band solve in.h5:/A --rhs :/b --backend {backend} -o x.h5 --force"
    for n, m, nrhs, width, ranks in ((301, 65, 1, 48, 2), (200, 0, 3, 16, 3), (500, 64, 2, 0, 1), (450, 170, 1, 160, 1)):
        ab, b = band(rng, n, m), rng.normal(size=(n, nrhs))
        write_band(ab, b)
        oracle = scipy.linalg.solveh_banded(ab, b, lower=True)
        block = f" --block {width}" if width else ""
        for diagonal, substitution in itertools.product(places, places):
            asked = (f" --diagonal {diagonal}" if diagonal else "") + (f" --substitution {substitution}" if substitution else "")
            if not asked or (ranks == 3 and diagonal == substitution):
                continue
            for method in ("tile-columns", "streamed"):
                what = one + f" --method {method}" + asked + block
                _, _, report = run(what, ranks)
                check(what, report.get("method") == method and report["residual"] < 30 and report["block"] == (width or report["block"]), report)
                with h5py.File("x.h5") as f:
                    check(what, np.allclose(f["x"][:], oracle, rtol=1e-11, atol=1e-13))
        check(f"verify n = {n}", "PASS" in run("verify x.h5")[0])
    streamed = one + " --method streamed --substitution cpu"
    out, _, report = run(streamed + " --diagonal cpu --block 160 --plan")
    check("--plan", "diagonal blocks by the cpu, substitution by the cpu" in out and "window of 4 tile columns" in out, out)
    # A stored factor is brought in tile columns; the first bad minor is LAPACK's.
    run(f"band factor in.h5:/A --backend {backend} -o l.h5 --force")
    run(streamed + " --factor l.h5:/factor", 2)
    with h5py.File("x.h5") as f:
        check("a stored factor", np.allclose(f["x"][:], oracle, rtol=1e-11, atol=1e-13))
    for bad in (0, 77, 449):
        wrong = ab.copy()
        wrong[0, bad] = -1
        write_band(wrong, b)
        what = one.replace("x.h5", "y.h5") + " --method streamed --diagonal cpu --block 32"
        _, _, report = run(what, 2, code=4)
        check(what, report["result"]["failed_minor"] == scipy.linalg.lapack.dpbtrf(wrong, lower=True)[1] and not os.path.exists("y.h5"), report)
    write_band(ab, b)
    # A scratch file, which the CPU's substitution reads too.
    for ranks in (1, 2):
        what = streamed + " --diagonal cpu --block 160 --scratch-dir ."
        _, _, report = run(what, ranks)
        check(what, report["scratch_bytes"] > 450 * 171 * 8 / ranks and report["residual"] < 30, report)
        with h5py.File("x.h5") as f:
            check(what, np.allclose(f["x"][:], oracle, rtol=1e-11, atol=1e-13))
    for words, named in ((" --method streamed --diagonal cpu --parts 2", "--parts"), (" --method two-ends --diagonal cpu", "two-ends"),
                         (" --method streamed --diagonal cpu --factor l.h5:/factor", "--factor"), (" --diagonal cpu --precision mixed", "--diagonal"),
                         (" --method streamed --substitution tpu", "tpu"), (" --method streamed --diagonal cpu --guard --no-check", "--guard")):
        _, err, _ = run(one.replace("x.h5", "bad.h5") + words, code=2)
        check("refused" + words, named in err and not os.path.exists("bad.h5"), err)
    both = ",".join(p for p in places if p)
    _, _, report = run(f"bench band --backend {backend} --n 400 --half-bandwidth 40 --method streamed --widths 16,32 --diagonal {both} --substitution {both} --repeat 1")
    rows = [(r["phase"], r["block"], r.get("diagonal"), r.get("substitution")) for r in report["runs"]]
    check("bench band", rows == [row for w in (16, 32) for row in
                                 [("factor", w, p, None) for p in both.split(",")] + [("solve", w, None, p) for p in both.split(",")]], rows)
    check("bench band", all(0 < r["residual"] < 30 and r["method"] == "streamed" for r in report["runs"]), report)
run("bench band --n 100 --half-bandwidth 9 --widths 16,32 --block 16 --repeat 1", code=2)

if shutil.which("jq"):
    known = {"BACKEND": "cpu", "N": "500", "WIDTHS": "16,32,48", "HALF_BANDWIDTHS": "40 64", "REPEAT": "1"}
    os.mkdir("kept")
    done = test.script(f"{JOBS}/band_seed.sh", "study", "1", "2", **known, KEEP="kept")
    check("band_seed.sh", done.code == 0 and done.err == "", done.err[-300:])
    with open("study.csv", newline="") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    found = {(r["who"], r["method"], int(r["half_bandwidth"]), int(r["ranks"]), int(r["width"]), r["phase"]) for r in rows if r["who"] == "terrace"}
    check("study.csv", found == set(itertools.product(("terrace",), ("tile-columns", "streamed"), (40, 64), (1, 2), (16, 32, 48), ("factor", "solve"))), found)
    check("LAPACK's factor and solve", {(r["half_bandwidth"], r["phase"]) for r in rows if r["who"] == "lapack"} == set(itertools.product(("40", "64"), ("factor", "solve"))))
    found = drawn("study.svg", done)
    if found is not None:
        lines = [points for name, points in found.items() if name.startswith("line")]
        check("figures", all(f"Figure {k}: " in open("study.svg").read() for k in (2, 3, 4, 5)) and lines == 8 * [3], found)
    # The same tables from the reports that were kept.
    done = test.script(f"{JOBS}/band_seed.sh", "again", "1", "2", **known, KEEP="", REPLAY="kept", TERRACE="/nowhere")
    check("REPLAY", done.code == 0, done.err[-300:])
    for end in ("csv", "md") + ("svg",) * (found is not None):
        check(f"REPLAY {end}", open(f"again.{end}").read() == open(f"study.{end}").read())
# The figures from known numbers, in two tables.
head = "who,backend,ranks,n,half_bandwidth,method,width,diagonal,substitution,phase,seconds\n"
with open("one.csv", "w") as f:
    f.write("# one\n" + head + "".join(f"terrace,cuda,1,1000,100,streamed,{w},gpu,,factor,{t}\nterrace,cuda,1,1000,100,streamed,{w},,cpu,solve,0.1\n"
                                       for w, t in ((16, 0.3), (32, 0.2), (64, 0.4))) +
            "lapack,cpu,1,1000,100,,0,,,factor,2\nlapack,cpu,1,1000,100,,0,,,solve,1\n")
with open("two.csv", "w") as f:
    f.write("# two\n" + head + "terrace,cuda,2,1000,100,streamed,32,gpu,,factor,0.05\nterrace,cuda,2,1000,100,streamed,32,,cpu,solve,0.02\n")
done = test.script(f"{JOBS}/band_seed_plot.py", "one.csv", "two.csv", "known")
check("plot", done.code == 0, done.err)
table = open("known.md").read()
check("best widths", "| 100 | 1 GPU | streamed | gpu | cpu | 32 | 0.200 | 0.100 | 0.300 | yes |" in table and "| 0.0700 | no |" in table, table)
check("the library's sum", "| 100 | LAPACK dpbtrf, dpbtrs | 2.00 | 1.00 | 3.00 |" in table, table)
os.system("cat one.csv two.csv >both.csv")
test.script(f"{JOBS}/band_seed_plot.py", "both.csv", "both")
check("tables one behind the other", open("both.md").read() == table)
if drawn("known.svg", done) is not None:
    check("figures of both", open("both.svg").read() == open("known.svg").read())

test.finish()
