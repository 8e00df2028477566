#!/usr/bin/env python3
"""What a user would write in Python instead: one whole run, file to file.

whole_rivals.py inv|solve|banded|cg-csr|cg-dense IN.h5 OUT.h5

IN.h5 is what `terrace generate` makes: A, and b where one is needed. The answer's relative residual (or, of an inverse, that of one
column) is printed and must be small. jobs/whole_runs.py --rivals times it as a whole process.
"""
import sys

import h5py
import numpy as np


def inv(file):
    import torch
    a = torch.from_numpy(file["A"][:]).cuda()
    x = torch.linalg.inv(a)
    e = torch.zeros(a.shape[0], dtype=a.dtype, device="cuda")
    e[0] = 1
    return "inverse", x.cpu().numpy(), float(torch.linalg.norm(a @ x[:, 0] - e))


def solve(file):
    import torch
    a, b = (torch.from_numpy(file[k][:]).cuda() for k in ("A", "b"))
    x = torch.linalg.solve(a, b)
    return "x", x.cpu().numpy(), float(torch.linalg.norm(a @ x - b) / torch.linalg.norm(b))


def banded(file):
    from scipy.linalg import solveh_banded
    ab, b = file["A"][:], file["b"][:]
    x = solveh_banded(ab, b, lower=True)
    r = ab[0] * x - b
    for d in range(1, ab.shape[0]):
        r[d:] += ab[d, :-d] * x[:-d]
        r[:-d] += ab[d, :-d] * x[d:]
    return "x", x, float(np.linalg.norm(r) / np.linalg.norm(b))


def iterate(product, b, inverse_diagonal, dot):
    """Textbook's conjugate gradients with Jacobi to 1e-10, scalars on the host as libraries have them."""
    x = b * 0
    r = b.clone() if hasattr(b, "clone") else b.copy()
    z = inverse_diagonal * r
    p, rz, stop = z + 0, dot(r, z), 1e-10 * float(dot(b, b)) ** 0.5
    while float(dot(r, r)) ** 0.5 > stop:
        q = product(p)
        alpha = rz / dot(p, q)
        x += alpha * p
        r -= alpha * q
        z = inverse_diagonal * r
        rz, before = dot(r, z), rz
        p = z + rz / before * p
    return x


def cg_csr(file):
    import cupy
    import cupyx.scipy.sparse as sparse
    group = file["A"]
    a = sparse.csr_matrix(tuple(cupy.asarray(group[k][:]) for k in ("data", "indices", "indptr")), shape=tuple(group.attrs["shape"]))
    b = cupy.asarray(file["b"][:])
    x = iterate(lambda p: a @ p, b, 1 / a.diagonal(), cupy.dot)
    return "x", cupy.asnumpy(x), float(cupy.linalg.norm(a @ x - b) / cupy.linalg.norm(b))


def cg_dense(file):
    import torch
    a, b = (torch.from_numpy(file[k][:]).cuda() for k in ("A", "b"))
    x = iterate(lambda p: a @ p, b, torch.ones_like(b), torch.dot)
    return "x", x.cpu().numpy(), float(torch.linalg.norm(a @ x - b) / torch.linalg.norm(b))


def main():
    what, source, target = sys.argv[1:]
    with h5py.File(source) as file:
        name, answer, residual = {"inv": inv, "solve": solve, "banded": banded, "cg-csr": cg_csr, "cg-dense": cg_dense}[what](file)
    if not residual < 1e-6:
        sys.exit(f"{what}: residual {residual}")
    with h5py.File(target, "w") as file:
        file[name] = answer
    print(f"{what}: residual {residual:.2e}")


if __name__ == "__main__":
    main()
