#!/usr/bin/env python3
"""--guard: a bit that flips in the matrix in mid-run ends it with exit 6; without --guard the check at the end
refuses the answer, or the flip was harmless. No false alarms, and not a bit of the result changes.

guard.py TERRACE     Needs h5py and numpy; runs in a temporary folder.
"""
import os
import random
import shutil
import sys

import h5py
import numpy as np

import given
from given import growth, power_band
from terrace import Program, read_json, remove

test = Program(sys.argv[1], TERRACE_THREADS="1")
check = test.check
random.seed(5)


def run(command, ranks=1, flip=None):
    done = test.run(command + " --backend cpu --quiet --force", ranks, env={"TERRACE_TEST_FLIP": flip} if flip else None, timeout=300)
    return done.code, done.err


def data(name):
    with h5py.File("out.h5") as f:
        return f[name][()]


def generate(what):
    test.run(f"generate {what} -o in.h5 --force --quiet", code=0)


# --- bits of the result, no false alarms ---------------------------------------------------------
def clean(command, name, ranks=(1, 3)):
    for n in test.some(*ranks):
        code, err = run(command + " -o out.h5", n)
        check(f"{command} on {n}", code == 0, err)
        if code:
            continue
        before = data(name)
        code, err = run(command + " -o out.h5 --guard", n)
        check(f"{command} --guard on {n}: no alarm", code == 0, f"exit {code} {err}")
        if code == 0:
            check(f"{command} --guard on {n}: the same bits", before.tobytes() == data(name).tobytes())


def alike(command, name, ranks=(1, 3)):
    """Exit code, message and every bit of the result are what they are without --guard."""
    for n in ranks:
        before = run(command + " -o out.h5", n)
        bits = data(name).tobytes() if before[0] == 0 else None
        after = run(command + " -o out.h5 --guard", n)
        same = before[0] == after[0] and before[1].partition("\n")[0] == after[1].partition("\n")[0]
        check(f"{command} --guard on {n}: as without", same, f"{before} {after}")
        if before[0] == after[0] == 0:
            check(f"{command} --guard on {n}: the same bits", bits == data(name).tobytes())


def write(a, b=None):
    with h5py.File("in.h5", "w") as f:
        f["A"] = a
        f["b"] = np.ones(len(a)) if b is None else b


rng = np.random.default_rng(3)


def conditioned(n, condition):
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    p, _ = np.linalg.qr(rng.standard_normal((n, n)))
    return q @ np.diag(np.logspace(0, -np.log10(condition), n)) @ p


for n in (1, 2, 17, 130, 400):
    write(rng.standard_normal((n, n)))
    clean("dense invert in.h5:/A --block 32", "inverse")
    clean("dense solve in.h5:/A --rhs :/b --block 32", "x", (1,))
for condition in (1e6, 1e10, 1e14):
    write(conditioned(300, condition))
    clean("dense invert in.h5:/A --block 24", "inverse", (1, 2))
n = 256
rows, columns = np.logspace(-12, 12, n), np.logspace(10, -10, n)
i = np.arange(n)
special = {
    "rows graded": rng.standard_normal((n, n)) * rows[:, None],
    "columns graded": rng.standard_normal((n, n)) * columns,
    "both": rng.standard_normal((n, n)) * rows[:, None] * columns,
    "minimum": np.minimum.outer(i + 1.0, i + 1.0),
    "Wilkinson 31": np.where(np.arange(31) == 30, 1.0, np.eye(31) - np.tril(np.ones((31, 31)), -1)),
    "Wilkinson 63": np.where(np.arange(63) == 62, 1.0, np.eye(63) - np.tril(np.ones((63, 63)), -1)),
    "growth": np.eye(n) - np.tril(np.ones((n, n)), -1) * 0.4 + np.eye(n)[:, [0] * n] * 0,
    "triangular": np.triu(rng.standard_normal((n, n))) + 8 * np.eye(n),
    "leading block nearly singular": np.block([[1e-9 * rng.standard_normal((n // 2, n // 2)), np.eye(n // 2)],
                                               [np.eye(n // 2), 1e-9 * rng.standard_normal((n // 2, n // 2))]]),
    "tiny": 1e-150 * rng.standard_normal((n, n)),
    "sparse": np.eye(n)[rng.permutation(n)] + (rng.random((n, n)) < 0.01) * rng.standard_normal((n, n)),
}
for name, a in test.part(special.items()):
    write(a)
    clean("dense invert in.h5:/A --block 16", "inverse", (1, 2))
    clean("dense invert in.h5:/A --block 16 --pivoting tournament", "inverse", (2,))
for n, block in ((31, ""), (15, " --block 24"), (47, " --block 24"), (46, "")):
    write(growth(n))
    clean("dense invert in.h5:/A" + block, "inverse", (1,))
for shape in ("--rows 500", "--rows 65 --columns 900", "--rows 900 --columns 200", "--rows 1 --columns 1"):
    generate(f"gf2-random {shape} --rhs 3")
    clean("gf2 rref in.h5:/A --block 64", "rref")
    clean("gf2 rref in.h5:/A --echelon --block 64", "pivots", (2,))
    clean("gf2 kernel in.h5:/A --block 64", "kernel", (2,))
    clean("gf2 rref in.h5:/A --method columns", "rref", (1,))
    clean("gf2 rref in.h5:/A --method columns --echelon", "rref", (1,))
generate("gf2-rank --rows 700 --columns 800 --rank 300")
clean("gf2 rref in.h5:/A --block 128", "rref")
clean("gf2 rref in.h5:/A --method columns", "rref", (1,))
bits = 640
a = np.triu(rng.integers(0, 2, (bits, bits), dtype=np.uint8), 1) + np.eye(bits, dtype=np.uint8)
with h5py.File("in.h5", "w") as f:
    f["A"] = a[rng.permutation(bits)]
clean("gf2 inverse in.h5:/A --block 64", "inverse")
clean("gf2 inverse in.h5:/A --method columns", "inverse", (1,))


# --- flips ---------------------------------------------------------------------------------------
def flips(command, name, ranks, steps, size, count, top=None):
    """`size`: bytes of a rank's rows; `top`: bytes of a number whose flips are never harmless (of 8)."""
    code, err = run(command + " -o out.h5", ranks)
    check(command, code == 0, err)
    right = data(name)
    caught = missed = 0
    for _ in range(count):
        byte = random.randrange(size)
        if top is not None:
            byte = byte // 8 * 8 + random.choice(top)
        flip = f"{random.randrange(ranks)}:{random.randrange(1, steps)}:{byte}"
        remove("out.h5")
        code, err = run(command + " -o out.h5", ranks, flip)
        if code == 0:  # harmless: the answer is what it was, up to rounding
            got = data(name)
            same = np.array_equal(got, right) if right.dtype.kind in "iu" else np.allclose(got, right, rtol=1e-6,
                                                                                           atol=1e-6 * np.abs(right).max())
            check(f"{command} flip {flip}: a wrong answer", same)
        else:
            check(f"{command} flip {flip}: exit {code}", code == 4 and not os.path.exists("out.h5"), err)
        harmless = code == 0
        code, err = run(command + " -o out.h5 --guard", ranks, flip)
        if code == 6:
            caught += 1
            named = "on rank" in err and "between steps" in err or "again" in err
            check(f"{command} flip {flip}: message", "memory error" in err and named and "on " in err, err)
            check(f"{command} flip {flip}: no output", not [x for x in os.listdir(".") if x.startswith("out.h5")] or harmless)
        else:
            check(f"{command} flip {flip} --guard: exit {code}", harmless or code == 4, err)
            if not harmless:
                missed += 1
                print(f"{command} flip {flip}: only the last check saw it")
    print(f"{command:58} {ranks} ranks: {caught} of {count} flips reported by --guard")
    check(f"{command}: {missed} flips that do harm were left to the last check", missed <= 1)
    return caught


write(rng.standard_normal((300, 300)))
# The two highest bytes of a double: sign, exponent, first digits.
got = flips("dense invert in.h5:/A --block 24", "inverse", 1, 12, 300 * 304 * 8, 8, (6, 7))
got += flips("dense invert in.h5:/A --block 24", "inverse", 2, 12, 144 * 304 * 8, 6, (6, 7))
check(f"dense: {got} of 14 reported", got >= 10)
# Rows to come are right of the panel: flips left of it are never read again.
got = flips("dense solve in.h5:/A --rhs :/b --block 24", "x", 1, 4, 300 * 320 * 8, 6, (6, 7))
check(f"dense solve: {got} of 6 reported", got >= 2)
generate("gf2-random --rows 1000 --columns 1000")
got = flips("gf2 rref in.h5:/A --block 64", "rref", 1, 16, 1000 * 16 * 8, 8)
got += flips("gf2 rref in.h5:/A --block 64", "rref", 2, 16, 500 * 16 * 8, 6)
check(f"gf2 rref: {got} of 14 reported", got >= 4)  # a third of a row is padding
got = flips("gf2 rref in.h5:/A --method columns", "rref", 1, 16, 1000 * 24 * 8, 8)
check(f"gf2 rref by columns: {got} of 8 reported", got >= 2)
with h5py.File("in.h5", "w") as f:
    f["A"] = a[rng.permutation(bits)]
got = flips("gf2 inverse in.h5:/A --block 64", "inverse", 1, 10, bits * 10 * 8, 6)
check(f"gf2 inverse: {got} of 6 reported", got >= 2)
got = flips("gf2 inverse in.h5:/A --method columns", "inverse", 1, 8, bits * 16 * 8, 6)
check(f"gf2 inverse by columns: {got} of 6 reported", got >= 1)

# A product goes by its certificate: it is multiplied once more where that does not hold.
generate("gf2-random --rows 500 --columns 700 --rhs 300")
shutil.copy("in.h5", "left.h5")
generate("gf2-random --rows 700 --columns 300")
alike("gf2 multiply left.h5:/A in.h5:/A", "product", (1,))
for step, ranks in ((1, 1), (2, 2)):
    remove("out.h5")
    code, err = run("gf2 multiply left.h5:/A in.h5:/A -o out.h5 --guard", ranks, f"0:{step}:{100 * 16 * (6 if step == 1 else 4)}")
    check(f"gf2 multiply flip {step}: exit {code}", code == 6 and "memory error" in err and not os.path.exists("out.h5"), err)

# --- band: L (L^T w) against A w, w random ---------------------------------------------------------
def band_of(n, m, scale=None):
    ab = rng.uniform(-1, 1, (m + 1, n))
    ab[0] = 1.2 * m + 1
    for d in range(min(m + 1, n)):
        ab[d, n - d:] = 0
        if scale is not None:
            ab[d, :n - d] *= scale[:n - d] * scale[d:]
    return ab


def write_band(ab):
    given.write_band(ab, rng.standard_normal((ab.shape[1], 2)))


bands = {"one": (band_of(1, 0), (1,)), "diagonal": (band_of(90, 0), (1,)), "full": (band_of(150, 149), (1,)),
         "wide": (band_of(500, 270), (1,)), "graded": (band_of(600, 30, 10.0**rng.uniform(-150, 150, 600)), (2,)),
         "slope": (band_of(600, 30, np.logspace(-150, 150, 600)), (1,)), "tiny": (band_of(300, 20, np.full(300, 1e-152)), (1,)),
         "huge": (band_of(300, 20, np.full(300, 1e152)), (1,)), "denormal": (band_of(300, 10, np.full(300, 1e-160)), (1,)),
         "condition 1e14": (power_band(300, 3, 20), (1,)),
         "indefinite": (band_of(400, 20) - 19 * np.eye(21, 1), (1,)),
         "far from definite": (np.where(np.arange(21)[:, None] == 7, 1e150, band_of(400, 20)), (2,))}
for name, (ab, ranks) in test.part(bands.items()):
    write_band(ab)
    for block in (7, 64) if name in ("graded", "wide") else (16,):
        alike(f"band solve in.h5:/A --rhs :/b --block {block}", "x", ranks)
    alike("band factor in.h5:/A", "factor", ranks)


def band_flips(command, name, n, width, count, ranks, most):
    """Flips at random places of the matrix, before, in and after the factorization."""
    column = -(-max(most, width) // 16) * 16 + 1
    tiles = -(-n // width)
    code, err = run(command + " -o out.h5")
    right = data(name)
    caught = 0
    for _ in range(count):
        byte = random.randrange(tiles // ranks * width * column) * 8 + random.choice((5, 6, 7))
        flip = f"{random.randrange(ranks)}:{random.randrange(1, tiles + 2)}:{byte}"
        remove("out.h5")
        code, err = run(command + " -o out.h5 --guard", ranks, flip)
        caught += code == 6
        check(f"{command} flip {flip} on {ranks}: exit {code}", code in (0, 6), err)
        if code == 6:
            check(f"{command} flip {flip} on {ranks}: message", "memory error" in err, err)
            check(f"{command} flip {flip} on {ranks}: no output", not os.path.exists("out.h5"))
        elif code == 0:
            got = data(name)
            check(f"{command} flip {flip} on {ranks}: a wrong answer",
                  np.allclose(got, right, rtol=1e-7, atol=1e-9 * np.abs(right).max()))
    print(f"{command:58} {ranks} ranks: {caught} of {count} flips reported by --guard")
    return caught


write_band(band_of(900, 40))
got = band_flips("band solve in.h5:/A --rhs :/b --block 16", "x", 900, 16, 12, 1, 40)
got += band_flips("band solve in.h5:/A --rhs :/b --block 16 --no-check", "x", 900, 16, 6, 1, 40)
got += band_flips("band solve in.h5:/A --rhs :/b --block 16", "x", 900, 16, 4, 3, 40)
got += band_flips("band factor in.h5:/A --block 16", "factor", 900, 16, 6, 1, 40)
check(f"band: {got} of 28 reported", got >= 13)  # a sixth of a column is padding, the upper triangle too
# Methods of one launch go by the check at the end: all is done once more where it fails.
run("band factor in.h5:/A -o f.h5")
for more, step, ranks in (("--method one-end", 1, 1), ("--method two-ends", 2, 1), ("--method partition", 1, 3),
                          ("--method streamed", 1, 1), ("--method streamed", 1, 2), ("--factor f.h5:/factor", 1, 1)):
    command = f"band solve in.h5:/A --rhs :/b {more}"
    alike(command, "x", (ranks,))
    remove("out.h5")
    code, err = run(command + " -o out.h5 --guard", ranks, f"0:{step}:{8 * (49 * 75 + 2) + 6}")
    check(f"{command} flip: exit {code}", code == 6 and "memory error" in err and not os.path.exists("out.h5"), err)
code, err = run("band solve in.h5:/A --rhs :/b --method two-ends --guard --no-check -o out.h5")
check("band: no check, no guard", code == 2 and "--no-check" in err, err)
# The sign of a diagonal entry: the matrix is not definite any more, but is when it is read again.
column, tile = 49, 48 * 49
code, err = run("band solve in.h5:/A --rhs :/b --block 48 -o out.h5 --guard", 1, f"0:3:{8 * (10 * tile + 5 * column) + 7}")
check("band: the sign of a diagonal entry", code == 6 and "is with the matrix read again" in err, err)

# --- with checkpoints: a restart gives no alarm, the same bits, and finds flips --------------------
def restarts(command, name, after, byte):
    """byte(step): of one rank's matrix, one whose flips do harm."""
    remove("c.h5", "c.h5.old", "report.json")
    code, err = run(command + " -o out.h5 --guard --checkpoint c.h5 --checkpoint-every 0.001s --report report.json", 2)
    step = read_json("report.json")["checkpoints"]["step"]
    check(f"{command}: a checkpoint", code == 0 and step > 0, err)
    if code or step < 1:
        return
    right = data(name).tobytes()
    for ranks in after:
        os.remove("out.h5")
        code, err = run(command + " -o out.h5 --guard --restart c.h5", ranks)
        check(f"{command} restarted at {step} on {ranks}: no alarm", code == 0, err)
        check(f"{command} restarted at {step} on {ranks}: the same bits", code == 0 and data(name).tobytes() == right)
    os.remove("out.h5")
    flip = f"0:{step + 1}:{byte(step)}"
    code, err = run(command + " -o out.h5 --guard --restart c.h5", 1, flip)
    check(f"{command} restarted at {step} flip {flip}: exit {code}", code == 6 and "memory error" in err, err)
    check(f"{command} restarted at {step} flip {flip}: no output", not os.path.exists("out.h5"))


write_band(band_of(3000, 100))
column, tile = 113, 16 * 113
restarts("band solve in.h5:/A --rhs :/b --block 16", "x", (1, 3), lambda step: 8 * (187 * tile + 3 * column + 1) + 6)
restarts("band factor in.h5:/A --block 16", "factor", (3,), lambda step: 8 * (step // 2 * tile + 3 * column + 1) + 6)
write(rng.standard_normal((500, 500)))
restarts("dense invert in.h5:/A --block 8", "inverse", (3,), lambda step: 8 * (251 * 504 + 400) + 6)
generate("gf2-random --rows 3000 --columns 3000")
restarts("gf2 rref in.h5:/A --block 64", "rref", (3,), lambda step: (2 * 3000 * 48 * 8) // 3 // 384 * 384 + 376 - 8)

# Conjugate gradients read their matrix and never write it: every flipped bit of it is reported.
def spd(n):
    a = rng.standard_normal((n, n))
    return a @ a.T + n * np.eye(n)


n = 1100
with h5py.File("in.h5", "w") as f:
    f["A"] = spd(n)
    f["b"] = np.ones((n, 3))
    ab = rng.uniform(-1, 1, (21, 900))
    ab[0] = 30
    f["band"] = ab
    f["band"].attrs["format"] = "band"
    f["band_b"] = np.ones(900)
test.run("generate csr-laplace --dim 2 --points 41 --rhs 1 --seed 4 -o csr.h5 --force --quiet", code=0)
solves = [("cg in.h5:/A --rhs :/b", 100000), ("cg in.h5:/A --rhs :/b --layout rows", n * n * 8 // 3),
          ("cg in.h5:/A --rhs :/b --precision mixed", 100000), ("cg in.h5:/band --rhs :/band_b", 20 * 300 * 8),
          ("cg csr.h5:/A --rhs :/b", 20000)]
for command, size in solves:
    clean(command, "x", (1, 3))
    for ranks in (1, 3):
        for _ in range(3):
            flip = f"{random.randrange(ranks)}:{random.randrange(1, 12)}:{random.randrange(size)}"
            remove("out.h5")
            code, err = run(command + " -o out.h5 --guard", ranks, flip)
            check(f"{command} flip {flip} on {ranks}: exit {code}", code == 6 and "memory error" in err and "on rank" in err, err)
            check(f"{command} flip {flip} on {ranks}: no output", not os.path.exists("out.h5"))

# Column numbers and row pointers: high bits lead outside memory.
entries = 41 * 41 * 5 - 4 * 41
for ranks, at in ((1, entries * 8 + 4 * 4000 + 3), (1, entries * 8 + 4 * 4000 + 2), (2, entries * 4 + 4 * 900 + 3),
                  (1, entries * 12 + 8 * 700 + 5), (1, entries * 12 + 8 * 900 + 2)):
    flip = f"0:3:{at}"
    remove("out.h5")
    code, err = run("cg csr.h5:/A --rhs :/b -o out.h5 --guard", ranks, flip)
    check(f"cg index flip {flip} on {ranks}: exit {code}", code == 6 and "memory error" in err and "on rank" in err, err)
    check(f"cg index flip {flip} on {ranks}: no output", not os.path.exists("out.h5"))

test.finish()
