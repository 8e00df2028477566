#!/usr/bin/env python3
"""--guard in every family on drawn problems: no false alarm, the same verdict and bits as without. Nightly; guard.py is
the short one, and tests/src/dense_guard_test takes many more dense matrices in one process.

alarms.py TERRACE [--count 200] [--seed 1] [--backend cpu]     Needs h5py and numpy; runs in a temporary folder.
"""
import argparse
import os
import shutil
import tempfile

import h5py
import numpy as np

import given
from terrace import Program, remove

parser = argparse.ArgumentParser()
parser.add_argument("terrace")
parser.add_argument("--count", type=int, default=200)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--backend", default="cpu")
options = parser.parse_args()
test = Program(options.terrace, TERRACE_THREADS="1")


def run(command, ranks):
    remove("out.h5")
    done = test.run(f"{command} --backend {options.backend} --quiet --force -o out.h5", ranks, timeout=300)
    bits = None
    if os.path.exists("out.h5"):
        with h5py.File("out.h5") as f:
            bits = [f[name][()].tobytes() for name in ("inverse", "x", "factor", "rref", "pivots", "kernel", "product") if name in f]
    return done.code, done.err, bits


def drawn_band(rng):
    n = int(rng.integers(1, 400))
    m = int(rng.integers(0, min(n, 60)))
    ab = rng.uniform(-1, 1, (m + 1, n)) if rng.random() < 0.8 else np.ones((m + 1, n))
    kind = int(rng.integers(0, 7))
    ab[0] = {0: 1.2 * m + 1, 1: m + 0.3, 2: 2 * m + rng.random(n), 3: 0.6 * m + 0.5}.get(kind, 1.2 * m + 1)  # 3: indefinite as a rule
    for d in range(m + 1):
        ab[d, n - d:] = 0
    scale = {4: 10.0**rng.uniform(-140, 140, n), 5: np.logspace(-140, 140, n), 6: np.full(n, 10.0**rng.choice([-155, -150, 150, 152]))}.get(kind)
    if scale is not None:
        for d in range(m + 1):
            ab[d, :n - d] *= scale[:n - d] * scale[d:]
    elif m > 3 and rng.random() < 0.4:
        ab = given.power_band(n, int(rng.integers(1, 4)), m)
    return ab


def drawn(rng):
    """One command on in.h5, without output."""
    family = rng.choice(["dense", "band", "gf2", "cg"])
    with h5py.File("in.h5", "w") as f:
        if family == "dense":
            n = int(rng.integers(1, 160))
            a = rng.standard_normal((n, n))
            kind = int(rng.integers(0, 6))
            if kind == 1:
                a = np.where(np.arange(n) == n - 1, 1.0, np.eye(n) - float(rng.uniform(0.5, 1)) * np.tril(np.ones((n, n)), -1))
            elif kind == 2:
                a *= 10.0**rng.uniform(-30, 30, n)[:, None] * 10.0**rng.uniform(-30, 30, n)
            elif kind == 3:
                a *= 10.0**float(rng.choice([-306, -200, 200, 305]))
            elif kind == 4:
                a = np.linalg.qr(a)[0] @ np.diag(np.logspace(0, -rng.uniform(1, 17), n)) @ np.linalg.qr(rng.standard_normal((n, n)))[0]
            elif kind == 5:
                a = rng.integers(-3, 4, (n, n)).astype(float)
            f["A"], f["b"] = a, rng.standard_normal((n, int(rng.integers(1, 4))))
            block = f" --block {rng.choice([1, 3, 8, 16, 24, 32, 48])}" if rng.random() < 0.7 else ""
            return f"dense {rng.choice(['invert in.h5:/A', 'solve in.h5:/A --rhs :/b'])}{block} --pivoting {rng.choice(['partial', 'tournament'])}"
        if family == "band":
            f["A"] = drawn_band(rng)
            f["A"].attrs["format"] = "band"
            f["b"] = rng.standard_normal((f["A"].shape[1], 2))
            method = rng.choice(["", " --method tile-columns", " --method one-end", " --method two-ends", " --method partition", " --method streamed"])
            if rng.random() < 0.3:
                return "band factor in.h5:/A" + (method if "streamed" in method else "")
            return "band solve in.h5:/A --rhs :/b" + method + (f" --block {rng.choice([7, 16, 33])}" if "tile" in method else "")
        if family == "gf2":
            rows, columns = int(rng.integers(1, 500)), int(rng.integers(1, 500))
            what = rng.choice(["rref in.h5:/A", "rref in.h5:/A --echelon", "kernel in.h5:/A", "inverse in.h5:/A", "solve in.h5:/A --rhs :/b"])
            columns = rows if "inverse" in what else columns
            f["A"] = (rng.random((rows, columns)) < rng.choice([0.5, 0.02, 0.9])).astype(np.uint8)
            f["b"] = rng.integers(0, 2, (rows, 3)).astype(np.uint8)
            return f"gf2 {what} --block {rng.choice([64, 128, 256])}"
        n = int(rng.integers(2, 200))
        a = rng.standard_normal((n, n))
        f["A"] = (a @ a.T + n * np.eye(n)) * 10.0**float(rng.choice([-100, 0, 0, 100]))
        f["b"] = rng.standard_normal((n, int(rng.integers(1, 4))))
        return "cg in.h5:/A --rhs :/b --format dense" + str(rng.choice(["", " --layout rows"]))


for case in range(options.count):
    seed = options.seed * 1000003 + case
    rng = np.random.default_rng(seed)
    command = drawn(rng)
    ranks = int(rng.integers(2, 4)) if rng.random() < 0.1 else 1
    plain, guarded = run(command, ranks), run(command + " --guard", ranks)
    if plain[0] != guarded[0] or plain[2] != guarded[2]:
        kept = os.path.join(tempfile.gettempdir(), f"alarm-{seed}.h5")
        shutil.copy("in.h5", kept)
        test.check(f"seed {seed}, {ranks} ranks: {command} --guard", False, f"{kept}: exit {plain[0]}, {guarded[0]} {guarded[1][:300]}")

test.finish()
