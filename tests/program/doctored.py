#!/usr/bin/env python3
"""verify looks at the mathematics: a result with one wrong number fails, though its content hash holds: doctored.py TERRACE

Every kind of result gets one wrong element after the other, and the hash that terrace itself would have written. Needs h5py and
numpy.
"""
import os
import shutil
import sys

import h5py
import numpy as np

from given import band, doctor, write_band
from terrace import ALL, Program

test = Program(sys.argv[1])
check = test.check
rng, tried = np.random.default_rng(31), 0


def wrong(name, path, changes, what):
    """verify must call it wrong, and not for its hash."""
    global tried
    shutil.copy(name, "wrong.h5")
    with h5py.File("wrong.h5", "r+") as f:
        doctor(f[path], changes)
    tried += 1
    done = test.run("verify wrong.h5", 3 if tried % 16 == 0 else 1)
    called = done.code == 4 and "FAIL" in done.out and "is not what was written" not in done.out and len(done.said) == 1
    check(f"{name}:{path} {what}", called and ("NaN" in done.out or not what.startswith("NaN")), f"exit {done.code}: {done.out}{done.err}")


def damaged(name, path, how, what):
    """A dataset that is gone, or is something else: a result that fails, too; how(file) makes it so."""
    shutil.copy(name, "wrong.h5")
    with h5py.File("wrong.h5", "r+") as f:
        how(f)
    for ranks in test.some(1, 2):
        done = test.run("verify wrong.h5", ranks)
        check(f"{name}:{path} {what} on {ranks}", done.code == 4 and "FAIL" in done.out and len(done.said) == 1, f"exit {done.code}: {done.out}{done.err}")


def other(path, data, attrs=None):
    """Instead of a dataset another one, which nobody hashed."""
    def how(f):
        kept = {**dict(f[path].attrs), **(attrs or {})}
        del f[path], kept["terrace_hash"]
        f[path] = data
        f[path].attrs.update(kept)
    return how


def places(shape, most=5 if ALL else 2):
    """Corners first, then others: one corner after the other, in the nightly run all of them and five places."""
    ends = [(0, s - 1) for s in shape]
    chosen = [tuple(p) for p in np.stack(np.meshgrid(*ends), -1).reshape(-1, len(shape))]
    chosen = list(test.some(*chosen))
    chosen += [tuple(int(rng.integers(s)) for s in shape) for _ in range(most)]
    return list(dict.fromkeys(tuple(int(k) for k in p) for p in chosen))[:most]


def wrong_bits(name, path):
    with h5py.File(name) as f:
        d, columns = f[path][...], int(f[path].attrs["columns"])
    for i, j in places((d.shape[0], columns)):
        wrong(name, path, {(i, j // 64): d[i, j // 64] ^ np.uint64(1 << (j % 64))}, f"bit ({i}, {j})")


def wrong_words(name, path):
    """Witness words: any bit."""
    with h5py.File(name) as f:
        d = f[path][...]
    for (i,) in places(d.shape, 2):
        wrong(name, path, {(i,): d[i] ^ d.dtype.type(1 << int(rng.integers(63)))}, f"word {i}")


def wrong_numbers(name, path, extent):
    """Pivots: another one, which is none where there is such a one, or one that is there already."""
    with h5py.File(name) as f:
        d = f[path][...]
    free = sorted(set(range(extent)) - set(d.tolist()))
    for (i,) in places(d.shape, 2):
        for value in free[:1] + [d[(i + 1) % len(d)], -1, extent]:
            if value != d[i]:
                wrong(name, path, {(i,): value}, f"[{i}] = {value}, not {d[i]}")


def wrong_reals(name, path, inside=lambda at: True, by=1e-6):
    with h5py.File(name) as f:
        d = f[path][...]
    for at in places(d.shape):
        if inside(at):
            wrong(name, path, {at: d[at] + by * max(1.0, np.abs(d).max())}, f"{at} by {by}")


# --- over GF(2) ------------------------------------------------------------------------------------
rows, columns, rank, n = 70, 131, 50, 67
low = rng.integers(0, 2, (rows, rank)) @ rng.integers(0, 2, (rank, columns)) % 2
regular = (np.tril(rng.integers(0, 2, (n, n)), -1) + np.eye(n, dtype=int)) @ (np.triu(rng.integers(0, 2, (n, n)), 1) + np.eye(n, dtype=int)) % 2
with h5py.File("bits.h5", "w") as f:
    for key, a in (("low", low), ("regular", regular), ("rhs", low @ rng.integers(0, 2, (columns, 3)) % 2), ("right", rng.integers(0, 2, (columns, n)))):
        f[key] = a.astype(np.uint8)
for name, command in (("rref", "rref bits.h5:/low"), ("echelon", "rref bits.h5:/low --echelon"), ("rank", "rank bits.h5:/low"),
                      ("transform", "rref bits.h5:/low --transform"), ("determinant", "determinant bits.h5:/regular"),
                      ("solve", "solve bits.h5:/low --rhs :/rhs"), ("kernel", "kernel bits.h5:/low"), ("inverse", "inverse bits.h5:/regular"),
                      ("multiply", "multiply bits.h5:/low :/right")):
    name += ".h5"
    test.run(f"gf2 {command} -o {name}", 2, 0)
    test.run(f"verify {name}", 1, 0)
    with h5py.File(name) as f:
        found = {key: f[key].attrs.get("columns") for key in f if isinstance(f[key], h5py.Dataset)}
        below = [key for key in f["terrace"] if isinstance(f["terrace"][key], h5py.Dataset)]
    for key, packed in found.items():
        if packed is not None:
            wrong_bits(name, key)
        else:
            wrong_numbers(name, key, columns if name != "determinant.h5" else n)
    for key in below if name != "inverse.h5" else ():  # A X = I needs no certificate
        if key in ("witness", "span"):
            wrong_words(name, "terrace/" + key)
        else:
            wrong_numbers(name, "terrace/" + key, n if name == "determinant.h5" else columns if key == "pivots" else rows)

# --- over the reals --------------------------------------------------------------------------------
n, m = 24, 3
write_band(band(rng, n, m), rng.normal(size=(n, 2)), "band_in.h5")
with h5py.File("dense.h5", "w") as f:
    f["A"], f["b"] = rng.normal(size=(n, n)) + n * np.eye(n), rng.normal(size=(n, 2))
    f["diagonal"] = np.diag(rng.uniform(1, 2, n))  # a wrong row of the inverse is wrong in this row alone
    spd = rng.normal(size=(n, n))
    f["spd"] = spd @ spd.T + n * np.eye(n)
for name, command in (("factor", "band factor band_in.h5:/A"), ("band", "band solve band_in.h5:/A --rhs :/b"), ("invert", "dense invert dense.h5:/A"),
                      ("diagonal", "dense invert dense.h5:/diagonal"), ("x", "dense solve dense.h5:/A --rhs :/b"), ("cg", "cg dense.h5:/spd --rhs :/b")):
    name += ".h5"
    test.run(f"{command} -o {name}", 2, 0)
    test.run(f"verify {name}", 1, 0)
    path = {"factor.h5": "factor", "invert.h5": "inverse", "diagonal.h5": "inverse"}.get(name, "x")
    wrong_reals(name, path, lambda at: path != "factor" or sum(at) < n)  # beyond the matrix a band holds anything
    for at in ((0, 0), (n // 2, 0), (n - 1, 0)):
        if path != "factor":
            wrong(name, path, {at: np.nan}, f"NaN at {at}")
with h5py.File("diagonal.h5") as f:
    for i in (0, 1, n // 2 - 1, n // 2, n - 1):
        wrong("diagonal.h5", "inverse", {(i, i): f["inverse"][i, i] * (1 + 1e-6)}, f"row {i}")
with h5py.File("factor.h5") as f:
    factor = f["factor"][...]
for j in (0, n // 2, n - 1):  # L L^T stays A
    wrong("factor.h5", "factor", {(d, j): -factor[d, j] for d in range(min(m + 1, n - j))}, f"column {j} negative")
    wrong("factor.h5", "factor", {(0, j): np.nan}, f"NaN in column {j}")

# --- datasets that are gone or something else, of every family; an input that changed is the input's fault ------------------------
for name, path in (("rref.h5", "rref"), ("rref.h5", "pivots"), ("transform.h5", "transform"), ("rank.h5", "terrace/span"), ("solve.h5", "x"), ("kernel.h5", "kernel"), ("inverse.h5", "inverse"),
                   ("multiply.h5", "product"), ("factor.h5", "factor"), ("band.h5", "x"), ("invert.h5", "inverse"), ("x.h5", "x"), ("cg.h5", "x"), ("band_in.h5", "A")):
    if name == "band_in.h5":
        test.run("generate band-spd --n 30 --half-bandwidth 3 --rhs 1 -o made.h5", 1, 0)
        name, path = "made.h5", "b"
    for how, what in test.part([(lambda f: f.__delitem__(path) if path != "b" else other(path, np.full(30, np.nan))(f), "is gone"),
                                (other(path, np.array([b"a", b"b"])), "is text"), (other(path, np.ones((2, 2, 2))), "has three dimensions")]):
        damaged(name, path, how, what)
for name, path in (("band.h5", "x"), ("invert.h5", "inverse"), ("x.h5", "x"), ("cg.h5", "x")):
    with h5py.File(name) as f:
        d = f[path][...]
    for value in (np.nan, np.inf, -np.inf):
        wrong(name, path, {(1, 0): value}, f"{value} at (1, 0)" if value == value else "NaN at (1, 0)")
for name, file, path in (("x.h5", "dense.h5", "A"), ("x.h5", "dense.h5", "b"), ("cg.h5", "dense.h5", "spd"), ("factor.h5", "band_in.h5", "A")):
    shutil.copy(file, "kept.h5")
    with h5py.File(file, "r+") as f:
        f[path][0, 0] = np.nan
    done = test.run(f"verify {name}", 2, 3)
    check(f"NaN in the input of {name}", "NaN" in done.err and f"{file}:/{path} row 0, column 0" in done.err and len(done.said) == 1, done.err)
    os.replace("kept.h5", file)
print(f"{tried} wrong results")
test.finish()
