"""dense invert, solve and factor for differential.py: by LU, Gauss-Jordan, Cholesky, in mixed precision, with stored factors."""
import differential_oracles as oracle
import numpy as np
import scipy.linalg

from differential_problem import Problem, exponent, read, right_sides, second_file, size, where_rhs

WAYS = {"invert": ["", "", "", "gauss-jordan", "textbook"], "factor": ["", "lu", "cholesky", "spd", "auto", "general"],
        "solve": ["", "", "gauss-jordan", "lu", "cramer", "cholesky", "spd", "auto", "general", "mixed", "mixed", "mixed", "stored", "stored"]}
BLOCKS = [0, 1, 7, 8, 15, 16, 17, 24, 31, 32, 33, 48, 64, 96, 128, 200]


def general(draw, n):
    """A, what it is, columns known to be zero (or none), whether of whole numbers."""
    rng = draw.rng
    kind = draw.pick(["normal", "normal", "normal", "dominant", "whole", "condition", "condition", "rows", "columns", "identity", "permutation",
                      "triangular", "zero column", "zero row", "twins", "growth", "hilbert", "sparse"])
    a = rng.standard_normal((n, n))
    if kind == "dominant":
        a += 2 * n * np.eye(n)
    elif kind == "whole":
        a = rng.integers(-9, 10, (n, n)).astype(float)
    elif kind == "condition" and n:
        q, r = np.linalg.qr(a)[0], np.linalg.qr(rng.standard_normal((n, n)))[0]
        a = q * np.logspace(0, -draw.pick([2, 5, 9, 13, 15]), n) @ r
    elif kind == "rows":
        a = np.ldexp(a, rng.integers(-40, 41, (n, 1)))
    elif kind == "columns":
        a = np.ldexp(a, rng.integers(-40, 41, (1, n)))
    elif kind == "identity":
        a = np.eye(n) * 2
    elif kind == "permutation":
        a = np.eye(n)[draw.order(n)] * rng.choice([-1.0, 1.0, 2.0], n)
    elif kind == "triangular":
        a = np.tril(a) + 4 * np.sqrt(n + 1) * np.eye(n)
        a = a[::-1].copy() if draw.chance(0.5) else a
    elif kind == "zero column" and n:
        a[:, draw.whole(0, n - 1)] = 0
    elif kind == "zero row" and n:
        a[draw.whole(0, n - 1)] = 0
    elif kind == "twins" and n > 1:
        a[draw.whole(0, n - 1)] = a[draw.whole(0, n - 1)]
    elif kind == "growth" and n <= 33:
        a = np.eye(n) - np.tril(np.ones((n, n)), -1)
        a[:, -1:] = 1
    elif kind == "hilbert" and n <= 14:
        a = scipy.linalg.hilbert(n) if n else a
    elif kind == "sparse":
        a = a * (rng.random((n, n)) < 0.1) + np.diag(rng.choice([0.5, 1, 2], n))
    return a, kind


def symmetric(draw, n):
    """As general()."""
    rng, kind = draw.rng, draw.pick(["definite", "definite", "definite", "definite condition", "graded", "minus", "almost symmetric", "semidefinite"])
    a = rng.standard_normal((n, n))
    if kind == "definite condition" and n:
        q = np.linalg.qr(a)[0]
        a = q * np.logspace(0, -draw.pick([2, 5, 9, 13]), n) @ q.T
    elif kind == "semidefinite":
        a = rng.integers(-3, 4, (n, max(1, n // 2))).astype(float)
        a = a @ a.T
    else:
        a = a @ a.T / max(1, n) + np.eye(n) * draw.pick([0.1, 1, n])
    a = np.tril(a) + np.tril(a, -1).T
    if kind == "graded":
        d = np.exp2(np.round(np.linspace(0, -draw.pick([10, 60]), n)))
        a = a * d[:, None] * d
    elif kind == "minus" and n:
        k = draw.whole(0, n - 1)
        a[k, k] *= -1
    elif kind == "almost symmetric" and n > 1:
        i, j = draw.order(n)[:2]
        a[i, j] = np.nextafter(a[i, j], 9)
    if n > 1 and draw.chance(0.2):  # zeros of both signs are symmetric
        i, j = draw.order(n)[:2]
        a[i, j], a[j, i] = 0.0, -0.0
        kind += " with zeros"
    return a, kind


def dense(case):
    draw = case.draw
    command = draw.pick(["invert", "invert", "solve", "solve", "solve", "factor"])
    n = max(size(draw, 0.15), 1 if "zero" in case.o.without else 0)
    a, kind = symmetric(draw, n) if draw.chance(0.3) else general(draw, n)
    if kind == "growth" and "growth" in case.o.without:
        a, kind = np.eye(n), "identity"
    shift = exponent(draw) if kind not in ("rows", "columns") else 0
    a = case.forms.dense("in.h5", "/A", np.ldexp(a, shift), whole=kind in ("whole", "identity", "permutation", "growth") and shift == 0)
    p = Problem(case, ["dense", command, "in.h5:/A"], f"n {n} {kind} 2^{shift}")
    p.a, p.kind, p.shift, p.cond = a, kind, shift, oracle.condition(a)
    p.symmetric = np.array_equal(a, a.T)
    p.minor = oracle.failed_minor(a) if p.symmetric else 0
    if "condition" in kind or "graded" in kind or "semidefinite" in kind:
        p.minor = -1  # rounding decides
    p.codes = {4} if kind.startswith("zero ") and n else {0} if p.cond < 1e9 and kind != "growth" else {0, 4}
    if abs(shift) >= 900 or abs(shift) >= 300 and ("condition" in kind or "graded" in kind):
        p.codes |= {4}  # an inverse or solution may overflow
    p.way = draw.pick(WAYS[command])
    if p.way == "cramer" and n > 16:
        p.way = ""
    if not choose_way(p, command):
        return None
    p.common()
    if command == "invert" and "--no-check" not in p.words and draw.chance(0.15):
        p.option("--check", "exact")
    p.unsure = "--no-check" in p.words and (p.cond > 1e8 or kind == "growth")  # nobody looked at the residual
    p.verifies = not p.unsure
    p.judge_outcome = lambda done: outcome(p, done)
    if command == "solve":
        b = case.forms.dense(file := second_file(case), "/b", right_sides(draw, n, shift), order=False)
        p.option("--rhs", where_rhs(file))
        p.judge = lambda done, name: judge_solution(p, b, done, name)
    else:
        p.judge = lambda done, name: (judge_inverse if command == "invert" else judge_factor)(p, done, name)
    p.option("-o", "out.h5")
    return p


def choose_way(p, command):
    """Method and options; False: what should come first failed."""
    draw, case, n, way = p.case.draw, p.case, len(p.a), p.way
    cuda = case.o.backend != "cpu"
    if way == "textbook":
        p.ranks = 1
    if way in ("textbook", "cramer"):
        p.option("--method", way)
        if way == "cramer" and (p.cond > 1e5 or abs(p.shift) > 60):
            p.codes |= {4}  # powers of elements overflow; not backward stable
        return True
    if way == "stored":
        return stored(p)
    p.restarts = n > 8 and way != "mixed"
    if way in ("gauss-jordan", "lu", "cholesky"):
        p.option("--method", way)
    elif way in ("spd", "auto", "general"):
        p.option("--assume", way)
    elif way == "mixed":
        p.option("--precision", "mixed", refused=cuda)
        p.same_ranks_only = True
    if way == "cholesky" and n:
        p.codes = {3} if not p.symmetric else {4} if p.minor > 0 else {0, 4} if p.minor < 0 else {0}
        if abs(p.shift) >= 900 and command == "solve" and p.symmetric:
            p.codes |= {4}
    if draw.chance(0.5):
        p.option("--block", draw.pick(BLOCKS), refused=cuda)
    if way not in ("cholesky", "spd", "auto") and draw.chance(0.5):
        p.option("--pivoting", draw.pick(["auto", "partial", "tournament"]))
    if way != "mixed" and draw.chance(0.2):
        p.option("--guard")
    if way in ("", "gauss-jordan") and command != "factor" and draw.chance(0.05):
        p.option("--precision", "emulated", refused=True)
        if draw.chance(0.5):
            p.option("--moduli", draw.pick(["12", "13", "14"]), refused=True)
    return True


def stored(p):
    """The factor comes first, on any ranks."""
    case, draw = p.case, p.case.draw
    first = Problem(case, ["dense", "factor", "in.h5:/A"], p.what)
    first.a, first.kind, first.shift, first.cond, first.symmetric, first.minor = p.a, p.kind, p.shift, p.cond, p.symmetric, p.minor
    first.codes, first.way = set(p.codes), draw.pick(WAYS["factor"])
    choose_way(first, "factor")
    made = case.run(first.words + ["-o", "factor.h5"], draw.pick([1, 1, 2, 3]))
    codes = first.codes | ({2} if first.may_refuse else set())
    if not case.check(made.code in codes, lambda: f"exit {made.code}, wanted {sorted(codes)} ({p.what}): {case.last}: {made.message}") or made.code:
        return False
    p.option("--factor", draw.pick(["factor.h5", "factor.h5:/factor"]))
    p.codes = p.codes | {0}
    if draw.chance(0.3):
        p.option("--block", draw.pick(BLOCKS), refused=case.o.backend != "cpu")
    return True


def outcome(p, done):
    result = (done.report or {}).get("result", {})
    if p.way == "cholesky" and p.symmetric and p.minor > 0:
        found = result.get("failed_minor")
        p.case.check(found == p.minor, f"failed_minor is {found}, not {p.minor} ({p.what}): {p.case.last}")
    elif p.kind == "zero column" and p.way != "cholesky":
        zero, found = int(np.flatnonzero(~p.a.any(axis=0))[0]), result.get("first_zero_pivot")
        p.case.check(found == zero, f"first_zero_pivot is {found}, not {zero}: {p.case.last}")


def judge(p, done, ratio, key):
    """What inverses, solutions and factors have in common; `ratio`: of residual and rounding."""
    case, n, cond = p.case, len(p.a), p.cond
    case.check(ratio < 30 or p.unsure, f"residual ratio {ratio:.3g} of {key} ({p.what}, condition {cond:.1e}): {case.last}")
    if p.kind.startswith("zero ") and n:
        case.fail(f"a singular matrix has an inverse: {case.last}")
    report = done.report or {}
    result = report.get("result", {})
    if "--no-check" not in done.words and report:
        case.check(isinstance(report.get("residual"), (int, float)) and report["residual"] < 30, f"residual {report.get('residual')} in the report")
    if n and report and p.way in ("cholesky", "spd") and p.minor >= 0:
        definite = p.symmetric and p.minor == 0
        case.check(report["method"] == ("cholesky" if definite else "lu"), f"method {report['method']} ({p.what}): {case.last}")
        case.check(definite or report["warnings"], f"LU in place of Cholesky without a warning: {case.last}")
    if p.way == "mixed" and report:
        converged = result["refinement"]["converged"]
        case.check((report["precision"] == "mixed") == converged, f"precision {report['precision']}, {result['refinement']}: {case.last}")
        case.check(converged or "FP64" in report.get("note", ""), f"FP64 without a note: {case.last}")
    if n and cond < 1e10 and "log_abs_determinant" in result:
        scaled, e = oracle.scaled(p.a)
        sign, log = np.linalg.slogdet(scaled)
        log += n * e * np.log(2)
        case.check(result["determinant_sign"] == sign, f"determinant_sign {result['determinant_sign']}, not {sign}: {case.last}")
        found = result["log_abs_determinant"]
        case.check(abs(found - log) <= 1e-12 * cond * n + 1e-9 * abs(log) + 1e-9, f"log |det| {found}, not {log}: {case.last}")
    if n and cond < 1e8 and "reciprocal_condition" in result and abs(p.shift) < 900:
        true = 1 / cond if key == "inverse" else 1 / oracle.condition(p.a.T)
        slack, found = 1.001 if key == "inverse" else 100, result["reciprocal_condition"]
        case.check(true / slack <= found <= true * slack, f"reciprocal condition {found}, not {true}: {case.last}")


def judge_inverse(p, done, name):
    x = read(p.case, name, "inverse")[0]
    if p.case.check(x.shape == p.a.shape, f"inverse is {x.shape}"):
        judge(p, done, oracle.inverse_ratio(p.a, x), "inverse")


def judge_solution(p, b, done, name):
    x, n = read(p.case, name, "x")[0], len(p.a)
    if not p.case.check(x.shape == b.shape, f"x is {x.shape}, b {b.shape}"):
        return
    x, b = x.reshape(n, -1 if n else 0), b.reshape(n, -1 if n else 0)
    judge(p, done, oracle.solve_ratio(p.a, x, b), "x")
    if p.way == "mixed" and done.report and done.report["result"]["refinement"]["converged"]:
        found, limit = oracle.backward_error(p.a, x, b), 2 * max(4, n**0.5 / 2)
        p.case.check(found <= limit, f"mixed: backward error {found:.3g} eps, wanted {limit:.3g} ({p.what}): {p.case.last}")


def judge_factor(p, done, name):
    case, n = p.case, len(p.a)
    f, attrs = read(case, name, "factor")
    if not case.check(f.shape == p.a.shape, f"factor is {f.shape}"):
        return
    scaled, e = oracle.scaled(p.a)
    content = attrs.get("content")
    if content in ("Cholesky factor", b"Cholesky factor"):
        u = np.ldexp(f, -(e // 2))
        case.check(not np.tril(u, -1).any() and (np.diag(u) > 0).all(), f"no triangle with a positive diagonal: {case.last}")
        lower, upper, target = u.T, u, scaled * 2 ** (e % 2)
    else:
        pivots = read(case, name, "pivots")[0]
        if not case.check(sorted(pivots) == list(range(n)), f"pivots are no permutation: {case.last}"):
            return
        lower, upper = np.tril(f, -1) + np.eye(n), np.triu(f)
        target = np.ldexp(p.a[pivots], int(attrs["power"]))
    below = n * oracle.EPS * oracle.norm(np.abs(lower) @ np.abs(upper), 2)
    error = oracle.norm(lower @ upper - target, 2)
    judge(p, done, 0.0 if error == 0 else error / below if below > 0 else np.inf, "factor")
