#!/usr/bin/env python3
"""Determinants and transformations, by every method and on 1 to 3 ranks: verbs.py TERRACE

NumPy and SciPy are the oracles: slogdet and Cholesky for bands, and arithmetic modulo 2 for bits.
"""
import sys

import h5py
import numpy as np
from scipy.linalg import cholesky_banded

from given import doctor
from terrace import Program, read_json, remove

test = Program(sys.argv[1])
check = test.check
random = np.random.default_rng(23)


def pack(bits):
    words = np.zeros((bits.shape[0], -(-bits.shape[1] // 64) * 64), np.uint8)
    words[:, : bits.shape[1]] = bits
    return np.packbits(words, axis=1, bitorder="little").view(np.uint64)


def unpack(dataset):
    if dataset.shape[1] == 0:
        return np.zeros((dataset.shape[0], 0), np.uint8)
    return np.unpackbits(dataset[:].view(np.uint8), axis=1, bitorder="little", count=dataset.attrs["columns"])


def rank_of(bits):
    a, rank = bits.copy() % 2, 0
    for j in range(a.shape[1]):
        rows = np.flatnonzero(a[rank:, j]) + rank
        if len(rows) == 0:
            continue
        a[[rank, rows[0]]] = a[[rows[0], rank]]
        others = np.flatnonzero(a[:, j])
        a[others[others != rank]] ^= a[rank]
        rank += 1
    return rank


def run(command, ranks=1, code=0, env=None):
    return test.reported(command, ranks, code, env)[2]


# --- T with T A = R ------------------------------------------------------------------------------
def transform(name, a, options="", ranks=1):
    remove("t.h5")
    report = run(f"gf2 rref bits.h5:/{name} -o t.h5 --transform {options}", ranks)
    what = f"transform {name} {options} on {ranks}"
    with h5py.File("t.h5") as f:
        r, t = unpack(f["rref"]), unpack(f["transform"])
        check(what, t.shape == (a.shape[0],) * 2 and f["transform"].attrs["format"] in ("bits", b"bits"), str(t.shape))
        product = t.astype(np.int64) @ a.astype(np.int64) % 2
        check(what, (product == r).all(), "T A is not rref")
        check(what, rank_of(t) == a.shape[0], "T is not regular")
        check(what, report["certificate"].startswith("passed"), str(report.get("certificate")))
        pivots = f["pivots"][:]
    check(what, len(pivots) == rank_of(a) == report["result"]["rank"], "rank")
    if "--echelon" not in options:
        check(what, (r[: len(pivots)][:, pivots] == np.eye(len(pivots))).all(), "not reduced")
    test.run("verify t.h5", ranks, 0)


matrices = {}
for rows, columns, rank in ((1, 1, 1), (3, 5, 2), (63, 64, 40), (65, 65, 65), (130, 64, 64), (64, 200, 64), (150, 150, 97), (300, 90, 0), (257, 513, 200)):
    a = random.integers(0, 2, (rows, rank)) @ random.integers(0, 2, (rank, columns)) % 2 if rank < min(rows, columns) else random.integers(0, 2, (rows, columns))
    matrices[f"m{rows}x{columns}"] = a.astype(np.uint8)
with h5py.File("bits.h5", "w") as f:
    for name, a in matrices.items():
        f[name] = pack(a)
        f[name].attrs["columns"] = a.shape[1]
        f[name].attrs["format"] = "bits"
for name, a in matrices.items():
    transform(name, a, ranks=test.turn())
for options in test.part(("--method tables", "--method tables --k 3", "--block 64", "--tables broadcast", "--echelon", "--guard", "--candidates 2", "--no-check --seed 5")):
    for ranks in test.some(1, 3):
        if options.startswith("--no-check"):
            remove("t.h5")
            run(f"gf2 rref bits.h5:/m257x513 -o t.h5 --transform {options}", ranks)
            test.run("verify t.h5", ranks, 0)
        else:
            transform("m257x513", matrices["m257x513"], options, ranks)
for options in ("--method columns", "--method columns --guard", "--method columns --echelon"):
    transform("m257x513", matrices["m257x513"], options)
# A run that is continued, on another number of ranks; not without the transform.
remove("t.h5", "c.h5")
done = test.run("gf2 rref bits.h5:/m257x513 -o t.h5 --transform --block 64 --checkpoint c.h5 --checkpoint-every 0.001s", 2, 0)
report = run("gf2 rref bits.h5:/m257x513 -o t.h5 --force --transform --restart c.h5", 3)
check("restart", report.get("restart", {}).get("step", 0) > 0, str(report.get("restart")))
with h5py.File("t.h5") as f:
    t, a = unpack(f["transform"]), matrices["m257x513"]
    check("restart", (t.astype(np.int64) @ a % 2 == unpack(f["rref"])).all() and rank_of(t) == len(t), "T A is not rref")
test.run("gf2 rref bits.h5:/m257x513 -o t2.h5 --restart c.h5", 1, 3)
# verify sees a wrong T: with a wrong bit, and one that is singular but for which T A = R.
for what in ("bit", "singular"):
    remove("t.h5")
    run("gf2 rref bits.h5:/m150x150 -o t.h5 --transform")
    with h5py.File("t.h5", "r+") as f:
        t = f["transform"][:]
        doctor(f["transform"], {(3, 0): t[3, 0] ^ np.uint64(1)} if what == "bit" else {(149, k): t[148, k] for k in range(t.shape[1])})
    done = test.run("verify t.h5", 1, 4)
    check("verify " + what, "FAIL" in done.out and ("T A" if what == "bit" else "dependent") in done.out, done.out)
test.refused("gf2 rank bits.h5:/m3x5 --transform", 2, "--transform")

# --- the determinant over GF(2) ------------------------------------------------------------------
for name in ("m1x1", "m65x65", "m150x150"):
    a = matrices[name]
    expected = int(rank_of(a) == len(a))
    for options, ranks in test.part((("", 1), ("", 2), ("--method tables", 3), ("--method columns", 1), ("--guard", 1))):
        report = run(f"gf2 determinant bits.h5:/{name} {options}", ranks)
        check(f"determinant {name} {options}", report["result"]["determinant"] == expected and report["result"]["rank"] == rank_of(a), str(report["result"]))
remove("d.h5")
run("gf2 determinant bits.h5:/m65x65 -o d.h5")
test.run("verify d.h5", 1, 0)
done = test.run("gf2 determinant bits.h5:/m3x5", 2, 3)
check("not square", len(done.said) == 1 and "not square" in done.said[0], done.err)

# --- log |det| of bands --------------------------------------------------------------------------
bands = {}


def band(name, n, m, scale=1.0, condition=None):
    ab = random.uniform(-1, 1, (m + 1, n))
    ab[0] = 2 * m + 2 + random.uniform(0, 5, n)
    grade = np.exp2(random.integers(-40, 40, n)) if condition == "graded" else np.ones(n)
    for d in range(m + 1):
        ab[d, : n - d] *= scale * grade[: n - d] * grade[d:]
        ab[d, n - d :] = 0
    mantissa, exponent = np.frexp(cholesky_banded(ab / scale, lower=True)[0])
    log = 2 * (np.log(mantissa).sum() + exponent.sum() * np.log(2)) + n * np.log(scale)
    b = random.standard_normal((n, 2))
    bands[name] = log
    with h5py.File("band.h5", "a") as f:
        f[f"{name}/A"], f[f"{name}/b"] = ab, b
        f[f"{name}/A"].attrs["format"] = "band"


for name, n, m, scale, condition in (("one", 1, 0, 1, None), ("diagonal", 50, 0, 3, None), ("small", 65, 7, 1, None), ("whole", 40, 39, 1, None),
                                     ("wide", 700, 130, 1, None), ("narrow", 3000, 9, 1, None), ("tiny", 500, 20, 1e-200, None),
                                     ("huge", 500, 20, 1e200, None), ("graded", 600, 12, 1, "graded")):
    band(name, n, m, scale, condition)


def logs(command, name, ranks=1, exact=True):
    remove("x.h5")
    report = run(f"band {command.replace('@', 'band.h5:/' + name + '/A')} -o x.h5 --force", ranks)
    found, expected = report["result"].get("log_abs_determinant"), bands[name]
    what = f"band {command} {name} on {ranks} ({report.get('method')})"
    check(what, found is not None and (not exact or abs(found - expected) <= 1e-13 * max(1, abs(expected)) + 1e-11), f"{found}, not {expected!r}")
    return report


for name in test.part(bands):
    logs("factor @", name, test.turn())
    with h5py.File("x.h5") as f:
        check("attribute " + name, abs(f["factor"].attrs["log_abs_determinant"] - bands[name]) <= 1e-12 * abs(bands[name]) + 1e-11)
    logs("factor @ --method streamed", name, test.turn())
    logs(f"factor @ --method streamed --scratch-dir .", name, 2)
    for more in ("", " --method tile-columns", " --method streamed --diagonal cpu"):
        for ranks in test.some(1, 2, 3):
            logs(f"solve @ --rhs :/{name}/b{more}", name, ranks)
    logs(f"solve @ --rhs :/{name}/b --method one-end", name)
for name in test.part(("wide", "narrow", "graded", "tiny")):
    for ranks in test.some(1, 2, 3):
        logs(f"solve @ --rhs :/{name}/b --method two-ends", name, ranks)
    for parts in (1, 2):
        logs(f"solve @ --rhs :/{name}/b --method streamed --parts {parts}", name)
        logs(f"solve @ --rhs :/{name}/b --method streamed --parts {parts} --scratch-dir .", name)
    logs(f"solve @ --rhs :/{name}/b --method streamed --scratch-dir .", name, 3)
for ranks in (1, 2, 3):
    logs("solve @ --rhs :/narrow/b --method partition --parts 4", "narrow", ranks)
    seen = logs("solve @ --rhs :/wide/b --method tile-columns", "wide", ranks)["result"]["log_abs_determinant"]
    first = seen if ranks == 1 else first
    check("same bits", seen == first, f"{seen!r}, not {first!r}")
    if ranks > 1:  # by the tile columns' bits
        seen = logs("solve @ --rhs :/wide/b --method streamed", "wide", ranks)["result"]["log_abs_determinant"]
        check("same bits, streamed", seen == first, f"{seen!r}, not {first!r}")
# With a factor that is stored.
for name in ("wide", "narrow"):
    remove("factor.h5")
    test.run(f"band factor band.h5:/{name}/A -o factor.h5", 1, 0)
    for options, ranks in test.part((("", 1), ("", 2), ("--method tile-columns", 3), ("--method streamed", 1), ("--method streamed --scratch-dir .", 1),
                                     ("--method streamed", 2), ("--method streamed --scratch-dir .", 3))):
        logs(f"solve @ --rhs :/{name}/b --factor factor.h5 {options}", name, ranks)
# Mixed precision: an estimate from 16 random vectors and its standard error. Half precision on CUDA, single precision on the CPU.
# The estimate is right within 4 standard errors and the rounding of the solves themselves, about unit sqrt(n).
# The vectors see the n (2 m + 1) entries of the factor's error, each about one rounding: the standard error is at most
# unit sqrt(2 n (2 m + 1)).
for name in ("wide", "narrow", "small"):
    report = logs(f"solve @ --rhs :/{name}/b --precision mixed", name, test.turn(), exact=False)
    n, m = report["n"], report["half_bandwidth"]
    unit = 2.0**-11 if report["backend"] == "cuda" else 2.0**-24
    found, error = report["result"]["log_abs_determinant"], report["result"]["log_abs_determinant_error"]
    check("mixed " + name, abs(found - bands[name]) <= 4 * error + 4 * unit * np.sqrt(n), f"{found} with error {error}, not {bands[name]!r}")
    check("standard error " + name, 0 <= error <= unit * np.sqrt(2 * n * (2 * m + 1)), f"{error} of n = {n}, m = {m} on {report['backend']}")
    print(f"mixed {name}: {found} - {bands[name]} = {found - bands[name]:.2g}, standard error {error:.2g}, bound {unit * np.sqrt(2 * n * (2 * m + 1)):.2g}")
# Streamed runs that are continued.
for parts in (1, 2):
    remove("c.h5")
    command = f"solve @ --rhs :/narrow/b --method streamed --parts {parts}"
    logs(command + " --checkpoint c.h5 --checkpoint-every 0.001s", "narrow")
    logs(command + " --restart c.h5", "narrow")

print(f"{test.runs} runs")
test.finish()
