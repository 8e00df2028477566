"""Sparse matrices: terrace.sparse.linalg."""
from . import linalg

__all__ = ["linalg"]
