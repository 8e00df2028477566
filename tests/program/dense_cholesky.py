#!/usr/bin/env python3
"""dense factor and dense solve by Cholesky on LAPACK's kinds of matrices, 1 to 5 ranks: dense_cholesky.py TERRACE [BACKEND]

NumPy and SciPy (dpotrf, dpocon) are the oracles.
"""
import os
import sys

import h5py
import numpy as np
import scipy.linalg

from terrace import Program, read_json, remove

test = Program(sys.argv[1])
check = test.check
backend = sys.argv[2] if len(sys.argv) > 2 else "cpu"
random = np.random.default_rng(41)
n = 90


def run(command, ranks, code):
    done = test.run(f"{command} --backend {backend} --report r.json --force", ranks, code)
    return read_json(), done


def of_spectrum(s):
    q = np.linalg.qr(random.normal(size=(len(s), len(s))))[0]
    a = q @ np.diag(s) @ q.T
    return (a + a.T) / 2


def ratio(a, x, b):
    a, x, b = (np.asarray(v, np.longdouble) for v in (a, x, b))
    scale = len(a) * np.finfo(float).eps * np.abs(a).sum(axis=1).max() * np.abs(x).max(axis=0)
    return float((np.abs(b - a @ x).max(axis=0) / scale).max())


def read(file, name):
    with h5py.File(file) as f:
        return f[name][()]


i, j = np.indices((n, n))
grading = 2.0 ** -np.linspace(0, 300, n).round()
kinds = {"one": np.array([[4.0]]), "two": np.array([[2.0, -1.0], [-1.0, 2.0]]), "identity": np.eye(65), "diagonal": np.diag(np.linspace(1, 9, 64)),
         "lehmer": (np.minimum(i, j) + 1) / (np.maximum(i, j) + 1), "larger": of_spectrum(np.linspace(1, 2, 333))}
for condition in (1e2, 1e8, 1e13):
    kinds[f"geometric{condition:.0e}"] = of_spectrum(condition ** -np.linspace(0, 1, n))
kinds["cluster"] = of_spectrum(np.r_[np.ones(n - 1), 1e-10])
kinds["graded"] = of_spectrum(np.linspace(1, 3, n)) * grading[:, None] * grading
kinds["graded_up"] = kinds["graded"][::-1, ::-1]
for power in (-996, -500, 500, 996):  # LAPACK's near under- and overflow, and further in
    kinds[f"times_2^{power}"] = of_spectrum(np.linspace(1, 4, n)) * 2.0**power
at = {1: 0, 2: 1, 32: 31, 65: 64, n: n - 1}
indefinite = {}
for minor, k in at.items():  # LAPACK's: a zero row and column; a negative diagonal
    a = of_spectrum(np.linspace(1, 2, n))
    a[k, :] = a[:, k] = 0
    indefinite[f"zero_{minor}"] = (a, minor)
    a = of_spectrum(np.linspace(1, 2, n))
    a[k, k] = -1
    indefinite[f"negative_{minor}"] = (a, minor)
whole = random.integers(-3, 4, size=(n, 20)).astype(float)
unsymmetric = kinds["lehmer"].copy()
unsymmetric[3, 80] *= 1 + 2.0**-52
with h5py.File("in.h5", "w") as f:
    f["semidefinite"] = whole @ whole.T  # of rank 20, exact
    f["unsymmetric"] = unsymmetric
    f["general"] = random.normal(size=(n, n))
    f["b"] = random.normal(size=(n, 3))
    for name, a in {**kinds, **{name: a for name, (a, _) in indefinite.items()}}.items():
        f[name] = a
        f[name + "_b"] = random.normal(size=(len(a), 2)) * (np.abs(a).max() if "times" in name else 1)

# --- what is definite: the factor, solves with it on other ranks, determinant and condition -----------
for k, (name, a) in enumerate(test.part(kinds.items())):
    order, ranks, where = len(a), (1, 2, 3, 5, 1, 2, 4)[k % 7], name
    options = ("--method cholesky", "--assume spd", "--assume auto", "--assume spd --block 16")[k % 4]
    report, _ = run(f"dense factor in.h5:/{where} -o f.h5 {options}", ranks, 0)
    what, result = f"factor of {name}, {options}, on {ranks}", report["result"]
    u = read("f.h5", "factor")
    check(what, report["method"] == "cholesky" and report["residual"] < 30, f"{report['method']}, {report['residual']}")
    check(what, (np.tril(u, -1) == 0).all() and (np.diag(u) > 0).all(), "not the upper triangle")
    product = np.asarray(u.T, np.longdouble) @ np.asarray(u, np.longdouble)
    size = np.abs(np.asarray(a, np.longdouble)).sum(axis=1).max()
    check(what, np.abs(product - a).max() / (order * 2.3e-16 * size) < 30, "L L^T")
    scale = 2.0 ** -np.round(np.log2(np.abs(a).max()))
    true = scipy.linalg.lapack.dpocon(scipy.linalg.cholesky(a * scale), np.linalg.norm(a * scale, 1))[0]
    log_determinant = 2 * np.log(np.diag(scipy.linalg.cholesky(a))).sum()
    for source in (result, dict(h5py.File("f.h5")["factor"].attrs)):
        check(what, abs(source["log_abs_determinant"] - log_determinant) < 1e-9 * abs(log_determinant) + 1e-9 + order * 2.0**-52 / true, "determinant")
    check(what, result["determinant_sign"] == 1, "sign")
    # A small matrix has few rows to take the largest of; a graded one is estimated from numbers far apart.
    check(what, true / 10 < result["reciprocal_condition"] < true * 10, f"{result['reciprocal_condition']}, dpocon {true}")
    warned = any("reciprocal condition" in text for text in report["warnings"])
    check(what, warned == (result["reciprocal_condition"] < order * 2.0**-52), str(report["warnings"]))
    test.run("verify f.h5", test.turn(), 0)
    b, seen = read("in.h5", name + "_b"), []
    for solvers in (1, (2, 3, 5, 4)[k % 4]):
        again, _ = run(f"dense solve in.h5:/{where} --rhs :/{where}_b --factor f.h5:/factor -o x.h5", solvers, 0)
        seen.append(read("x.h5", "x"))
        check(f"{what}, solved on {solvers}", ratio(a, seen[-1], b) < 30, "x")
        check(what, again["result"]["reciprocal_condition"] == result["reciprocal_condition"] and again["method"] == "cholesky", str(again["result"]))
    test.run("verify x.h5", test.turn(), 0)
    run(f"dense solve in.h5:/{where} --rhs :/{where}_b -o x.h5 {options}", (2, 1, 1, 3)[k % 4], 0)
    seen.append(read("x.h5", "x"))
    if backend == "cpu":  # a block that was asked for is not the factor's when it is solved with
        check(what, "--block" in options or all((x == seen[0]).all() for x in seen), "other bits")

# --- what is not: LAPACK's minor, and LU goes on ----------------------------------------------------------
for k, (name, (a, minor)) in enumerate(test.part(indefinite.items())):
    ranks, where = (1, 2, 3, 1, 5)[(k + k // 5) % 5], name
    for command in ("dense factor", "dense solve"):
        remove("bad.h5")
        more = f"--rhs :/{where}_b " if "solve" in command else ""
        report, done = run(f"{command} in.h5:/{where} {more}-o bad.h5 --method cholesky", ranks, 4)
        check(f"{command} of {name} on {ranks}", report["result"]["failed_minor"] == minor, str(done.said))
        check(f"{command} of {name}", not os.path.exists("bad.h5"), "written")
        if "negative" not in name:
            continue
        report, done = run(f"{command} in.h5:/{where} {more}-o lu.h5 --assume spd", ranks, 0)
        check(f"{command} of {name}", report["method"] == "lu" and f"minor of order {minor} " in str(report["warnings"]), str(report["warnings"]))
        test.run("verify lu.h5", test.turn(), 0)
report, done = run("dense factor in.h5:/semidefinite -o bad.h5 --method cholesky", 2, 4)
check("semidefinite", report["result"]["failed_minor"] >= 21, str(done.said))  # from there on pivots are rounding, of either sign
report, done = run("dense factor in.h5:/semidefinite -o lu.h5 --assume spd", 3, None)  # pivots of rounding, or zero
check("semidefinite", report["method"] == "lu" and (report["status"] == "singular" or report["result"]["reciprocal_condition"] < 1e-15), str(done.said))
for ranks in (1, 3):
    _, done = run("dense factor in.h5:/unsymmetric -o bad.h5 --method cholesky", ranks, 3)
    check("not symmetric", "not symmetric" in done.said[-1], str(done.said))
    report, _ = run("dense factor in.h5:/unsymmetric -o lu.h5 --assume spd", ranks, 0)
    check("not symmetric", report["method"] == "lu" and "not symmetric" in str(report["warnings"]), str(report["warnings"]))
    check("not symmetric", h5py.File("lu.h5")["factor"].attrs["content"] == "LU factor" and "pivots" in h5py.File("lu.h5"), "no LU factor")
    test.run("verify lu.h5", ranks, 0)
report, _ = run("dense factor in.h5:/general -o lu.h5 --assume auto", 2, 0)
check("auto on a general matrix", report["method"] == "lu" and not report["warnings"], str(report["warnings"]))
if backend == "cpu":  # killed within Cholesky's method, which gives up behind that: LU goes on in a width of its own
    late = kinds["larger"][:200, :200].copy()
    late[190, 190] = -1
    with h5py.File("late.h5", "w") as f:
        f["A"] = late
    whole, _ = run("dense factor late.h5:/A -o lu.h5 --assume spd", 2, 0)
    remove("c.h5", "cut.h5")
    test.run("dense factor late.h5:/A -o cut.h5 --assume spd --backend cpu --checkpoint c.h5 --checkpoint-every 0.0001s", 2,
             env={"TERRACE_TEST_FAULT": "1:solve:3:kill"})
    with h5py.File("c.h5") as f:
        check("killed within Cholesky's method", '"assume":"spd"' in f["terrace"].attrs["checkpoint"], f["terrace"].attrs["checkpoint"])
    report, _ = run("dense factor late.h5:/A -o cut.h5 --assume spd --restart c.h5", 3, 0)
    check("LU behind Cholesky's checkpoint", report["method"] == "lu" and report["block"] == whole["block"], f"{report['block']}, not {whole['block']}")
    check("LU behind Cholesky's checkpoint", (read("cut.h5", "factor") == read("lu.h5", "factor")).all(), "other bits")
    remove("c.h5", "cut.h5", "late.h5")

# --- options that meet it: guard, checkpoints, no check, plan, groups -------------------------------------
run("dense factor in.h5:/larger -o f.h5 --method cholesky --block 32", 2, 0)
right = read("f.h5", "factor")
for options in ("--guard", "--no-check", "--guard --no-check", "--checkpoint c.h5 --checkpoint-every 0.0001s"):
    for ranks in test.some(1, 3):
        remove("c.h5")
        report, _ = run(f"dense factor in.h5:/larger -o g.h5 --assume spd --block 32 {options}", ranks, 0)
        check(options, report["method"] == "cholesky" and (backend != "cpu" or (read("g.h5", "factor") == right).all()), "differs")
        check(options, report["result"]["reciprocal_condition"] > 0, "no condition")
remove("c.h5")
test.run("dense factor in.h5:/larger --plan --assume spd", 2, 0)
run("dense factor in.h5:/larger -o all.h5:/here --assume spd", 2, 0)
run("dense solve in.h5:/larger --rhs :/larger_b --factor all.h5:/here/factor -o all.h5:/x", 3, 0)
check("groups", ratio(kinds["larger"], read("all.h5", "x/x"), read("in.h5", "larger_b")) < 30, "")

# --- what is no factor of it ---------------------------------------------------------------------------------
run("dense factor in.h5:/lehmer -o f.h5 --method cholesky", 1, 0)
solve = "dense solve in.h5:/lehmer --rhs :/b -o bad.h5"
for options in ("--method lu", "--assume spd", "--pivoting partial", "--guard", "--precision emulated", "--checkpoint c.h5"):
    _, done = run(f"{solve} --factor f.h5 {options}", 1, 2)
    check(options, "--factor" in done.said[-1] and options.split()[0] in done.said[-1], str(done.said))
run(f"{solve} --factor f.h5 --method cholesky", 2, 0)
remove("bad.h5")
_, done = run("dense solve in.h5:/larger --rhs :/larger_b -o bad.h5 --factor f.h5", 2, 3)
check("another order", "order 90" in done.said[-1] and "333" in done.said[-1], str(done.said))
for name in ("geometric1e+02", "general"):
    _, done = run(f"dense solve in.h5:/{name} --rhs :/b -o bad.h5 --factor f.h5", 3, 4)
    check("another matrix's factor", "residual" in done.said[-1], str(done.said))
_, done = run("dense solve in.h5:/unsymmetric --rhs :/b -o bad.h5 --factor f.h5", 2, 3)
check("the factor of a symmetric matrix", "not symmetric" in done.said[-1], str(done.said))
for damage, words in (("del f['factor'].attrs['content']", "does not say"), ("f['factor'].attrs['content'] = 'LU factor'", "pivots"),
                      ("f['factor'].attrs['content'] = 'Schur factor'", "does not say"), ("del f['factor'].attrs['reciprocal_condition']", "reciprocal_condition"),
                      ("f['factor'][40, 40] = -f['factor'][40, 40]", "not positive"), ("f['factor'][40, 40] = 0", "not positive"),
                      ("f['factor'][40, 50] = np.nan", "NaN"), ("f['other'] = f['factor'][:80]; del f['factor']; f['factor'] = f['other']", "")):
    run("dense factor in.h5:/lehmer -o d.h5 --method cholesky", 2, 0)
    with h5py.File("d.h5", "r+") as f:
        exec(damage, {"f": f, "np": np})
    for ranks in test.some(1, 3):
        _, done = run(f"{solve} --factor d.h5:/factor", ranks, 3)
        check(damage, words.lower() in done.said[-1].lower(), str(done.said))
        _, done = run(f"{solve} --factor d.h5:/factor --no-check", ranks, 3)
run("dense factor in.h5:/lehmer -o d.h5 --method cholesky", 2, 0)
with h5py.File("d.h5", "r+") as f:
    f["factor"][20, 60] *= 1.001
run(f"{solve} --factor d.h5", 2, 4)
test.run("verify d.h5", 2, 4)
with h5py.File("d.h5", "r+") as f:
    f["factor"][20, 20] = -1
test.run("verify d.h5", 3, 4)
with h5py.File("band.h5", "w") as f:  # of a band, and of LU
    f["A"] = np.array([[4.0] * n, [1.0] * n])
    f["A"].attrs["format"] = "band"
test.run("band factor band.h5:/A -o bf.h5 --force", 1, 0)
_, done = run(f"{solve} --factor bf.h5", 1, 3)
test.run("band solve band.h5:/A --rhs in.h5:/b --factor f.h5:/factor -o bad.h5", 1, 3)
check("nothing is left", not os.path.exists("bad.h5"), "bad.h5")

print(f"{test.runs} runs")
test.finish()
