"""Band and dense systems of float64, with the names, arguments and exceptions of scipy.linalg. Results are held against the input
(terrace.Context(check=False) leaves that out). CUDA arrays (CuPy, Torch, any with __cuda_array_interface__) give CUDA arrays.
With comm= arrays are this rank's rows, or its columns of a band."""
import ctypes

import numpy as np

from ._arrays import Reals, owned
from ._library import Report, ranks_of, using, warn

_int64 = ctypes.c_int64


def _finite(check, comm, *arrays):
    if check and ranks_of(comm) is None:  # the library refuses them all the same, later, and on all ranks
        for array in arrays:
            if isinstance(array, np.ndarray) and not np.isfinite(array).all():
                raise ValueError("array must not contain infs or NaNs")


def _band(context, ab):
    if len(ab.shape) != 2 or ab.rows == 0:
        raise ValueError("a band matrix has two dimensions, (m + 1) x n")
    first, n = context.counts(ab.columns)
    return _int64(n), _int64(ab.rows - 1), _int64(first), _int64(ab.columns)


def _right(b, overwrite, rows):
    array = owned(b, overwrite)
    right = Reals(array, "b", writable=True)
    if right.rows != rows:
        raise ValueError(f"b has {right.rows} rows, the matrix {rows}")
    return array, right


def solveh_banded(ab, b, overwrite_ab=False, overwrite_b=False, lower=False, check_finite=True, *, comm=None, precision="fp64"):
    """x with A x = b, A symmetric positive definite, ab in SciPy's lower or upper form. precision="mixed" iterates to the accuracy of
    float64 with a factor in single precision. Raises numpy.linalg.LinAlgError where A is not definite."""
    if precision not in ("fp64", "mixed"):
        raise ValueError(f"unknown precision '{precision}'; use fp64 or mixed")
    band = Reals(ab, "ab")
    with using(comm) as context:
        sizes = _band(context, band)
        x, right = _right(b, overwrite_b, band.columns)
        _finite(check_finite, comm, x)
        if right.columns == 0 or sizes[0].value == 0:
            return x
        report = Report()
        context.call("terrace_band_solve", *sizes, band.p, _int64(band.ld), 0, int(not lower), int(precision == "mixed"),
                     _int64(right.columns), right.p, _int64(right.ld), ctypes.byref(report))
        warn(report)
        return x


class _Factor:
    """A factor in the library: solves, and is given back by close(); with comm= that is collective."""

    def __init__(self, context, owner, kind):
        self._context, self._owner, self._kind = context, owner, kind
        self._handle, self._report = ctypes.c_void_p(), Report()

    def _open(self):
        if not self._handle:
            raise ValueError(f"the factor is closed; {type(self).__name__}; use it before close(), or make it again")
        return self._handle

    def _solve(self, b, overwrite_b, check_finite, least=0):
        self._open()
        x, right = _right(b, overwrite_b, self._count.value)
        _finite(check_finite, self._context.comm, x)
        if right.columns >= least:
            self._context.run(f"terrace_{self._kind}_factor_solve", self._handle, self._first, self._count, _int64(right.columns),
                              right.p, _int64(right.ld), ctypes.byref(Report()))
        return x

    def close(self):
        if self._handle:
            getattr(self._context._lib, f"terrace_{self._kind}_factor_free")(self._handle)
            self._handle = ctypes.c_void_p()
        if self._owner:
            self._owner.__exit__()
            self._owner = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_context", None) is not None and self._context.comm is None:
            self.close()


def _made(kind, comm, *arguments):
    owner = using(comm)
    context = owner.__enter__()
    try:
        return kind(context, owner, *arguments)
    except BaseException:
        owner.__exit__()
        raise


class BandFactor(_Factor):
    """A Cholesky factor that solves again and again: cholesky_banded() makes it."""

    def __init__(self, context, owner, ab, lower):
        super().__init__(context, owner, "band")
        self.lower = lower
        self.n, m, self._first, self._count = _band(context, ab)
        self.n, self._height = self.n.value, ab.rows
        context.call("terrace_band_factor_make", _int64(self.n), m, self._first, self._count, ab.p, _int64(ab.ld), 0, int(not lower),
                     ctypes.byref(self._handle), ctypes.byref(self._report))
        warn(self._report)

    def solve(self, b, overwrite_b=False, check_finite=True):
        """x with A x = b."""
        return self._solve(b, overwrite_b, check_finite, least=1)

    @property
    def logdet(self):
        """log det A."""
        return self._report.log_abs_determinant

    @property
    def c(self):
        """The factor as scipy.linalg.cholesky_banded returns it, for cho_solve_banded((c, lower), b). On all ranks; the first time it may
        be made once more, as LAPACK does."""
        count, height = self._count.value, self._height
        pointer = self._context.get("terrace_band_factor_columns", self._open(), some=count > 0)
        flat = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_double)), (count * height,)) if count else np.zeros(0)
        lower = flat.reshape(count, height).T.copy()
        if self.lower:
            return lower
        if self._context.size > 1:
            raise ValueError("an upper factor over several ranks is not put together; use lower=True")
        upper = np.zeros_like(lower)
        for d in range(min(height, count)):  # U[j - d, j] = L[j, j - d]
            upper[height - 1 - d, d:] = lower[d, :count - d]
        return upper


def cholesky_banded(ab, overwrite_ab=False, lower=False, check_finite=True, *, comm=None):
    """The Cholesky factor of a band matrix, as an object: .solve(b), .logdet, .c. With comm= close() it on all ranks."""
    band = Reals(ab, "ab")
    return _made(BandFactor, comm, band, lower)


def _square(context, a, name="a"):
    if len(a.shape) != 2:
        raise ValueError(f"'{name}' has {len(a.shape)} dimensions; a matrix has two")
    first, n = context.counts(a.rows)
    if n != a.columns:
        raise ValueError(f"the matrix is {n} x {a.columns}, not square")
    return _int64(n), _int64(first), _int64(a.rows)


def inv(a, overwrite_a=False, check_finite=True, *, comm=None):
    """The inverse. Raises numpy.linalg.LinAlgError where a is singular."""
    result = owned(a, overwrite_a)
    _finite(check_finite, comm, result)
    matrix = Reals(result, "a", writable=True)
    with using(comm) as context:
        report = Report()
        context.call("terrace_dense_invert", *_square(context, matrix), matrix.p, _int64(matrix.ld), ctypes.byref(report))
        warn(report)
        return result


_ASSUMED = {None: 0, "gen": 0, "general": 0, "sym": 0, "symmetric": 0, "her": 0, "hermitian": 0, "pos": 1, "positive definite": 1}


def _assumed(assume_a, lower, transposed):
    if transposed:
        raise NotImplementedError("transposed=True: systems with the transposed matrix are not solved; give a.T")
    if assume_a not in _ASSUMED:
        raise ValueError(f"assume_a={assume_a!r} has no method here; use gen, sym or pos, or solveh_banded for a band")
    return _ASSUMED[assume_a]


def solve(a, b, lower=False, overwrite_a=False, overwrite_b=False, check_finite=True, assume_a=None, transposed=False, *, comm=None):
    """x with a x = b; b: a vector or a matrix. assume_a: None, "gen", and "sym" and "her" too, go by LU; "pos" by Cholesky, and by LU
    with a warning where a is not symmetric, bit by bit, or not definite (SciPy raises LinAlgError there). Both triangles are read:
    `lower` changes nothing. transposed=True is refused. Raises numpy.linalg.LinAlgError where a is singular."""
    assumed = _assumed(assume_a, lower, transposed)
    matrix = Reals(a, "a")
    with using(comm) as context:
        sizes = _square(context, matrix)
        x, right = _right(b, overwrite_b, matrix.rows)
        _finite(check_finite, comm, x)
        if right.columns == 0:
            return x
        report = Report()
        context.call("terrace_dense_solve_assuming", assumed, *sizes, matrix.p, _int64(matrix.ld), _int64(right.columns), right.p,
                     _int64(right.ld), ctypes.byref(report))
        warn(report)
        return x


class DenseFactor(_Factor):
    """A factor of a dense matrix, kept where it was made. lu_factor(), cho_factor() and io.load_factor() make one; lu_solve(factor, b),
    cho_solve((factor, lower), b) or factor.solve(b) solves."""

    def __init__(self, context, owner, make):
        super().__init__(context, owner, "dense")
        self.n, self._first, self._count = make(context, ctypes.byref(self._handle), ctypes.byref(self._report))
        self.n = self.n.value

    @property
    def method(self):
        """"lu" or "cholesky"."""
        return "cholesky" if self._context._lib.terrace_dense_factor_is_cholesky(self._open()) else "lu"

    def solve(self, b, overwrite_b=False, check_finite=True):
        """x with a x = b."""
        return self._solve(b, overwrite_b, check_finite)

    @property
    def slogdet(self):
        """sign, log |det a|."""
        return float(self._report.determinant_sign), self._report.log_abs_determinant

    @property
    def rcond(self):
        """The reciprocal condition, in infinity norms, within a factor of about five."""
        return self._report.reciprocal_condition


def _dense_factor(matrix, comm, assumed):
    def make(context, handle, report):
        sizes = _square(context, matrix)
        context.call("terrace_dense_factor_make_assuming", assumed, *sizes, matrix.p, _int64(matrix.ld), handle, report)
        return sizes
    return _made(DenseFactor, comm, make)


def lu_factor(a, overwrite_a=False, check_finite=True, *, assume_a=None, comm=None):
    """L and U with partial pivoting, for lu_solve(). This is an object, terrace.linalg.DenseFactor, and not SciPy's pair (lu, piv): the
    factors stay where they were made, over the ranks and devices. Raises numpy.linalg.LinAlgError where a is singular (SciPy warns).
    assume_a as solve() has it: with "pos" the factor is Cholesky's where that holds, else LU's, with a warning; factor.method says it.
    With comm= close() it on all ranks."""
    matrix = Reals(a, "a")
    _finite(check_finite, comm, matrix.array)
    factor = _dense_factor(matrix, comm, _assumed(assume_a, False, False))
    warn(factor._report)
    return factor


def _mirrored(context, a, lower):
    """The symmetric matrix of one triangle; of several ranks' rows, and of a device's, both triangles must be there."""
    if context.size > 1 or not isinstance(a, np.ndarray) or a.ndim != 2 or np.array_equal(a, a.T):
        return a
    half = np.tril(a) if lower else np.triu(a)
    return half + (np.tril(a, -1) if lower else np.triu(a, 1)).T


def cho_factor(a, lower=False, overwrite_a=False, check_finite=True, *, comm=None):
    """(factor, lower), for cho_solve(). The factor is an object, terrace.linalg.DenseFactor, and stays where it was made. Of an array of
    the host on one rank the triangle that `lower` names is read; with comm=, and of a device, both. Raises numpy.linalg.LinAlgError
    where a is not positive definite, or, with both triangles, not symmetric; lu_factor(a, assume_a="pos") goes on by LU there."""
    given = Reals(a, "a")
    _finite(check_finite, comm, given.array)
    with using(comm) as context:
        matrix = given if given.device is not None else Reals(_mirrored(context, given.array, lower), "a")
    factor = _dense_factor(matrix, comm, 1)
    if factor.n and factor.method != "cholesky":
        why = factor._report.warning.decode().split("; LU goes on")[0]
        factor.close()
        raise np.linalg.LinAlgError(why)
    warn(factor._report)
    return factor, lower


def cho_solve(c_and_lower, b, overwrite_b=False, check_finite=True):
    """x with a x = b; c_and_lower: what cho_factor(a) gave."""
    factor = c_and_lower[0] if isinstance(c_and_lower, tuple) else c_and_lower
    if not isinstance(factor, DenseFactor):
        raise TypeError("cho_solve takes what terrace.linalg.cho_factor gave; a pair (c, lower) of arrays is for scipy.linalg.cho_solve")
    return factor.solve(b, overwrite_b, check_finite)


def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    """x with a x = b; lu_and_piv: what lu_factor(a) gave. trans other than 0, the transposed matrix, is refused."""
    if not isinstance(lu_and_piv, DenseFactor):
        raise TypeError("lu_solve takes what terrace.linalg.lu_factor gave; a pair (lu, piv) is for scipy.linalg.lu_solve")
    if trans != 0:
        raise NotImplementedError(f"trans={trans}: systems with the transposed matrix are not solved; use lu_factor(a.T)")
    return lu_and_piv.solve(b, overwrite_b, check_finite)


def slogdet(a, *, comm=None):
    """sign, log |det a|; 0, -inf where a is singular."""
    matrix = Reals(a, "a")
    with using(comm) as context:
        report = Report()
        context.call("terrace_dense_determinant", *_square(context, matrix), matrix.p, _int64(matrix.ld), ctypes.byref(report))
        return float(report.determinant_sign), report.log_abs_determinant
