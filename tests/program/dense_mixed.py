#!/usr/bin/env python3
"""dense solve --precision mixed, on 1 to 5 ranks: dense_mixed.py TERRACE

A residual in long double, NumPy and SciPy are the oracles: what is said to have converged has FP64's backward error, whatever the condition, the
scale, the kind; what does not converge is solved in FP64, and a note says so.
"""
import sys

import h5py
import numpy as np
import scipy.linalg

from terrace import ALL, Program, read_json, remove

test = Program(sys.argv[1])
check = test.check
random = np.random.default_rng(53)
EPS = 2.0**-53


def backward(a, x, b):
    """The largest ||b - A x|| / (||A|| ||x||) of a column in units of 2^-53, in long double."""
    a, x, b = (np.asarray(v, np.longdouble) for v in (a, x, b))
    if a.size == 0:
        return 0
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(b - a @ x).max(axis=0) / (np.abs(a).sum(axis=1).max() * np.abs(x).max(axis=0)) / EPS
    return float(np.max(np.where(np.abs(b - a @ x).max(axis=0) == 0, 0, error)))


def limit(n):
    return max(4, n**0.5 / 2)


def randsvd(n, condition, mode=3):
    """Singular values as LAPACK's generator has them: one large, one small, geometric, arithmetic."""
    spread = {1: np.r_[1, np.full(n - 1, 1 / condition)], 2: np.r_[np.ones(n - 1), 1 / condition], 3: condition ** -np.linspace(0, 1, n),
              4: 1 - np.linspace(0, 1, n) * (1 - 1 / condition)}[mode]
    u, v = (np.linalg.qr(random.normal(size=(n, n)))[0] for _ in range(2))
    return (u * spread) @ v


def solved(name, ranks, options="", rhs="b", code=0):
    remove("x.h5")
    report = test.reported(f"dense solve in.h5:/{name}/A --rhs :/{name}/{rhs} -o x.h5 --precision mixed {options}", ranks, code)[2]
    if code:
        return report, None
    with h5py.File("x.h5") as f:
        return report, f["x"][()]


file = h5py.File("in.h5", "w")


def put(name, a, columns=3):
    n = len(a)
    file[f"{name}/A"] = a
    file[f"{name}/b"] = random.normal(size=(n, columns))
    file[f"{name}/v"] = random.normal(size=n)


signs = np.where(random.normal(size=(90, 90)) < 0, -1.0, 1.0)
growth = np.tril(-np.ones((120, 120)), -1) + np.eye(120)
growth[:, -1] = 1
always = {  # these converge
    "uniform": random.random((300, 300)), "normal": random.normal(size=(257, 257)), "signs": signs, "permuted": np.eye(70)[random.permutation(70)] * 3,
    "dominant": random.normal(size=(130, 130)) + 200 * np.eye(130), "spd": scipy.linalg.toeplitz(np.r_[2, -1, np.zeros(148)]),
    "huge": random.normal(size=(150, 150)) * 1e300, "tiny": random.normal(size=(150, 150)) * 1e-300,
    "rows": random.normal(size=(150, 150)) * np.logspace(0, -8, 150)[:, None], "columns": random.normal(size=(150, 150)) * np.logspace(0, -300, 150),
    "fp32": random.normal(size=(100, 100)) * 1e39, "below": random.normal(size=(100, 100)) * 1e-42,
}
for mode in (1, 2, 3, 4):
    for power in (2, 4, 6) if ALL else (2, 6) if mode in (1, 3) else (4,):
        always[f"svd{mode}e{power}"] = randsvd(200, 10.0**power, mode)
maybe = {f"svd{mode}e{power}": randsvd(200, 10.0**power, mode) for mode in (1, 2, 3, 4) for power in ((8, 10, 12, 14) if ALL else (8, 12) if mode in (1, 4) else (10, 14))}
maybe["hilbert"] = scipy.linalg.hilbert(60)
maybe["growth"] = growth
maybe["steep"] = random.normal(size=(150, 150)) * np.logspace(0, -200, 150)[:, None]
for name, a in {**always, **maybe}.items():
    put(name, a)
singular = random.normal(size=(120, 120))
singular[:, 77] = 0
dependent = random.normal(size=(120, 120))
dependent[119] = dependent[:119].sum(axis=0)
put("singular", singular)
put("dependent", dependent)
put("many", random.random((200, 200)), 256)
for n in (0, 1, 2, 31, 32, 33, 63, 64, 65, 128, 129):
    put(f"n{n}", random.random((n, n)))
file.close()

with h5py.File("in.h5") as f:
    data = {name: (f[name]["A"][()], f[name]["b"][()], f[name]["v"][()]) for name in f}

# --- kinds, conditions and scales -------------------------------------------------------------------
outcomes = {}
for name in [*always, *maybe, *(n for n in data if n[0] == "n" and n[1:].isdigit())]:
    a, b, _ = data[name]
    ranks, block = test.turn(), (" --block 32" if name[1:].isdigit() or len(name) % 2 else "")
    if name in maybe:  # what FP64 says
        plain = test.reported(f"dense solve in.h5:/{name}/A --rhs :/{name}/b -o plain.h5 --force{block}", ranks, None)[2]
        if plain["status"] != "done":
            report, _ = solved(name, ranks, block, code=4)
            check(name, report["status"] == plain["status"], f"{report['status']}, in FP64 {plain['status']}")
            continue
    report, x = solved(name, ranks, block)
    refinement, found = report["result"]["refinement"], backward(a, x, b)
    what = f"{name} on {ranks}"
    outcomes[name] = report["precision"]
    check(what, x.shape == b.shape and np.isfinite(x).all(), str(x.shape))
    check(what, report["residual"] < 30, str(report["residual"]))
    check(what, refinement["converged"] == (report["precision"] == "mixed"), str(refinement))
    if report["precision"] == "mixed":
        check(what, found <= 2 * limit(len(a)), f"backward error {found} eps")
        check(what, abs(refinement["backward_error"] / EPS - found) <= 1 + found, f"{refinement['backward_error'] / EPS} eps is {found}")
        check(what, "log_abs_determinant" not in report["result"], "a determinant of a low factor")
    else:
        check(what, "FP64" in report["note"] and "converge" in report["note"], str(report.get("note")))
        check(what, "log_abs_determinant" in report["result"], "no determinant in FP64")
    if name in always:
        check(what, report["precision"] == "mixed", str(report.get("note")))
    if name in maybe:
        near = report["result"]["reciprocal_condition"] / plain["result"]["reciprocal_condition"]
        check(what, 0.5 < near < 2 or plain["result"]["reciprocal_condition"] < 1e-15, f"condition {near} of FP64's")
    if len(outcomes) % 5 == 0:
        test.run("verify x.h5", test.turn(), 0)
check("some did not converge", "fp64" in outcomes.values(), str(outcomes))
check("GMRES", any(v == "mixed" for k, v in outcomes.items() if k in maybe), str(outcomes))

# --- one column and many, the same bits again -------------------------------------------------------
for name, rhs, ranks in (("uniform", "v", 1), ("uniform", "v", 3), ("many", "b", 1), ("many", "b", 2), ("svd3e10", "b", 2)):
    a, b = data[name][0], data[name][1 if rhs == "b" else 2]
    for options in ("", " --pivoting tournament --block 24"):
        report, x = solved(name, ranks, options, rhs)
        check(f"{name} {rhs}", x.shape == b.shape and backward(a, x, b) <= 2 * limit(len(a)) or report["precision"] == "fp64", str(report["result"]))
        check(f"{name} {rhs}, again", solved(name, ranks, options, rhs)[1].tobytes() == x.tobytes(), "other bits")

# --- no solution ------------------------------------------------------------------------------------
for ranks in (1, 3):
    report, _ = solved("singular", ranks, code=4)
    check("singular", report["status"] == "singular" and report["result"]["first_zero_pivot"] == 77, str(report["status"]))
done = test.run("dense solve in.h5:/dependent/A --rhs :/dependent/b -o y.h5 --precision mixed", 2)
check("dependent rows", done.code == 4 or any("condition" in line for line in done.said), f"exit {done.code}: {done.said}")

# --- the plan, and what is refused ------------------------------------------------------------------
for ranks in (1, 2):
    sizes = []
    for precision in ("fp64", "mixed"):
        out, _, report = test.reported(f"dense solve in.h5:/uniform/A --rhs :/uniform/b -o y.h5 --plan --precision {precision}", ranks)
        sizes.append(report["result"]["plan"]["bytes_per_rank"])
    check("plan", "mixed" in out and sizes[1] - sizes[0] >= 8 * 300 * 300 // ranks, f"{sizes}: {out}")
line = "dense solve in.h5:/uniform/A --rhs :/uniform/b -o y.h5 --precision mixed"
for option in ("--guard", "--checkpoint c.h5", "--restart c.h5", "--method gauss-jordan", "--method cramer", "--method cholesky"):
    test.refused(f"{line} {option}", 2, option.split()[0], "--precision mixed" if "cramer" not in option else "--method cramer")
test.refused(f"{line} --assume spd", 2, "--precision mixed", "Cholesky")
test.run("dense factor in.h5:/uniform/A -o f.h5", 1, 0)
test.refused(f"{line} --factor f.h5:/factor", 2, "--precision", "--factor")
test.refused("dense factor in.h5:/uniform/A -o y.h5 --precision mixed", 2, "--precision")
test.refused("dense invert in.h5:/uniform/A -o y.h5 --precision mixed", 2, "--precision")
test.refused("bench dense --n 50 --precision mixed", 2, "--precision", "--solve")
test.finish()
