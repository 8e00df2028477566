#!/usr/bin/env python3
"""Arrays of other packages in the Python package: DLPack without a copy, operators with other values. Arrays of Torch and CuPy on a
GPU where they are installed and one is seen."""
import os
import sys

try:
    import numpy as np
    import scipy.sparse
    import scipy.linalg
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
import terrace
from terrace._arrays import Reals, on_device


class Elsewhere:
    """Says that it lies on a CUDA device and knows DLPack alone; the memory is NumPy's, so that this needs no GPU."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def copy(self):
        return Elsewhere(self.array.copy())

    def new_zeros(self, shape):  # as Torch
        return Elsewhere(np.zeros(shape, self.array.dtype))

    @property
    def shape(self):
        return self.array.shape


checks = 0


def check(truth, what):
    global checks
    checks += 1
    if not truth:
        sys.exit(f"failed: {what}")


def refuses(kind, call):
    try:
        call()
    except kind:
        return True
    return False


class OnHost:
    """Of the host, and knows DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **named):
        return self.array.__dlpack__(**named)


draw = np.random.default_rng(3)
square = draw.normal(size=(20, 20))
check(Reals(OnHost(square), "a").pointer == square.ctypes.data, "the pointer of a host's array by DLPack")
given = terrace.linalg.inv(OnHost(square))
check(np.allclose(np.from_dlpack(given) @ square, np.eye(20)), "DLPack of the host, in and out")
check(terrace.gf2.rank(OnHost(np.eye(9, dtype=np.uint8))) == 9, "bits by DLPack of the host")

# Packed bits: words of the host and of a device, in and out without a copy.
zero_one = (draw.random((70, 130)) < 0.5).astype(np.uint8)
packed = terrace.Bits.pack(zero_one)
check(np.from_dlpack(packed).ctypes.data == packed.words.ctypes.data, "bits give their own words")
check(terrace.Bits(OnHost(packed.words), 130).words.ctypes.data == packed.words.ctypes.data, "words of the host by DLPack")
check(np.array_equal(terrace.Bits(packed.words.view(np.int64), 130).unpack(), zero_one), "signed words")
wide = np.zeros((70, 5), np.uint64)
wide[:, 1:4] = packed.words
for words, ld in ((packed.words, 3), (wide[:, 1:4], 5), (packed.words.view(np.int64), 3)):
    there = terrace.Bits(Elsewhere(words), 130)
    check((there.pointer, there.ld or 3, there.shape) == (words.ctypes.data, ld, (70, 130)), f"words of a device, {ld} apart")
    check(there.__dlpack_device__() == (2, 0), "bits say where they are")
    check(terrace.gf2.rank(there) == terrace.gf2.rank(zero_one), "rank of words of a device")
    form, pivots, t = terrace.gf2.rref(there, transform=True)
    known, expected, by = terrace.gf2.rref(packed, transform=True)
    check(isinstance(form.words, Elsewhere) and isinstance(t.words, Elsewhere), "results where the bits are")
    check(np.array_equal(form.words.array.view(np.uint64), known.words) and np.array_equal(pivots, expected), "the same form")
    check(np.array_equal(t.words.array.view(np.uint64), by.words), "the same T")
    product = terrace.gf2.multiply(t, there)
    check(np.array_equal(product.words.array.view(np.uint64), known.words), "T A = R there")
    check(np.array_equal(terrace.gf2.kernel(there).words, terrace.gf2.kernel(packed).words), "kernel")
    right = terrace.Bits(Elsewhere(terrace.gf2.multiply(packed, terrace.Bits.pack(zero_one.T)).words), 70)
    x = terrace.gf2.solve(there, right)
    check(isinstance(x.words, Elsewhere) and np.array_equal(terrace.gf2.multiply(there, x).words.array.view(np.uint64), right.words.array), "solved there")
unit = terrace.Bits(Elsewhere(terrace.Bits.pack(np.triu(np.ones((65, 65), np.uint8))).words), 65)
check(np.array_equal(terrace.gf2.multiply(unit, terrace.gf2.inverse(unit)).words.array, terrace.Bits.pack(np.eye(65)).words), "inverse there")
check(refuses(TypeError, lambda: terrace.Bits(Elsewhere(packed.words.astype(np.uint32)), 130)), "32-bit words are refused")
check(refuses(ValueError, lambda: terrace.Bits(Elsewhere(packed.words.T), 70)), "words of columns are refused")
check(refuses(ValueError, lambda: terrace.Bits(Elsewhere(packed.words), 200)), "too few words")
whole = draw.normal(size=(9, 7))
for view in (whole, whole[2:5], whole[:, :4], whole[3], whole[4:4]):
    there = Reals(Elsewhere(view), "a")
    host = Reals(view, "a")
    check(there.pointer == view.ctypes.data or view.size == 0, "the memory itself")
    check((there.shape, there.rows, there.columns) == (host.shape, host.rows, host.columns), f"shape of {view.shape}")
    check(view.size == 0 or there.ld == host.ld, f"leading dimension of {view.shape}")
check(refuses(TypeError, lambda: Reals(Elsewhere(whole.astype(np.float32)), "a")), "float32 is refused")
check(refuses(ValueError, lambda: Reals(Elsewhere(whole.T), "a")), "columns side by side are refused")
check(on_device(whole) is None, "NumPy's arrays are the host's")

n = 40
a, b = draw.normal(size=(n, n)) + n * np.eye(n), draw.normal(size=(n, 2))
x = terrace.linalg.solve(Elsewhere(a), Elsewhere(b))
check(isinstance(x, Elsewhere) and np.allclose(a @ x.array, b), "solve gives what it got")
given = Elsewhere(b.copy())
x = terrace.linalg.solve(Elsewhere(a), given, overwrite_b=True)
check(x is given and np.allclose(a @ x.array, b), "overwritten in place")
x, info = terrace.sparse.linalg.cg(Elsewhere(a @ a.T), Elsewhere(b[:, 0].copy()), rtol=1e-12)
check(info == 0 and np.allclose(a @ a.T @ x.array, b[:, 0]), "cg gives what it got")

laplace = scipy.sparse.diags([-np.ones(n - 1), 2.5 * np.ones(n), -np.ones(n - 1)], [-1, 0, 1]).tocsr()
other = laplace * 3 + scipy.sparse.diags([draw.random(n)], [0]).tocsr()
operator = terrace.sparse.linalg.Operator(laplace)
for matrix in (other, laplace, other.tocoo()):
    operator.update_values(matrix)
    x, info = terrace.sparse.linalg.cg(operator, b[:, 0], rtol=1e-12)
    check(info == 0 and np.allclose(matrix @ x, b[:, 0]), "values that follow")
check(refuses(ValueError, lambda: operator.update_values(scipy.sparse.identity(n))), "other places are refused")
check(refuses(ValueError, lambda: operator.update_values(np.eye(n))), "another kind is refused")
entries = laplace.tocoo()  # out of order, and in two parts
rows, columns = (np.concatenate([v[::-1], v]) for v in (entries.row, entries.col))
halves = np.concatenate([entries.data[::-1], entries.data]) / 2
order = np.argsort(rows, kind="stable")
twice = scipy.sparse.csr_matrix((halves[order], columns[order], np.searchsorted(rows[order], np.arange(n + 1))), (n, n))
operator = terrace.sparse.linalg.Operator(twice)
operator.update_values(other)
check(np.allclose(other @ terrace.sparse.linalg.cg(operator, b[:, 0], rtol=1e-12)[0], b[:, 0]), "after a matrix with repeated entries")
operator = terrace.sparse.linalg.Operator(a @ a.T)
operator.update_values(2 * a @ a.T)
check(np.allclose(2 * a @ a.T @ terrace.sparse.linalg.cg(operator, b[:, 0], rtol=1e-13)[0], b[:, 0]), "dense values")

on_gpu = 0
for package in ("torch", "cupy"):
    try:
        module = __import__(package)
        if package == "torch" and not module.cuda.is_available() or package == "cupy" and module.cuda.runtime.getDeviceCount() == 0:
            continue
    except Exception:  # not installed, or no driver
        continue
    on_gpu += 1
    put = (lambda v: module.tensor(v, device="cuda")) if package == "torch" else module.asarray
    there_a, there_b = put(a), put(b)
    x = terrace.linalg.solve(there_a, there_b, overwrite_b=True)
    check(x is there_b and np.allclose(a @ terrace._arrays.to_host(x), b), f"{package}: in place on the device")
    check(np.allclose(terrace._arrays.to_host(terrace.linalg.inv(there_a)) @ a, np.eye(n)), f"{package}: inverse")
    check(terrace.gf2.rank(put((a > 0).astype(np.uint8))) == terrace.gf2.rank(a > 0), f"{package}: bits")
    there = terrace.Bits(put(packed.words.view(np.int64)), 130)
    form, pivots = terrace.gf2.rref(there)
    check(on_device(form) is not None and np.array_equal(form.unpack(), terrace.gf2.rref(zero_one)[0]), f"{package}: packed bits")
    back = module.from_dlpack(there)
    check(on_device(back)["data"][0] == there.pointer, f"{package}: the same words")
    check(np.array_equal(terrace.gf2.multiply(there, terrace.Bits(put(terrace.Bits.pack(zero_one.T).words.view(np.int64)), 70)).unpack(),
                         zero_one.astype(int) @ zero_one.T % 2), f"{package}: product of packed bits")
if os.environ.get("TERRACE_API_BACKEND") == "cuda" and not on_gpu:
    print("skipped: neither Torch nor CuPy sees a GPU")
    sys.exit(77)
print(f"{checks} checks, {on_gpu} packages on a GPU")
