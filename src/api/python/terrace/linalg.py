"""Band and dense systems of float64, with the names, arguments and exceptions of scipy.linalg. Results are held against the input
(terrace.Context(check=False) leaves that out). CUDA arrays (CuPy, Torch, any with __cuda_array_interface__) give CUDA arrays.
With comm= arrays are this rank's rows, or its columns of a band."""
import ctypes

import numpy as np

from ._arrays import Reals, owned
from ._library import Report, using, warn

_int64 = ctypes.c_int64


def _finite(check, *arrays):
    if check:  # the library refuses them all the same, later
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
    if array.shape[0] != rows:
        raise ValueError(f"b has {array.shape[0]} rows, the matrix {rows}")
    right = Reals(array, "b", writable=True)
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
        _finite(check_finite, x)
        if right.columns == 0 or sizes[0].value == 0:
            return x
        report = Report()
        context.call("terrace_band_solve", *sizes, band.p, _int64(band.ld), 0, int(not lower), int(precision == "mixed"),
                     _int64(right.columns), right.p, _int64(right.ld), ctypes.byref(report))
        warn(report)
        return x


class BandFactor:
    """A Cholesky factor that solves again and again: cholesky_banded() makes it."""

    def __init__(self, context, owner, ab, lower):
        self._context, self._owner, self.lower = context, owner, lower
        self.n, m, first, count = _band(context, ab)
        self._first, self._count, self._height = first, count, ab.rows
        self.n = self.n.value
        self._handle, self._report = ctypes.c_void_p(), Report()
        context.call("terrace_band_factor_make", _int64(self.n), m, first, count, ab.p, _int64(ab.ld), 0, int(not lower),
                     ctypes.byref(self._handle), ctypes.byref(self._report))
        warn(self._report)

    def solve(self, b, overwrite_b=False, check_finite=True):
        """x with A x = b."""
        x, right = _right(b, overwrite_b, self._count.value)
        _finite(check_finite, x)
        if right.columns:
            self._context.run("terrace_band_factor_solve", self._handle, self._first, self._count, _int64(right.columns), right.p,
                              _int64(right.ld), ctypes.byref(Report()))
        return x

    @property
    def logdet(self):
        """log det A."""
        return self._report.log_abs_determinant

    @property
    def c(self):
        """The factor as scipy.linalg.cholesky_banded returns it, for cho_solve_banded((c, lower), b)."""
        pointer = self._context._lib.terrace_band_factor_columns(self._handle)
        count, height = self._count.value, self._height
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

    def close(self):
        if self._handle:
            self._context._lib.terrace_band_factor_free(self._handle)
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


def cholesky_banded(ab, overwrite_ab=False, lower=False, check_finite=True, *, comm=None):
    """The Cholesky factor of a band matrix, as an object: .solve(b), .logdet, .c. With comm= close() it on all ranks."""
    band = Reals(ab, "ab")
    owner = using(comm)
    context = owner.__enter__()
    try:
        return BandFactor(context, owner, band, lower)
    except BaseException:
        owner.__exit__()
        raise


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
    _finite(check_finite, result)
    matrix = Reals(result, "a", writable=True)
    with using(comm) as context:
        report = Report()
        context.call("terrace_dense_invert", *_square(context, matrix), matrix.p, _int64(matrix.ld), ctypes.byref(report))
        warn(report)
        return result


def solve(a, b, overwrite_a=False, overwrite_b=False, check_finite=True, *, comm=None):
    """x with a x = b; b: a vector or a matrix."""
    matrix = Reals(a, "a")
    with using(comm) as context:
        sizes = _square(context, matrix)
        x, right = _right(b, overwrite_b, matrix.rows)
        _finite(check_finite, x)
        if right.columns == 0:
            return x
        report = Report()
        context.call("terrace_dense_solve", *sizes, matrix.p, _int64(matrix.ld), _int64(right.columns), right.p, _int64(right.ld),
                     ctypes.byref(report))
        warn(report)
        return x


def slogdet(a, *, comm=None):
    """sign, log |det a|; 0, -inf where a is singular."""
    matrix = Reals(a, "a")
    with using(comm) as context:
        report = Report()
        context.call("terrace_dense_determinant", *_square(context, matrix), matrix.p, _int64(matrix.ld), ctypes.byref(report))
        return float(report.determinant_sign), report.log_abs_determinant
