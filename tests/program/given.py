"""Matrices that several tests draw, store or read, and elimination over GF(2) by NumPy."""
import os
import time

import h5py
import numpy as np


def band(rng, n, m):
    """A definite band matrix, lower form: ab[d, j] = a[j + d, j]."""
    ab = np.zeros((m + 1, n))
    for d in range(1, m + 1):
        ab[d, : n - d] = rng.uniform(-1, 1, n - d)
    ab[0] = 2 * m + 2 + rng.uniform(0, 1, n)
    return ab


def write_band(ab, b, name="in.h5"):
    with h5py.File(name, "w") as f:
        f["A"], f["b"] = ab, b
        f["A"].attrs["format"] = "band"


def power_band(n, p, m):
    """L L^T with L = (1 - shift)^p, of condition about n^(2 p)."""
    c = np.array([1.0])
    for _ in range(p):
        c = np.convolve(c, [1.0, -1.0])
    ab = np.zeros((m + 1, n))
    for d in range(p + 1):
        for e in range(d, p + 1):
            ab[e - d, d : n - (e - d)] += c[d] * c[e]
    return ab


def growth(n):
    """Pivots grow by 2 a column under partial pivoting."""
    return np.where(np.arange(n) == n - 1, 1.0, np.eye(n) - np.tril(np.ones((n, n)), -1))


def bits(dataset):
    """A packed dataset, one byte an entry."""
    return np.unpackbits(dataset[:].view(np.uint8), axis=1, bitorder="little", count=int(dataset.attrs["columns"]))


def rref(a):
    """The reduced row echelon form over GF(2), and its pivot columns."""
    a, pivots = a.astype(bool).copy(), []
    for j in range(a.shape[1]):
        r = len(pivots)
        rows = np.nonzero(a[r:, j])[0]
        if len(rows):
            a[[r, r + rows[0]]] = a[[r + rows[0], r]]
            others = a[:, j].copy()
            others[r] = False
            a[others] ^= a[r]
            pivots.append(j)
    return a, pivots


def mix(x):
    """splitmix64, as kernels/base/random.hpp has it."""
    x = (x + 0x9E3779B97F4A7C15) & (2**64 - 1)
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return x ^ (x >> 31)


def element(value, position):
    """What an element adds to its dataset's hash."""
    return mix((int(np.array(value).view(np.uint64)) + 0x9E3779B97F4A7C15 * (position + 1)) & (2**64 - 1))


def doctor(dataset, changes):
    """{index: value} into the dataset, and its hash after that."""
    hash_ = int(dataset.attrs["terrace_hash"]) & (2**64 - 1)
    for at, value in changes.items():
        position = int(np.ravel_multi_index(at, dataset.shape))
        hash_ = (hash_ - element(dataset[at], position)) & (2**64 - 1)
        dataset[at] = value
        hash_ = (hash_ + element(dataset[at], position)) & (2**64 - 1)
    dataset.attrs["terrace_hash"] = np.int64(hash_ - 2**64 if hash_ >= 2**63 else hash_)


def change_after_stamp(name, path, at, value):
    """Sets f[path][at] of the file once the program, which waits then (TERRACE_TEST_STAMP), has made "stamp"."""
    end = time.time() + 20
    while not os.path.exists("stamp") and time.time() < end:
        time.sleep(0.01)
    with h5py.File(name, "r+") as f:
        f[path][at] = value
