"""Terrace: big matrices over GF(2), band, dense and sparse ones, on all GPUs and ranks.

    import terrace
    rank = terrace.gf2.rank(H)                     # 0/1 arrays, SciPy's sparse ones, terrace.Bits
    x = terrace.linalg.solveh_banded(ab, b)        # SciPy's signature
    x, info = terrace.sparse.linalg.cg(A, b)

Every function takes comm=, a communicator of mpi4py or a terrace.Context: then arrays are this rank's
rows (columns of a band), in the order of the ranks. Without it MPI is not started.
"""
from . import gf2, io, linalg, sparse
from ._arrays import Bits
from ._library import Context, Error, Inconsistent, version

__all__ = ["Bits", "Context", "Error", "Inconsistent", "gf2", "io", "linalg", "sparse", "version"]
