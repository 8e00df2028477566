"""heat.cpp in Python: python heat.py 40 50 10, or mpirun -n 4 python heat.py 40 50 10 with mpi4py."""
import os
import sys

import numpy as np
import terrace

nx, ny, steps = (int(x) for x in sys.argv[1:4]) if len(sys.argv) > 3 else (40, 50, 10)
comm = None
if "OMPI_COMM_WORLD_SIZE" in os.environ:
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
k, n = 0.4, nx * ny
rank, ranks = (comm.Get_rank(), comm.Get_size()) if comm else (0, 1)
each = -(-n // ranks)
i = np.arange(n)[each * rank:each * (rank + 1)]  # this rank's points
ab = np.zeros((nx + 1, len(i)))  # SciPy's lower form
ab[0], ab[1], ab[nx] = 1 + 4 * k, np.where(i % nx + 1 < nx, -k, 0), -k
u = np.exp(-0.05 * (i % nx - nx // 2) ** 2)
with terrace.linalg.cholesky_banded(ab, lower=True, comm=comm) as factor:
    for _ in range(steps):
        u = factor.solve(u)
    heat = u.sum() if comm is None else comm.allreduce(u.sum())
    if rank == 0:
        print(f"heat after {steps} steps: {heat:.9f}, log det {factor.logdet:.6f}")
