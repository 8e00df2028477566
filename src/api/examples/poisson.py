"""Poisson's equation in an L-shaped region, CSR and conjugate gradients: poisson.py [POINTS] [--plot FILE.png]"""
import sys

import numpy as np
import scipy.sparse as sparse
from terrace.sparse.linalg import Operator

m = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 60
inside = np.ones((m, m), bool)
inside[: m // 2, m // 2:] = False
number = np.full((m, m), -1)
number[inside] = np.arange(inside.sum())
rows, columns = [], []
for a, b in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1])):
    both = (a >= 0) & (b >= 0)
    rows += [a[both], b[both]]
    columns += [b[both], a[both]]
rows, columns = np.concatenate(rows), np.concatenate(columns)
n = inside.sum()
a = (sparse.coo_matrix((-np.ones(len(rows)), (rows, columns)), (n, n)) + 4 * sparse.eye(n)).tocsr()
operator = Operator(a)
curves = {}
for name in (None, "jacobi", "chebyshev", "ic"):
    history = []
    x, (result,) = operator.solve(np.ones(n), rtol=1e-10, M=name, callback=history.append)
    curves[name or "none"] = history
    print(f"{name or 'none':>10}: {result.iterations} iterations, residual {result.residual:.1e}, largest x {x.max():.4f}")
if "--plot" in sys.argv:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot
    figure, (left, right) = plot.subplots(1, 2, figsize=(10, 4))
    for name, history in curves.items():
        left.semilogy(history, label=name)
    left.legend()
    u = np.full((m, m), np.nan)
    u[inside] = x
    right.imshow(u)
    figure.savefig(sys.argv[-1], dpi=120)
