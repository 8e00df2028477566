#!/usr/bin/env python3
"""Files as others store them, through the commands: links, holes, user blocks, odd types, orders, MATLAB; NumPy is the oracle.

storage_forms.py TERRACE     Needs h5py and numpy; runs in a temporary folder. Readers one by one: tests/io/storage_test.cpp.
"""
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np

from given import bits, rref
from terrace import Program, read_json

test = Program(sys.argv[1])
check = test.check
rng = np.random.default_rng(11)


def run(command, code=0, ranks=1, env=None):
    """The lines that terrace wrote to standard error, and standard output."""
    done = test.run(command, ranks, code, env)
    return done.said, done.out


def refused(command, *words):
    done = test.refused(command, 3, *words)
    check(command, all(line.count("; ") >= 2 for line in done.said), done.said)


n = 40
A = rng.standard_normal((n, n)) + n * np.eye(n)
b = rng.standard_normal(n)

# An external link to the same place in another file; a hole; a user block.
with h5py.File("away.h5", "w") as f:
    f["x"], f["b"] = A, b
with h5py.File("in.h5", "w") as f:
    f["wrong"] = 2 * np.eye(n)
    f["A"], f["b"] = h5py.ExternalLink("away.h5", "/x"), h5py.ExternalLink("away.h5", "/b")
    f["soft"] = h5py.SoftLink("/A")
    d = f.create_dataset("holes", (n, n), chunks=(7, 5))
    for i in range(n):
        d[i, i] = 2.0 + i
with h5py.File("user.h5", "w", userblock_size=2048) as f:
    f["A"] = A
for name, truth in (("A", A), ("soft", A), ("holes", np.diag(2.0 + np.arange(n)))):
    run(f"dense solve in.h5:/{name} --rhs :/b -o x.h5 --force")
    with h5py.File("x.h5") as f:
        check("solve " + name, np.allclose(truth @ f["x"][:], b))
    check("verify " + name, "PASS" in run("verify x.h5")[1])
run("dense invert user.h5:/A -o user.h5:/result")
with h5py.File("user.h5") as f:
    check("invert behind a user block", np.allclose(f["result/inverse"][:] @ A, np.eye(n)))
check("verify behind a user block", "PASS" in run("verify user.h5:/result")[1] and "PASS" in run("verify user.h5")[1])
with open("user.h5", "r+b") as f:
    f.write(b"notes of the user" * 20)  # a user block may hold anything
check("verify behind notes", "PASS" in run("verify user.h5:/result")[1])
with open("notes.txt", "w") as f:
    f.write("no HDF5 " * 4000)
refused("verify notes.txt", "not an HDF5 file")

# Words of 63 bits; bits by columns, plain and packed.
with h5py.File("bits.h5", "w") as f:
    odd = h5py.h5t.STD_U64LE.copy()
    odd.set_precision(63)
    words = np.arange(1, 7, dtype=np.uint64).reshape(6, 1)
    h5py.h5d.create(f.id, b"odd", odd, h5py.h5s.create_simple(words.shape)).write(h5py.h5s.ALL, h5py.h5s.ALL, words)
    f["odd"].attrs.update({"columns": 64, "format": "bits"})
    wide = rng.integers(0, 2, (9, 70), dtype=np.uint8)
    f["plain"], f["octets"] = wide.T, np.packbits(wide, axis=1).T
    padded = np.zeros((9, 128), np.uint8)
    padded[:, :70] = wide
    f["words"] = np.packbits(padded, axis=1, bitorder="little").view(np.uint64).T
    f["plain"].attrs["order"] = "column-major"
    f["octets"].attrs.update({"order": "column-major", "columns": 70, "bitorder": "big"})
    f["words"].attrs.update({"order": "column-major", "columns": 70, "format": "bits"})
    f["turned"] = wide
    f["turned"].attrs["order"] = "sideways"
    f["two"] = 2 * wide.T
    f["two"].attrs["order"] = "column-major"
    f["one"] = np.eye(70, dtype=np.uint8)
run("gf2 rank bits.h5:/odd --report r.json")
check("rank of odd words", read_json()["result"]["rank"] == 3)
for name, ranks in (("plain", 1), ("octets", 2), ("words", 1)):
    run(f"gf2 multiply bits.h5:/{name} :/one -o p.h5 --force", ranks=ranks)
    with h5py.File("p.h5") as f:
        check("bits by columns, " + name, np.array_equal(bits(f["product"]), wide))
check("verify of bits by columns", "PASS" in run("verify p.h5")[1])
refused("gf2 rank bits.h5:/turned", "order is 'sideways'", "column-major")
i, j = np.argwhere(wide)[0]
refused("gf2 rank bits.h5:/two", "a value other than 0 and 1: 2", f"row {i}, column {j}")

# MATLAB 7.3: a user block, arrays by columns.
logical = rng.integers(0, 2, (n, n + 5), dtype=np.uint8)
with h5py.File("m.mat.h5", "w", userblock_size=512) as f:
    def save(name, array, kind="double", **more):
        d = f.create_dataset(name, data=np.atleast_2d(array).T if array.ndim < 2 or kind != "raw" else array)
        d.attrs["MATLAB_class"] = np.bytes_(kind)
        d.attrs.update(more)
    save("A", A)
    save("column", b[:, None])
    save("row", b[None, :])
    save("many", np.stack([b, -b], 1))
    save("L", logical, "logical", MATLAB_int_decode=1)
    save("lb", logical[:, :1], "logical", MATLAB_int_decode=1)
    save("stated", A, order="column-major")
    save("torn", A, order="row-major")
    save("text", np.frombuffer(b"abcd", np.uint8).reshape(2, 2).astype(np.uint16), "char", MATLAB_int_decode=2)
    save("band", np.vstack([np.full(n, 4.0), np.ones(n)]), format="band")
    f["empty"] = np.array([0, 3], np.uint64)
    f["empty"].attrs.update({"MATLAB_class": np.bytes_("double"), "MATLAB_empty": 1})
with open("m.mat.h5", "r+b") as f:
    f.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
for rhs in ("column", "row", "many"):
    warned = run(f"dense solve m.mat.h5:/A --rhs :/{rhs} -o x.h5 --report r.json --force", ranks=2 if rhs == "row" else 1)[0]
    with h5py.File("x.h5") as f:
        x, stored = f["x"][:], f["terrace"].attrs["warnings"]
    check("MATLAB, " + rhs, x.ndim == (2 if rhs == "many" else 1) and np.allclose(A @ x, np.stack([b, -b], 1) if rhs == "many" else b))
    check("warnings of MATLAB", len(warned) == 2 and all(w.startswith("terrace: warning: MATLAB") and len(w.split("; ")) == 3 for w in warned), warned)
    check("warnings in report and file", len(read_json()["warnings"]) == 2 and "column-major" in str(stored))
check("verify MATLAB", "PASS" in run("verify x.h5")[1])
check("no warning of what is stated", run("dense invert m.mat.h5:/stated -o y.h5")[0] == [])
with h5py.File("y.h5") as f:
    check("stated", np.allclose(f["inverse"][:] @ A, np.eye(n)))
run("gf2 solve m.mat.h5:/L --rhs :/lb -o x.h5 --force")
with h5py.File("x.h5") as f:
    answer = np.unpackbits(f["x"][:].view(np.uint8).reshape(n + 5, -1), axis=1, bitorder="little")[:, 0]
    check("logical", np.array_equal(logical.astype(int) @ answer % 2, logical[:, 0]))
run("gf2 rank m.mat.h5:/L --report r.json")
check("logical rank", read_json()["result"]["rank"] == len(rref(logical)[1]))
warned = run("convert m.mat.h5:/A a.npy")[0]
check("convert of MATLAB", np.array_equal(np.load("a.npy"), A) and len(warned) == 1, warned)
refused("dense invert m.mat.h5:/torn -o z.h5", "order is 'row-major'", "MATLAB")
refused("dense invert m.mat.h5:/text -o z.h5", "class char")
refused("dense invert m.mat.h5:/empty -o z.h5", "empty MATLAB array")
warned = run("band factor m.mat.h5:/band -o factor.h5")[0]
with h5py.File("factor.h5") as f:
    factor = f["factor"][:]
    L = np.diag(factor[0]) + np.diag(factor[1, :-1], -1)
    check("a band of MATLAB", np.allclose(L @ L.T, 4 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)) and len(warned) == 1 and "column-major" in warned[0], warned)

# Whole numbers are real ones where real ones are wanted; NaN is refused in every form.
with h5py.File("whole.h5", "w") as f:
    spd = 4 * np.eye(n, dtype=int) + np.eye(n, k=1, dtype=int) + np.eye(n, k=-1, dtype=int)
    f["i1"], f["u1"], f["bool"], f["b"] = spd.astype("i1"), spd.astype("u1"), np.eye(n, dtype=bool), b
    f["packed"] = np.packbits(np.eye(n, dtype=np.uint8), axis=1)
    f["packed"].attrs.update({"columns": n, "bitorder": "big"})
for name, more in (("i1", ""), ("u1", "--format dense"), ("bool", "")):
    run(f"cg whole.h5:/{name} --rhs :/b {more} -o x.h5 --force")
    with h5py.File("x.h5") as f, h5py.File("whole.h5") as g:
        check("cg of " + name, np.allclose(g[name][:].astype(float) @ f["x"][:], b, atol=1e-8))
    check("verify cg of " + name, "PASS" in run("verify x.h5")[1])
refused("cg whole.h5:/packed --rhs :/b -o z.h5", "bits")
for k, (array, at) in enumerate(((np.array([[1, 2.0], [3, np.nan]]), "row 1, column 1"), (np.asfortranarray([[1, 2.0], [-np.inf, 4], [5, 6]]), "row 1, column 0"),
                                 (np.array([1, 2, np.inf], np.float32), "row 2, column 0"))):
    np.save(f"bad{k}.npy", array)
    refused(f"convert bad{k}.npy z.h5", "NaN" if k == 0 else "Inf", f"bad{k}.npy", at)

# A link that leads nowhere, or to what is cut off; never a crash or a wrong number.
with h5py.File("lost.h5", "w") as f:
    f["gone"], f["cut"] = h5py.ExternalLink("none.h5", "/x"), h5py.ExternalLink("cut.h5", "/x")
with open("cut.h5", "wb") as f:
    f.write(open("away.h5", "rb").read()[:-4000])
for name in ("gone", "cut"):
    refused(f"dense invert lost.h5:/{name} -o z.h5", "lost.h5:/" + name)

# Of a virtual dataset whose part has lost rows, HDF5 reads what memory holds; whole parts of another size end its reading.
whole = h5py.VirtualLayout((n, n), "f8")
whole[...] = h5py.VirtualSource("part.h5", "x", (n, n))
halves = h5py.VirtualLayout((n, n), "f8")
for half in (slice(0, n // 2), slice(n // 2, n)):
    halves[half] = h5py.VirtualSource("part.h5", "x", (n, n))[half]
with h5py.File("virtual.h5", "w") as f:
    f.create_virtual_dataset("whole", whole)
    f.create_virtual_dataset("halves", halves)
for rows in (n, n - 3, n + 3):
    with h5py.File("part.h5", "w") as f:
        f["x"] = np.resize(A, (rows, n))
    for name in ("whole", "halves"):
        if rows == n or (rows > n and name == "halves"):
            run(f"convert virtual.h5:/{name} v.npy --force")
            check(f"{name} of {rows} rows", np.array_equal(np.load("v.npy"), A))
        else:
            refused(f"convert virtual.h5:/{name} v.npy --force", "a part of the virtual dataset does not fit: x in part.h5", f"virtual.h5:/{name}")

# Filters in every order; a sum that is wrong is told.
orders = [[1], [1, 2], [2, 1], [3, 1, 2], [1, 3, 2], [2, 3, 1], [1, 2, 1]]  # 1: check sums, 2: gzip, 3: shuffle
with h5py.File("filters.h5", "w") as f:
    for k, order in enumerate(orders):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((17, 9))
        for one in order:
            {1: plist.set_fletcher32, 2: lambda: plist.set_deflate(4), 3: plist.set_shuffle}[one]()
        h5py.Dataset(h5py.h5d.create(f.id, b"A%d" % k, h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((n, n)), plist))[...] = A
for k, order in enumerate(orders):
    run(f"convert filters.h5:/A{k} v.npy --force", ranks=1 + k % 2)
    check(f"filters {order}", np.array_equal(np.load("v.npy"), A))
with h5py.File("filters.h5", "r+") as f:
    for k in range(len(orders)):
        mask, chunk = f[f"A{k}"].id.read_direct_chunk((17, 9))
        chunk = bytearray(chunk)
        chunk[len(chunk) // 2] ^= 4
        f[f"A{k}"].id.write_direct_chunk((17, 9), bytes(chunk), mask)
for k in range(len(orders)):
    refused(f"convert filters.h5:/A{k} v.npy --force", "a filtered chunk is damaged", f"filters.h5:/A{k}")

# A network that fails while chunks are exchanged ends the job, and says where.
compiler = shutil.which("cc")
if compiler and os.environ.get("TERRACE_SANITIZE") is None:
    with open("broken.c", "w") as f:
        f.write("int MPI_Isend(const void* b, int n, void* t, int r, int g, void* c, void* q) { (void)b; (void)n; (void)t; (void)r; (void)g; (void)c; (void)q; return 16; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "broken.so", "broken.c"], check=True)
    with h5py.File("chunks.h5", "w") as f:
        f.create_dataset("A", data=A, chunks=(n, 7), compression="gzip")
    lines = run("dense invert chunks.h5:/A -o z.h5", code=6, ranks=2, env={"LD_PRELOAD": os.path.abspath("broken.so")})[0]
    check("a broken network", any("MPI_Isend failed" in line and "chunks.h5:/A" in line for line in lines), lines)
    check("a broken network leaves something", not os.path.exists("z.h5") and not [f for f in os.listdir(".") if "terrace-" in f])

test.finish()
