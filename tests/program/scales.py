#!/usr/bin/env python3
"""dense and band: powers of two times A and b change nothing but exponents, from 1e-300 to 1e300; systems of order zero;
what is nearly singular says so. Answers by NumPy and SciPy on the unscaled system.

scales.py TERRACE [BACKEND]     Needs h5py, numpy and SciPy; runs in a temporary folder.
"""
import os
import sys

import h5py
import numpy as np
import scipy.linalg

from given import power_band
from terrace import Program, read_json, remove

test = Program(sys.argv[1])
check = test.check
backend = sys.argv[2] if len(sys.argv) > 2 else "cpu"
rng = np.random.default_rng(11)


def run(command, ranks=1, where=backend):
    return test.run(command + (f" --backend {where}" if where else ""), ranks)


verified = {}


def solved(command, name, ranks=1):
    """Exit code, report, data (if written); verify says PASS, of every second one of a command."""
    remove("out.h5")
    done = run(command + " -o out.h5 --report r.json", ranks)
    report = read_json()
    data = None
    if os.path.exists("out.h5"):
        with h5py.File("out.h5") as f:
            data = f[name][()]
        verified[command] = verified.get(command, 0) + 1
        if verified[command] % 2 == 0 and verified[command] > 2:
            return done.code, report, data, done.err
        judged = run("verify out.h5", where="")
        check(f"verify {command}", judged.code == 0 and "PASS" in judged.out, judged.out + judged.err)
    return done.code, report, data, done.err


def write(**sets):
    with h5py.File("in.h5", "w") as f:
        for name, value in sets.items():
            f[name] = value
            if name == "AB":
                f[name].attrs["format"] = "band"


def same_digits(what, data, base, power, columns=None):
    """data = 2^power base, to the bit; `power` may be one a column."""
    with np.errstate(over="ignore", under="ignore"):
        check(what, np.array_equal(data, np.ldexp(base, power)), "other digits")


# --- dense ---------------------------------------------------------------------------------------
n = 37
a, b = rng.standard_normal((n, n)), rng.standard_normal((n, 3))
small, small_b = rng.standard_normal((9, 9)), rng.standard_normal((9, 2))
graded = rng.standard_normal((n, n)) * np.logspace(-40, 40, n)[:, None]
power = {"1e-300": -997, "1e-290": -963, "1e-155": -515, "odd": 301, "1e155": 515, "1e300": 990}
if backend == "cuda":
    precisions = ["", " --precision emulated", " --precision emulated --moduli 12"]
else:
    precisions = [""]
commands = [("dense invert in.h5:/A --block 8" + p + q, "inverse", r) for p in ("", " --pivoting tournament") for q in precisions
            for r in ((1, 2) if not q else (1,))]
commands += [("dense invert in.h5:/A --method textbook", "inverse", 1), ("dense invert in.h5:/A --guard --block 8", "inverse", 1)]
commands += [("dense solve in.h5:/A --rhs :/b --block 8" + p + q, "x", r) for p in ("", " --pivoting tournament --guard") for q in precisions
             for r in ((1, 3) if not q else (1,))]
if backend == "cpu":
    commands += [("dense solve in.h5:/A --rhs :/b --method cramer", "x", 1)]


def unchanged(command, report, base):
    check(f"{command}: residual", report["residual"] == base["residual"], f"{report['residual']} {base['residual']}")
    for key in ("residual_left", "determinant_sign"):
        check(f"{command}: {key}", report["result"].get(key) == base["result"].get(key), report["result"])
    now, before = (r["result"]["reciprocal_condition"] for r in (report, base))  # a mean of logarithms
    check(f"{command}: condition", abs(now - before) <= 1e-12 * before, f"{now} {before}")


for turn, (command, name, ranks) in enumerate(test.part(commands)):
    matrix, rhs = (small, small_b) if "cramer" in command else (a, b)
    write(A=matrix, b=rhs)
    code, base, right, err = solved(command, name, ranks)
    check(command, code == 0 and base["residual"] < 30, err)
    if code:
        continue
    expected = np.linalg.inv(matrix) if name == "inverse" else np.linalg.solve(matrix, rhs)
    check(f"{command}: NumPy", np.allclose(right, expected, rtol=1e-9, atol=1e-11 * np.abs(expected).max()))
    sign, logarithm = np.linalg.slogdet(matrix)
    names = list(power)
    for name_a in names[turn % 3::3]:
        for shift in ((0,) if name == "inverse" else (0, names.index(name_a) + 1)):
            pa, pb = power[name_a], power[names[(names.index(name_a) + shift) % len(names)]]
            if name == "inverse":
                pb = 0
            what = f"{command} on {ranks}, A 2^{pa}, b 2^{pb}"
            write(A=np.ldexp(matrix, pa), b=np.ldexp(rhs, pb))
            code, report, data, err = solved(command, name, ranks)
            largest = np.log2(np.abs(right).max()) + pb - pa
            if largest >= 1024:
                check(what, code == 4 and data is None, f"exit {code} {err}")
            elif largest > -900:
                check(what, code == 0, f"exit {code} {err}")
                if code == 0:
                    same_digits(what, data, right, pb - pa)
                    unchanged(what, report, base)
                    d = report["result"]["log_abs_determinant"]
                    check(f"{what}: determinant", abs(d - logarithm - len(matrix) * pa * np.log(2)) < 1e-9 * max(1, abs(d)) and
                          report["result"]["determinant_sign"] == sign, d)
            else:  # digits are lost below the range: right ones, or none
                check(what, code == 4 and data is None or code == 0 and report["residual"] <= 30, f"exit {code} {err}")

# Columns of B far apart, entries of A far apart, and numbers at the ends of the range.
write(A=a, b=b * np.array([1.0, 2.0**900, 2.0**-900]))
code, _, data, err = solved("dense solve in.h5:/A --rhs :/b --block 8", "x")
check("columns far apart", code == 0, err)
write(A=a, b=b)
_, _, right, _ = solved("dense solve in.h5:/A --rhs :/b --block 8", "x")
same_digits("columns far apart", data, right, np.array([0, 900, -900]))
for what, matrix in {"diagonal": np.diag([1e300, 1e-300]), "graded": graded, "graded 2^700": np.ldexp(graded, 700), "graded 2^-700": np.ldexp(graded, -700),
                     "largest": np.array([[1.7e308, -1.7e308], [1.7e308, 1.7e308]]), "denormal": np.ldexp(a, -1030),
                     "least": np.diag([5e-324, 5e-324]), "largest 30": np.sign(a[:30, :30]) * 1.7e308}.items():
    write(A=matrix)
    for more in ("", " --method textbook", " --guard"):
        code, report, data, err = solved("dense invert in.h5:/A" + more, "inverse")
        if code == 0:
            x, m = data.astype(np.longdouble), matrix.astype(np.longdouble)
            ratio = np.abs(m @ x - np.eye(len(m))).sum(0).max() / (len(m) * np.abs(m).sum(0).max() * np.abs(x).sum(0).max() * np.longdouble(2)**-53)
            check(f"{what}{more}", np.isfinite(data).all() and ratio < 30, ratio)
        else:
            check(f"{what}{more}", code == 4 and data is None and what in ("least", "denormal", "largest 30"), f"exit {code} {err}")
_, base, _, _ = (write(A=graded), solved("dense invert in.h5:/A", "inverse"))[1]
for p in (-600, 600):
    write(A=np.ldexp(graded, p))
    _, report, _, err = solved("dense invert in.h5:/A", "inverse")
    unchanged(f"graded 2^{p}", report, base)

# --- band ----------------------------------------------------------------------------------------
n, m = 60, 5
band = rng.uniform(-1, 1, (m + 1, n))
band[0] = 1.3 * m + rng.random(n)
for d in range(m + 1):
    band[d, n - d:] = 0
b = rng.standard_normal((n, 2))
scipy_x = scipy.linalg.solveh_banded(band, b, lower=True)
methods = [("tile-columns", 1), ("tile-columns", 3), ("one-end", 1), ("two-ends", 1), ("two-ends", 2), ("partition", 1), ("partition", 3), ("streamed", 1), ("streamed", 3)]
jobs = [(f"band solve in.h5:/AB --rhs :/b --method {k}", "x", r) for k, r in methods]
jobs += [("band solve in.h5:/AB --rhs :/b --precision mixed", "x", 1), ("band solve in.h5:/AB --rhs :/b --precision mixed", "x", 2), ("band solve in.h5:/AB --rhs :/b --factor f.h5:/factor", "x", 1),
         ("band solve in.h5:/AB --rhs :/b --guard --block " + ("16" if backend == "cpu" else "64") + "", "x", 1), ("band factor in.h5:/AB", "factor", 1), ("band factor in.h5:/AB", "factor", 2),
         ("band factor in.h5:/AB --method streamed", "factor", 1), ("band factor in.h5:/AB --method streamed", "factor", 2)]
names = {"1e-300": -1000, "1e-290": -964, "1e-155": -516, "1e155": 516, "1e300": 990}
for turn, (command, name, ranks) in enumerate(test.part(jobs)):
    def with_factor():
        if "--factor" in command:
            done = run("band factor in.h5:/AB -o f.h5 --force")
            check("band factor", done.code == 0, done.err)
    write(AB=band, b=b)
    with_factor()
    code, base, right, err = solved(command, name, ranks)
    check(command, code == 0 and base["residual"] < 30, err)
    if code:
        continue
    expected = scipy_x if name == "x" else scipy.linalg.cholesky_banded(band, lower=True)
    check(f"{command}: SciPy", np.allclose(right, expected, rtol=1e-9, atol=1e-11))
    order = list(names.values())
    for i, pa in enumerate(order[turn % 3::3]):
        for pb in ((0,) if name == "factor" else (pa, order[(i + turn) % len(order)])):
            what = f"{command} on {ranks}, A 2^{pa}, b 2^{pb}"
            write(AB=np.ldexp(band, pa), b=np.ldexp(b, pb))
            with_factor()
            code, report, data, err = solved(command, name, ranks)
            by = pa // 2 if name == "factor" else pb - pa
            largest = np.log2(np.abs(right).max()) + by
            if largest >= 1024:
                check(what, code == 4 and data is None, f"exit {code} {err}")
            elif largest > -900:
                check(what, code == 0, f"exit {code} {err}")
                if code == 0:
                    same_digits(what, data, right, by)
                    check(f"{what}: residual", report["residual"] == base["residual"], f"{report['residual']} {base['residual']}")
            else:
                check(what, code == 4 and data is None or code == 0 and report["residual"] <= 30, f"exit {code} {err}")
write(AB=band, b=b)
run("band factor in.h5:/AB -o f.h5 --force")
done = run("band solve in.h5:/AB --rhs :/b --factor f.h5:/factor --checkpoint c.h5 -o kept.h5")
check("a stored factor keeps no checkpoints", done.code == 2 and "--checkpoint" in done.err and not os.path.exists("kept.h5"), done.err)
for p in (-1030, -1060, 1018):
    with np.errstate(over="ignore"):
        write(AB=np.ldexp(band, p), b=b)
    for method in ("tile-columns", "streamed"):
        code, report, data, err = solved(f"band factor in.h5:/AB --method {method}", "factor")
        check(f"band factor 2^{p} {method}", (code == 0 and report["residual"] < 30) or code == 4, f"exit {code} {err}")

# --- order zero ----------------------------------------------------------------------------------
with h5py.File("in.h5", "w") as f:
    f["A"], f["b"], f["B"] = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 2))
    f["AB"] = np.zeros((1, 0))
    f["AB"].attrs["format"] = "band"
    for name, shape in (("bits", (0, 0)), ("wide", (0, 5)), ("tall", (5, 0))):
        f[name] = np.zeros((shape[0], -(-shape[1] // 64)), np.uint64)
        f[name].attrs["format"], f[name].attrs["columns"] = "bits", shape[1]
    f["rhs"] = np.zeros((0, 1), np.uint64)
    f["rhs"].attrs["format"], f["rhs"].attrs["columns"] = "bits", 3
empty = ["dense invert in.h5:/A", "dense invert in.h5:/A --method textbook", "dense invert in.h5:/A --guard", "dense solve in.h5:/A --rhs :/b",
         "dense solve in.h5:/A --rhs :/B --pivoting tournament", "dense solve in.h5:/A --rhs :/B --method cramer",
         "band factor in.h5:/AB", "band solve in.h5:/AB --rhs :/b", "band solve in.h5:/AB --rhs :/B",
         "gf2 rref in.h5:/bits", "gf2 rref in.h5:/wide", "gf2 rref in.h5:/tall", "gf2 rref in.h5:/wide --echelon", "gf2 rank in.h5:/wide",
         "gf2 kernel in.h5:/wide", "gf2 kernel in.h5:/tall", "gf2 inverse in.h5:/bits", "gf2 solve in.h5:/bits --rhs :/rhs",
         "gf2 multiply in.h5:/tall in.h5:/wide", "cg in.h5:/A --rhs :/b --format dense"]
for i, command in enumerate(empty):
    remove("out.h5")
    cramer = "cramer" in command and backend == "cuda"
    done = run(command + " -o out.h5", 1 + i % 2 * (" textbook" not in command), "" if cramer else backend)
    check(f"{command}, order zero", done.code == 0, f"exit {done.code} {done.err}")
    if done.code == 0:
        judged = run("verify out.h5", where="")
        check(f"verify {command}, order zero", judged.code == 0, judged.out + judged.err)

# --- nearly singular -----------------------------------------------------------------------------
i = np.arange(12)
write(A=1 / (i[:, None] + i + 1.0), b=np.ones(12), G=a[:12, :12])


def warned(command, name, expected):
    code, report, _, err = solved(command, name)
    check(command, code == 0, err)
    if code:
        return
    lines = [x for x in err.splitlines() if x.startswith("terrace: warning: ")]
    with h5py.File("out.h5") as f:
        stored = np.atleast_1d(f["terrace"].attrs.get("warnings", []))
    if expected:
        check(command, len(lines) == 1 and "reciprocal condition" in lines[0] and lines[0].count(";") == 2, err)
        check(command, len(report["warnings"]) == 1 and len(stored) >= 1, f"{report.get('warnings')} {stored}")
    else:
        check(command, not lines and not report.get("warnings"), err)


for command, name in (("dense invert in.h5:/{}", "inverse"), ("dense invert in.h5:/{} --method textbook", "inverse"), ("dense solve in.h5:/{} --rhs :/b", "x")):
    warned(command.format("A"), name, True)
    warned(command.format("G"), name, False)
# (I - shift)^3 times its transpose: of condition n^6.
n = 1200
third = power_band(n, 3, 3)
easy = np.zeros((4, n))
easy[0] = 4 + rng.random(n)
easy[1, :-1] = -1
for ab, expected in ((third, True), (easy, False)):
    write(AB=ab, b=rng.standard_normal(n))
    for method in ("tile-columns", "one-end", "two-ends", "partition", "streamed"):
        warned(f"band solve in.h5:/AB --rhs :/b --method {method}", "x", expected)
twins = easy.copy()
twins[:2, :2] = [[1, 1 + 2.0**-50], [1, 0]]  # the second pivot is 2^-50
for ab, expected in ((twins, True), (easy, False)):
    write(AB=ab)
    for method in ("tile-columns", "streamed"):
        warned(f"band factor in.h5:/AB --method {method}", "factor", expected)
write(A=1 / (i[:, None] + i + 1.0), b=np.ones(12), G=a[:12, :12])
if backend == "cpu":
    warned("dense solve in.h5:/G --rhs :/b --method cramer", "x", False)
    done = run("dense solve in.h5:/A --rhs :/b --method cramer -o out.h5 --force")
    check("Cramer of a Hilbert matrix", "reciprocal condition" in done.err and "condition 0;" not in done.err, done.err)

test.finish()
