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


def read(name, dataset):
    with h5py.File(name) as f:
        return f[dataset][:]


def on_ranks(backend):
    """In a window, tile columns dealt to the ranks: at each boundary of tile columns, with fewer of them than ranks, in memory and in files."""
    width = {"cpu": 48, "cuda": 128}[backend]  # of half-bandwidths from 64 or 96 on
    turn = 0
    for n in test.part((1, 5, width - 1, width, width + 1, 2 * width, 2 * width + 1, 3 * width - 1, 5 * width, 7 * width + 3)):
        for m, nrhs in ((n // 60, 1), (min(100, n - 1), 3), (n - 1, 17))[turn % 2 :: 2]:
            ranks, turn = (2, 3, 5)[turn % 3], turn + 1
            ab, b = band(rng, n, m), rng.normal(size=(n, nrhs))
            write_band(ab, b)
            oracle = scipy.linalg.solveh_banded(ab, b, lower=True)
            for more in ("", " --scratch-dir scratch", " --substitution cpu --scratch-dir scratch")[: 1 + turn % 3]:
                what = f"band solve in.h5:/A --rhs :/b --method streamed{more} --backend {backend} -o x.h5 --force"
                _, _, report = run(what, ranks, env=small_pieces)
                what += f" on {ranks}, n = {n}, m = {m}"
                check(what, report["method"] == "streamed" and report["residual"] < 30, report)
                check(what, np.allclose(read("x.h5", "x"), oracle, rtol=1e-11, atol=1e-13))
                check(what, ("scratch_bytes" in report) == ("scratch" in more) and not os.listdir("scratch"), report)
        check(f"verify n = {n}", "PASS" in run("verify x.h5")[0])
    # The factor, its determinant and its solves; the bits of tile columns in memory, and the same ones again.
    ab, b = band(rng, 900, 70), rng.normal(size=(900, 2))
    write_band(ab, b)
    factor = scipy.linalg.cholesky_banded(ab, lower=True)
    oracle, inside = scipy.linalg.solveh_banded(ab, b, lower=True), np.add.outer(np.arange(71), np.arange(900)) < 900
    for ranks in (2, 3):
        run(f"band factor in.h5:/A --method tile-columns --backend {backend} -o t.h5 --force", ranks)
        run(f"band solve in.h5:/A --rhs :/b --method tile-columns --backend {backend} -o tx.h5 --force", ranks)
        for more in ("", " --scratch-dir scratch", ""):
            _, _, report = run(f"band factor in.h5:/A --method streamed{more} --backend {backend} -o l.h5 --force", ranks)
            what = f"band factor{more} on {ranks}"
            found = read("l.h5", "factor")
            check(what, np.allclose(found[inside], factor[inside]) and np.array_equal(found, read("t.h5", "factor")))
            check(what, np.isclose(report["result"]["log_abs_determinant"], 2 * np.log(factor[0]).sum(), rtol=1e-13), report)
            for given in ("", " --factor l.h5:/factor"):
                _, _, report = run(f"band solve in.h5:/A --rhs :/b --method streamed{more}{given} --backend {backend} -o x.h5 --force", ranks)
                check(what + given, np.allclose(read("x.h5", "x"), oracle) and np.array_equal(read("x.h5", "x"), read("tx.h5", "x")))
        check("verify the factor", "PASS" in run("verify l.h5", ranks)[0])
        run(f"band solve in.h5:/A --rhs :/b --factor l.h5:/factor --method streamed --checkpoint c.h5 --backend {backend} -o y.h5", ranks, code=2)
        _, err, _ = run(f"band solve in.h5:/A --rhs :/b --method streamed --parts 2 --backend {backend} -o y.h5", ranks, code=2)
        check("--parts 2", f"on {ranks} ranks; --parts" in err and not os.path.exists("y.h5"), err)
        _, _, report = run(f"band solve in.h5:/A --rhs :/b --method streamed --scratch-dir scratch --guard --backend {backend} -o x.h5 --force", ranks)
        check("--guard", np.array_equal(read("x.h5", "x"), read("tx.h5", "x")), report)
        # The first leading minor that fails is LAPACK's.
        for bad in (0, 48, 899)[ranks % 2 :]:
            wrong = ab.copy()
            wrong[0, bad] = -1
            write_band(wrong, b, "wrong.h5")
            for more in ("", " --scratch-dir scratch --guard"):
                what = f"band solve wrong.h5:/A --rhs :/b --method streamed{more} --backend {backend} -o y.h5"
                _, _, report = run(what, ranks, code=4)
                check(what, report["result"]["failed_minor"] == minor(wrong) and not os.path.exists("y.h5"), report)
    # Memory as the plan says it: a third of it for a third of the tile columns, and next to none with scratch files.
    ab, b = band(rng, 20000, 100), rng.normal(size=20000)
    write_band(ab, b)
    solve = f"band solve in.h5:/A --rhs :/b --method streamed --backend {backend} -o x.h5 --force"
    said = {}
    for ranks, more in ((2, ""), (3, ""), (3, " --scratch-dir scratch")):
        out, _, report = run(solve + more + " --plan", ranks)
        said[ranks, more] = report["memory"]["host_bytes"]
        _, _, report = run(solve + more, ranks)
        check("memory of the run, of the plan", report["memory"]["host_bytes"] == said[ranks, more], (report["memory"], said))
        check("--plan", ("of the factor per rank in" in out) == bool(more) and f"dealt to {ranks} ranks" in out, out)
    tiles = -(-20000 // width)
    column = 8 * (-(-100 // 16) * 16 + 1) * width if backend == "cpu" else 8 * (-(-max(100, width) // 16) * 16 + 1) * width
    rows = lambda ranks: 32 * -(-tiles // ranks) * width
    check("memory by ranks", said[2, ""] - rows(2) - (said[3, ""] - rows(3)) == column * (-(-tiles // 2) - -(-tiles // 3)) - 16 * width * (-(-tiles // 2) - -(-tiles // 3)), said)
    check("memory with scratch files", said[3, ""] - said[3, " --scratch-dir scratch"] > 0.8 * column * tiles / 3, said)
    # A scratch folder that is not there, or has no room.
    test.refused(solve + " --scratch-dir nowhere", 5, "nowhere", "--scratch-dir", ranks=3)
    done = test.run(solve + " --scratch-dir scratch", 3, 5, wrapper=("prlimit", "--fsize=5767168"))  # MPI's own files are smaller
    check("no room", len(done.said) == 1 and "ulimit" in done.err and "--scratch-dir" in done.err and not os.listdir("scratch"), done.err)
    # A fault in the middle of the file.
    broken = band(rng, 900, 33)
    broken[2, 450] = np.nan
    write_band(broken, rng.normal(size=900))
    _, err, _ = run(f"band solve in.h5:/A --rhs :/b --method streamed --backend {backend} -o y.h5", 3, code=3, env=small_pieces)
    check("a NaN", "450" in err and not os.path.exists("y.h5"), err)


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
    on_ranks(backend)
for wrong in ("band solve in.h5:/A --rhs :/b --method streamed --parts 3 -o y.h5",
              "band solve in.h5:/A --rhs :/b --method streamed --parts 2 --factor l.h5:/factor -o y.h5",
              "band solve in.h5:/A --rhs :/b --method two-ends --parts 2 -o y.h5"):
    check(wrong, "--parts" in run(wrong, code=2)[1])
wrong = "band solve in.h5:/A --rhs :/b --method tile-columns --scratch-dir scratch -o y.h5"
check(wrong, "--scratch-dir" in run(wrong, code=2)[1])

test.finish()
