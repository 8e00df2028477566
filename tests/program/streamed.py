#!/usr/bin/env python3
"""band solve and band factor with the matrix in host memory, from one end and from both; LAPACK as oracle.

streamed.py TERRACE     Needs h5py, numpy and scipy; runs in a temporary folder, on every backend that is there.
"""
import os
import resource
import sys

import h5py
import numpy as np
import scipy.linalg

from given import band, write_band
from terrace import Program, gpus

test = Program(sys.argv[1])
check, run = test.check, test.reported
rng = np.random.default_rng(11)


def minor(ab):
    return scipy.linalg.lapack.dpbtrf(ab, lower=True)[1]


backends = ["cpu"] + (["cuda"] if gpus() else [])
small_pieces = {"TERRACE_IO_PIECE_BYTES": "4096"}
for backend in backends:
    for n, m, nrhs in ((300, 20, 2), (301, 65, 1), (900, 0, 9), (500, 64, 2)):
        ab, b = band(rng, n, m), rng.normal(size=(n, nrhs))
        write_band(ab, b)
        oracle = scipy.linalg.solveh_banded(ab, b, lower=True)
        for parts in (0, 1, 2):
            what = f"band solve in.h5:/A --rhs :/b --method streamed --parts {parts} --backend {backend} -o x.h5 --force"
            out, _, report = run(what, env=small_pieces)
            check(what, "note" not in report and report["residual"] < 30, report)
            if parts > 0:
                check(what, report["parts"] == parts, report)
            with h5py.File("x.h5") as f:
                check(what, np.allclose(f["x"][:], oracle))
        check(what + " verify", "PASS" in run("verify x.h5")[0])
        check(what + " --plan", "both ends" in run(what + " --plan")[0])
        # Loss of definiteness in either end and between them: LAPACK's minor.
        for bad in (0, n // 2, n // 2 + 40, n - 1) if nrhs == 2 else ():
            wrong = ab.copy()
            wrong[0, bad] = -1
            write_band(wrong, b)
            parts = 1 + (bad != n // 2)
            what = f"band solve in.h5:/A --rhs :/b --method streamed --parts {parts} --backend {backend} -o y.h5"
            _, err, report = run(what, code=4)
            check(what, report["result"]["failed_minor"] == minor(wrong), report)
            check(what, ("one end" in report.get("note", "")) == (parts == 2), report)
            check(what, not os.path.exists("y.h5"))
    # The factor in a scratch file that leaves nothing behind; a folder that is not there; a limit on files.
    os.makedirs("scratch", exist_ok=True)
    ab, b = band(rng, 20000, 30), rng.normal(size=(20000, 2))
    write_band(ab, b)
    for parts in (1, 2):
        what = f"band solve in.h5:/A --rhs :/b --method streamed --parts {parts} --backend {backend} --scratch-dir scratch -o x.h5 --force"
        _, _, report = run(what)
        check(what, report["scratch_bytes"] > 30 * 20000 * 8 and not os.listdir("scratch"), report)
        with h5py.File("x.h5") as f:
            check(what, np.allclose(f["x"][:], scipy.linalg.solveh_banded(ab, b, lower=True)))
        check(what, "scratch" in run(what + " --plan")[0])
        _, err, _ = run(what.replace("--scratch-dir scratch", "--scratch-dir nowhere"), code=5)
        check(what, "nowhere" in err and "--scratch-dir" in err, err)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))
        _, err, _ = run(what, code=5)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        check(what, "ulimit" in err and "--scratch-dir" in err and not os.listdir("scratch"), err)
    run(f"band factor in.h5:/A --method streamed --backend {backend} --scratch-dir scratch -o l.h5 --force")
    run(f"band factor in.h5:/A --method streamed --backend {backend} -o l2.h5 --force")
    with h5py.File("l.h5") as f, h5py.File("l2.h5") as g:
        check("band factor by way of a scratch file", np.array_equal(f["factor"][:], g["factor"][:]))
    run(f"band solve in.h5:/A --rhs :/b --method streamed --factor l.h5:/factor --backend {backend} --scratch-dir scratch -o x.h5 --force")
    check("verify with a stored factor", "PASS" in run("verify x.h5")[0])
    # Near the ends of the range of numbers.
    ab, b = band(rng, 400, 20), rng.normal(size=(400, 1))
    for scale in (2.0**-1027, 2.0**1017):
        write_band(ab * scale, b * scale)
        oracle = scipy.linalg.solveh_banded(ab, b, lower=True)
        for parts in (1, 2):
            what = f"band solve in.h5:/A --rhs :/b --method streamed --parts {parts} --backend {backend} -o x.h5 --force"
            _, _, report = run(what)
            check(what, backend == "cpu" or "scaled" in report.get("note", ""), report)
            with h5py.File("x.h5") as f:
                check(what, np.allclose(f["x"][:], oracle))
        what = f"band factor in.h5:/A --method streamed --backend {backend} -o l.h5 --force"
        run(what)
        factor = scipy.linalg.cholesky_banded(ab, lower=True)
        inside = np.add.outer(np.arange(21), np.arange(400)) < 400
        with h5py.File("l.h5") as f:
            check(what, np.allclose(f["factor"][:][inside] / 2.0 ** (np.log2(scale) / 2), factor[inside]))
        wrong = ab * scale
        wrong[1, 100] = 60 * scale  # not definite, with good diagonal entries
        write_band(wrong, b)
        what = f"band solve in.h5:/A --rhs :/b --method streamed --parts 2 --backend {backend} -o y.h5"
        _, _, report = run(what, code=4)
        check(what, report["result"]["failed_minor"] == minor(wrong), report)
    # Not definite where the diagonal is tiny, and no one scale brings all entries into range.
    ab = np.zeros((2, 300))
    ab[0] = np.where(np.arange(300) < 150, 1e300, 1e-308)
    ab[1, 200] = 1e-300
    write_band(ab, np.ones(300))
    what = f"band solve in.h5:/A --rhs :/b --method streamed --parts 2 --backend {backend} -o y.h5"
    _, err, report = run(what, code=4)
    known = report["result"].get("failed_minor") == minor(ab) == 202
    check(what, known if backend == "cpu" else "scale rows and columns" in err, (report, err))
    # A fault in the middle of the file, while the device works.
    broken = band(rng, 900, 33)
    broken[2, 450] = np.nan
    write_band(broken, rng.normal(size=900))
    for parts in (1, 2):
        what = f"band solve in.h5:/A --rhs :/b --method streamed --parts {parts} --backend {backend} -o y.h5"
        _, err, _ = run(what, code=3, env=small_pieces)
        check(what, "450" in err and not os.path.exists("y.h5"), err)
for wrong in ("band solve in.h5:/A --rhs :/b --method streamed --parts 3 -o y.h5",
              "band solve in.h5:/A --rhs :/b --method streamed --parts 2 --factor l.h5:/factor -o y.h5",
              "band solve in.h5:/A --rhs :/b --method two-ends --parts 2 -o y.h5"):
    check(wrong, "--parts" in run(wrong, code=2)[1])
wrong = "band solve in.h5:/A --rhs :/b --method tile-columns --scratch-dir scratch -o y.h5"
check(wrong, "--scratch-dir" in run(wrong, code=2)[1])

test.finish()
