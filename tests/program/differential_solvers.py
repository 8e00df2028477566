"""Problems of each family for differential.py: drawn matrices, commands and options, and what their results must be."""
import os

import differential_oracles as oracle
import h5py
import numpy as np
import scipy.io
import scipy.sparse

from differential_dense import dense  # noqa: F401, a family as those below
from differential_problem import LONG, SIZES, Problem, exponent, read, right_sides, second_file, size, where_rhs


# --- GF(2) ---------------------------------------------------------------------------------------
def bit_matrix(draw, rows, columns):
    rng = draw.rng
    kind = draw.pick(["random", "random", "low", "low", "sparse", "zero", "ones", "twice", "upper", "permutation", "one"])
    if kind == "random":
        a = rng.integers(0, 2, (rows, columns))
    elif kind == "low":
        r = draw.whole(0, max(0, min(rows, columns) - 1))
        a = rng.integers(0, 2, (rows, r)) @ rng.integers(0, 2, (r, columns)) % 2
    elif kind == "sparse":
        a = rng.random((rows, columns)) < draw.pick([0.5, 2, 5]) / max(1, columns)
    elif kind == "ones":
        a = np.ones((rows, columns))
    elif kind == "twice":
        a = rng.integers(0, 2, (rows, columns))
        a[rows // 2:] = a[: rows - rows // 2]
        if columns > 3:
            a[:, columns // 2:] = a[:, : columns - columns // 2]
    elif kind == "upper":
        a = np.triu(rng.integers(0, 2, (rows, columns)), 1) + np.eye(rows, columns)
        a = a[:, ::-1] if draw.chance(0.5) else a
    elif kind == "permutation":
        a = np.eye(rows, columns)[draw.order(rows)]
    else:
        a = np.zeros((rows, columns))
        if kind == "one" and a.size:
            a[draw.whole(0, rows - 1), draw.whole(0, columns - 1)] = 1
    return np.ascontiguousarray(a).astype(np.uint8) % 2, kind


def bit_shape(draw):
    shape = draw.pick(["square", "any", "any", "wide", "tall"])
    a, b = size(draw), size(draw)
    if shape == "square":
        return a, a
    if shape == "wide":
        return draw.pick(SIZES), draw.whole(200, 2500)
    if shape == "tall":
        return draw.whole(200, 1500), draw.pick(SIZES)
    return a, b


def bit_options(p, product=False):
    draw, cuda = p.case.draw, p.case.o.backend != "cpu"
    if draw.chance(0.5):
        p.option("--block", draw.pick([0, 1, 33, 63, 64, 65, 100, 128, 192, 256, 300, 512, 1000]))
    way = draw.pick(["none", "none", "tables", "k", "broadcast", "local", "tensor"] + (["columns"] if not product else []))
    if way == "columns":
        p.option("--method", "columns", refused=True)
        p.ranks = 1
    if way == "tensor":
        p.option("--method", "tensor", refused=True)
    if way in ("tables", "broadcast") and draw.chance(0.6):
        p.option("--method", "tables")
    if way in ("k", "broadcast", "local") and draw.chance(0.7):
        p.option("--k", draw.whole(1, 14), refused=cuda)
    if way in ("broadcast", "local"):
        p.option("--tables", way, refused=product)
    if draw.chance(0.25):
        p.option("--panels", draw.pick(["host", "device"]), refused=product)
    if draw.chance(0.25):
        p.option("--guard", refused=product)
    p.common()


def unpacked(case, name, key):
    data, attrs = read(case, name, key)
    columns = int(attrs["columns"])
    words = (columns + 63) // 64
    case.check(data.dtype == np.uint64 and data.ndim == 2 and data.shape[1] == words, f"{key} is {data.dtype} {data.shape}")
    if data.size == 0:
        return np.zeros((data.shape[0], columns), np.uint8)
    every = np.unpackbits(data.astype("<u8").view(np.uint8), axis=1, bitorder="little")
    case.check(not every[:, columns:].any(), f"unused bits of {key} are not zero")
    return every[:, :columns]


def gf2(case):
    draw = case.draw
    command = draw.pick(["rref", "rref", "rref", "rank", "determinant", "solve", "kernel", "inverse", "multiply"])
    rows, columns = bit_shape(draw)
    if command in ("inverse", "determinant"):
        if draw.chance(0.9):
            columns = rows = size(draw)
        a, kind = bit_matrix(draw, rows, columns)
        if rows == columns and draw.chance(0.6):
            lower = np.tril(draw.rng.integers(0, 2, (rows, rows)), -1) + np.eye(rows, dtype=int)
            upper = np.triu(draw.rng.integers(0, 2, (rows, rows)), 1) + np.eye(rows, dtype=int)
            a, kind = ((lower @ upper) % 2).astype(np.uint8)[draw.order(rows)], "invertible"
    else:
        a, kind = bit_matrix(draw, rows, columns)
    case.forms.bits("in.h5", "/A", a)
    p = Problem(case, ["gf2", command, "in.h5:/A"], f"{rows} x {columns} {kind}")
    p.exact, p.restarts = True, True
    reduced, pivots = oracle.rref(oracle.rows_of(a), columns)
    pivots_in = lambda name: case.check(list(read(case, name, "pivots")[0]) == pivots, "pivots differ")
    rank_in = lambda done: case.check(done.report is None or "rank" not in done.report["result"] or done.report["result"]["rank"] == len(pivots), "rank differs")

    def expect(key, truth):
        def judge(done, name):
            if truth is None:
                case.fail(f"an answer where there is none: {done.words}")
                return
            found = unpacked(case, name, key)
            case.check(found.shape == truth.shape and (found == truth).all(), lambda: f"{key} differs: {found.shape} {truth.shape} {case.last}")
        return judge

    if command == "rref":
        transform = draw.chance(0.3)
        if transform:
            p.option("--transform")
            p.same_ranks_only, p.restart_on = len(pivots) < rows, [1, 2, 3, 4]  # T is not unique
            p.restart_bits = len(pivots) == rows

        def judge_transform(name):
            if not transform:
                return
            t, r = unpacked(case, name, "transform"), unpacked(case, name, "rref")
            case.check(t.shape == (rows, rows) and (oracle.product(t, a) == r).all(), lambda: f"T A is not the form: {case.last}")
            case.check(len(oracle.rref(oracle.rows_of(t), rows)[1]) == rows, lambda: f"T is not regular: {case.last}")
        if draw.chance(0.3):
            p.option("--echelon")
            p.exact, p.restart_bits = True, False
            p.same_ranks_only |= rows > 256  # beyond, other rows may become pivots on other ranks

            def judge(done, name):
                found = oracle.rows_of(unpacked(case, name, "rref"))
                again, _ = oracle.rref(found, columns)
                case.check(again == reduced, f"another row space: {case.last}")
                leading = [(r & -r).bit_length() - 1 for r in found]
                case.check(leading == pivots + [-1] * (rows - len(pivots)), f"no echelon form: {case.last}")
                pivots_in(name)
                rank_in(done)
                judge_transform(name)
        else:
            def judge(done, name):
                expect("rref", oracle.array_of(reduced, columns))(done, name)
                pivots_in(name)
                rank_in(done)
                judge_transform(name)
        p.judge = judge
    elif command in ("rank", "determinant"):
        if command == "determinant" and rows != columns:
            p.codes = {3}

        def judge(done, name):
            rank_in(done)
            if command == "determinant" and done.report:
                found = done.report["result"]["determinant"]
                case.check(found == int(len(pivots) == rows), lambda: f"determinant {found}, rank {len(pivots)}: {case.last}")
            if "-o" in done.words:
                pivots_in(name)
        p.judge = judge
    elif command == "kernel":
        p.judge = expect("kernel", oracle.kernel(a))
    elif command == "inverse":
        truth = oracle.inverse(a) if rows == columns else None
        p.codes = {3} if rows != columns else {4} if truth is None else {0}
        p.judge = expect("inverse", truth)
    elif command == "solve":
        right = draw.pick([1, 1, 2, 7, 63, 64, 65, 130])
        if draw.chance(0.75):
            b = (a.astype(int) @ draw.rng.integers(0, 2, (columns, right)) % 2).astype(np.uint8)
        else:
            b = draw.rng.integers(0, 2, (rows, right)).astype(np.uint8)
        file = second_file(case)
        case.forms.bits(file, "/B", b)
        p.option("--rhs", ":/B" if file == "in.h5" else file + ":/B")
        truth = oracle.solution(a, b)
        p.codes = {4} if truth is None else {0}
        p.judge = expect("x", truth)
    else:
        b, _ = bit_matrix(draw, columns, draw.pick([1, 3, 63, 64, 65, 130, 200]))
        file = second_file(case)
        case.forms.bits(file, "/B", b)
        p.words.append(":/B" if file == "in.h5" else file + ":/B")
        if draw.chance(0.4):
            p.option("--levels", draw.pick([-1, 0, 1, 2, 3, 16]))
            p.restart_on = []
        p.judge = expect("product", oracle.product(a, b))
    bit_options(p, command == "multiply")
    if command not in ("rank", "determinant") or draw.chance(0.7):
        p.option("-o", "out.h5")
    return p


# --- band ----------------------------------------------------------------------------------------------
def band_matrix(draw, n, m):
    """ab (lower), what it is."""
    rng = draw.rng
    kind = draw.pick(["dominant", "dominant", "product", "graded", "diagonal", "minus", "laplace"])
    ab = np.zeros((m + 1, n))
    if kind in ("dominant", "minus", "diagonal"):
        if kind != "diagonal":
            ab[1:] = rng.uniform(-1, 1, (m, n))
        ab[0] = 2 * m + 1 + rng.random(n)
        if kind == "minus" and n:
            ab[0, draw.whole(0, n - 1)] *= -1
    elif kind == "laplace":
        ab[0] = 2.0 if m else 1.0
        if m:
            ab[draw.pick([1, m])] = -1
        ab[0] += draw.pick([0, 1e-3])
    else:  # L L^T
        f = rng.uniform(-1, 1, (m + 1, n)) / np.sqrt(m + 1)
        f[0] = rng.uniform(0.5, 1.5, n)
        if kind == "graded":
            f *= np.exp2(np.round(np.linspace(0, -draw.pick([10, 20, 40]), n))) if n else 1
        lower = oracle.lower_of_band(f)
        full = lower @ lower.T
        for d in range(min(m + 1, n)):
            ab[d, : n - d] = np.diag(full, -d)
    for d in range(1, m + 1):
        ab[d, max(0, n - d):] = 0
    return ab, kind


def band(case):
    draw = case.draw
    command = draw.pick(["factor", "solve", "solve"])
    n = size(draw, 0.25) if draw.chance(0.8) else draw.whole(300, 900)
    m = draw.pick([0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 48, 63, 64, 65, max(0, n - 1), n, n + 2])
    m = min(m, n + 2, 200)
    ab, kind = band_matrix(draw, n, m)
    shift = exponent(draw)
    ab = case.forms.band("in.h5", "/A", np.ldexp(ab, shift))
    a = oracle.symmetric_of_band(ab)
    p = Problem(case, ["band", command, "in.h5:/A"], f"n {n} m {m} {kind} 2^{shift}")
    minor = oracle.failed_minor(a) if n <= 400 else 0 if kind != "minus" else int(np.flatnonzero(ab[0] < 0)[0]) + 1
    doubtful = kind == "graded" or kind == "product" and n > 100
    p.codes = {0, 4} if doubtful or minor < 0 else {4} if minor > 0 else {0}
    minor = -1 if doubtful else minor
    cuda = case.o.backend != "cpu"
    methods = ["", "", "auto", "tile-columns"] + ([] if command == "factor" else ["one-end", "two-ends", "partition"]) + ["streamed", "streamed"]
    method = draw.pick(methods)
    block = 0
    if draw.chance(0.4):
        block = draw.pick([1, 8, 16, 24, 32, 33, 48, 64, 96, 100, 128, 200])
    p.restarts = True
    if method:
        p.option("--method", method, refused=cuda)
    places = command == "solve" and method in ("", "tile-columns", "streamed") and draw.chance(0.15)
    if method == "streamed":
        p.ranks = draw.pick([1, 1, 2, 3, 4, 5])
        if p.ranks > 1 or places:  # tile by tile, as tile-columns on any ranks
            p.bits_on, p.restart_on = [2, 3, 4, 5], [1, 2, 3, 4, 5]
        if draw.chance(0.3):
            p.option("--scratch-dir", ".")
    if method == "partition" and draw.chance(0.7):
        p.option("--parts", draw.whole(1, 9))
    mixed = command == "solve" and method in ("", "auto") and not places and draw.chance(0.4)
    if mixed:
        p.option("--precision", "mixed")
        p.ranks = draw.pick([1, 2, 2, 3, 4])
        p.same_ranks_only, p.restart_on = True, [1] if p.ranks == 1 else [2, 3, 4]
        p.restart_bits = False
        block = 0
    if block:
        p.option("--block", block, refused=cuda)
    stored = False
    if command == "solve":
        b = case.forms.dense(file := second_file(case), "/b", right_sides(draw, n, shift), order=False)
        p.option("--rhs", where_rhs(file))
        stored = method in ("", "auto", "tile-columns", "streamed") and not mixed and not places and draw.chance(0.2) and p.codes == {0}
        if method == "streamed" and draw.chance(0.5):
            p.option("--parts", draw.pick([1, 2]) if not stored and not places and p.ranks == 1 else 1)
        if places:
            p.option(draw.pick(["--substitution", "--diagonal"]), "cpu")
    if stored:
        first = case.run(["band", "factor", "in.h5:/A", "-o", "factor.h5", *case.forms.options], draw.pick([1, 2]))
        if not case.check(first.code == 0, lambda: f"exit {first.code} ({p.what}): {case.last}: {first.message}"):
            return None
        p.option("--factor", draw.pick(["factor.h5", "factor.h5:/factor"]))
        p.restarts = method == "streamed" and p.ranks == 1
    if draw.chance(0.2) and not mixed:
        p.option("--guard", refused=True)
    p.common()
    if "--guard" in p.words and "--no-check" in p.words:
        p.may_refuse = True
    p.option("-o", "out.h5")

    def outcome(done):
        found = (done.report or {}).get("result", {}).get("failed_minor")
        case.check(minor < 0 or found == minor, f"failed_minor is {found}, not {minor} ({p.what}): {case.last}")
    p.judge_outcome = outcome
    scaled, e = oracle.scaled(a)

    def judge(done, name):
        result = (done.report or {}).get("result", {})
        if command == "factor":
            f, attrs = read(case, name, "factor")
            if not case.check(f.shape == (m + 1, n), f"factor is {f.shape}"):
                return
            l = oracle.lower_of_band(np.ldexp(f, -(e // 2)))
            target = scaled if e % 2 == 0 else scaled * 2
            ratio = np.abs(l @ l.T - target).max() / (max(1, n) * np.abs(target).max() * oracle.EPS) if n else 0
            case.check(ratio < 30, f"L L^T - A has ratio {ratio:.3g} ({p.what}): {case.last}")
            case.check((f[0] > 0).all(), "the diagonal of the factor is not positive")
            if "log_abs_determinant" in result and n:
                log = 2 * np.log(f[0]).sum()
                case.check(abs(result["log_abs_determinant"] - log) < 1e-9 * (1 + abs(log)), f"log |det| {result['log_abs_determinant']}, not {log}: {case.last}")
        else:
            x = read(case, name, "x")[0]
            if case.check(x.shape == b.shape, f"x is {x.shape}, b {b.shape}"):
                ratio = oracle.solve_ratio(a, x.reshape(n, -1 if n else 0), b.reshape(n, -1 if n else 0))
                case.check(ratio < 30, f"residual ratio {ratio:.3g} ({p.what}): {case.last}")
            if n and n <= 400 and kind in ("dominant", "diagonal", "laplace") and "log_abs_determinant" in result:
                log = np.linalg.slogdet(scaled)[1] + n * e * np.log(2)
                slack = 1e-9 * (n + abs(log))
                if "log_abs_determinant_error" in result:
                    slack += 8 * result["log_abs_determinant_error"] + (4e-3 if cuda else 1e-4) * n**0.5
                case.check(abs(result["log_abs_determinant"] - log) <= slack, f"log |det| {result['log_abs_determinant']}, not {log}: {case.last}")
            if mixed and done.report:
                in_low = (done.report["precision"] == "mixed", "backward_error" in result, "FP64" not in done.report.get("note", ""))
                case.check(in_low[0] == in_low[1] == in_low[2], f"precision {done.report['precision']}, {result}, {done.report.get('note')}: {case.last}")
    p.judge = judge
    return p


# --- conjugate gradients ---------------------------------------------------------------------------------
def near_null_space(p, n, unknowns):
    """Vectors for --near-null-space: any ones, or those of nodes; sometimes one too many."""
    case, draw = p.case, p.case.draw
    v = draw.rng.standard_normal((n, draw.whole(1, min(4, n))))
    if unknowns > 1 and draw.chance(0.8):
        v = np.kron(np.ones((n // unknowns, 1)), np.eye(unknowns))
        if unknowns < n and draw.chance(0.5):
            v = np.column_stack([v, draw.rng.standard_normal(n)])
    kind = draw.pick(["", "", "", "", "", "", "scaled", "zero", "twice"])
    if kind == "scaled":
        v = np.ldexp(v, draw.rng.integers(-900, 901, v.shape[1]))
    elif kind == "zero":
        v[:, draw.whole(0, v.shape[1] - 1)] = 0
    elif kind == "twice":
        v = np.column_stack([v, v @ draw.rng.integers(1, 4, v.shape[1])])
    if kind in ("zero", "twice"):
        p.codes = {3}
    v = v[:, 0] if v.shape[1] == 1 and draw.chance(0.5) else v
    case.forms.dense(file := second_file(case), "/V", v, order=False)
    p.option("--near-null-space", ":/V" if file == "in.h5" else file + ":/V")


def cg(case):
    draw = case.draw
    form = draw.pick(["dense", "dense", "band", "csr", "csr"])
    n = max(0, size(draw, 0.15))
    kind = draw.pick(["dominant", "dominant", "laplace", "nodes", "condition", "indefinite", "asymmetric", "diagonal"])
    unknowns = draw.whole(2, 4) if kind == "nodes" and form != "band" else 1  # a node
    n = max(1, n // unknowns) * unknowns if unknowns > 1 else n
    shift = exponent(draw) if "scale" not in case.o.without else draw.pick([0, 10, -10, 100, -100])
    m = draw.pick([0, 1, 2, 5, 17, 40])
    if form == "band":
        ab, inner = band_matrix(draw, n, min(m, max(0, n - 1)))
        while inner in ("minus", "graded"):
            ab, inner = band_matrix(draw, n, min(m, max(0, n - 1)))
        kind = inner if kind != "indefinite" else kind
        if kind == "indefinite" and n:
            ab[0, draw.whole(0, n - 1)] *= -1
        ab = case.forms.band("in.h5", "/A", np.ldexp(ab, shift))
        a = oracle.symmetric_of_band(ab)
    else:
        a = draw.rng.standard_normal((n, n))
        if form == "csr" or draw.chance(0.2):
            a *= draw.rng.random((n, n)) < 4 / max(1, n)
        a = (a + a.T) / 2
        if kind == "laplace":
            a = 2.001 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        elif unknowns > 1:
            inner, nodes = draw.rng.standard_normal((unknowns, unknowns)), n // unknowns
            line = 2 * np.eye(nodes) - np.eye(nodes, k=1) - np.eye(nodes, k=-1)
            a = np.kron(line, inner @ inner.T + np.eye(unknowns))
            a = (a + a.T) / 2 + draw.pick([1e-3, 0.1]) * np.eye(n)
        elif kind == "diagonal":
            a = np.diag(np.exp2(draw.rng.integers(-3, 4, n)))
        else:
            a += np.diag(np.abs(a).sum(axis=1) + 0.5)
        if kind == "condition":
            d = np.exp2(draw.rng.integers(-8, 9, n) / 2.0)
            a = a * d[:, None] * d[None, :]
            a = np.tril(a) + np.tril(a, -1).T
        if kind == "indefinite" and n:
            k = draw.whole(0, n - 1)
            a[k, k] *= -1
        if kind == "asymmetric" and n > 1:
            i = draw.whole(1, n - 1)
            j = draw.whole(0, i - 1)
            a[i, j] += 1 + abs(a[i, j])
        a = np.ldexp(a, shift)
        if form == "dense":
            a = case.forms.dense("in.h5", "/A", a)
        else:
            a = case.forms.sparse("in.h5", "/A", a)
    p = Problem(case, ["cg", "in.h5:/A"], f"n {n} {form} {kind} 2^{shift}")
    b = case.forms.dense(file := second_file(case), "/b", right_sides(draw, n, shift), order=False)
    p.option("--rhs", where_rhs(file))
    asymmetric = kind == "asymmetric" and form != "band" and n > 1
    p.codes = {3} if asymmetric else {0, 4} if kind == "indefinite" or abs(shift) >= 300 else {0}
    preconditioner = draw.pick(["", "none", "jacobi", "jacobi", "block-jacobi", "chebyshev"] + (["ic", "amg", "amg"] if form != "dense" else []))
    if preconditioner:
        p.option("--preconditioner", preconditioner)
    if preconditioner == "block-jacobi" and draw.chance(0.7):
        p.option("--block", draw.pick([1, 2, 5, 16, 31, 64]))
    if preconditioner == "chebyshev" and draw.chance(0.6):
        p.option("--degree", draw.pick([1, 2, 3, 8, 20]))
    if preconditioner == "amg" and n and "near" not in case.o.without and draw.chance(0.5):  # any vectors give the same x
        near_null_space(p, n, unknowns)
    method = draw.pick([x for x in ("", "", "classic", "single-reduction", "pipelined") if x not in case.o.without])
    if method:
        p.option("--method", method)
    layout = "triangle"
    if form == "dense" and draw.chance(0.3):
        p.option("--layout", layout := draw.pick(["rows", "triangle"]))
    mixed = layout == "triangle" and method in ("", "classic") and draw.chance(0.15) and "mixed" not in case.o.without
    if mixed:
        p.option("--precision", "mixed")
    if form == "csr" and draw.chance(0.2):
        p.option("--reorder")
    norm = draw.pick(["", "", "unpreconditioned", "preconditioned", "natural"] if "norm" not in case.o.without else [""])
    if norm:
        p.option("--norm", norm)
    rtol = draw.pick([1e-10, 1e-10, 1e-6, 1e-12, 1e-3])
    if rtol != 1e-10:
        p.option("--rtol", rtol)
    if draw.chance(0.2):
        p.option("--at-once", draw.pick([1, 2, 3, 16]))
    if draw.chance(0.1):
        p.option("--monitor", draw.pick([1, 3]))
    if draw.chance(0.2):
        p.option("--guard")
    if draw.chance(0.15):
        case.forms.dense("in.h5", "/x0", np.ldexp(draw.rng.standard_normal(b.shape), oracle.scaled(b)[1] - shift), order=False)
        p.option("--x0", ":/x0")
    if draw.chance(0.15) and "--format" not in p.words:
        p.option("--format", case.forms.format or form)
    few = draw.chance(0.1)
    if few:
        p.option("--max-iterations", draw.pick([0, 1, 2]))
        p.codes |= {4}
    p.common()
    if "--no-check" in p.words and asymmetric:
        p.codes, p.verifies = {0, 3, 4}, False  # only the check sees the other half of the matrix
    p.option("-o", "out.h5")
    p.same_ranks_only, p.restarts = True, n > 3 and not asymmetric
    if kind in ("condition",) and (rtol <= 1e-12 or method == "pipelined" or mixed):
        p.codes |= {4}
    if rtol <= 1e-12 and (mixed or method or preconditioner == "chebyshev"):
        p.codes |= {4}
    x2, b2 = None, b.reshape(n, -1 if n else 0)

    def judge(done, name):
        x = read(case, name, "x")[0]
        if not case.check(x.shape == b.shape, f"x is {x.shape}, b {b.shape}") or not n or "NaN" in str(x.sum()):
            return
        if asymmetric:
            return
        x, result = x.reshape(n, -1 if n else 0), (done.report or {}).get("result", {})
        scaled, e = oracle.scaled(a)
        for k in range(x.shape[1]):
            bk, f = oracle.scaled(b2[:, k])
            xk = np.ldexp(x[:, k], e - f)
            size_b = np.linalg.norm(bk)
            error = np.linalg.norm(bk - scaled @ xk)
            if size_b == 0:
                case.check(not xk.any(), f"b = 0, x is not: {case.last}")
                continue
            slack = 20 if norm in ("", "unpreconditioned") else 20 * np.sqrt(oracle.condition(scaled))
            limit = slack * rtol * size_b + 500 * oracle.EPS * np.linalg.norm(scaled) * np.linalg.norm(xk) * np.sqrt(n)
            case.check(error <= limit, f"relative residual {error / size_b:.3g} of column {k}, wanted {rtol:g} ({p.what}): {case.last}")
        case.check(result.get("converged") in (True, None) and result.get("reason") in ("rtol", "atol"), f"exit 0 with reason {result.get('reason')}: {case.last}")
        if "--no-check" not in done.words and done.report:
            case.check(isinstance(done.report.get("residual"), (int, float)), f"residual {done.report.get('residual')} in the report: {case.last}")

    def outcome(done):
        if done.code == 4:
            result = (done.report or {}).get("result", {})
            reasons = ("max-iterations", "indefinite-matrix", "indefinite-preconditioner", "nan-or-inf", "breakdown", "stagnation")
            case.check(result.get("reason") in reasons, f"exit 4 with reason {result.get('reason')}: {case.last}")
            if kind not in ("indefinite",) and abs(shift) < 300 and (method != "pipelined" or "pipelined" not in case.o.without):
                case.check(result.get("reason") not in ("indefinite-matrix", "nan-or-inf"), f"{result.get('reason')} of a definite matrix ({p.what}): {case.last}")
    p.judge, p.judge_outcome = judge, outcome
    return p


# --- generate, convert --------------------------------------------------------------------------------------
def generate(case):
    draw = case.draw
    kind = draw.pick(["gf2-random", "gf2-rank", "band-spd", "band-laplace", "dense-random", "dense-condition", "dense-spd", "csr-laplace"])
    n, seed = draw.pick([1, 2, 5, 16, 33, 64, 65, 100, 130]), draw.whole(0, 10**6)
    words, rhs = ["generate", kind, "--seed", str(seed)], draw.pick([0, 0, 1, 3, 65])
    condition, rank, columns = draw.pick([1.0, 10.0, 1e6]), 0, n
    if kind.startswith("gf2"):
        columns = draw.pick([n, 1, 63, 64, 65, 200])
        words += ["--rows", str(n), "--columns", str(columns)]
        if kind == "gf2-rank":
            rank = draw.whole(0, min(n, columns))
            words += ["--rank", str(rank)]
    elif kind == "csr-laplace":
        dim, points = draw.pick([(2, 1), (2, 7), (2, 11), (3, 1), (3, 4), (3, 5)])
        words += ["--dim", str(dim), "--points", str(points)]
    elif kind == "band-laplace":
        words += ["--points", str(points := draw.pick([1, 2, 5, 11]))]
    else:
        words += ["--n", str(n)]
        if kind == "band-spd":
            words += ["--half-bandwidth", str(m := draw.pick([0, 1, 3, n - 1]))]
        if kind == "dense-condition" or (kind == "dense-spd" and draw.chance(0.5)):
            words += ["--condition", str(condition)]
    if rhs:
        words += ["--rhs", str(rhs)]
    ranks = draw.pick([1, 2, 3])
    first = case.run(words + ["-o", "out.h5"], ranks)
    if not case.check(first.code == 0, lambda: f"exit {first.code}: {case.last}: {first.message}"):
        return
    again = case.run(words + ["-o", "again.h5"], draw.pick([1, 2, 4]))
    with h5py.File(case.path("out.h5")) as f, h5py.File(case.path("again.h5")) as g:
        def walk(a, b, name):
            for key in a:
                if key == "terrace":
                    continue
                if isinstance(a[key], h5py.Group):
                    walk(a[key], b[key], name + "/" + key)
                else:
                    case.check(a[key][...].tobytes() == b[key][...].tobytes(), f"{name}/{key} depends on the ranks: {case.last}")
        walk(f, g, "")
        if kind.startswith("gf2"):
            a = unpacked(case, "out.h5", "A")
            if kind == "gf2-rank":
                found = len(oracle.rref(oracle.rows_of(a), columns)[1])
                case.check(found == rank, f"rank {found}, not {rank}: {case.last}")
            if rhs:
                b, x = unpacked(case, "out.h5", "b"), unpacked(case, "out.h5", "x_true")
                case.check((oracle.product(a, x) == b).all(), f"b is not A x_true: {case.last}")
            return
        if kind == "csr-laplace":
            line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(points, points))
            truth, eye = line, scipy.sparse.eye(points)
            for _ in range(dim - 1):
                truth = scipy.sparse.kron(truth, scipy.sparse.eye(points)) + scipy.sparse.kron(scipy.sparse.eye(truth.shape[0]), line)
            a = scipy.sparse.csr_matrix((f["A/data"][:], f["A/indices"][:], f["A/indptr"][:]), tuple(f["A"].attrs["shape"])).toarray()
            case.check(np.array_equal(a, truth.toarray()), f"no Laplace matrix: {case.last}")
        elif kind.startswith("band"):
            a = oracle.symmetric_of_band(f["A"][...])
            case.check(oracle.failed_minor(a) in (0, -1), f"not positive definite: {case.last}")
        else:
            a = f["A"][...]
            if kind == "dense-condition" or "--condition" in words:
                found = np.linalg.cond(a)
                case.check(n == 1 or 0.5 < found / condition < 2, f"condition {found:.3g}, not {condition:g}: {case.last}")
            if kind == "dense-spd":
                case.check(np.array_equal(a, a.T) and np.linalg.eigvalsh(a)[0] > 0, f"not symmetric positive definite: {case.last}")
        if rhs:
            b, x = f["b"][...].reshape(len(a), -1), f["x_true"][...].reshape(len(a), -1)
            case.check(np.abs(a @ x - b).max() <= 1e-12 * max(1.0, np.abs(a).max()) * len(a), f"b is not A x_true: {case.last}")


def convert(case):
    draw, rng = case.draw, case.draw.rng
    kind = draw.pick(["txt", "npy", "npy", "mtx array", "mtx", "mtx", "mtx symmetric"])
    rows = draw.pick([1, 2, 7, 33])
    columns = rows if kind in ("txt", "mtx symmetric") else draw.pick([1, 3, rows, 50])
    a = rng.standard_normal((rows, columns)) * 10.0 ** draw.whole(-5, 5)
    name, truth = case.path("in." + kind.split()[0]), a
    if kind == "txt":
        with open(name, "w") as f:
            f.write(f"{rows}\n" + draw.pick(["", "\n", " \t"]))
            for row in a:
                f.write(draw.pick([" ", "\t", "  "]).join(draw.pick(["%.17g", "%.17e", "%+.17g"]) % v for v in row) + draw.pick(["\n", " \n", "\r\n"]))
    elif kind == "npy":
        a = a.astype(draw.pick(["<f8", ">f8", "<f4", "f8"]))
        if draw.chance(0.2):
            a = rng.integers(-50, 50, (rows, columns)).astype(draw.pick(["i1", "i4", ">i8", "i2"]))
        truth = a.astype(float)
        with open(name, "wb") as f:
            np.lib.format.write_array(f, np.asfortranarray(a) if draw.chance(0.3) else a, version=draw.pick([None, (1, 0), (2, 0)]))
    elif kind == "mtx array":
        scipy.io.mmwrite(name, a, precision=17, field="real", symmetry="general")
    else:
        a = a * (rng.random(a.shape) < 0.4)
        if kind == "mtx symmetric":
            a = np.tril(a) + np.tril(a, -1).T
        truth = a
        scipy.io.mmwrite(name, scipy.sparse.coo_matrix(a), precision=17, symmetry="symmetric" if kind.endswith("symmetric") else "general")
    ranks = draw.pick([1, 1, 2, 3])
    damaged = draw.chance(0.25) and "damage" not in case.o.without
    if damaged:
        with open(name, "rb") as f:
            data = bytearray(f.read())
        for _ in range(draw.whole(1, 3)):
            at = draw.whole(0, len(data) - 1)
            data[at:at + draw.whole(0, 3)] = bytes(rng.integers(0, 256, draw.whole(0, 3), dtype=np.uint8))
        with open(name, "wb") as f:
            f.write(data)
    done = case.run(["convert", os.path.basename(name), "out.h5"], ranks)
    if damaged:
        return
    if not case.check(done.code == 0, lambda: f"exit {done.code}: {case.last}: {done.message}"):
        return
    with h5py.File(case.path("out.h5")) as f:
        key = "A" if "A" in f else "b"
        if isinstance(f[key], h5py.Group):
            s = scipy.sparse.csr_matrix((f[key]["data"][:], f[key]["indices"][:], f[key]["indptr"][:]), tuple(f[key].attrs["shape"]))
            found = s.toarray()
        else:
            found = f[key][...].reshape(truth.shape)
        case.check(np.array_equal(found, truth), f"{key} differs: {case.last}")
    back = draw.pick(["npy", "mtx"] + (["txt"] if rows == columns and kind not in ("mtx", "mtx symmetric") else []))
    if kind in ("mtx", "mtx symmetric"):
        back = "mtx"
    done = case.run(["convert", f"out.h5:/{key}", "back." + back], draw.pick([1, 2]))
    if not case.check(done.code == 0, lambda: f"exit {done.code}: {case.last}: {done.message}"):
        return
    if back == "npy":
        found = np.load(case.path("back.npy")).reshape(truth.shape)
    elif back == "mtx":
        found = scipy.io.mmread(case.path("back.mtx"))
        found = (found.toarray() if scipy.sparse.issparse(found) else found).reshape(truth.shape)
    else:
        with open(case.path("back.txt")) as f:
            text = f.read().split()
        found = np.array(text[1:], float).reshape(truth.shape)
    case.check(np.allclose(found, truth, rtol=6e-7 if back == "txt" else 1e-15, atol=0), f"back.{back} differs: {case.last}")
