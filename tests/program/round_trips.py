#!/usr/bin/env python3
"""What terrace writes, other programs read, and the other way round: NumPy, SciPy and h5py as oracles.

round_trips.py TERRACE     Needs h5py, numpy and scipy; runs in a temporary folder.
"""
import os
import shutil
import sys

import h5py
import numpy as np
import scipy.io
import scipy.linalg
import scipy.sparse as sparse

from given import bits, rref
from terrace import ALL, Program, read_json

test = Program(sys.argv[1])
check = test.check
rng = np.random.default_rng(7)


def run(command, ranks=2, code=0):
    return test.run(command, ranks, code)


def refused(command, *words):
    test.refused(command, 3, *words, ranks=2)


def csr(group):
    return sparse.csr_matrix((group["data"][:], group["indices"][:], group["indptr"][:]), shape=tuple(group.attrs["shape"]))


# --- of order zero, or without a right-hand side: every method -----------------------------------------
with h5py.File("none.h5", "w") as f:
    f["A"], f["v"], f["b"], f["bits"] = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 3)), np.zeros((0, 0), np.uint8)
    f["band"], f["csr/data"], f["csr/indices"], f["csr/indptr"] = np.zeros((3, 0)), np.zeros(0), np.zeros(0, int), np.zeros(1, int)
    f["band"].attrs["format"], f["csr"].attrs["shape"] = "band", (0, 0)
    f["B"], f["S"], f["c"] = np.array([[4.0] * 90, [1.0] * 90]), 4 * np.eye(9), np.zeros((9, 0))
    f["B"].attrs["format"], f["d"] = "band", np.zeros((90, 0))
ways = {"dense solve none.h5:/A --rhs :/{b}": ["", "--method gauss-jordan", "--method cholesky", "--method cramer", "--assume auto", "--precision mixed", "--guard"],
        "dense factor none.h5:/A": ["", "--method cholesky"], "dense invert none.h5:/A": ["", "--method textbook", "--check exact"],
        "dense solve none.h5:/S --rhs :/c": ["", "--method gauss-jordan", "--method cholesky", "--precision mixed", "--method cramer"],
        "band solve none.h5:/band --rhs :/{b}": ["", "--precision mixed"] + ["--method " + m for m in ("one-end", "two-ends", "partition", "streamed")],
        "band solve none.h5:/B --rhs :/d": ["", "--precision mixed"] + ["--method " + m for m in ("one-end", "two-ends", "partition", "streamed")],
        "band factor none.h5:/band": ["", "--method streamed"], "gf2 rref none.h5:/bits": ["", "--transform", "--echelon"], "gf2 inverse none.h5:/bits": [""],
        "cg none.h5:/csr --rhs :/{b}": ["", "--preconditioner amg", "--preconditioner amg --near-null-space :/b"], "cg none.h5:/A --rhs :/{b}": ["", "--precision mixed"],
        "cg none.h5:/band --rhs :/{b}": ["--preconditioner ic"]}
for command, options in ways.items():
    for k, option in enumerate(options):
        for ranks in test.some(1, 3) if k < 2 or "mixed" in option else (2 - k % 2,):
            one = {"textbook": 1}.get(option.split()[-1] if option else "", ranks)
            run(f"{command.format(b='vb'[k % 2])} {option} -o none_x.h5 --force", one)
        run("verify none_x.h5", 1)

# --- solvers on every input form -----------------------------------------------------------------
n = 70
spd = rng.normal(size=(n, n))
spd = spd @ spd.T + n * np.eye(n)
b = rng.normal(size=(n, 3))
ab = np.zeros((6, n))
ab[0], ab[1:] = 12, rng.uniform(-1, 1, (5, n))
full = np.zeros((n, n))
for d in range(6):
    full += np.diag(ab[d, : n - d], -d) + (np.diag(ab[d, : n - d], d) if d else 0)
upper = np.full((6, n), np.nan)
for d in range(6):
    upper[5 - d, d:] = ab[d, : n - d]
ab[1:, -1] = np.nan  # the unused corner may hold anything
matrix = rng.integers(0, 2, (50, 131), dtype=np.uint8)
matrix[20:] = matrix[:30]  # rank at most 30 + 20
with h5py.File("in.h5", "w") as f:
    f["A"], f["b"], f["v"], f["f32"] = spd, b, b[:, 0], spd.astype(np.float32)
    f["fortran"] = spd.T + np.arange(n)[:, None]
    f["fortran"].attrs["order"] = "column-major"
    f["lower"], f["upper"] = ab, upper
    f["lower"].attrs["format"] = f["upper"].attrs["format"] = np.bytes_(b"band")  # fixed-length text
    f["upper"].attrs["uplo"] = "upper"
    s = sparse.csr_matrix(full)
    f["s/data"], f["s/indices"], f["s/indptr"] = s.data, s.indices, s.indptr
    f["s"].attrs.update({"shape": s.shape, "encoding-type": "csr_matrix"})
    f["plain"], f["bool"], f["int8"] = matrix, matrix.astype(bool), matrix.astype(np.int8)
    f.create_dataset("chunked", data=matrix, chunks=(7, 20), compression="gzip")
    for order in ("little", "big"):
        f[order] = np.packbits(matrix, axis=1, bitorder=order)
        f[order].attrs.update({"columns": np.uint16(131), "bitorder": order})
    words = np.zeros((50, 3 * 64), np.uint8)
    words[:, :131] = matrix
    f["words"] = np.packbits(words, axis=1, bitorder="little").view(np.uint64)
    f["words"].attrs.update({"columns": np.array([131]), "format": "bits"})

for k, name in enumerate(("A", "f32", "fortran")):
    truth = {"A": spd, "f32": spd.astype(np.float32), "fortran": spd + np.arange(n)[None, :]}[name]
    run(f"dense solve in.h5:/{name} --rhs :/{'b' if k else 'v'} -o x.h5 --force", 1 + k)
    with h5py.File("x.h5") as f:
        check("dense solve " + name, np.allclose(truth @ f["x"][...], b if k else b[:, 0], atol=1e-6))
run("dense invert in.h5:/fortran -o x.h5 --force", 3)
with h5py.File("x.h5") as f:
    sign, log = np.linalg.slogdet(spd + np.arange(n)[None, :])
    check("determinant", np.isclose(f["inverse"].attrs["log_abs_determinant"], log) and f["inverse"].attrs["determinant_sign"] == sign)
for k, name in enumerate(("lower", "upper")):
    run(f"band factor in.h5:/{name} -o l.h5 --force", 2 + k)
    run(f"band solve in.h5:/{name} --rhs :/b -o x.h5 --force", 3 - k)
    run(f"band solve in.h5:/{name} --rhs :/b --factor l.h5:/factor -o x2.h5 --force", 2)
    oracle = scipy.linalg.solveh_banded(np.nan_to_num(ab), b, lower=True)
    factor = scipy.linalg.cholesky_banded(np.nan_to_num(ab), lower=True)
    with h5py.File("x.h5") as f, h5py.File("x2.h5") as g, h5py.File("l.h5") as h:
        check("band solve " + name, np.allclose(f["x"][:], oracle) and np.allclose(g["x"][:], oracle))
        inside = np.add.outer(np.arange(6), np.arange(n)) < n
        check("band factor " + name, np.allclose(h["factor"][:][inside], factor[inside]))
        check("solveh_banded reads the factor", np.allclose(scipy.linalg.cho_solve_banded((h["factor"][:], True), b), oracle))
    run(f"band factor in.h5:/{name} --method streamed --backend cpu -o l.h5 --force", 1 + 2 * k)
    with h5py.File("l.h5") as h:
        check("band factor streamed " + name, np.allclose(h["factor"][:][inside], factor[inside]))
    for ranks, method in test.part(((1, "two-ends"), (3, "two-ends"), (1, "partition"), (2, "partition --parts 3"), (4, "auto"), (1, "streamed"),
                                    (1, "streamed --factor l.h5:/factor"), (2, "streamed"), (3, "streamed --factor l.h5:/factor"))):
        run(f"band solve in.h5:/{name} --rhs :/b --method {method} --backend cpu -o x.h5 --force", ranks)
        with h5py.File("x.h5") as f:
            check(f"band solve {name} {method}", np.allclose(f["x"][:], oracle))
    for ranks, rhs in test.part(((1, "b"), (2, "b"), (3, "b"), (1, "v"), (5, "v"))):
        run(f"band solve in.h5:/{name} --rhs :/{rhs} --precision mixed --backend cpu -o x.h5 --report r.json --force", ranks)
        report = read_json()
        with h5py.File("x.h5") as f:
            check(f"band solve {name} mixed", np.allclose(f["x"][:], oracle if rhs == "b" else oracle[:, 0]))
            check(f"report of {name} mixed", report["precision"] == "mixed")
            exact = np.linalg.cond(full, 1)
            check(f"iterations {report}", 1 <= report["result"]["iterations"] < 9 and report["method"] == "mixed")
            check(f"condition {report['condition_estimate']} {exact}", 0.3 * exact < report["condition_estimate"] < 1.1 * exact)
        check("verify mixed", "PASS" in run("verify x.h5", 1).out)
# A beam: condition 1e13, so a solve in mixed precision may leave it to FP64 and then says so; exit 0 either way.
m = 3000
with h5py.File("beam.h5", "w") as f:
    f["A"] = np.outer([6.0, -4.0, 1.0], np.ones(m))
    f["A"][0, [0, m - 1]] = 5.0
    f["A"].attrs["format"], f["b"] = "band", np.ones(m)
run("band solve beam.h5:/A --rhs :/b --precision mixed --backend cpu -o x.h5 --report r.json --force", 2)
report = read_json()
check(f"beam {report}", report["precision"] == "mixed" or "FP64" in report["note"])
check("verify beam", "PASS" in run("verify x.h5", 1).out)
for command in ("in.h5:/A", "in.h5:/lower", "in.h5:/s"):
    run(f"cg {command} --rhs :/v -o x.h5 --force", 3)
    truth = spd if command.endswith("A") else full
    with h5py.File("x.h5") as f:
        check("cg " + command, np.linalg.norm(truth @ f["x"][:] - b[:, 0]) < 2e-10 * np.linalg.norm(b[:, 0]))
truth, pivots = rref(matrix)
for k, name in enumerate(("plain", "bool", "int8", "chunked", "little", "big", "words")):
    run(f"gf2 rref in.h5:/{name} -o r.h5 --force", 1 + k % 4)
    with h5py.File("r.h5") as f:
        check("gf2 rref " + name, np.array_equal(bits(f["rref"]), truth) and list(f["pivots"][:]) == pivots)
run("gf2 kernel in.h5:/big -o k.h5", 3)
with h5py.File("k.h5") as f:
    kernel = bits(f["kernel"]).astype(int)
    check("gf2 kernel", kernel.shape[0] == 131 - len(pivots) and not (matrix.astype(int) @ kernel.T % 2).any())

# --- generate: the same matrix on any number of ranks, b = A x_true ------------------------------
for kind in ("gf2-random --rows 70 --columns 130", "gf2-rank --rows 70 --columns 130 --rank 41", "band-spd --n 60 --half-bandwidth 7 --condition 1e5",
             "band-laplace --points 7", "dense-random --n 50", "dense-condition --n 50 --condition 1e7", "dense-spd --n 50 --condition 1e3",
             "csr-laplace --dim 3 --points 4", "csr-laplace --dim 2 --points 5"):
    for ranks in (1, 3):
        run(f"generate {kind} --rhs 3 --seed 5 -o g{ranks}.h5 --force", ranks)
    with h5py.File("g1.h5") as f, h5py.File("g3.h5") as g:
        same = []
        f.visititems(lambda name, o: same.append(np.array_equal(o[...], g[name][...])) if isinstance(o, h5py.Dataset) else None)
        check(f"{kind} depends on the ranks", all(same) and len(same) >= 3)
        if kind.startswith("gf2"):
            a, x, y = (bits(f[k]).astype(int) for k in ("A", "x_true", "b"))
            check(kind, np.array_equal(a @ x % 2, y))
            if "rank" in kind.split()[0]:
                check(kind, len(rref(a)[1]) == 41)
        else:
            a = f["A"]
            if isinstance(a, h5py.Group):
                a = csr(a).toarray()
                check(kind, np.array_equal(a, a.T))
                line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(int(kind.split()[-1]),) * 2)
                eye = sparse.eye(line.shape[0])
                grid = sparse.kron(line, eye) + sparse.kron(eye, line)
                truth = sparse.kron(grid, eye) + sparse.kron(sparse.eye(grid.shape[0]), line) if "--dim 3" in kind else grid
                check(kind, np.array_equal(a, truth.toarray()), "not the Laplace operator")
            elif a.attrs.get("format") == "band":
                a = sum(np.diag(row[: a.shape[1] - d], -d) + (np.diag(row[: a.shape[1] - d], d) if d else 0) for d, row in enumerate(a[:]))
                if "laplace" in kind:
                    line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(int(kind.split()[-1]),) * 2)
                    eye = sparse.eye(line.shape[0])
                    check(kind, np.array_equal(a, (sparse.kron(line, eye) + sparse.kron(eye, line)).toarray()), "not the Laplace operator")
            else:
                a = a[:]
            check(kind, np.allclose(a @ f["x_true"][:], f["b"][:], rtol=1e-12, atol=1e-12))
            if "--condition" in kind and "dense" in kind:
                check(kind, np.isclose(np.linalg.cond(a), float(kind.split()[-1]), rtol=1e-6))
    check(kind, "PASS" in run("verify g3.h5", 3).out)

# --- convert -------------------------------------------------------------------------------------
a = rng.standard_normal((37, 37))
with open("a.txt", "w") as f:
    f.write("37\n" + "\n".join(" ".join("%.17g" % x for x in row) for row in a))
run("convert a.txt a.h5", 3)
run("convert a.h5:/A b.txt", 2)
header = "{'descr': '<f8', 'shape': (3, 3), 'fortran_order':".ljust(117) + "\n"  # nothing behind its colon
with open("cut.npy", "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header[:-1].encode() + b" " + bytes(72))
refused("convert cut.npy cut.h5", "fortran_order")
run("convert a.h5 c.txt --tabs", 1)
check("text", np.array_equal(h5py.File("a.h5")["A"][:], a))
check("%.6e", open("b.txt").read() == "37\n" + "".join(" ".join("%.6e" % x for x in row) + "\n" for row in a))
check("tabs", open("c.txt").read() == open("b.txt").read().replace(" ", "\t"))
for form, order in (("f8", "C"), ("f4", "F"), (">f8", "F"), ("i8", "C"), ("u2", "F"), (">i4", "C"), ("u1", "F"), ("?", "C")):
    m = np.asarray(rng.integers(0, 2 if form in ("u1", "?") else 99, (19, 133)), dtype=form, order=order)
    np.save("m.npy", m)
    run("convert m.npy m.h5 --force", 3)
    run("convert m.h5 m2.npy --force", 2)
    with h5py.File("m.h5") as f:
        check("npy " + form, np.array_equal(bits(f["A"]) if form in ("u1", "?") else f["A"][:], m))
    check("npy back " + form, np.array_equal(np.load("m2.npy"), m))
s = sparse.random(50, 40, 0.1, random_state=1, format="csr")
scipy.io.mmwrite("s.mtx", s, precision=17)
run("convert s.mtx s.h5", 5)
run("convert s.h5 s2.mtx", 2)
check("mtx", (csr(h5py.File("s.h5")["A"]) != s).nnz == 0 and (sparse.csr_matrix(scipy.io.mmread("s2.mtx")) != s).nnz == 0)
scipy.io.mmwrite("y.mtx", sparse.csr_matrix(full), symmetry="symmetric", precision=17)
run("convert y.mtx y.h5", 3)
check("symmetric mtx", np.array_equal(csr(h5py.File("y.h5")["A"]).toarray(), full))
with open("k.mtx", "w") as f:
    f.write("%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 3\n2 1 1.5\n3 1 -2\n3 2 4\n")
with open("twice.mtx", "w") as f:
    f.write("%%MatrixMarket matrix coordinate real general\n3 3 5\n1 1 1\n2 2 2\n1 1 4\n3 3 1\n1 1 8\n")
with open("lines.mtx", "w") as f:  # an entry in two lines: read in order
    f.write("%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 3\n2 1\n1.5\n3 1 -2\n3 2 4\n")
with open("array.mtx", "w") as f:
    f.write("%%MatrixMarket matrix array real skew-symmetric\n3 3\n1.5\n-2\n4\n")
skew = [[0, -1.5, 2], [1.5, 0, -4], [-2, 4, 0]]
for name, wanted in (("k", skew), ("lines", skew), ("array", skew), ("twice", np.diag([13.0, 2, 1]))):
    for ranks in test.some(1, 2):
        run(f"convert {name}.mtx {name}.h5 --force", ranks)
        with h5py.File(f"{name}.h5") as f:
            found = f["A"][:] if name == "array" else csr(f["A"]).toarray()
            check(f"{name}.mtx on {ranks}", np.array_equal(found, wanted), found)
header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }".ljust(70000) + "\n"  # as of structures with many fields
with open("long.npy", "wb") as f:
    f.write(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header.encode() + np.arange(6.0).tobytes())
run("convert long.npy long.h5", 2)
with h5py.File("long.h5") as f:
    check("a long header", np.array_equal(f["A"][:], np.arange(6.0).reshape(2, 3)), f["A"][:])
scipy.io.mmwrite("d.mtx", a[:9], precision=17)
run("convert d.mtx d.h5", 2)
run("convert d.h5 d2.mtx", 2)
check("array mtx", np.array_equal(h5py.File("d.h5")["A"][:], a[:9]) and np.array_equal(scipy.io.mmread("d2.mtx"), a[:9]))
run("convert in.h5:/lower band.mtx", 2)
check("band mtx", np.array_equal(scipy.io.mmread("band.mtx").toarray(), full))
for name, text, line in (("x1.txt", "3\n1 2 3\n4 5 x\n7 8 9\n", 3), ("x2.txt", "3\n1 2 3\n4 5\n", 3), ("x3.txt", "2\n1 2\n3 4\n5\n", 4),
                         ("x4.txt", "2\n1 nan 3 4\n", 2), ("x5.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n4 1 2.0\n", 4)):
    with open(name, "w") as f:
        f.write(text)
    refused(f"convert {name} bad.h5", f"line {line};")
refused("convert none.npy bad.h5", "none.npy")

# --- paths that are long and names that are as long as names may be ------------------------------
deep = "/".join(["d" * 200] * 3)
os.makedirs(deep)
run(f"generate dense-random --n 9 --rhs 1 -o {deep}/in.h5")
for ranks in (1, 2):
    for name in (f"{deep}/out.h5", "n" * 255):
        run(f"dense solve {deep}/in.h5:/A --rhs :/b -o {name} --force", ranks)
        run(f"verify {name}", ranks)
        os.remove(name)
    run(f"dense solve {deep}/in.h5:/A --rhs :/b -o {'n' * 256}", ranks, 2)
    run(f"convert {deep}/in.h5:/A {'n' * 252}.npy", ranks, 2)
shutil.rmtree("d" * 200)
with h5py.File("vast.h5", "w") as f:  # never written, more than any disk has
    f.create_dataset("A", shape=(2**24, 2**24), dtype="f8", chunks=(64, 64))
for form in ("npy", "txt", "mtx"):
    run(f"convert vast.h5:/A vast.{form}", 1, 5)
check("nothing of it is left", not [x for x in os.listdir(".") if "vast." in x and x != "vast.h5"])
os.remove("vast.h5")

# --- chunks that were never written hold the fill value -------------------------------------------
with h5py.File("partly.h5", "w") as f:
    for name, more in (("plain", {}), ("gzip", {"compression": "gzip", "shuffle": True}), ("open", {"maxshape": (None, None)})):
        for fill in (None, 2.0):
            f.create_dataset(f"{name}_{fill}", shape=(50, 50), chunks=(7, 9), dtype="f8", fillvalue=fill, **more)[3:10, 1:30] = 1.5
for ranks in (1, 3):
    with h5py.File("partly.h5") as f:
        for name, data in f.items():
            if not ALL and (ranks > 1) != (("2.0" in name) != ("gzip" in name)):
                continue  # of a kind one fill value here, the other there
            run(f"convert partly.h5:/{name} partly.npy --force", ranks)
            check(f"{name} on {ranks}", np.array_equal(np.load("partly.npy"), data[()]))

# --- rows without a pivot lie behind all pivot rows, wherever they were ---------------------------
for where in ("first", "last", "between"):
    a = rng.integers(0, 2, (90, 70), dtype=np.uint8)
    zero = {"first": slice(0, 40), "last": slice(50, 90), "between": slice(1, 90, 2)}[where]
    a[zero] = 0
    with h5py.File("deficient.h5", "w") as f:
        f["A"] = a
    for ranks in test.some(1, 2, 3):
        run("gf2 rref deficient.h5:/A --block 64 -o reduced.h5 --force", ranks)
        with h5py.File("reduced.h5") as f:
            check(f"zero rows {where} on {ranks}", np.array_equal(bits(f["rref"]), rref(a)[0]))

# --- determinants by Cramer's rule keep their sign ------------------------------------------------
for swaps in (0, 1):
    a = np.diag([3.0, 2.0, 5.0, 4.0])
    a[[0, 2]] = a[[2, 0]] if swaps else a[[0, 2]]
    with h5py.File("cramer.h5", "w") as f:
        f["A"], f["b"] = a, np.arange(4.0)
    run("dense solve cramer.h5:/A --rhs :/b --method cramer -o x.h5 --force --report cramer.json", 1)
    check(f"sign with {swaps} exchanges", read_json("cramer.json")["result"]["determinant_sign"] == (-1 if swaps else 1), swaps)
    with h5py.File("x.h5") as f:
        check(f"x with {swaps} exchanges", np.allclose(f["x"][:], np.linalg.solve(a, np.arange(4.0)), rtol=1e-14), f["x"][:])

# --- a result and its input may move; a changed attribute is found -------------------------------
os.mkdir("moved")
run("dense invert in.h5:/A -o inverse.h5")
os.rename("inverse.h5", "moved/inverse.h5")
check("moved result", "PASS" in run("verify moved/inverse.h5").out)
shutil.copy("in.h5", "moved/in.h5")
os.rename("in.h5", "gone.h5")
run("verify moved/inverse.h5", 2, 3)
check("--input", "PASS" in run("verify moved/inverse.h5 --input moved/in.h5").out)
with h5py.File("moved/inverse.h5", "r+") as f:
    f["inverse"].attrs["log_abs_determinant"] *= 1 + 2e-16
check("a changed attribute", "FAIL" in run("verify moved/inverse.h5 --input moved/in.h5", 2, 4).out)

check("nothing left behind", not [f for f in os.listdir(".") if f.startswith(".")])

test.finish()
