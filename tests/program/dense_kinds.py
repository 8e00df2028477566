#!/usr/bin/env python3
"""dense invert and dense solve on LAPACK's kinds of matrices: what the report says, against LAPACK through SciPy.

dense_kinds.py TERRACE [BACKEND]     Needs h5py, numpy and SciPy; runs in a temporary folder.
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
rng = np.random.default_rng(5)
n = 70


def run(command, code):
    """1 to 5 ranks and both pivotings in turn; the report."""
    ranks, pivoting = test.turn(), ("partial", "tournament")[test.runs // 8 % 2]
    test.run(f"{command} --backend {backend} --pivoting {pivoting} --block 16 --report r.json --force", ranks, code)
    return read_json()


def orthogonal():
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def of_spectrum(s):
    return orthogonal() @ np.diag(s) @ orthogonal().T


def rcond(a, norm="1"):
    lu, _, _ = scipy.linalg.lapack.dgetrf(a)
    return scipy.linalg.lapack.dgecon(lu, np.linalg.norm(a, 1 if norm == "1" else np.inf), norm)[0]


i, j = np.indices((n, n))
kinds = {}
for condition in (1e8, 1e14):
    kinds[f"geometric{condition:.0e}"] = of_spectrum(condition ** -np.linspace(0, 1, n))
kinds["arithmetic"] = of_spectrum(1 - np.linspace(0, 1, n) * (1 - 1e-11))
kinds["cluster0"] = of_spectrum(np.r_[1, np.full(n - 1, 1e-9)])
kinds["cluster1"] = of_spectrum(np.r_[np.ones(n - 1), 1e-9])
kinds["lehmer"] = (np.minimum(i, j) + 1) / (np.maximum(i, j) + 1)
kinds["swapped"] = np.diag(rng.uniform(1, 2, n))[rng.permutation(n)]
zero_block = rng.uniform(-1, 1, (n, n))
zero_block[: n // 2, : n // 2] = 0
kinds["zeroblock"] = zero_block
kinds["identity"] = np.eye(n)
kinds["huge"] = 1e300 * rng.uniform(-1, 1, (n, n))
nearly = {f"near{condition:.0e}": of_spectrum(condition ** -np.linspace(0, 1, n)) for condition in (1e16,)}
nearly["rank20"] = rng.uniform(-1, 1, (n, 20)) @ rng.uniform(-1, 1, (20, n))
growth = np.where(i == j, 1.0, np.where(i > j, -1.0, 0.0)) * rng.uniform(1, 2, n)
growth[:, -1] = np.pi
random = rng.uniform(-1, 1, (n, n))
singular = {column: random * (j != column) for column in (0, 15, 16, 35, 64, 69)}
b = rng.uniform(-1, 1, (n, 3))
with h5py.File("in.h5", "w") as f:
    f["b"], f["growth"] = b, growth
    for name, a in {**kinds, **nearly}.items():
        f[name] = a
    for column, a in singular.items():
        f[f"singular{column}"] = a

for name, a in kinds.items():
    result = run(f"dense invert in.h5:/{name} -o x.h5", 0)["result"]
    check(f"residuals of {name}", 0 <= result["residual_right"] < 30 and 0 <= result["residual_left"] < 30, result)
    check(f"condition of {name}", 1 / 3 < result["reciprocal_condition"] / rcond(a) < 3, f"{result}, dgecon {rcond(a)}")
    with h5py.File("x.h5") as f:
        x = f["inverse"][:]
    for side, product in (("right", a @ x), ("left", x @ a)):
        ratio = np.linalg.norm(product - np.eye(n), 1) / (n * np.linalg.norm(a, 1) * np.linalg.norm(x, 1) * 2.0**-53)
        check(f"{side} residual of {name}", ratio < 30 and abs(ratio - result[f"residual_{side}"]) < 1.1, ratio)
    report = run(f"dense solve in.h5:/{name} --rhs :/b -o y.h5", 0)
    check(f"residual of the solution of {name}", 0 <= report["residual"] < 30, report["residual"])
    estimate = report["result"]["reciprocal_condition"]  # infinity norm, from 16 columns
    check(f"estimated condition of {name}", 0.1 < estimate / rcond(a, "I") < 10, f"{estimate}, dgecon {rcond(a, 'I')}")

for name in nearly:
    for command in (f"dense invert in.h5:/{name} -o x.h5", f"dense solve in.h5:/{name} --rhs :/b -o x.h5"):
        report = run(command, 0)
        check(command, 0 < report["result"]["reciprocal_condition"] < 1e-13, report["result"])
        with h5py.File("x.h5") as f:
            check(command, np.all(np.isfinite(f["x" if "solve" in command else "inverse"][:])))

# Pivots that grow 2^69 times leave no correct digit, and the program does not hand that out. CUDA's
# tournament may choose rows that do not grow: then the answer is right.
for command, name, right in (("dense invert in.h5:/growth -o bad.h5", "inverse", np.eye(n)),
                             ("dense solve in.h5:/growth --rhs :/b -o bad.h5", "x", b)):
    remove("bad.h5")
    report = run(command, None if backend == "cuda" else 4)
    if report["status"] == "done" and backend == "cuda":
        with h5py.File("bad.h5") as f:
            x = f[name][:]
        ratio = np.linalg.norm(growth @ x - right, 1) / (n * np.linalg.norm(growth, 1) * np.linalg.norm(x, 1) * 2.0**-53)
        check(command, report["residual"] < 30 and ratio < 30, f"{ratio}, {report['residual']}")
    else:
        check(command, report["status"] == "check-failed" and report["residual"] > 30 and not os.path.exists("bad.h5"), report)
remove("bad.h5")
# So with some correct digits: a residual of a few hundred.
if backend == "cpu":
    own = np.random.default_rng(1)
    few = np.eye(20) - np.tril(1 - 1e-3 * own.random((20, 20)), -1)
    few[:, -1] = 1 + own.random(20)
    with h5py.File("few.h5", "w") as f:
        f["A"], f["b"] = few, own.normal(size=20)
    for command in ("dense invert few.h5:/A -o bad.h5", "dense solve few.h5:/A --rhs :/b -o bad.h5"):
        test.run(f"{command} --backend cpu --report r.json --force", test.turn(), 4)
        report = read_json()
        check(command, report["status"] == "check-failed" and 30 < report["residual"] < 30000 and not os.path.exists("bad.h5"), report)

for k, column in enumerate(singular):
    command = (f"dense invert in.h5:/singular{column} -o bad.h5", f"dense solve in.h5:/singular{column} --rhs :/b -o bad.h5")[k % 2]
    report = run(command, 4)
    check(command, report["result"]["first_zero_pivot"] == column and report["status"] == "singular" and not os.path.exists("bad.h5"), report)

print(f"{test.runs} runs")
test.finish()
