"""A clamped beam by cubic finite elements: a band of half-bandwidth 3, one factor, many loads: beam.py [ELEMENTS] [--plot FILE.png]"""
import sys

import numpy as np
import terrace

elements = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 200
h = 1 / elements
k = np.array([[12, 6 * h, -12, 6 * h], [6 * h, 4 * h * h, -6 * h, 2 * h * h], [-12, -6 * h, 12, -6 * h],
              [6 * h, 2 * h * h, -6 * h, 4 * h * h]]) / h**3  # deflection and slope at both ends
n = 2 * elements  # the left end is clamped
ab = np.zeros((4, n))  # SciPy's lower form
for e in range(elements):
    for i in range(4):
        for j in range(i + 1):
            row, column = 2 * e - 2 + i, 2 * e - 2 + j
            if column >= 0:
                ab[row - column, column] += k[i, j]
loads = np.zeros((n, 4))
places = np.linspace(0.25, 1, 4)
for case, place in enumerate(places):
    loads[2 * round(place * elements) - 2, case] = 1
factor = terrace.linalg.cholesky_banded(ab, lower=True)
bent = factor.solve(loads)[::2]
for case, place in enumerate(places):  # P a^2 (3 L - a) / 6 at the tip
    print(f"load at {place:.2f}: tip moves {bent[-1, case]:.6f}, by the formula {place**2 * (3 - place) / 6:.6f}")
if "--plot" in sys.argv:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot
    plot.plot(np.linspace(h, 1, elements), -bent, label=[f"load at {p:.2f}" for p in places])
    plot.legend()
    plot.savefig(sys.argv[-1], dpi=120)
