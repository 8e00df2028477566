#!/usr/bin/env python3
"""terrace cg at every scale of A and b, against the same system at scale one and NumPy: cg_scales.py TERRACE [BACKEND]

Powers of two change exponents alone: the same steps, residuals and bits of x. Needs h5py and numpy; runs in a
temporary folder.
"""
import sys

import h5py
import numpy as np

from terrace import Program, read_json

test = Program(sys.argv[1])
check = test.check
backend = sys.argv[2] if len(sys.argv) > 2 else "cpu"
rng = np.random.default_rng(20)


def solve(matrix, options="", rhs="b", code=0, ranks=1):
    """Report, x and residuals of one system."""
    done = test.run(f"cg in.h5:/{matrix} --rhs :/{rhs} -o x.h5 --force --report r.json --backend {backend} {options}", ranks, code)
    with h5py.File("x.h5") as f:
        return read_json(), f["x"][:], f["residuals"][:], done.err


# A band of half-bandwidth 5 with rows and columns scaled by 2^-2 .. 2^2, and a tail of digits in every entry.
n, m = 43, 5
a = np.zeros((n, n))
for d in range(1, m + 1):
    a += np.diag(rng.uniform(-0.15, 0.15, n - d), -d)
a += a.T + np.diag(rng.uniform(1.9, 2.3, n))
s = 2.0 ** (np.arange(n) % 5 - 2)
a *= s[:, None] * s[None, :]
b = rng.standard_normal((n, 2))
x_true = np.linalg.solve(a, b)
powers = [0, -990, -501, -333, -1, 1, 334, 501, 990]
with h5py.File("in.h5", "w") as f:
    for power in powers + [-1054]:
        scaled = np.ldexp(a, power)
        g = f.create_group(f"p{power}")
        g["dense"] = scaled
        g["band"] = np.array([np.r_[np.diagonal(scaled, -d), np.zeros(d)] for d in range(m + 1)])
        g["band"].attrs["format"] = "band"
        rows, columns = np.nonzero(scaled)
        c = g.create_group("csr")
        c["data"], c["indices"] = scaled[rows, columns], columns
        c["indptr"] = np.searchsorted(rows, np.arange(n + 1))
        c.attrs["shape"] = a.shape
        g["b"], g["one"] = np.ldexp(b, power), np.ldexp(b[:, 0], power)
    f["b"], f["one"] = b, b[:, 0]
    f["bad"] = np.ldexp(a - 4 * np.eye(n), -900)
    f["bad"][3, 3] = f["bad"][0, 0] = 2.0**-900
    f["huge"] = np.diag(np.full(n, 1.7e308)) + 1e306
    f["huge_b"] = np.full(n, 1.5e308)

kinds = {"dense": [("", "b"), ("--preconditioner block-jacobi --block 7 --norm natural", "one"), ("--precision mixed --rtol 1e-12", "one"),
                   ("--preconditioner chebyshev --degree 3", "one")],
         "dense --layout rows": [("--preconditioner jacobi --norm preconditioned", "b"), ("--method pipelined", "one")],
         "band": [("--preconditioner ic --norm preconditioned", "one"), ("--method single-reduction --preconditioner jacobi", "one"),
                  ("--preconditioner jacobi --norm natural", "b"), ("--precision mixed --rtol 1e-12", "one")],
         "csr": [("--preconditioner ic --norm natural", "one"), ("--preconditioner block-jacobi --block 9 --norm preconditioned", "one"),
                 ("--method pipelined --preconditioner chebyshev", "one"), ("--preconditioner amg", "b"), ("", "b"),
                 ("--precision mixed --rtol 1e-12 --preconditioner jacobi", "one")]}
turn = 0
for kind, cases in kinds.items():
    name, _, layout = kind.partition(" ")
    for options, rhs in cases:
        ranks = 1 + turn % 3 if "ic" not in options else 1 + turn % 2
        first, x, table, _ = solve(f"p0/{name}", f"{layout} {options}", rhs, ranks=ranks)
        truth = x_true if rhs == "b" else x_true[:, 0]
        check(f"x of {kind} {options}", np.abs(x - truth).max() <= 1e-7 * np.abs(truth).max(), str(np.abs(x - truth).max()))
        for k in range(2):
            power = powers[1 + (2 * turn + k) % 8]
            own = (turn + k) % 2 == 0 or abs(power) < 2  # b is scaled with A
            what = f"{kind} {options}, 2^{power}, {ranks} ranks"
            report, y, history, _ = solve(f"p{power}/{name}", f"{layout} {options}", f"p{power}/{rhs}" if own else rhs, ranks=ranks)
            if k == 0 and turn % 3 == 0:
                test.run("verify x.h5", code=0)
            r, q = report["result"], first["result"]
            check("iterations of " + what, r["iterations"] == q["iterations"] and r["reason"] == "rtol", f"{r} {q}")
            check("residuals of " + what, np.array_equal(history, table), f"{history} {table}")
            check("bits of " + what, np.array_equal(np.ldexp(y, 0 if own else power), x))
            check("residual of " + what, report["residual"] == first["residual"], f"{report['residual']} {first['residual']}")
            if "eigenvalues" in q:
                up = power if "preconditioner" not in options else 0
                check("eigenvalues of " + what, r.get("eigenvalues", {"largest": 0})["largest"] == np.ldexp(q["eigenvalues"]["largest"], up), str(r))
        turn += 1

# Where x leaves the range of doubles it has not converged.
report, x, _, message = solve("p-990/dense", rhs="p334/one", code=4)
check("too large", report["result"]["reason"] == "nan-or-inf" and "beyond the range" in message and np.isinf(x).any(), message)
report, x, _, message = solve("p990/band", "--preconditioner jacobi", "p-990/one", code=4)
check("too small", report["result"]["reason"] == "stagnation" and "beyond the range" in message and not x.any(), message)
# Denormal numbers, also where the tiles hold half of them.
for name in ("dense", "csr"):
    report, x, _, _ = solve("p-1054/" + name, "--rtol 1e-8", "p-1054/one")
    with h5py.File("in.h5") as f:
        stored, right = np.ldexp(f["p-1054/dense"][:], 1054), np.ldexp(f["p-1054/one"][:], 1054)
    check("denormal " + name, np.linalg.norm(right - stored @ x) <= 1.01e-8 * np.linalg.norm(right))
    test.run("verify x.h5", code=0)
# Next to the largest number: row sums exceed it.
for options in ("", "--layout rows --preconditioner jacobi --norm preconditioned"):
    report, x, _, _ = solve("huge", options, "huge_b")
    check("huge", np.abs(x * (1.7e308 / 1.5e308 + n * 1e306 / 1.5e308) - 1).max() <= 1e-9, str(x))
    test.run("verify x.h5", code=0)
# Not positive definite at any scale.
report, _, _, message = solve("bad", rhs="one", code=4)
check("bad", report["result"]["reason"] == "indefinite-matrix", message)
# verify refuses the solution of another system, however large or small the numbers are.
for name, rhs in (("p-990/dense", "one"), ("p990/csr", "p990/one")):
    for norm in ("natural", "unpreconditioned"):
        solve(name, "--preconditioner jacobi --norm " + norm, rhs)
        test.run("verify x.h5", code=0)
        for factor in (1 + 2.0**-20, 1 / (1 + 2.0**-20)):
            with h5py.File("in.h5", "r+") as f:
                f[rhs][...] *= factor
            test.run("verify x.h5", code=4 if factor > 1 else 0)
# x = 0 solves it as well as was asked: the residual is a number.
report, x, _, _ = solve("p0/dense", "--atol 1e9", "one")
check("residual of zero", not x.any() and abs(report["residual"] * n * 2.0**-52 - 1) < 1e-9, str(report["residual"]))
report, _, _, _ = solve("p334/band", "--rtol 0 --atol 1e-306", "one", code=4)
check("unreachable", report["result"]["reason"] == "stagnation" and report["result"]["relative_residual"] < 1e-14, str(report["result"]))

print(f"{test.runs} runs")
test.finish()
