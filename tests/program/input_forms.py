#!/usr/bin/env python3
"""Forms of inputs: one matrix in many of them gives the same bits, and what a file does not say, options say; SciPy writes and is the oracle.

input_forms.py TERRACE     Needs h5py, numpy and scipy; runs in a temporary folder. How a dataset is stored: storage_forms.py.
"""
import json
import sys

import h5py
import numpy as np
import scipy.sparse as sp

from given import bits, rref
from terrace import ALL, Program, read_json

test = Program(sys.argv[1])
check = test.check
rng = np.random.default_rng(23)


def run(command, code=0, ranks=None):
    return test.run(command, ranks or test.turn(), code)


def refused(command, *words, code=3, ranks=1):
    done = test.refused(command, code, *words, ranks=ranks)
    check(command, all(line.count("; ") >= 2 for line in done.said), done.said)


def warned(command, *words, ranks=None):
    done = run(command, 0, ranks)
    check(command, len(done.said) == 1 and done.said[0].startswith("terrace: warning: ") and done.said[0].count("; ") == 2 and all(w in done.said[0] for w in words), done.said)
    return done


def stored(name, dataset="x"):
    with h5py.File(name) as f:
        return f[dataset][:]


def group(f, name, attrs=None, **arrays):
    g = f.create_group(name)
    for key, value in arrays.items():
        g[key] = value
    g.attrs.update(attrs or {})


# --- one symmetric matrix in many forms: the same bits of x -------------------------------------------
n = 60
S = sp.random(n, n, 0.06, random_state=3)
S = sp.csr_matrix(S + S.T + sp.diags(np.full(n, 9.0)))
S.data = np.round(S.data * 64) / 64  # float32 holds them
S.sort_indices()
C, O, L, U = S.tocsc(), S.tocoo(), sp.tril(S).tocsr(), sp.triu(S).tocsr()
b = rng.standard_normal(n)
shape = {"shape": (n, n)}
mixed = rng.permutation(O.nnz)


def binsparse(kind, **more):
    return {"binsparse": json.dumps({"binsparse": {"version": "0.1", "format": kind, "shape": [n, n], "number_of_stored_values": int(S.nnz),
                                                   "data_types": {"values": "float64"}, **more}})}


with h5py.File("many.h5", "w") as f:
    f["b"] = b
    group(f, "csr", {**shape, "encoding-type": "csr_matrix"}, data=S.data, indices=S.indices, indptr=S.indptr)
    group(f, "wide", shape, data=S.data.astype("f4"), indices=S.indices.astype("i8"), indptr=S.indptr.astype("u8"))
    order = np.concatenate([np.arange(e - 1, s - 1, -1) if e > s else [] for s, e in zip(S.indptr, S.indptr[1:])]).astype(int)
    group(f, "unordered", shape, data=S.data[order], indices=S.indices[order], indptr=S.indptr)
    group(f, "csc", {**shape, "encoding-type": "csc_matrix"}, data=C.data, indices=C.indices, indptr=C.indptr)
    group(f, "coo", shape, data=O.data, row=O.row, col=O.col)
    group(f, "mixed", shape, data=O.data[mixed], row=O.row[mixed].astype("i8"), col=O.col[mixed].astype("u2"))
    group(f, "lower", {**shape, "symmetry": "lower"}, data=L.data, indices=L.indices, indptr=L.indptr)
    group(f, "upper", {**shape, "symmetry": "upper"}, data=U.data, indices=U.indices, indptr=U.indptr)
    T = L.tocsc()
    group(f, "lower-csc", {**shape, "symmetry": "lower", "encoding-type": "csc_matrix"}, data=T.data, indices=T.indices, indptr=T.indptr)
    V = U.tocoo()
    group(f, "upper-coo", {**shape, "symmetry": "upper"}, data=V.data, row=V.row, col=V.col)
    group(f, "matlab", {"MATLAB_sparse": np.uint64(n), "MATLAB_class": np.bytes_("double")}, data=C.data, ir=C.indices.astype("u8"), jc=C.indptr.astype("u8"))
    group(f, "dataset", None, data=S.data, indices=S.indices, indptr=S.indptr, shape=np.array([n, n]))
    group(f, "h5sparse", {"h5sparse_format": "csr", "h5sparse_shape": (n, n)}, data=S.data, indices=S.indices, indptr=S.indptr)
    group(f, "one", shape, data=S.data, indices=S.indices + 1, indptr=S.indptr + 1)
    group(f, "b-csr", binsparse("CSR"), values=S.data, indices_1=S.indices, pointers_to_1=S.indptr)
    group(f, "b-csc", binsparse("CSC"), values=C.data, indices_1=C.indices, pointers_to_1=C.indptr)
    group(f, "b-coo", binsparse("COO"), values=O.data, indices_0=O.row, indices_1=O.col)
    group(f, "b-cooc", binsparse("COOC"), values=O.data, indices_0=O.col, indices_1=O.row)
    group(f, "b-lower", binsparse("CSR", structure="symmetric_lower"), values=L.data, indices_1=L.indices, pointers_to_1=L.indptr)
    # Said on the command line.
    group(f, "bare", None, data=S.data, indices=S.indices, indptr=S.indptr)
    group(f, "bare-lower", shape, data=L.data, indices=L.indices, indptr=L.indptr)
forms = ["csr", "wide", "unordered", "csc", "coo", "mixed", "lower", "upper", "lower-csc", "upper-coo", "matlab", "dataset", "h5sparse", "one", "b-csr",
         "b-csc", "b-coo", "b-cooc", "b-lower", ("bare", f"--shape {n}x{n}"), ("bare-lower", "--uplo lower"), ("bare", f"--format csc --shape {n}x{n}")]
for ranks in (1, 2, 3):  # every form on one of them, beside the first
    first = None
    for form in forms if ALL else forms[:1] + forms[ranks::3]:
        name, said = form if isinstance(form, tuple) else (form, "")
        done = run(f"cg many.h5:/{name} --rhs :/b -o x.h5 --force --rtol 1e-12 {said}", ranks=ranks)
        x = stored("x.h5")
        first = x if first is None else first
        check(f"{name} {said} on {ranks}", np.array_equal(x, first) and np.allclose(S @ x, b, atol=1e-9), abs(S @ x - b).max())
        check(f"warnings of {name}", ("count from one recognised" in done.err) == (name == "one"), done.err)
        if ranks == 2 or not ALL:
            check(f"verify {name}", "PASS" in run("verify x.h5").out)
            with h5py.File("x.h5") as f:
                check(f"stored of {name}", f["terrace"].attrs.get("input_form", "") == said, dict(f["terrace"].attrs))
run(f"cg many.h5:/csc --rhs :/b -o x.h5 --force --no-check")
check("verify with the options again", "PASS" in run("verify x.h5 --format csc").out)
refused("cg many.h5:/bare --rhs :/b -o z.h5", "shape is missing", "--shape")
refused(f"cg many.h5:/csr --rhs :/b -o z.h5 --shape 61x61", "--shape says 61x61", "correct one")
refused(f"cg many.h5:/csc --rhs :/b -o z.h5 --format csr", "csc", "--format says csr", ranks=2)
refused(f"cg many.h5:/lower --rhs :/b -o z.h5 --uplo upper", "lower", "--uplo says upper")
refused("cg many.h5:/coo --rhs :/b -o z.h5 --format csr", "other datasets")
refused(f"cg many.h5:/bare-lower --rhs :/b -o z.h5", "not symmetric", "--uplo lower or upper")
refused(f"cg many.h5:/csr --rhs :/b -o z.h5 --uplo lower", "upper triangle", "row", ranks=2)
refused(f"cg many.h5:/csr --rhs :/b -o z.h5 --bitorder big", "--bitorder", code=2)
refused(f"cg many.h5:/csr --rhs :/b -o z.h5 --format bits", "--format bits", code=2)

# --- sparse groups that are not what they should be ---------------------------------------------------
with h5py.File("bad.h5", "w") as f:
    f["b"] = b
    group(f, "shape", {"shape": (n, n, 1)}, data=O.data, row=O.row, col=O.col)
    group(f, "fewer", shape, data=O.data, row=O.row[:-1], col=O.col)
    group(f, "outside", shape, data=O.data, row=np.where(np.arange(O.nnz) == 7, n, O.row), col=O.col)
    group(f, "negative", shape, data=O.data, row=O.row, col=np.where(np.arange(O.nnz) == 9, -1, O.col))
    group(f, "nan", shape, data=np.where(np.arange(O.nnz) == 5, np.nan, O.data), row=O.row, col=O.col)
    group(f, "csc-nan", {**shape, "encoding-type": "csc_matrix"}, data=np.where(np.arange(C.nnz) == 5, np.nan, C.data), indices=C.indices, indptr=C.indptr)
    group(f, "pointers", {**shape, "encoding-type": "csc_matrix", "symmetry": "lower"}, data=C.data, indices=C.indices, indptr=C.indptr[::-1].copy())
    group(f, "short", {**shape, "encoding-type": "csc_matrix"}, data=C.data, indices=C.indices, indptr=C.indptr[:-1])
    group(f, "strange", {**shape, "encoding-type": "bsr_matrix"}, data=C.data, indices=C.indices, indptr=C.indptr)
    group(f, "symmetry", {**shape, "symmetry": "sideways"}, data=O.data, row=O.row, col=O.col)
    group(f, "wide", {"shape": (n, n + 1), "symmetry": "lower"}, data=O.data, row=O.row, col=O.col)
    group(f, "skew", binsparse("CSR", structure="skew_symmetric_lower"), values=S.data, indices_1=S.indices, pointers_to_1=S.indptr)
    group(f, "dcsr", binsparse("DCSR"), values=S.data, indices_0=np.arange(n), indices_1=S.indices, pointers_to_1=S.indptr)
    group(f, "json", {"binsparse": "{not json"}, values=S.data, indices_1=S.indices, pointers_to_1=S.indptr)
    group(f, "complex", binsparse("CSR", data_types={"values": "complex[float64]"}), values=S.data, indices_1=S.indices, pointers_to_1=S.indptr)
    group(f, "matlab", {"MATLAB_sparse": np.uint64(n - 1)}, data=C.data, ir=C.indices, jc=C.indptr)
    group(f, "half", shape, data=O.data, row=O.row)
e7, e5 = 7, 5
for name, words in (("shape", ["shape"]), ("fewer", [f"{O.nnz - 1} row", "one index per value"]), ("outside", [f"row index {n}", "entry 7", "count from one"]),
                    ("negative", ["column index -1", "entry 9"]), ("nan", ["NaN", f"row {O.row[5]}, column {O.col[5]}"]),
                    ("csc-nan", ["NaN", f"row {C.indices[5]}, column {np.searchsorted(C.indptr, 5, 'right') - 1}"]), ("pointers", ["wrong column pointer"]),
                    ("short", ["column pointers", "columns + 1"]), ("strange", ["bsr_matrix"]), ("symmetry", ["'sideways'", "lower or upper"]),
                    ("wide", ["60 x 61", "square"]), ("skew", ["skew_symmetric_lower"]), ("dcsr", ["dcsr"]), ("json", ["Binsparse"]), ("complex", ["complex"]),
                    ("matlab", ["59 x 60"]), ("half", ["neither"])):
    refused(f"cg bad.h5:/{name} --rhs :/b -o z.h5", *words, ranks=test.turn())

# --- bits: any numbers of 0 and 1, sparse groups --------------------------------------------------------
H = (rng.random((43, 75)) < 0.08).astype(np.uint8)
H[:, 5] = 0
R, pivots = rref(H)
Hs = sp.csr_matrix(H)
Hc, Ho = Hs.tocsc(), Hs.tocoo()
ones = {"shape": H.shape}
with h5py.File("h.h5", "w") as f:
    for kind in ("i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "f8", "f4", ">i4", ">f8"):
        f[kind.replace(">", "big")] = H.astype(kind)
    f["turned"], f["turned-float"] = H.T.astype("i8"), H.T.astype("f4")
    for name in ("turned", "turned-float"):
        f[name].attrs["order"] = "column-major"
    f["turned-bare"] = H.T.astype("i2")
    f.create_dataset("gzip", data=H.astype("f8"), chunks=(7, 9), compression="gzip")
    d = f.create_dataset("dense", data=H.astype("i8"))
    d.attrs["format"] = "dense"
    group(f, "csr", ones, data=Hs.data.astype("i8"), indices=Hs.indices, indptr=Hs.indptr)
    group(f, "odd", ones, data=rng.integers(-8, 8, Hs.nnz) * 2 + 1, indices=Hs.indices, indptr=Hs.indptr)
    group(f, "floats", ones, data=Hs.data * 3.0, indices=Hs.indices, indptr=Hs.indptr)
    # Even values are nothing, duplicates are added.
    group(f, "even", ones, data=np.concatenate([Ho.data, [2, 1, 1, 0]]), row=np.concatenate([Ho.row, [1, 2, 2, 3]]), col=np.concatenate([Ho.col, [5, 5, 5, 5]]))
    group(f, "csc", {**ones, "encoding-type": "csc_matrix"}, data=Hc.data, indices=Hc.indices, indptr=Hc.indptr)
    group(f, "unstated", ones, data=Hc.data, indices=Hc.indices, indptr=Hc.indptr)
    group(f, "coo", ones, data=Ho.data.astype(bool), row=Ho.row, col=Ho.col)
    group(f, "matlab", {"MATLAB_sparse": np.uint64(H.shape[0]), "MATLAB_class": np.bytes_("logical")}, data=Hc.data, ir=Hc.indices, jc=Hc.indptr)
    group(f, "one", ones, data=Hs.data, indices=Hs.indices + 1, indptr=Hs.indptr + 1)
    group(f, "iso", {"binsparse": json.dumps({"binsparse": {"format": "CSR", "shape": list(H.shape), "data_types": {"values": "iso[int8]"}}})},
          values=np.array([1], "i1"), indices_1=Hs.indices, pointers_to_1=Hs.indptr)
    f["packed"] = np.packbits(H, axis=1)
    f["words"] = np.packbits(np.pad(H, ((0, 0), (0, 128 - 75))), axis=1, bitorder="little").view("u8")
    f["two"] = H.astype("i4") * 2
    f["half"] = np.where(np.arange(H.size).reshape(H.shape) == 100, 0.5, H)
    f["nan"] = np.where(np.arange(H.size).reshape(H.shape) == 100, np.nan, H)
    f["wide"] = np.where(np.arange(H.size).reshape(H.shape) == 100, 256, H.astype("i8")).T
    f["wide"].attrs["order"] = "column-major"
    group(f, "fraction", ones, data=np.where(np.arange(Hs.nnz) == 3, 0.5, 1.0), indices=Hs.indices, indptr=Hs.indptr)
    group(f, "fraction-coo", ones, data=np.where(np.arange(Ho.nnz) == 3, 0.5, 1.0), row=Ho.row, col=Ho.col)
    group(f, "outside", ones, data=Hs.data, indices=np.where(np.arange(Hs.nnz) == 3, 75, Hs.indices), indptr=Hs.indptr)
    group(f, "pointers", ones, data=Hs.data, indices=Hs.indices, indptr=np.where(np.arange(44) == 9, 0, Hs.indptr))
    group(f, "ends", ones, data=Hs.data, indices=Hs.indices, indptr=np.where(np.arange(44) == 43, Hs.indptr - 1, Hs.indptr))
for form in test.part(("i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "f8", "f4", "bigi4", "bigf8", "turned", "turned-float", "gzip", "dense", "csr", "odd",
                       "floats", "even", "csc", "coo", "matlab", "one", "iso", ("packed", "--columns 75 --bitorder big"), ("words", "--columns 75"),
                       ("words", "--shape 43x75 --format bits"), ("turned-bare", "--order column-major"), ("packed", "--shape 43x75 --bitorder big"),
                       ("u1", "--format dense"))):
    name, said = form if isinstance(form, tuple) else (form, "")
    done = run(f"gf2 rref h.h5:/{name} -o r.h5 --force {said}")
    with h5py.File("r.h5") as f:
        check(f"rref of {name} {said}", np.array_equal(bits(f["rref"]), R) and list(f["pivots"][:]) == list(pivots), done.err)
    check(f"verify rref of {name}", "PASS" in run("verify r.h5").out)
warned("gf2 rank h.h5:/unstated", "CSC", "recognised")
square = rng.integers(0, 2, (40, 40))
while len(rref(square)[1]) < 40:
    square = rng.integers(0, 2, (40, 40))
with h5py.File("square.h5", "w") as f:
    c = sp.csc_matrix(square)
    group(f, "A", {"shape": (40, 40), "encoding-type": "csc_matrix"}, data=c.data, indices=c.indices, indptr=c.indptr)
    f["b"], f["B"] = rng.integers(0, 2, 40), rng.integers(0, 2, (40, 9)).astype("f8")
for command, dataset, right in (("gf2 solve square.h5:/A --rhs :/b", "x", "b"), ("gf2 solve square.h5:/A --rhs :/B", "x", "B"), ("gf2 inverse square.h5", "inverse", None),
                                ("gf2 multiply square.h5:/A :/B", "product", None), ("gf2 kernel square.h5:/A", "kernel", None)):
    run(f"{command} -o o.h5 --force")
    with h5py.File("o.h5") as f, h5py.File("square.h5") as g:
        x = bits(f[dataset]) if f[dataset].ndim == 2 else np.unpackbits(f[dataset][:].view(np.uint8).reshape(40, -1), axis=1, bitorder="little")[:, 0]
        if right:
            check(command, np.array_equal(square @ x % 2, g[right][:]))
        elif dataset == "inverse":
            check(command, np.array_equal(square @ x % 2, np.eye(40)))
        elif dataset == "product":
            check(command, np.array_equal(square @ g["B"][:].astype(int) % 2, x))
    check("verify " + command, "PASS" in run("verify o.h5").out)
i, j = divmod(100, 75)
first = np.argwhere(H)[0]
k3 = (np.searchsorted(Hs.indptr, 3, "right") - 1, Hs.indices[3])
for name, words in (("two", ["other than 0 and 1: 2", f"row {first[0]}, column {first[1]}"]), ("half", ["0.5", f"row {i}, column {j}"]), ("nan", ["nan", f"row {i}, column {j}"]),
                    ("wide", ["256", f"row {i}, column {j}"]), ("fraction", ["not whole", f"row {k3[0]}, column {k3[1]}"]), ("fraction-coo", ["not whole", f"row {Ho.row[3]}, column {Ho.col[3]}"]),
                    ("outside", ["column index 75", "columns are 0 to 74", "count from one"]), ("pointers", ["wrong row pointer", "entry"]), ("ends", ["wrong row pointer"])):
    refused(f"gf2 rank h.h5:/{name}", *words, ranks=test.turn())
refused("gf2 rank h.h5:/words", "other than 0 and 1", "--columns")
refused("gf2 rank h.h5:/packed --bitorder big", "columns is missing", "--columns")
refused("gf2 rank h.h5:/u1 --shape 43x76", "--shape says 43x76")
refused("gf2 rank h.h5:/turned --order row-major", "order", "correct one", ranks=2)
refused("gf2 rank h.h5:/csr --bitorder big", "--bitorder", code=2)
refused("gf2 rank h.h5:/i8 --uplo lower", "--uplo", code=2)
refused("gf2 rank h.h5:/i8 --format band", "--format band", code=2)
refused("gf2 rank h.h5:/i8 --shape 43by75", "ROWSxCOLUMNS", code=2)

# --- bands: what the file does not say -----------------------------------------------------------------
m = 3
ab = np.zeros((m + 1, n))
for d in range(m + 1):
    ab[d, : n - d] = rng.uniform(-1, 1, n - d) if d else 9.0
upper = np.zeros_like(ab)
for d in range(m + 1):
    upper[m - d, d:] = ab[d, : n - d]
full = sum(np.diag(ab[d, : n - d], -d) + (np.diag(ab[d, : n - d], d) if d else 0) for d in range(m + 1))
with h5py.File("band.h5", "w") as f:
    f["b"], f["lower"], f["upper"], f["stated"] = b, ab, upper, upper
    f["only-format"] = upper
    f["only-format"].attrs["format"] = "band"
    f["stated"].attrs.update({"format": "band", "uplo": "upper"})
    f["singular"] = np.vstack([np.zeros((1, n)), np.ones((m, n))])
    f["singular"].attrs["format"] = "band"
factors = {}
for command, name in (("band solve", "x"), ("band factor", "factor"), ("cg", "x")):
    for at, said, words in (("lower", "--format band", []), ("upper", "--format band --uplo upper", []), ("stated", "", []), ("only-format", "", ["upper form recognised", "--uplo"]),
                            ("upper", "--format band", ["upper form recognised"]), ("stated", f"--shape {n}x{n} --uplo upper", [])):
        rhs = "" if name == "factor" else "--rhs :/b"
        done = (warned if words else run)(f"{command} band.h5:/{at} {rhs} -o o.h5 --force {said}", *words)
        x = stored("o.h5", name)
        check(f"{command} of {at} {said}", np.array_equal(factors.setdefault(command, x), x) if command != "cg" else np.allclose(full @ x, b, atol=1e-8))
        check(f"verify {command} of {at} {said}", "PASS" in run("verify o.h5").out)
check("band solve", np.allclose(full @ factors["band solve"], b))
refused("band solve band.h5:/lower --rhs :/b -o z.h5", "format is missing", "--format band")
refused("band solve band.h5:/stated --rhs :/b -o z.h5 --uplo lower", "uplo", "correct one", ranks=2)
refused("band solve band.h5:/stated --rhs :/b -o z.h5 --format dense", "--format dense", "correct one")
refused("band solve band.h5:/lower --rhs :/b -o z.h5 --format dense", "--format dense", code=2)
refused("band factor band.h5:/stated -o z.h5 --columns 3", "--columns", code=2)
refused("band factor band.h5:/singular -o z.h5", "not positive definite", code=4)
refused("band factor band.h5:/stated -o z.h5 --shape 9x9", "--shape says 9x9")
run("band factor band.h5:/upper -o o.h5 --force --format band --uplo upper")
check("the same options", "PASS" in run("verify o.h5 --uplo upper").out)
refused("verify o.h5 --uplo lower", "--uplo")

# --- dense, by columns -----------------------------------------------------------------------------------
A = rng.standard_normal((30, 30)) + 30 * np.eye(30)
B = rng.standard_normal((30, 4))
with h5py.File("fortran.h5", "w") as f:
    f["A"], f["B"], f["b"] = A.T, B.T, B[:, 0]
    f["said"] = A
    f["said"].attrs["order"] = "row-major"
for rhs, right in (("B", B), ("b", B[:, 0])):
    run(f"dense solve fortran.h5:/A --rhs :/{rhs} -o o.h5 --force --order column-major")
    check("Fortran's order, " + rhs, np.allclose(A @ stored("o.h5"), right))
    check("verify Fortran's order", "PASS" in run("verify o.h5").out)
run("dense invert fortran.h5:/A -o o.h5 --force --order column-major --format dense --shape 30x30")
check("inverse in Fortran's order", np.allclose(A @ stored("o.h5", "inverse"), np.eye(30)) and "PASS" in run("verify o.h5").out)
run("convert fortran.h5:/A a.npy --order column-major")
check("convert in Fortran's order", np.array_equal(np.load("a.npy"), A))
refused("dense invert fortran.h5:/said -o z.h5 --order column-major", "order", "correct one")
refused("dense invert fortran.h5:/A -o z.h5 --uplo lower", "--uplo", code=2)
refused("dense invert fortran.h5:/A -o z.h5 --format csr", "--format csr", code=2)
refused("convert a.npy z.h5 --order column-major", "--order", code=2)

# --- which object is meant ------------------------------------------------------------------------------
with h5py.File("choose.h5", "w") as f:
    f["A"], f["B"], f["spd"], f["b"], f["other"] = A, B, full[:30, :30], B[:, 0], np.ones(7)
for command, wanted in (("dense solve choose.h5 --rhs :/b", "/A"), ("dense invert choose.h5", "/A"), ("cg choose.h5:/spd --rhs choose.h5", "/spd")):
    run(command + " -o o.h5 --force")
    with h5py.File("o.h5") as f:
        check(command, f["terrace"].attrs["input"].endswith("choose.h5:" + wanted), f["terrace"].attrs["input"])
run("cg choose.h5:/spd --rhs :/b -o c.h5 --force")
run("cg choose.h5:/spd --rhs :/b --x0 c.h5 -o o.h5 --force --report r.json")
check("its own output as a start", read_json()["inputs"]["x0"].endswith("c.h5:/x") and read_json()["result"]["iterations"] <= 1, read_json()["result"])
with h5py.File("two.h5", "w") as f:
    f["P"], f["Q"], f["rhs"] = A, A, B
refused("dense solve two.h5 --rhs :/rhs -o z.h5", "2 candidates", "/P, /Q")
refused("dense invert choose.h5:A -o z.h5", "did you mean choose.h5:/A")
refused("gf2 rank many.h5:/nothing", "no such dataset", "/b")
refused("band factor choose.h5 -o z.h5", "no band matrix", "/spd", "--format")

# --- bands by columns, as MATLAB and Fortran write them: the same bits -------------------------------------
n, m = 70, 6
dense_band = np.zeros((n, n))
ab = np.zeros((m + 1, n))
ab[0], ab[1:] = 20, rng.standard_normal((m, n))
with h5py.File("by-columns.h5", "w") as f:
    f["b"] = rng.standard_normal(n)
    f["rows"], f["stated"], f["bare"], f["marked"] = ab, np.ascontiguousarray(ab.T), np.ascontiguousarray(ab.T), ab.T.astype("f4")
    f["gzip"] = f.create_dataset("packed", data=ab.T, chunks=(9, 4), compression="gzip")
    spoiled = np.ascontiguousarray(ab.T)
    for d in range(1, m + 1):
        spoiled[n - d :, d] = np.nan  # outside the matrix: anything
    f["spoiled"], f["nan"], f["upper"] = spoiled, spoiled, ab.T
    f["nan"][5, 2] = np.nan
    f["exact"], f["exact_marked"] = ab.astype("f4"), ab.T.astype("f4")
    for name in ("rows", "exact", "stated", "packed", "spoiled", "nan", "upper", "exact_marked", "marked"):
        f[name].attrs["format"] = "band"
    for name in ("stated", "packed", "spoiled", "nan", "upper"):
        f[name].attrs["order"] = "column-major"
    for name in ("marked", "exact_marked"):
        f[name].attrs["MATLAB_class"] = np.bytes_("single")
    f["upper"].attrs["uplo"] = "upper"
for command in ("band solve", "band factor", "cg"):
    dataset = "factor" if command == "band factor" else "x"
    rhs = "" if command == "band factor" else " --rhs :/b"
    for first, others in (("rows", ("stated", "packed", "spoiled", "bare --order column-major --format band")), ("exact", ("exact_marked", "marked"))):
        run(f"{command} by-columns.h5:/{first}{rhs} -o o.h5 --force", ranks=2)
        wanted = stored("o.h5", dataset)
        for name in others:
            done = run(f"{command} by-columns.h5:/{name}{rhs} -o o.h5 --force", ranks=2)
            check(f"{command} {name}", np.array_equal(stored("o.h5", dataset), wanted), done.err)
            check(f"{command} {name} says", ("column-major" in done.err) == ("marked" in name), done.err)
            check(f"verify {command} {name}", "PASS" in run("verify o.h5").out)
refused("band factor by-columns.h5:/nan -o z.h5", "NaN", "row 7, column 5", ranks=2)
refused("band factor by-columns.h5:/upper -o z.h5", "upper form", "column-major", "store the lower form")
refused("band factor by-columns.h5:/stated --order row-major -o z.h5", "order", "correct one")

# --- a filter that is not there --------------------------------------------------------------------------
with h5py.File("packed.h5", "w") as f:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((30, 30))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    d = h5py.h5d.create(f.id, b"A", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((30, 30)), plist)
    d.write_direct_chunk((0, 0), b"zstd" * 40, 0)
refused("dense invert packed.h5:/A -o z.h5", "32015", "HDF5_PLUGIN_PATH", ranks=2)

test.finish()
