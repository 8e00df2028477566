"""The Python package beside NumPy and SciPy: random shapes, types, orders, forms; errors; files. Alone, or under mpirun with mpi4py,
where each rank holds some rows.
    python_test.py [--count N] [--seed S]"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

import terrace
from terrace import gf2, linalg
from terrace.sparse.linalg import Operator, cg

options = argparse.ArgumentParser()
options.add_argument("--count", type=int, default=500)
options.add_argument("--seed", type=int, default=1)
options = options.parse_args()
comm, group, rank, size = None, None, 0, 1
if "OMPI_COMM_WORLD_SIZE" in os.environ and int(os.environ["OMPI_COMM_WORLD_SIZE"]) > 1:
    try:
        from mpi4py import MPI
    except ImportError:
        print("skipped: mpi4py is not here")
        sys.exit(77)
    comm, rank, size = MPI.COMM_WORLD, MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
backend = os.environ.get("TERRACE_API_BACKEND", "auto")
shared = terrace.Context(comm, backend=backend)  # in place of a communicator, now and then
draw = np.random.default_rng(options.seed)  # the same on every rank


def cut(n):
    """Rows of each rank, some of none: the same draw on every rank."""
    inner = np.sort(draw.integers(0, n + 1, size - 1))
    return np.concatenate([[0], inner, [n]]).astype(int)


def mine(array, cuts, axis=0):
    return np.take(array, range(cuts[rank], cuts[rank + 1]), axis=axis)


def whole(part):
    return part if comm is None else np.concatenate(comm.allgather(part))


def shaped(array):
    """The same numbers in another order or stride in memory."""
    kind = draw.integers(0, 4)
    if array.ndim != 2 or kind == 0:
        return array
    if kind == 1:
        return np.asfortranarray(array)
    if kind == 2:
        wide = np.full((array.shape[0], array.shape[1] + 3), array.dtype.type(1))
        wide[:, :array.shape[1]] = array
        return wide[:, :array.shape[1]]
    return np.repeat(array, 2, axis=0)[::2]


def raises(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"{call.__name__} did not raise {kind}")


def close(a, b, scale=1.0):
    assert a.shape == b.shape, (a.shape, b.shape)
    assert np.allclose(a, b, rtol=1e-9, atol=1e-9 * scale), np.abs(a - b).max()


def rank_of(a):
    a, r = a.astype(np.uint8).copy(), 0
    for j in range(a.shape[1]):
        rows = np.flatnonzero(a[r:, j]) + r
        if len(rows) == 0:
            continue
        a[[r, rows[0]]] = a[[rows[0], r]]
        others = np.flatnonzero(a[:, j])
        others = others[others != r]
        a[others] ^= a[r]
        r += 1
        if r == a.shape[0]:
            break
    return r, a


def bits_case():
    rows, columns = draw.integers(1, 130, 2)
    inner = draw.integers(1, 40)
    a = (draw.integers(0, 2, (rows, inner)) @ draw.integers(0, 2, (inner, columns))) % 2  # of low rank, often
    cuts, r_form = cut(rows), rank_of(a)
    own = mine(a, cuts)
    kind = draw.integers(0, 6)
    given = [own, own.astype(bool), own.astype(np.uint8), own.astype(float), scipy.sparse.csr_matrix(own),
             terrace.Bits.pack(own)][kind]
    if kind < 4:
        given = shaped(given)
    plain = (lambda x: x.unpack()) if kind == 5 else (lambda x: x)
    assert gf2.rank(given, comm=group) == r_form[0]
    other = a.copy()
    other[rows // 2, 0] = 2  # of one rank; all raise
    raises(ValueError, gf2.rank, mine(other, cuts), comm=group)
    form, pivots, t = gf2.rref(given, transform=True, comm=group)
    form, t = whole(plain(form)), whole(plain(t))
    assert (form == r_form[1]).all() and len(pivots) == r_form[0]
    assert ((t.astype(int) @ a) % 2 == form).all()
    k = whole(plain(gf2.kernel(given, comm=group)))
    assert k.shape == (columns - r_form[0], columns) and not ((a @ k.T.astype(int)) % 2).any()
    assert rank_of(k)[0] == len(k)
    x = draw.integers(0, 2, (columns, 3))
    b = (a @ x) % 2
    found = whole(gf2.solve(given, mine(b, cuts), comm=group))
    assert ((a @ found.astype(int)) % 2 == b).all()
    vector = whole(gf2.solve(given, mine(b[:, 0], cuts), comm=group))
    assert vector.shape == (columns,) and ((a @ vector.astype(int)) % 2 == b[:, 0]).all()
    if r_form[0] < rows:
        left = np.zeros((1, rows), int)
        reduced = whole(plain(gf2.rref(given, transform=True, comm=group)[2])).astype(int)
        left = reduced[r_form[0]]  # left A = 0
        bad = left.copy()  # left . bad may be 0: find one that is not
        bad = np.eye(rows, dtype=int)[np.flatnonzero(left)[0]]
        raises(terrace.Inconsistent, gf2.solve, given, mine(bad, cuts), comm=group)
    x_cuts = cut(columns)
    c = gf2.multiply(given, mine(x, x_cuts), comm=group)
    assert (whole(plain(c)) == b).all()
    n = int(draw.integers(1, 70))
    square = np.triu(draw.integers(0, 2, (n, n)), 1) + np.eye(n, dtype=int)
    square = square[draw.permutation(n)]
    cuts = cut(n)
    inverse = whole(gf2.inverse(mine(square, cuts), comm=group)).astype(int)
    assert ((square @ inverse) % 2 == np.eye(n)).all()
    if n > 1:
        square[0] = square[1]
        raises(np.linalg.LinAlgError, gf2.inverse, mine(square, cuts), comm=group)


def band_case():
    n, m, right = int(draw.integers(1, 80)), int(draw.integers(0, 9)), int(draw.integers(1, 4))
    dtype = draw.choice([np.float64, np.float32, np.int64])
    ab = draw.integers(-4, 5, (m + 1, n)).astype(dtype) if dtype == np.int64 else draw.uniform(-1, 1, (m + 1, n)).astype(dtype)
    lower = bool(draw.integers(0, 2))
    ab[0 if lower else -1] = 10 * m + 10
    b = draw.uniform(-1, 1, (n, right)).astype(np.float32 if dtype == np.float32 else np.float64)
    if right == 1:
        b = b[:, 0]
    valid = ab.astype(float)
    for d in range(m + 1):  # SciPy's own refuses what it does not read
        row = valid[d if lower else m - d]
        if d >= n:
            row[:] = 0
        elif d:
            row[-d if lower else slice(0, d)] = 0
            if lower:
                row[n - d:] = 0
    expected = scipy.linalg.solveh_banded(valid[:min(m, n - 1) + 1] if lower else valid[m - min(m, n - 1):], b.astype(float), lower=lower)
    cuts = cut(n)
    own, own_b = shaped(mine(ab, cuts, 1)), mine(b, cuts)
    before = own.copy(), own_b.copy()
    precision = "mixed" if draw.integers(0, 4) == 0 else "fp64"
    close(whole(linalg.solveh_banded(own, own_b, lower=lower, comm=group, precision=precision)), expected)
    assert (own == before[0]).all() and (own_b == before[1]).all()
    with linalg.cholesky_banded(own, lower=lower, comm=group) as factor:
        for _ in range(2):
            close(whole(factor.solve(own_b)), expected)
        full = np.zeros((n, n))
        for d in range(min(m, n - 1) + 1):
            diagonal = valid[d, :n - d] if lower else valid[m - d, d:]
            full += np.diag(diagonal, -d) + (np.diag(diagonal, d) if d else 0)
        assert abs(factor.logdet - np.linalg.slogdet(full)[1]) < 1e-8
        if comm is None or lower:
            c = whole(factor.c.T).T
            close(scipy.linalg.cho_solve_banded((c[:min(m, n - 1) + 1] if lower else c[m - min(m, n - 1):], lower), b.astype(float)),
                  expected)
    for use in (lambda: factor.solve(own_b), lambda: factor.c):
        assert "closed" in str(raises(ValueError, use))
    bad = ab.astype(float)
    bad[0 if lower else -1, n // 2] = -1
    error = raises(np.linalg.LinAlgError, linalg.solveh_banded, mine(bad, cuts, 1), own_b, lower=lower, comm=group)
    assert 0 <= error.position <= n // 2


def dense_case():
    n, right = int(draw.integers(1, 60)), int(draw.integers(1, 4))
    a, b = draw.uniform(-1, 1, (n, n)) + 0.1 * np.eye(n), draw.uniform(-1, 1, (n, right))
    if draw.integers(0, 3) == 0:
        a = a.astype(np.float32)
    if right == 1:
        b = b[:, 0]
    cuts = cut(n)
    own, own_b = shaped(mine(a, cuts)), mine(b, cuts)
    before = own.copy()
    inverse, x = np.linalg.inv(a.astype(float)), np.linalg.solve(a.astype(float), b)
    size_of = np.abs(inverse).max()
    close(whole(linalg.inv(own, comm=group)), inverse, size_of**2)
    close(whole(linalg.solve(own, own_b, comm=group)), x, size_of**2)
    assert (own == before).all()
    sign, log = np.linalg.slogdet(a.astype(float))
    found = linalg.slogdet(own, comm=group)
    assert found[0] == sign and abs(found[1] - log) < 1e-8 * size_of
    if n > 1:
        singular = a.copy()
        singular[:, n // 2] = 0
        assert raises(np.linalg.LinAlgError, linalg.inv, mine(singular, cuts), comm=group).position == n // 2
        raises(np.linalg.LinAlgError, linalg.solve, mine(singular, cuts), own_b, comm=group)
        assert linalg.slogdet(mine(singular, cuts), comm=group) == (0.0, -np.inf)
    wrong = a.astype(float)
    wrong[0, 0] = np.nan
    raises(ValueError, linalg.solve, mine(wrong, cuts), own_b, comm=group)
    wrong = b.astype(float)
    wrong[-1] = np.inf  # of one rank; all raise
    raises(ValueError, linalg.solve, own, mine(wrong, cuts), comm=group)
    raises(ValueError, linalg.solve, own, np.float64(1), comm=group)
    raises(TypeError, linalg.inv, own, comm=own)


def warned(call, *arguments, **named):
    """What it returned, and the first warning of the library."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call(*arguments, **named)
    return result, str(caught[0].message) if caught else ""


def factor_case():
    n, right = int(draw.integers(0, 60)), int(draw.choice([0, 1, 2, 5, 70]))
    a = draw.uniform(-1, 1, (n, n)) + 0.1 * np.eye(n)
    kind = draw.integers(0, 4)
    if kind == 0:
        a = a.astype(np.float32)
    if kind == 1:
        a = draw.integers(-9, 10, (n, n)) + 40 * np.eye(n, dtype=int)
    b = draw.uniform(-1, 1, (n, right))
    if right == 1:
        b = b[:, 0]
    cuts = cut(n)
    own, own_b = shaped(mine(a, cuts)), shaped(mine(b, cuts))
    before = own.copy(), own_b.copy()
    full = a.astype(float)
    size_of = max(1, np.abs(np.linalg.inv(full)).max()) if n else 1
    made = scipy.linalg.lu_factor(full) if n else None
    with linalg.lu_factor(own, comm=group) as factor:
        for c in (b, b + 1, np.float32(b)):  # again and again
            expected = scipy.linalg.lu_solve(made, c.astype(float)) if n and c.size else np.zeros(c.shape)
            close(whole(linalg.lu_solve(factor, mine(c, cuts))), expected, size_of**2)
        x = np.ascontiguousarray(own_b).copy()
        assert linalg.lu_solve(factor, x, overwrite_b=True) is x
        close(whole(x), whole(linalg.lu_solve(factor, own_b)))
        sign, log = np.linalg.slogdet(full)
        assert factor.slogdet[0] == sign and abs(factor.slogdet[1] - log) < 1e-8 * size_of
        if n:
            condition = np.linalg.cond(full, np.inf)
            assert 1 / 30 < factor.rcond * condition < 30, (factor.rcond, condition)
        raises(NotImplementedError, linalg.lu_solve, factor, own_b, 1)
        raises(ValueError, linalg.lu_solve, factor, np.ones(len(own_b) + 1))
        if right and n:
            bad = mine(b, cuts).copy()
            bad[:1] = np.nan
            raises(ValueError, linalg.lu_solve, factor, bad, check_finite=bool(draw.integers(0, 2)) and len(bad) > 0 and comm is None)
    assert (own == before[0]).all() and (own_b == before[1]).all()
    if n > 1:
        singular = full.copy()
        singular[:, n // 2] = 0
        assert raises(np.linalg.LinAlgError, linalg.lu_factor, mine(singular, cuts), comm=group).position == n // 2
    # What a matrix is taken for.
    spd = full @ full.T + np.eye(n)
    spd = (spd + spd.T) / 2
    expected = np.linalg.solve(spd, b) if b.size else np.zeros(b.shape)
    for assumed in (None, "gen", "sym", "her", "pos", "positive definite"):
        found, text = warned(linalg.solve, shaped(mine(spd, cuts)), own_b, assume_a=assumed, comm=group)
        close(whole(found), expected, 1e3)
        assert not text, text
    if n > 1 and b.size:
        for what, matrix in (("not symmetric", spd + np.triu(np.full((n, n), 1e-3), 1)), ("not positive definite", spd - 2 * np.diag(np.diag(spd)))):
            inverse = np.abs(np.linalg.inv(matrix)).max()
            found, text = warned(linalg.solve, mine(matrix, cuts), own_b, assume_a="pos", comm=group)
            close(whole(found), np.linalg.solve(matrix, b), max(1, inverse)**2 * 1e3)
            assert what in text, text
            close(whole(linalg.solve(mine(matrix, cuts), own_b, assume_a="sym", comm=group)), whole(found), max(1, inverse)**2 * 1e3)
        raises(np.linalg.LinAlgError, linalg.solve, mine(np.zeros((n, n)), cuts), own_b, assume_a="pos", comm=group)
    cholesky_cases(spd, b, cuts)
    raises(ValueError, linalg.solve, own, own_b, assume_a="banded", comm=group)
    raises(NotImplementedError, linalg.solve, own, own_b, transposed=True, comm=group)


def cholesky_cases(spd, b, cuts):
    """cho_factor and cho_solve beside SciPy's; what is not theirs."""
    n, lower = len(spd), bool(draw.integers(0, 2))
    own, own_b = shaped(mine(spd, cuts)), mine(b, cuts)
    held = linalg.cho_factor(own, lower=lower, comm=group)
    for c in (b, b + 1):
        expected = scipy.linalg.cho_solve(scipy.linalg.cho_factor(spd), c) if c.size else np.zeros(c.shape)
        close(whole(linalg.cho_solve(held, mine(c, cuts))), expected, 1e3)
    factor = held[0]
    assert held[1] is lower and (factor.method == "cholesky" or n == 0)
    sign, log = np.linalg.slogdet(spd)
    assert factor.slogdet[0] == 1 and abs(factor.slogdet[1] - log) < 1e-6
    raises(ValueError, linalg.cho_solve, held, np.ones(len(own_b) + 1))
    raises(TypeError, linalg.cho_solve, (spd, lower), b)
    factor.close()
    if n > 1:
        bent = spd - 2 * np.diag(np.diag(spd))
        raises(np.linalg.LinAlgError, linalg.cho_factor, mine(bent, cuts), comm=group)
        by_lu, text = warned(linalg.lu_factor, mine(bent, cuts), assume_a="pos", comm=group)
        assert by_lu.method == "lu" and "not positive definite" in text, text
        by_lu.close()
        by_cholesky, text = warned(linalg.lu_factor, mine(spd, cuts), assume_a="pos", comm=group)
        assert by_cholesky.method == "cholesky" and not text, text
        by_cholesky.close()
        if comm is None:  # one triangle alone, as SciPy reads it
            half = np.tril(spd) if lower else np.triu(spd)
            close(linalg.cho_solve(linalg.cho_factor(half + 0, lower=lower), b), np.linalg.solve(spd, b), 1e3)
        else:
            raises(np.linalg.LinAlgError, linalg.cho_factor, mine(np.triu(spd), cuts), comm=group)


def cg_case():
    n, right = int(draw.integers(1, 120)), int(draw.integers(1, 4))
    a = scipy.sparse.random(n, n, 0.1, random_state=int(draw.integers(1 << 30)))
    a = scipy.sparse.csr_matrix(a + a.T + scipy.sparse.diags(np.asarray(abs(a + a.T).sum(1)).ravel() + 1))
    b = draw.uniform(-1, 1, (n, right))
    if right == 1:
        b = b[:, 0]
    x = scipy.linalg.solve(a.toarray(), b)
    cuts = cut(n)
    own = a[cuts[rank]:cuts[rank + 1]]
    if draw.integers(0, 2):
        own.indices, own.indptr = own.indices.astype(np.int64), own.indptr.astype(np.int64)
    if draw.integers(0, 3) == 0:
        own = mine(a.toarray(), cuts)
    before = comm is None or comm.allgather(type(own).__name__)
    name = draw.choice([None, "jacobi", "block-jacobi", "chebyshev"])
    precision = str(draw.choice(["fp64", "mixed"])) if scipy.sparse.issparse(own) else "fp64"
    found, info = cg(own, mine(b, cuts), rtol=1e-12, M=None if name == "None" or name is None else str(name), comm=group, precision=precision)
    assert info == 0 and before
    close(whole(found), x)
    seen = []
    operator = Operator(own, comm=group)
    again, results = operator.solve(mine(b, cuts), found, rtol=1e-10, callback=seen.append)
    assert all(r.converged and r.iterations <= 1 for r in results)
    found, info = cg(operator, mine(b, cuts), rtol=0, atol=1e-300, maxiter=1)
    assert info != 0 or n < 40  # small ones may be a multiple of the identity
    operator.close()
    if comm is None and backend != "cuda":
        from scipy.sparse.linalg import aslinearoperator
        close(cg(aslinearoperator(a), b, rtol=1e-12, comm=group)[0], x)
        calls = []

        class Failing:
            shape = (n, n)

            def matvec(self, p):
                calls.append(p)
                if len(calls) > 9:
                    raise KeyError("mine")
                return a @ p
        if n > 20:
            raises(KeyError, cg, Failing(), b, rtol=1e-14, comm=group)
    if n > 1 and comm is None:
        bad = a.tolil()
        bad[0, n - 1] = bad[0, n - 1] + 1
        raises(ValueError, cg, bad.tocsr(), b)
        assert cg(-a, b)[1] == -1


def kept_case():
    """An elastic rod in the plane: rigid body modes, a preconditioner that is kept, other values."""
    p = 20
    line = scipy.sparse.diags([-1, 2, -1], [-1, 0, 1], (p, p))
    grid = scipy.sparse.kron(line, scipy.sparse.eye(p)) + scipy.sparse.kron(scipy.sparse.eye(p), line)
    a = scipy.sparse.csr_matrix(scipy.sparse.kron(grid, [[2.0, 0.5], [0.5, 1.0]]))
    n = a.shape[0]
    b, modes, cuts = draw.uniform(-1, 1, n), np.tile(np.eye(2), (p * p, 1)), cut(n)
    operator = Operator(a[cuts[rank]:cuts[rank + 1]], comm=group)
    seen = []
    for expected, options in ((True, {}), (True, {"near_null_space": mine(modes, cuts)}), (False, {"near_null_space": mine(modes, cuts)})):
        x, results = operator.solve(mine(b, cuts), M="amg", rtol=1e-10, **options)
        assert results[0].converged and (results[0].setup_seconds > 0) == expected
        seen.append((results[0].iterations, whole(x)))
    close(seen[1][1], scipy.sparse.linalg.spsolve(a.tocsc(), b), 1e4)
    assert seen[1][0] == seen[2][0] <= 20 and np.array_equal(seen[1][1], seen[2][1])
    operator.update_values(4 * a[cuts[rank]:cuts[rank + 1]])
    x, results = operator.solve(mine(b, cuts), M="amg", rtol=1e-10, near_null_space=mine(modes, cuts))
    assert results[0].setup_seconds > 0 and np.array_equal(4 * whole(x), seen[1][1])
    raises(ValueError, operator.solve, mine(b, cuts), M="amg", near_null_space=mine(modes, cuts)[1:] if len(mine(b, cuts)) else np.ones((3, 2)))
    raises(ValueError, cg, operator, mine(b, cuts), M="jacobi", near_null_space=mine(modes, cuts))
    raises(ValueError, cg, operator, mine(b, cuts), M="amg", near_null_space=np.ones((len(mine(b, cuts)), 2)))
    operator.close()


def single_cases():
    """What needs no repetition."""
    raises(ValueError, gf2.rank, np.array([[0, 2], [1, 1]]))
    raises(TypeError, linalg.inv, np.ones((2, 2), complex))
    raises(TypeError, linalg.inv, np.eye(2).astype(object))
    for call in (linalg.inv, linalg.slogdet, gf2.rank, lambda a: linalg.solve(np.eye(2), a), lambda a: cg(a, np.ones(2))):
        raises(ValueError, call, np.ma.masked_array(np.eye(2), np.eye(2)))  # what is masked would count
    raises(ValueError, linalg.inv, np.ones((2, 3)))
    raises(ValueError, linalg.solve, np.eye(3), np.ones(2))
    raises(ValueError, terrace.Context, backend="gpu")
    assert linalg.inv(np.zeros((0, 0))).shape == (0, 0)
    assert linalg.solve(np.zeros((0, 0)), np.zeros((0, 2))).shape == (0, 2)
    assert gf2.rank(np.zeros((0, 5), np.uint8)) == 0 and gf2.kernel(np.zeros((0, 5), np.uint8)).shape == (5, 5)
    a = np.eye(4) * 2
    assert linalg.inv(a, overwrite_a=True) is a and a[0, 0] == 0.5
    hilbert = scipy.linalg.hilbert(14)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        linalg.solve(hilbert, np.ones(14))
    assert any("reciprocal condition" in str(w.message) for w in caught)
    big = draw.uniform(-1, 1, (700, 700))
    calls = []
    with terrace.Context(backend="cpu", progress=lambda done: calls.append(done) or len(calls) < 3) as context:
        raises(terrace.Error, linalg.inv, big, comm=context)
    assert len(calls) == 3

    def interrupt(done):
        raise KeyboardInterrupt
    with terrace.Context(backend="cpu", progress=interrupt) as context:
        raises(KeyboardInterrupt, linalg.inv, big, comm=context)
    raises(KeyboardInterrupt, cg, np.eye(5), np.ones(5), callback=interrupt)
    with tempfile.TemporaryDirectory() as folder:  # files of ours, read by the program and by us
        path = os.path.join(folder, "p.h5")
        ab = np.array([[0, -1, -1], [4, 4, 4]], float)
        terrace.io.save(path, A=ab, format="band", uplo="upper", b=np.ones(3), bits=terrace.Bits.pack(np.eye(70)),
                        s=scipy.sparse.eye(3).tocsr())
        assert (terrace.io.load(path + ":/A") == ab).all() and terrace.io.load(path + ":/bits").unpack().trace() == 70
        assert terrace.io.load(path + ":/s").nnz == 3
        if program := os.environ.get("TERRACE_PROGRAM"):
            out = os.path.join(folder, "x.h5")
            subprocess.run([program, "band", "solve", path + ":/A", "--rhs", ":/b", "-o", out, "--quiet"], check=True)
            close(terrace.io.load(out), linalg.solveh_banded(ab, np.ones(3)))
            assert subprocess.run([program, "gf2", "rank", path + ":/bits", "--quiet"], capture_output=True, text=True,
                                  check=True).stdout.strip() == "70"
        a, b = draw.uniform(-1, 1, (65, 65)), draw.uniform(-1, 1, (65, 3))  # factors go both ways
        system, of_us, of_program = (os.path.join(folder, name) for name in ("s.h5", "of_us.h5", "of_program.h5"))
        terrace.io.save(system, A=a, b=b)
        factor = linalg.lu_factor(a)
        terrace.io.save_factor(of_us, factor)
        raises(ValueError, terrace.io.save_factor, of_us, factor)
        terrace.io.save_factor(of_us, factor, overwrite=True)
        expected = np.linalg.solve(a, b)
        close(terrace.io.load_factor(of_us + ":/factor", a).solve(b), expected)
        lu, piv = terrace.io.load(of_us + ":/factor"), terrace.io.load(of_us + ":/pivots")
        close(np.tril(lu, -1) @ np.triu(lu) + np.triu(lu), a[piv])
        raises(ValueError, terrace.io.load_factor, of_us + ":/factor", a[:9, :9])
        raises(ValueError, terrace.io.load_factor, system + ":/A", a)
        raises(TypeError, linalg.lu_solve, (lu, piv), b)
        error = raises(np.linalg.LinAlgError, terrace.io.load_factor(of_us + ":/factor", 2 * a).solve, b)  # of another matrix
        assert "check" in str(error)
        if program:
            out = os.path.join(folder, "y.h5")
            subprocess.run([program, "dense", "solve", system + ":/A", "--rhs", ":/b", "--factor", of_us + ":/factor", "-o", out, "--quiet"],
                           check=True)
            close(terrace.io.load(out), expected)
            subprocess.run([program, "dense", "factor", system + ":/A", "-o", of_program, "--quiet"], check=True)
            loaded = terrace.io.load_factor(of_program + ":/factor", a)
            close(loaded.solve(b), expected)
            assert np.allclose(loaded.slogdet, factor.slogdet, rtol=1e-12)  # the two may factor on different backends
            terrace.io.save(system, A=a @ a.T, b=b)
            subprocess.run([program, "dense", "factor", system + ":/A", "--assume", "spd", "-o", of_program, "--force", "--quiet"], check=True)
            loaded = terrace.io.load_factor(of_program + ":/factor", a @ a.T)
            assert loaded.method == "cholesky"
            squared = np.linalg.solve(a @ a.T, b)  # its condition is that of a, squared
            within = max(1e4, 1e-5 * np.linalg.cond(a @ a.T) * np.abs(squared).max())
            close(linalg.cho_solve((loaded, False), b), squared, within)
            terrace.io.save_factor(of_us, linalg.cho_factor(a @ a.T)[0], overwrite=True)
            subprocess.run([program, "dense", "solve", system + ":/A", "--rhs", ":/b", "--factor", of_us + ":/factor", "-o", out, "--quiet",
                            "--force"], check=True)
            close(terrace.io.load(out), squared, within)
            np.testing.assert_allclose(terrace.io.load(of_us + ":/factor"), scipy.linalg.cholesky(a @ a.T), rtol=1e-8,
                                       atol=max(1e-8, 1e-15 * np.linalg.cond(a @ a.T)))
    alone = """import time, sys, numpy
start = time.process_time()
import terrace
seconds = time.process_time() - start
assert 'mpi4py' not in sys.modules and not any(name in open('/proc/self/maps').read() for name in ('libmpi.', 'libterrace.'))
print(seconds)"""
    seconds = float(subprocess.run([sys.executable, "-c", alone], check=True, capture_output=True, text=True).stdout)
    print(f"import terrace, NumPy there: {seconds:.3f} s of a processor")
    assert seconds < 0.15, seconds


def device_cases():
    """Arrays of CuPy come back where they were."""
    try:
        import cupy
        cupy.cuda.runtime.getDeviceCount()
    except Exception:
        print("arrays of a device: skipped, no CuPy or no device")
        return
    n, m = 300, 7
    a = draw.uniform(-1, 1, (n, n)) + n * np.eye(n)
    b = draw.uniform(-1, 1, (n, 2))
    there, right = cupy.asarray(a), cupy.asarray(b)
    address = there.data.ptr
    inverse = linalg.inv(there, overwrite_a=True)
    assert inverse is there and there.data.ptr == address
    close(cupy.asnumpy(inverse), np.linalg.inv(a))
    x = linalg.solve(cupy.asarray(a), right)
    assert isinstance(x, cupy.ndarray) and (cupy.asnumpy(right) == b).all()
    close(cupy.asnumpy(x), np.linalg.solve(a, b))
    ab = draw.uniform(-1, 1, (m + 1, n))
    ab[-1] = 20
    expected = scipy.linalg.solveh_banded(ab, b)
    close(cupy.asnumpy(linalg.solveh_banded(cupy.asarray(ab), right)), expected)
    with linalg.cholesky_banded(cupy.asarray(ab)) as factor:
        close(cupy.asnumpy(factor.solve(right, overwrite_b=True)), expected)
    close(cupy.asnumpy(right), expected)
    spd = cupy.asarray(a @ a.T)
    x, info = cg(spd, cupy.asarray(b), rtol=1e-13)
    assert info == 0
    close(cupy.asnumpy(x), np.linalg.solve(a @ a.T, b))
    print("arrays of a device: 6 passed")


if comm is None:
    single_cases()
    device_cases()
cases = (bits_case, band_case, dense_case, cg_case, factor_case)
ranks = comm
draw, group = np.random.default_rng(options.seed), shared
kept_case()
for i in range(options.count):
    draw = np.random.default_rng([options.seed, i])
    group = shared if i // len(cases) % 4 or backend != "auto" else ranks
    try:
        cases[i % len(cases)]()
    except BaseException:
        print(f"case {i} of seed {options.seed} on rank {rank} of {size}", flush=True)
        raise
shared.close()
if rank == 0:
    print(f"{options.count} cases on {size} ranks")
