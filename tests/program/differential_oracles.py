"""Answers of their own for differential.py: GF(2) on whole numbers of Python, reals by NumPy and SciPy."""
import numpy as np

EPS = 2.0**-52


# --- GF(2): a row is a whole number, bit j is column j -------------------------------------------
def rows_of(bits):
    """A 0/1 array as a list of whole numbers."""
    return [int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little") for row in np.asarray(bits, np.uint8)]


def array_of(rows, columns):
    size = (columns + 7) // 8
    if not rows or not columns:
        return np.zeros((len(rows), columns), np.uint8)
    data = np.frombuffer(b"".join(r.to_bytes(size, "little") for r in rows), np.uint8).reshape(len(rows), size)
    return np.unpackbits(data, axis=1, bitorder="little", count=columns)


def rref(rows, columns):
    """Textbook elimination, only the first `columns` bits have pivots: rows (pivots first), pivots."""
    rows, pivots = list(rows), []
    for j in range(columns):
        r = len(pivots)
        at = next((i for i in range(r, len(rows)) if rows[i] >> j & 1), None)
        if at is None:
            continue
        rows[r], rows[at] = rows[at], rows[r]
        for i in range(len(rows)):
            if i != r and rows[i] >> j & 1:
                rows[i] ^= rows[r]
        pivots.append(j)
    return rows, pivots


def kernel(bits):
    reduced, pivots = rref(rows_of(bits), bits.shape[1])
    basis = []
    for free in (j for j in range(bits.shape[1]) if j not in set(pivots)):
        basis.append(1 << free | sum(1 << p for r, p in enumerate(pivots) if reduced[r] >> free & 1))
    return array_of(basis, bits.shape[1])


def solution(a, b):
    """X with A X = B and free unknowns zero, or None."""
    columns, right = a.shape[1], b.shape[1]
    rows = [x | y << columns for x, y in zip(rows_of(a), rows_of(b))]
    reduced, pivots = rref(rows, columns)
    if any(r >> columns for r in reduced[len(pivots):]):
        return None
    x = [0] * columns
    for r, p in zip(reduced, pivots):
        x[p] = r >> columns
    return array_of(x, right)


def inverse(a):
    return solution(a, np.eye(len(a), dtype=np.uint8)) if len(rref(rows_of(a), len(a))[1]) == len(a) else None


def product(a, b):
    rows = rows_of(b)
    out = []
    for x in rows_of(a):
        total, j = 0, 0
        while x:
            if x & 1:
                total ^= rows[j]
            x >>= 1
            j += 1
        out.append(total)
    return array_of(out, b.shape[1])


# --- reals -----------------------------------------------------------------------------------------
def scaled(a):
    """a times a power of two, its largest element near one; the exponent."""
    most = np.abs(a).max() if a.size else 0.0
    if not most > 0 or not np.isfinite(most):
        return a, 0
    e = int(np.frexp(most)[1])
    return np.ldexp(a, -e), e


def norm(a, kind):
    return float(np.abs(a).sum(axis=0 if kind == 1 else 1).max()) if a.size else 0.0


def inverse_ratio(a, x):
    """|A X - I| / (n |A| |X| eps) in the 1-norm."""
    n = len(a)
    if n == 0:
        return 0.0
    a, e = scaled(a)
    x = np.ldexp(x, e)
    below = n * norm(a, 1) * norm(x, 1) * EPS
    value = norm(a @ x - np.eye(n), 1) / below if below > 0 else np.inf
    return value if np.isfinite(value) else np.inf


def solve_ratio(a, x, b):
    """max over columns of |b - A x| / (n |A| |x| eps), infinity norms."""
    n = len(a)
    if n == 0 or b.size == 0:
        return 0.0
    if not np.isfinite(x).all():
        return np.inf
    a, e = scaled(a)
    worst = 0.0
    for k in range(b.shape[1]):
        bk, f = scaled(b[:, k])
        xk = np.ldexp(x[:, k], e - f)
        below = n * norm(a, 2) * np.abs(xk).max() * EPS
        error = np.abs(bk - a @ xk).max()
        worst = max(worst, 0.0 if error == 0 else error / below if below > 0 else np.inf)
    return worst


def backward_error(a, x, b):
    """max over columns of |b - A x| / (|A| |x|) in units of 2^-53, infinity norms, in long double."""
    a, x, b = (np.asarray(v, np.longdouble) for v in (a, x, b))
    worst = 0.0
    for k in range(x.shape[1] if x.size else 0):
        error = np.abs(b[:, k] - a @ x[:, k]).max()
        if error != 0:
            worst = max(worst, float(error / (np.abs(a).sum(axis=1).max() * np.abs(x[:, k]).max()) * 2**53))
    return worst


def condition(a):
    """In the 1-norm; infinity where NumPy finds it singular."""
    if len(a) == 0:
        return 1.0
    a = scaled(a)[0]
    try:
        with np.errstate(all="ignore"):
            value = norm(a, 1) * norm(np.linalg.inv(a), 1)
    except np.linalg.LinAlgError:
        return np.inf
    return value if np.isfinite(value) else np.inf


def symmetric_of_band(ab):
    m, n = ab.shape[0] - 1, ab.shape[1]
    a = np.zeros((n, n))
    for d in range(min(m + 1, n)):
        a += np.diag(ab[d, : n - d], -d)
        if d:
            a += np.diag(ab[d, : n - d], d)
    return a


def lower_of_band(ab):
    return np.tril(symmetric_of_band(ab))


def failed_minor(a):
    """Order of the first leading minor that is clearly not positive definite, 0 for none, -1 where rounding decides."""
    a = scaled(a)[0].copy()
    n = len(a)
    size = np.abs(a).max() if n else 0.0
    for k in range(n):
        if abs(a[k, k]) <= 1e-10 * size:
            return -1
        if a[k, k] < 0:
            return k + 1
        a[k + 1:, k + 1:] -= np.outer(a[k + 1:, k], a[k + 1:, k]) / a[k, k]
    return 0
