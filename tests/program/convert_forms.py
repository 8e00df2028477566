#!/usr/bin/env python3
"""convert to and from the files of other programs: npz, CSV, rows of text, Matrix Market, SMS, alist; NumPy and SciPy are the oracles.

convert_forms.py TERRACE     Needs h5py, numpy and scipy; runs in a temporary folder.
"""
import json
import os
import re
import sys
import zipfile

import h5py
import numpy as np
import scipy.io
import scipy.sparse as sp

import schema
from given import bits
from terrace import Program

test = Program(sys.argv[1])
check = test.check
rng = np.random.default_rng(31)


def run(command, ranks=None):
    return test.run(command + " --force", ranks or test.turn(), 0)


def refused(name, *words, options="", code=3):
    done = test.refused(f"convert {name} bad.h5 {options}", code, *words, ranks=test.turn())
    check(name, all(line.count("; ") >= 2 for line in done.said), done.said)


def csr(name):
    with h5py.File(name) as f:
        g = f["A"]
        return sp.csr_matrix((g["data"][:], g["indices"][:], g["indptr"][:]), tuple(g.attrs["shape"]))


def stored(name, dataset="A"):
    with h5py.File(name) as f:
        return f[dataset][:]


def packed(name):
    with h5py.File(name) as f:
        return bits(f["A"])


def write(name, text):
    with open(name, "w") as f:
        f.write(text)


# --- npz ---------------------------------------------------------------------------------------------
S = sp.random(50, 34, 0.1, random_state=1, format="csr")
for form in ("csr", "csc", "coo"):
    for compressed in (True, False):
        sp.save_npz("s.npz", S.asformat(form), compressed=compressed)
        run("convert s.npz s.h5")
        check(f"npz {form} {compressed}", (csr("s.h5") != S).nnz == 0)
run("convert s.h5 back.npz")
check("npz back", (sp.load_npz("back.npz") != S).nnz == 0 and zipfile.ZipFile("back.npz").testzip() is None)
A, v = rng.standard_normal((23, 41)), rng.standard_normal(17)
np.savez("one.npz", A)
np.savez_compressed("many.npz", M=A, v=v, F=np.asfortranarray(A.astype("f4")), k=np.arange(6).reshape(2, 3), flags=A > 0)
run("convert one.npz one.h5")
run("convert many.npz many.h5")
check("an array", np.array_equal(stored("one.h5"), A))
check("arrays by name", np.array_equal(stored("many.h5", "M"), A) and np.array_equal(stored("many.h5", "v"), v) and np.array_equal(stored("many.h5", "F"), A.astype("f4"))
      and np.array_equal(stored("many.h5", "k"), np.arange(6).reshape(2, 3)))
for name, array in (("one.h5", A), ("many.h5:/v", v)):
    run(f"convert {name} back.npz")
    with np.load("back.npz") as z:
        check("npz of " + name, np.array_equal(z[z.files[0]], array))
whole = open("one.npz", "rb").read()
for k, damaged in enumerate((whole[:-30], whole[:200] + bytes([whole[200] ^ 255]) + whole[201:], b"PK" + bytes(50), b"")):
    with open(f"bad{k}.npz", "wb") as f:
        f.write(damaged)
    refused(f"bad{k}.npz", f"bad{k}.npz")
np.savez("words.npz", np.array(["a", "b"]))
refused("words.npz", "wrong type")
sp.save_npz("bsr.npz", sp.bsr_matrix(np.eye(4)))
refused("bsr.npz", "bsr")
np.savez("torn.npz", format=b"csr", shape=[3, 3], data=np.ones(2), indices=[0, 7], indptr=[0, 1, 2, 2])
refused("torn.npz", "(1, 7)", "outside")
np.savez("nan.npz", format=b"coo", shape=[3, 3], data=[1.0, np.nan], row=[0, 1], col=[0, 2])
refused("nan.npz", "NaN", "row 1, column 2")
refused("none.npz", "none.npz")

# --- rows of text and CSV ------------------------------------------------------------------------------
for name, how in (("rows.txt", {}), ("rows.dat", {"delimiter": "\t"}), ("rows.csv", {"delimiter": ","}), ("noted.txt", {"header": "a comment"})):
    np.savetxt(name, A, fmt="%.17g", **how)
    run(f"convert {name} rows.h5")
    check(name, np.array_equal(stored("rows.h5"), A))
write("named.csv", "first,second\n1,2\n3,4.5\n")
done = run("convert named.csv rows.h5")
check("names", np.array_equal(stored("rows.h5"), [[1, 2], [3, 4.5]]) and "warning" in done.err and "header" in done.err, done.err)
large = rng.standard_normal((3000, 60))
np.savetxt("large.txt", large)
for ranks in (1,) + test.some(2, 3):
    run("convert large.txt rows.h5", ranks)
    check(f"many blocks on {ranks}", np.allclose(stored("rows.h5"), large, rtol=1e-15))
np.savetxt("column.txt", v)
run("convert column.txt column.h5")
check("a column", np.allclose(stored("column.h5", "b"), v, rtol=1e-15))
write("counted.txt", "2\n1 2\n3 4\n")
write("one-line.txt", "2 1 2 3 4")
for name in ("counted.txt", "one-line.txt"):
    run(f"convert {name} rows.h5")
    check(name, np.array_equal(stored("rows.h5"), [[1, 2], [3, 4]]))
write("01.csv", "1,0,1\n0,1,1\n")
run("convert 01.csv b.h5 --bits")
check("bits of CSV", np.array_equal(packed("b.h5"), [[1, 0, 1], [0, 1, 1]]))
run("convert one.h5 out.csv --digits 17")
check("CSV back", np.array_equal(np.loadtxt("out.csv", delimiter=","), A))
square = A[:, :23]
with h5py.File("square.h5", "w") as f:
    f["A"], f["short"] = square, np.round(square * 8)
for digits, exact in ((17, True), (3, False)):
    done = run(f"convert square.h5:/A out.txt --digits {digits}")
    with open("out.txt") as f:
        words = f.read().split()
    check(f"{digits} digits", np.array_equal(np.reshape(words[1:], (23, 23)).astype(float), square) == exact and words[1] == f"%.{digits - 1}e" % square[0, 0])
    check(f"warning of {digits} digits", (done.err.count("digits were lost") == 1) != exact, done.err)
check("no digits lost", "lost" not in run("convert square.h5:/short out.txt").err)
check("digits lost", "--digits 17" in run("convert square.h5:/A out.txt").err)
for name, text, words in (("u.csv", "1,2\n3\n", ["line 2", "1 numbers"]), ("e.csv", "1,,2\n3,4,5\n", ["line 1", "empty"]), ("w.csv", "1,2\n3,x\n", ["line 2", "'x'"]),
                          ("n.csv", "1,2\nnan,3\n", ["line 2", "'nan'"]), ("u.txt", "1.5 2\n3\n", ["line 2"]), ("z.csv", "", ["z.csv"]), ("c.txt", "# only\n", ["no numbers"])):
    write(name, text)
    refused(name, *words)
write("two.csv", "1,2\n0,1\n")
refused("two.csv", "other than 0 and 1: 2", "row 0, column 1", options="--bits")
refused("counted.txt", "--digits", options="--digits 9", code=2)
done = test.refused("convert square.h5:/A bad.npy --bits", 2, "--bits")

# --- Matrix Market, SMS, alist ---------------------------------------------------------------------------
H = (rng.random((40, 90)) < 0.1).astype(int)
scipy.io.mmwrite("p.mtx", sp.coo_matrix(H), field="pattern")
scipy.io.mmwrite("i.mtx", sp.coo_matrix(H * rng.integers(-3, 4, H.shape)), field="integer")
I = scipy.io.mmread("i.mtx").toarray()
for name, wanted in (("p", H), ("i", I)):
    run(f"convert {name}.mtx {name}.h5")
    run(f"convert {name}.mtx b.h5 --bits")
    check(name + ".mtx", np.array_equal(csr(name + ".h5").toarray(), wanted) and np.array_equal(packed("b.h5"), wanted % 2))
    check("rank of " + name, test.run("gf2 rank b.h5", 1, 0).out.split()[:2] == test.run(f"gf2 rank {name}.h5", 2, 0).out.split()[:2])
run("convert p.mtx b.h5 --bits")
run("convert b.h5 back.mtx")
check("pattern back", np.array_equal(scipy.io.mmread("back.mtx").toarray(), H) and "pattern" in open("back.mtx").readline())
for ending in ("sms", "alist"):
    run(f"convert b.h5 back.{ending}")
    run(f"convert back.{ending} again.h5 " + ("--bits" if ending == "sms" else ""))
    check(ending, np.array_equal(packed("again.h5"), H))
run("convert i.h5 back.sms")
run("convert back.sms again.h5")
check("SMS of integers", np.array_equal(csr("again.h5").toarray(), I) and open("back.sms").read().endswith("\n0 0 0\n"))
run("convert p.h5 back.alist")  # of a sparse group
lines = open("back.alist").read().split("\n")
check("alist", lines[0] == "90 40" and lines[2].split() == [str(x) for x in H.sum(0)] and lines[4].split()[: H[:, 0].sum()] == [str(i + 1) for i in np.nonzero(H[:, 0])[0]])
write("short.alist", "3 2\n2 2\n1 1 2\n2 2\n1\n2\n1 2\n1 3\n2 3\n")  # lines without zeros
run("convert short.alist again.h5")
check("alist without zeros", np.array_equal(packed("again.h5"), [[1, 0, 1], [0, 1, 1]]))
# Large enough for several blocks; symmetric, repeated, unordered; the same bytes on any number of ranks.
n = 20000
rows, columns = rng.integers(0, n, 60000), rng.integers(0, n, 60000)
values = rng.standard_normal(60000)
low = rows >= columns
for kind, keep in (("general", np.ones(60000, bool)), ("symmetric", low)):
    write("g.mtx", f"%%MatrixMarket matrix coordinate real {kind}\n% a comment\n{n} {n} {keep.sum()}\n"
          + "".join(f"{i + 1} {j + 1} {x:.17g}\n" for i, j, x in zip(rows[keep], columns[keep], values[keep])))
    wanted = sp.coo_matrix((values[keep], (rows[keep], columns[keep])), (n, n)).tocsr()
    if kind == "symmetric":
        wanted = wanted + sp.tril(wanted, -1).T
    kept = []
    for ranks in (1,) + test.some(2, 3):
        run("convert g.mtx g.h5", ranks)
        kept.append(csr("g.h5"))
        check(f"{kind} on {ranks}", abs(kept[-1] - wanted).max() < 1e-14 and kept[-1].has_sorted_indices and kept[-1].nnz == wanted.nnz)
        check(f"the same on {ranks}", np.array_equal(kept[-1].data, kept[0].data) and np.array_equal(kept[-1].indices, kept[0].indices))
# Fewer rows than ranks, no rows, one long row, one column: sides where groups of rows are few or empty.
for count, (i, j), high, wide in ((400, (1, 5000), 1, 5000), (400, (5000, 1), 5000, 1), (30, (2, 3), 2, 3), (0, (4, 4), 4, 4), (0, (0, 3), 0, 3)):
    at = rng.integers(0, max(i, 1), count), rng.integers(0, max(j, 1), count)
    x = rng.integers(-9, 10, count).astype(float)
    write("side.mtx", f"%%MatrixMarket matrix coordinate real general\n{high} {wide} {count}\n" + "".join(f"{a + 1} {b + 1} {v:g}\n" for a, b, v in zip(*at, x)))
    wanted = sp.coo_matrix((x, at), (high, wide)).toarray()
    for ranks in test.some(1, 2, 3) + (5,):
        run("convert side.mtx side.h5", ranks)
        got = csr("side.h5")
        check(f"{high} x {wide} on {ranks}", np.array_equal(got.toarray(), wanted) and got.has_canonical_format)
        run("convert side.mtx side.h5 --bits", ranks)
        check(f"{high} x {wide} bits on {ranks}", np.array_equal(packed("side.h5"), wanted.astype(int) % 2))
text = open("g.mtx").read().split("\n")
write("few.mtx", "\n".join(text[:-100]) + "\n")
write("more.mtx", "\n".join(text) + "1 1 1\n")
write("word.mtx", "\n".join(text[:20000] + ["7 x 1"] + text[20001:]))
write("split.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1\n5\n2 2 6\n")
refused("few.mtx", "ends too early")
refused("more.mtx", "more than", f"line {len(text)}")
refused("word.mtx", "'x'", "line 20001")
run("convert split.mtx again.h5")
check("an entry on two lines", np.array_equal(csr("again.h5").toarray(), [[5, 0], [0, 6]]))
write("half.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 0.5\n")
refused("half.mtx", "not whole: 0.5", "row 0, column 1", options="--bits")
# Arrays by columns: many blocks, cut anywhere; of symmetric ones the lower triangle.
n = 700
full = np.round(rng.standard_normal((n, n)), 9)
halves = {"general": full, "symmetric": np.tril(full) + np.tril(full, -1).T, "skew-symmetric": np.tril(full, -1) - np.tril(full, -1).T}
for kind, wanted in halves.items():
    places = {"general": np.ones((n, n), bool), "symmetric": np.tri(n, dtype=bool), "skew-symmetric": np.tri(n, k=-1, dtype=bool)}[kind]
    numbers = ["%.9f" % x for x in wanted.T[places.T]]
    for name, several in (("lines", 1), ("wide", 7)):
        write("a.mtx", f"%%MatrixMarket matrix array real {kind}\n% by columns\n{n} {n}\n\n"
              + "".join("  ".join(numbers[k : k + several]) + "\n" for k in range(0, len(numbers), several)))
        for ranks in test.some(1, 2, 3):
            run("convert a.mtx a.h5", ranks)
            check(f"{kind} array of {name} on {ranks}", np.array_equal(stored("a.h5"), wanted))
    head = f"%%MatrixMarket matrix array real {kind}\n{n} {n}\n"
    for name, text, words in (("few", numbers[:-1], ["ends too early"]), ("more", numbers + ["1"], ["more than", f"line {len(numbers) + 3}"]),
                              ("word", numbers[:90000] + ["x1"] + numbers[90001:], ["'x1'", "line 90003"])):
        write(name + ".mtx", head + "\n".join(text) + "\n")
        refused(name + ".mtx", *words)
    with open("a.mtx") as f:
        done = test.run("convert - s.h5 --as mtx --force", 2, input=f.read())
    check(f"{kind} array of a stream", done.code == 0 and np.array_equal(stored("s.h5"), wanted), done.err)
for high, wide in ((1, 5), (5, 1), (2, 3), (0, 4), (4, 0), (0, 0), (1, 1)):
    wanted = rng.integers(-9, 10, (high, wide))
    write("a.mtx", f"%%MatrixMarket matrix array integer general\n{high} {wide}\n" + "".join(f"{x}\n" for x in wanted.T.ravel()))
    for ranks in test.some(1, 2) + (5,):
        run("convert a.mtx a.h5", ranks)
        check(f"{high} x {wide} array on {ranks}", np.array_equal(stored("a.h5"), wanted))
for kind, count in (("symmetric", 1), ("skew-symmetric", 0)):
    write("a.mtx", f"%%MatrixMarket matrix array real {kind}\n1 1\n" + "3\n" * count)
    run("convert a.mtx a.h5")
    check(f"{kind} array of order 1", np.array_equal(stored("a.h5"), [[3.0 * count]]))

# SMS and alist of many blocks.
head, text = "20000 20000 M\n", [f"{i + 1} {j + 1} {x:.17g}\n" for i, j, x in zip(rows, columns, values)]
wanted = sp.coo_matrix((values, (rows, columns)), (20000, 20000)).tocsr()
write("g.sms", head + "".join(text) + "0 0 0\n\n")
for ranks in (1,) + test.some(2, 3):
    run("convert g.sms g.h5", ranks)
    got = csr("g.h5")
    check(f"SMS on {ranks}", abs(got - wanted).max() < 1e-14 and got.nnz == wanted.nnz)
write("split.sms", head + "".join(text[:-1]) + text[-1].replace(" ", "\n") + "0 0 0\n")
run("convert split.sms g.h5", 2)
check("SMS with an entry on three lines", (csr("g.h5") != got).nnz == 0)
for name, lines, words in (("early", text[:40000] + ["0 0 0\n"] + text[40000:] + ["0 0 0\n"], ["more text after", "line 40003"]), ("open", text, ["ends too early"]),
                           ("outside", text[:50000] + ["20001 1 1\n"] + ["0 0 0\n"], ["(20001, 1)", "line 50002"]), ("twice", text + ["0 0 0\n", "0 0 0\n"], ["more text after"])):
    write(name + ".sms", head + "".join(lines))
    refused(name + ".sms", *words)
H = sp.random(900, 2500, 0.13, random_state=5, format="csr")
H.data[:] = 1


def alist(by_columns, by_rows, more=""):
    lists = [[i + 1 for i in one] for one in by_columns], [[j + 1 for j in one] for one in by_rows]
    weights = [[len(one) for one in side] for side in lists]
    return (f"{len(by_columns)} {len(by_rows)}\n{max(weights[0])} {max(weights[1])}\n" + "\n".join(" ".join(map(str, w)) for w in weights) + "\n"
            + "".join(" ".join(map(str, one + [0] * (k % 3))) + "\n" for side in lists for k, one in enumerate(side)) + more)


def lists_of(matrix):
    return [list(matrix.indices[a:b]) for a, b in zip(matrix.indptr, matrix.indptr[1:])]


by_columns, by_rows = lists_of(H.tocsc()), lists_of(H)
write("h.alist", alist(by_columns, by_rows, "\n"))
check("several blocks", os.path.getsize("h.alist") > 2.2e6, os.path.getsize("h.alist"))
for ranks in (1,) + test.some(2, 3):
    run("convert h.alist h.h5", ranks)
    check(f"alist on {ranks}", np.array_equal(packed("h.h5"), H.toarray()))
other = [list(one) for one in by_rows]
other[600][3] = next(j for j in range(2500) if j not in other[600])
write("other.alist", alist(by_columns, other))
refused("other.alist", "not those of the columns", "row 600")
double = [list(one) for one in by_rows]
double[700][5] = double[700][6]
write("double.alist", alist(by_columns, double))
refused("double.alist", "twice in a list", f"row 700, column {double[700][5]}")
lines = open("h.alist").read().split("\n")
for k, wrong, words in ((3000, "7 x", ["'x' is not a position", "use 1 to 2500"]), (2000, "901", ["'901' is not a position", "use 1 to 900"]), (3100, "1 2", ["2 positions, but"])):
    write("wrong.alist", "\n".join(lines[:k] + [wrong] + lines[k + 1 :]))
    refused("wrong.alist", f"line {k + 1}", *words)
write("more.alist", alist(by_columns, by_rows, "1 2\n"))
refused("more.alist", "more text after the lists")
write("cut.alist", "\n".join(lines[:3000]))
refused("cut.alist", "ends too early")
write("weight.alist", "3 2\n2 2\n1 1 -2\n2 2\n1\n2\n1 2\n1 3\n2 3\n")
refused("weight.alist", "a weight of -2", "line 3")

# Archives larger than what a thread reads at once; ranks without rows; numbers of each type; a bit that flipped far behind.
S = sp.random(3000, 2000, 0.06, random_state=8, format="csr")
for form in ("csr", "csc", "coo"):
    for compressed in (True, False):
        sp.save_npz("s.npz", S.asformat(form), compressed=compressed)
        for ranks in test.some(1, 2, 3):
            run("convert s.npz s.h5", ranks)
            check(f"npz {form} {compressed} on {ranks}", (csr("s.h5") != S).nnz == 0)
for name, how in (("stored", {}), ("packed", {"compressed": True})):
    sp.save_npz("few.npz", sp.csr_matrix(np.array([[0, 2.0, 0]])), compressed=name == "packed")
    for ranks in (1, 5):
        run("convert few.npz few.h5", ranks)
        check(f"one row {name} on {ranks}", np.array_equal(csr("few.h5").toarray(), [[0, 2, 0]]))
sp.save_npz("whole.npz", sp.csr_matrix((np.arange(-3, 3, dtype="i2"), np.array([0, 3, 1, 2, 0, 3], "i8"), np.array([0, 2, 4, 6], "i8")), (3, 4)))
run("convert whole.npz whole.h5", 2)
check("npz of int16", np.array_equal(csr("whole.h5").toarray(), sp.load_npz("whole.npz").toarray()))
D = rng.standard_normal((600, 700))
for save in (np.savez, np.savez_compressed):
    save("d.npz", C=D, F=np.asfortranarray(D), v=D[0], i=(D > 0))
    for ranks in (1,) + test.some(2, 3):
        run("convert d.npz d.h5", ranks)
        check(f"{save.__name__} on {ranks}", np.array_equal(stored("d.h5", "C"), D) and np.array_equal(stored("d.h5", "F"), D) and np.array_equal(stored("d.h5", "v"), D[0]))
        with h5py.File("d.h5") as f:
            check(f"{save.__name__}: bits on {ranks}", np.array_equal(bits(f["i"]), D > 0))
np.savez("d.npz", D)
whole = bytearray(open("d.npz", "rb").read())
whole[2_900_000] ^= 1
with open("flipped.npz", "wb") as f:
    f.write(whole)
refused("flipped.npz", "check sum differs", "member arr_0")
np.savez("short.npz", format=b"csr", shape=[3, 3], data=np.ones(3), indices=[0, 1, 2], indptr=[0, 2, 1, 3])
refused("short.npz", "wrong pointers")
np.savez("lengths.npz", format=b"coo", shape=[3, 3], data=np.ones(3), row=[0, 1], col=[0, 1, 2])
refused("lengths.npz", "differ in length")
np.savez("minus.npz", format=b"coo", shape=[3, 3], data=np.ones(2), row=[0, -1], col=[0, 1])
refused("minus.npz", "(-1, 1)", "outside")

# --- the report and the progress -------------------------------------------------------------------------
with h5py.File("plain.h5", "w") as f:
    f["A"] = A
for command, ranks in (("convert g.mtx x.h5", 1), ("convert g.mtx x.h5", 2), ("convert large.txt x.h5", 2), ("convert b.h5 x.alist", 1)):
    done = test.run(command + " --force --json", ranks, 0)
    report = json.loads(done.out)
    check(f"{command} --json", not schema.faults(report) and report["command"] == "convert" and report["seconds"]["write"] > 0 and done.err == "", done.out[:300] + done.err)
    if "x.h5" in command:
        check(f"{command}: read", report["seconds"]["read"] > 0 and report["ranks_detail"][0]["bytes"]["read"] > 0, str(report))
done = test.run("convert g.mtx x.h5 --force --report -", 1, 0)
check("--report -", json.loads(done.out)["command"] == "convert" and "converted" in done.err and not os.path.exists("-"), done.err)
for option in ("--json", "--report -"):
    for ranks in (1, 2):
        test.refused(f"convert plain.h5 - --as npy {option}", 2, "both", "standard output", ranks=ranks)
often = {"TERRACE_PROGRESS_SECONDS": "0.001"}
long = 400000
n = 20000
write("long.mtx", f"%%MatrixMarket matrix coordinate real general\n{n} {n} {long}\n" + "".join(f"{k % n + 1} {k // n + 1} {k / 7:.17g}\n" for k in range(long)))
with h5py.File("long.h5", "w") as f:
    f["A"] = rng.standard_normal((1500, 1500))
for command, ranks, words in (("convert long.mtx x.h5", 1, ("reading", "writing")), ("convert long.mtx x.h5", 2, ("reading", "writing")), ("convert long.h5 x.txt", 2, ("writing",)),
                              ("convert x.txt y.h5", 1, ("reading",))):
    done = test.run(command + " --force --progress auto", ranks, 0, often)
    for word in words:
        check(f"{command} on {ranks}: {word}", re.search(rf"^{word} +\d+\.\d %  [\d.e+]+ of [\d.]+ MB", done.err, flags=re.M), done.err[:400])
    for option in ("--progress never", "--quiet"):
        check(f"{command} {option}", " %" not in test.run(f"{command} --force {option}", ranks, 0, often).err)
check("a bar", "[#" in test.run("convert long.mtx x.h5 --force --progress always", 1, 0, often).err)

# --- what is wrong in lists of positions -----------------------------------------------------------------
for name, text, words in (("a.sms", "2 2\n1 1 1\n", ["no SMS header"]), ("b.sms", "2 2 M\n3 1 1\n0 0 0\n", ["(3, 1)", "line 2"]), ("c.sms", "2 2 M\n1 1 1\n", ["ends too early"]),
                          ("d.sms", "2 2 M\n0 0 0\n1 1 1\n", ["after"]), ("a.alist", "3 2\n2 2\n1 1 2\n2 2\n1\n2\n1 2\n1 2\n2 3\n", ["not those of the columns"]),
                          ("b.alist", "3 2\n2 2\n1 1 2\n2 2\n1\n5\n1 2\n1 3\n2 3\n", ["'5' is not a position", "line 6"]), ("c.alist", "3 2\n2 2\n1 1 1\n", ["c.alist"])):
    write(name, text)
    refused(name, *words)
test.finish()
