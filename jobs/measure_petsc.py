#!/usr/bin/env python3
"""Conjugate gradients of PETSc on a matrix of ours, to compare: mpirun -n 2 python3 measure_petsc.py FILE.h5 [--preconditioner jacobi,hypre] [--aggressive 1]

Reads /A (CSR) and /b, solves to a relative residual of 1e-10 from zero, three times. A line each: iterations, seconds of set-up, of the
iterations, of both, and the residual by the matrix. Needs petsc4py and h5py; hypre where PETSc has it.
"""
import argparse
import sys
import time

import h5py
import numpy as np
import petsc4py

petsc4py.init(["petsc"])
from petsc4py import PETSc

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file")
parser.add_argument("--preconditioner", default="jacobi,hypre")
parser.add_argument("--aggressive", type=int, default=1, help="hypre: levels with aggressive coarsening")
parser.add_argument("--repeat", type=int, default=3)
options = parser.parse_args()
comm = PETSc.COMM_WORLD
rank, size = comm.getRank(), comm.getSize()

with h5py.File(options.file) as f:
    start, n = f["A/indptr"][:].astype(np.int64), len(f["A/indptr"]) - 1
    own = [n * r // size for r in (rank, rank + 1)]
    part = slice(start[own[0]], start[own[1]])
    csr = ((start[own[0]:own[1] + 1] - start[own[0]]).astype(PETSc.IntType), f["A/indices"][part].astype(PETSc.IntType), f["A/data"][part])
    right = np.ravel(f["b"][own[0]:own[1]])
a = PETSc.Mat().createAIJ(((own[1] - own[0], n), (own[1] - own[0], n)), csr=csr, comm=comm)
a.setOption(PETSc.Mat.Option.SPD, True)
b = a.createVecLeft()
b.array = right
x = a.createVecRight()

petsc = PETSc.Options()
for name, value in (("agg_nl", options.aggressive), ("relax_type_down", "l1scaled-SOR/Jacobi"), ("relax_type_up", "l1scaled-SOR/Jacobi"),
                    ("coarsen_type", "HMIS"), ("interp_type", "ext+i"), ("P_max", 4)):
    petsc[f"pc_hypre_boomeramg_{name}"] = value
for preconditioner in options.preconditioner.split(","):
    for _ in range(options.repeat):
        solver = PETSc.KSP().create(comm)
        solver.setOperators(a)
        solver.setType("cg")
        solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        solver.getPC().setType(preconditioner)
        solver.setTolerances(rtol=1e-10, atol=0, max_it=100000)
        solver.setFromOptions()
        x.set(0)
        comm.barrier()
        begun = time.perf_counter()
        solver.setUp()
        comm.barrier()
        made = time.perf_counter()
        solver.solve(b, x)
        comm.barrier()
        done = time.perf_counter()
        r = a.createVecLeft()
        a.mult(x, r)
        r.aypx(-1, b)
        residual = r.norm() / b.norm()
        if rank == 0:
            print(f"petsc {preconditioner}: {solver.getIterationNumber()} iterations, {made - begun:.3f} + {done - made:.3f} = {done - begun:.3f} s, residual {residual:.2e}", flush=True)
        solver.destroy()
sys.stdout.flush()
