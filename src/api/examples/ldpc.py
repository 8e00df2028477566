"""How often a random code of four ones in each column has full rank: ldpc.py [LENGTH] [--plot FILE.png]"""
import sys

import numpy as np
import terrace

length = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 480
draw = np.random.default_rng(1)
rates, lost = np.linspace(0.2, 0.9, 8), []
for rate in rates:
    checks = round(length * (1 - rate))
    h = np.zeros((checks, length), np.uint8)
    for column in range(length):
        h[draw.choice(checks, 4, replace=False), column] = 1
    rank = terrace.gf2.rank(h)
    code = terrace.gf2.kernel(h)
    assert len(code) == length - rank and not ((h.astype(int) @ code.T) % 2).any()
    lost.append(checks - rank)
    print(f"rate {rate:.1f}: {checks} checks, rank {rank}, dimension {len(code)}")
if "--plot" in sys.argv:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot
    plot.bar(rates, lost, 0.05)
    plot.xlabel("rate designed")
    plot.ylabel("checks that depend on others")
    plot.savefig(sys.argv[-1], dpi=120)
