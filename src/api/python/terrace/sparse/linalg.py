"""Conjugate gradients with the arguments of scipy.sparse.linalg.cg."""
import ctypes

import numpy as np

from .._arrays import Reals, copied, owned
from .._library import OBSERVE, PRODUCT, CgOptions, CgResult, using

_int64 = ctypes.c_int64


def _sorted(a):
    """CSR with ascending columns in each row, none twice."""
    a = a.tocsr()
    if not a.has_canonical_format:
        a = a.copy()
        a.sum_duplicates()
    return a


class Operator:
    """A symmetric positive definite matrix ready for products: SciPy's sparse ones, a dense array, or a LinearOperator (anything with
    .shape and .matvec); with comm= this rank's rows, and a matvec of these from these. Solve with it again and again: op.solve(b), or
    cg(op, b); with other values, op.update_values(a)."""

    def __init__(self, a, *, comm=None):
        self._owner = using(comm)
        self._context = self._owner.__enter__()
        self._handle = ctypes.c_void_p()
        try:
            if hasattr(a, "tocsr"):
                a = self._pattern = _sorted(a)
                self._rows(a.shape)
                wide = np.int32 if a.indptr.dtype == np.int32 and a.indices.dtype == np.int32 else np.int64
                start, column = np.ascontiguousarray(a.indptr, wide), np.ascontiguousarray(a.indices, wide)
                value = np.ascontiguousarray(a.data, np.float64)
                self._context.call("terrace_cg_csr32" if wide == np.int32 else "terrace_cg_csr", _int64(self.n), self._first,
                                   self._count, *(ctypes.c_void_p(x.ctypes.data) for x in (start, column, value)),
                                   ctypes.byref(self._handle))
            elif hasattr(a, "matvec"):
                self._matvec, self._raised = a.matvec, []
                count = a.shape[0]
                first, self.n = self._context.counts(count)
                self._first, self._count = _int64(first), _int64(count)

                def product(p, q, _):
                    try:
                        np.ctypeslib.as_array(q, (count,))[:] = np.asarray(self._matvec(np.ctypeslib.as_array(p, (count,)))).ravel()
                    except BaseException as error:
                        self._raised.append(error)
                        np.ctypeslib.as_array(q, (count,))[:] = np.nan  # ends the iteration

                self._product = PRODUCT(product if count else lambda p, q, _: None)
                self._context.call("terrace_cg_user", _int64(self.n), self._first, self._count, self._product, None, None,
                                   ctypes.byref(self._handle))
            else:
                dense = Reals(a, "A")
                self._rows(dense.shape)
                self._context.call("terrace_cg_dense", _int64(self.n), self._first, self._count, dense.p, _int64(dense.ld),
                                   ctypes.byref(self._handle))
        except BaseException:
            self._owner.__exit__()
            raise

    def update_values(self, a):
        """The matrix is now `a`, a sparse one with the entries of the first in the same places, or a dense array of the same shape."""
        pattern = getattr(self, "_pattern", None)
        if hasattr(a, "tocsr") != (pattern is not None) or hasattr(self, "_matvec"):
            raise ValueError("the operator was made of another kind of matrix; update_values; make it anew")
        if pattern is not None:
            a = _sorted(a)
            alike = a.shape == pattern.shape and np.array_equal(a.indptr, pattern.indptr) and np.array_equal(a.indices, pattern.indices)
            if not (self._context.agree(alike) and alike):  # on all ranks
                raise ValueError("the entries are in other places; update_values; make the operator anew")
            value = np.ascontiguousarray(a.data, np.float64)
            self._context.run("terrace_cg_update_csr", self._handle, ctypes.c_void_p(value.ctypes.data))
        else:
            dense = Reals(a, "A")
            self._context.run("terrace_cg_update_dense", self._handle, _int64(dense.columns), self._first, _int64(dense.rows), dense.p,
                              _int64(dense.ld))

    def _rows(self, shape):
        first, self.n = self._context.counts(shape[0])
        if len(shape) != 2 or shape[1] != self.n:
            raise ValueError(f"the matrix is {self.n} x {shape[-1]}, not square")
        self._first, self._count = _int64(first), _int64(shape[0])

    def solve(self, b, x0=None, *, rtol=1e-5, atol=0.0, maxiter=None, M=None, callback=None, block=0, degree=0,
              near_null_space=None, precision="fp64"):
        """x, results: one for each right-hand side, with .converged, .iterations, .residual, .reason, .setup_seconds. The preconditioner is kept
        for the next call that asks for the same one."""
        if precision not in ("fp64", "mixed"):
            raise ValueError(f"unknown precision '{precision}'; use fp64 or mixed")
        right = Reals(b, "b")
        if right.rows != self._count.value:
            raise ValueError(f"b has {right.rows} rows, the matrix {self._count.value}")
        x = owned(x0, False) if x0 is not None else np.zeros(right.shape) if right.device is None else copied(b)
        if x.shape != right.shape:
            raise ValueError(f"x0 has the shape {x.shape}, b {right.shape}")
        start = Reals(x, "x0", writable=True)
        near = (None, 0, 0)
        if near_null_space is not None:
            vectors = Reals(near_null_space, "near_null_space")
            if vectors.rows != right.rows:
                raise ValueError(f"near_null_space has {vectors.rows} rows, the matrix {right.rows}")
            near = vectors.p, vectors.columns, vectors.ld
        raised = []

        def observe(iteration, residual, _):
            try:
                return 0 if callback and callback(residual) is False else 1
            except BaseException as error:
                raised.append(error)
                return 0

        call = OBSERVE(observe)  # Ctrl-C is raised in it
        options = CgOptions(rtol, atol, -1 if maxiter is None else maxiter, M.encode() if M else None, block, degree,
                            int(x0 is not None), call, None, *near, int(precision == "mixed"))
        results = (CgResult * max(1, right.columns))()
        try:
            self._context.run("terrace_cg_solve", self._handle, self._first, self._count, _int64(right.columns), right.p,
                              _int64(right.ld), start.p, _int64(start.ld), ctypes.byref(options), results)
        except RuntimeError:
            if raised:
                raise raised[0] from None
            raise
        if getattr(self, "_raised", None):
            raise self._raised.pop()
        return x, list(results[:right.columns])

    def close(self):
        if self._handle:
            self._context._lib.terrace_cg_free(self._handle)
            self._handle = ctypes.c_void_p()
        if self._owner:
            self._owner.__exit__()
            self._owner = None

    def __del__(self):
        if getattr(self, "_context", None) is not None and self._context.comm is None:
            self.close()


def cg(A, b, x0=None, *, rtol=1e-5, atol=0.0, maxiter=None, M=None, callback=None, comm=None, block=0, degree=0,
       near_null_space=None, precision="fp64"):
    """x, info. A: a sparse matrix of SciPy's, a dense array, or an Operator. M: the name of a preconditioner, "jacobi", "block-jacobi",
    "ic", "chebyshev" or "amg"; near_null_space: of amg, vectors that A takes near zero (n x k), as rigid body modes.
    precision="mixed": iterations read half of each entry of a sparse matrix, and residuals on the way all of it.
    callback(residual) is called after each iteration with ||r|| / ||b||, and stops the run where it returns False. info: 0 where all converged to max(rtol ||b||, atol), else the iterations, or -1 where A (or M) is not definite."""
    if M is not None and not isinstance(M, str):
        raise TypeError("M is the name of a preconditioner: 'jacobi', 'block-jacobi', 'ic', 'chebyshev' or 'amg'")
    operator = A if isinstance(A, Operator) else Operator(A, comm=comm)
    try:
        x, results = operator.solve(b, x0, rtol=rtol, atol=atol, maxiter=maxiter, M=M, callback=callback, block=block, degree=degree,
                                    near_null_space=near_null_space, precision=precision)
    finally:
        if operator is not A:
            operator.close()
    worst = next((r for r in results if not r.converged), None)
    if worst is None:
        return x, 0
    return x, -1 if worst.reason.decode().startswith("indefinite") else max(1, worst.iterations)
