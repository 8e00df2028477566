"""jumps.cpp in Python, with a file of the factor: python jumps.py 400 10 [factor.h5]"""
import os
import sys

import numpy as np
import terrace

n, steps = (int(x) for x in sys.argv[1:3]) if len(sys.argv) > 2 else (400, 10)
dt, i = 0.1, np.arange(n)
rate = np.exp(-0.05 * abs(i[:, None] - i)) * np.where(i[:, None] > i, 1.0, 0.7)  # from column to row
np.fill_diagonal(rate, 0)
a = (1 + dt * rate.sum(axis=0)) * np.eye(n) - dt * rate
file = sys.argv[3] if len(sys.argv) > 3 else None
if file and os.path.exists(file):  # of a run before
    factor = terrace.io.load_factor(file + ":/factor", a)
else:
    factor = terrace.linalg.lu_factor(a)
    if file:
        terrace.io.save_factor(file, factor)
p = np.zeros(n)
p[n // 2] = 1
for _ in range(steps):
    p = terrace.linalg.lu_solve(factor, p)
print(f"after {steps} steps: probability {p.sum():.9f}, drift {p @ (i - n // 2):.6f}, log |det| {factor.slogdet[1]:.6f}")
