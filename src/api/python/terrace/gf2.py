"""Dense matrices over GF(2). Inputs: 0/1 arrays (bool, integers, floats), galois.GF2, scipy.sparse, terrace.Bits; results are of the
same type, or uint8; of bits on a device they are there. A certificate is checked on every result. With comm= the rows are this rank's."""
import ctypes

import numpy as np

from ._arrays import Bits, like
from ._library import Report, ranks_of, using

_int64 = ctypes.c_int64


def _packed(comm, *arrays):
    """Bits of each array; what one rank refuses, all do."""
    bits, error, ranks = None, None, ranks_of(comm)
    try:
        bits = [Bits.pack(array) for array in arrays]
    except (TypeError, ValueError) as found:
        error = found
    for other in [] if ranks is None else ranks.allgather(None if error is None else str(error)):
        if error is None and other is not None:
            error = ValueError(f"on another rank: {other}")
    if error is not None:
        raise error
    return bits


def _rows(context, bits):
    first, rows = context.counts(bits.shape[0])
    if not context.agree(bits.columns):
        raise ValueError("the ranks' matrices differ in columns")
    return rows, _int64(first), _int64(bits.shape[0])


def _pivots(rows, columns):
    pivots = np.zeros(max(1, min(rows, columns)), np.int64)
    return pivots, ctypes.c_void_p(pivots.ctypes.data)


def rank(a, *, comm=None):
    """Rank, certified."""
    bits, = _packed(comm, a)
    with using(comm) as context:
        rows, first, count = _rows(context, bits)
        report = Report()
        context.call("terrace_gf2_rank", _int64(rows), _int64(bits.columns), first, count, *bits.p, None,
                     ctypes.byref(report))
        return report.rank


def rref(a, *, echelon=False, transform=False, comm=None):
    """R, pivots: the reduced row echelon form (or an echelon form) and its pivot columns; with transform=True also T, T A = R."""
    bits, = _packed(comm, a)
    with using(comm) as context:
        rows, first, count = _rows(context, bits)
        form = bits.copy()
        pivots, pointer = _pivots(rows, bits.columns)
        t = form.zeros(form.shape[0], rows) if transform else None
        report = Report()
        context.call("terrace_gf2_reduce", _int64(rows), _int64(bits.columns), first, count, *form.p,
                     ctypes.c_int(echelon), pointer, *(t.p if transform else (None, _int64(0))), ctypes.byref(report))
        found = (like(form, a), pivots[:report.rank])
        return found + (like(t, a),) if transform else found


def solve(a, b, *, comm=None):
    """X with A X = B, free unknowns zero; b: a vector or a matrix. Raises terrace.Inconsistent. With comm= this rank gets an equal,
    contiguous share of X's rows."""
    vector = not isinstance(b, Bits) and np.ndim(b) == 1
    bits, right = _packed(comm, a, np.asarray(b)[:, None] if vector else b)
    if right.shape[0] != bits.shape[0]:
        raise ValueError(f"b has {right.shape[0]} rows and a {bits.shape[0]}")
    with using(comm) as context:
        rows, first, count = _rows(context, bits)
        each = -(-bits.columns // context.size)
        x_first = min(bits.columns, each * context.rank)
        x = right.zeros(min(each, bits.columns - x_first), right.columns)
        report = Report()
        context.call("terrace_gf2_solve", _int64(rows), _int64(bits.columns), first, count, *bits.p,
                     _int64(right.columns), *right.p, _int64(x_first), _int64(x.shape[0]), *x.p,
                     ctypes.byref(report))
        return like(x, b)[:, 0] if vector else like(x, b)


def inverse(a, *, comm=None):
    """The inverse. Raises numpy.linalg.LinAlgError."""
    bits, = _packed(comm, a)
    with using(comm) as context:
        rows, first, count = _rows(context, bits)
        if rows != bits.columns:
            raise ValueError(f"the matrix is {rows} x {bits.columns}, not square")
        result = bits.copy()
        context.call("terrace_gf2_inverse", _int64(rows), first, count, *result.p, None)
        return like(result, a)


def kernel(a, *, comm=None):
    """Rows that are a basis of {x : A x = 0}: (columns - rank) x columns, in the host's memory.
    With comm= an equal, contiguous share of them."""
    bits, = _packed(comm, a)
    with using(comm) as context:
        rows, first, count = _rows(context, bits)
        dimension, own_first, own_count = _int64(), _int64(), _int64()
        basis = ctypes.POINTER(ctypes.c_uint64)()
        context.call("terrace_gf2_kernel", _int64(rows), _int64(bits.columns), first, count, *bits.p,
                     ctypes.byref(dimension), ctypes.byref(own_first), ctypes.byref(own_count), ctypes.byref(basis), None)
        words = -(-bits.columns // 64)
        try:
            own = np.zeros((own_count.value, words), np.uint64)
            if own.size:
                ctypes.memmove(own.ctypes.data, basis, own.nbytes)
        finally:
            context._lib.terrace_free(basis)
        return like(Bits(own, bits.columns), a)


def multiply(a, b, *, comm=None):
    """A B."""
    left, right = _packed(comm, a, b)
    with using(comm) as context:
        rows, first, count = _rows(context, left)
        inner, b_first, b_count = _rows(context, right)
        if inner != left.columns:
            raise ValueError(f"{rows} x {left.columns} times {inner} x {right.columns}")
        product = left.zeros(left.shape[0], right.columns)
        context.call("terrace_gf2_multiply", _int64(rows), _int64(inner), _int64(right.columns), first, count, *left.p,
                     b_first, b_count, *right.p, *product.p, None)
        return like(product, a)
