#!/usr/bin/env python3
"""Mistakes of a new user, beyond those of first_hour.py and bad_input.py: each ends in one line with the cure, and leaves nothing behind:
mistakes.py TERRACE"""
import gzip
import os
import shutil
import signal
import subprocess
import sys

import h5py
import numpy as np

from terrace import Program, launcher_folder, left_over, remove

test = Program(sys.argv[1])
check, n = test.check, 30
draw = np.random.default_rng(0)
spd = draw.normal(size=(n, n))
spd = spd @ spd.T + n * np.eye(n)
with h5py.File("a.h5", "w") as f:
    f["A"], f["b"], f["short"], f["across"], f["one"] = spd, np.ones(n), np.ones(n - 1), np.ones((3, n)), np.ones((1, 1))
    f["nan"], f["complex"], f["three"], f["scalar"], f["text"] = np.where(np.arange(n) == 4, np.nan, 1.0), spd + 1j, np.zeros((2, n, n)), 3.0, "hello"
    f["void"], f["compound"], f["group/B"] = h5py.Empty("f8"), np.zeros(4, dtype=[("a", "f8"), ("b", "i4")]), spd
    f["half"], f["minus"], f["infinite"] = 0.5 * (spd > 0), -(spd > 0).astype("i1"), np.where(spd > 50, -np.inf, spd)
    f["band"] = np.array([[4.0] * n, [1.0] * n, [0.5] * n])
    f["columns"] = np.ascontiguousarray(f["band"][...].T)
    f["band"].attrs["format"] = f["columns"].attrs["format"] = "band"
    f["soft"], f["external"] = h5py.SoftLink("/nowhere"), h5py.ExternalLink("gone.h5", "/A")
    for name, indices, pointers, values, shape in (("negative", [0, -1, 2], [0, 1, 2, 3], np.ones(3), (3, 3)), ("pointers", [0, 1, 2], [0, 1, 2], np.ones(3), (3, 3)),
                                                   ("wide", [0, 1, 4], [0, 1, 2, 3], np.ones(3), (3, 5)), ("imaginary", [0, 1, 2], [0, 1, 2, 3], 1j * np.ones(3), (3, 3))):
        f[name + "/data"], f[name + "/indices"], f[name + "/indptr"] = values, np.array(indices), np.array(pointers)
        f[name].attrs["shape"] = shape
for name in range(60):
    with h5py.File("many.h5", "a") as f:
        f[f"x{name}"] = np.ones(3)
files = {"empty.h5": b"", "empty.csv": b"", "blank.csv": b"\n\n", "words.h5": b"1 2 3\n", "commas.txt": b"1,5 2,5\n3,5 4,5\n", "semicolons.csv": b"1;2\n3;4\n", "quotes.csv": b'"1","2"\n"3","4"\n',
         "utf16.csv": "1,2\n3,4\n".encode("utf-16"), "ragged.csv": b"1,2\n3\n", "trailing.csv": b"1,2,\n3,4,\n", "nan.csv": b"1,nan\n2,3\n", "half.csv": b"a,b\n1,x\n", "xz.txt": b"\xfd7zXZ\x00" + b"x" * 40,
         "zip.mtx": b"PK\x03\x04" + b"x" * 40, "bz.csv": b"BZh91AY" + b"x" * 40, "zstd.alist": b"\x28\xb5\x2f\xfd" + b"x" * 40, "object.mat": b"MATLAB 5.0", "book.xlsx": b"PK\x03\x04", "data.txt.gz": gzip.compress(b"1 2\n3 4\n"),
         "packed.txt": gzip.compress(b"1 2\n3 4\n"), "packed.npy": gzip.compress(b"1 2\n3 4\n"), "short.mtx": b"%%MatrixMarket matrix coordinate real general\n3 3 5\n1 1 1.0\n",
         "outside.mtx": b"%%MatrixMarket matrix coordinate real general\n3 3 1\n4 4 1.0\n", "complex.mtx": b"%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1.0 2.0\n", "bare.mtx": b"3 3 1\n1 1 1.0\n"}
for name, content in files.items():
    with open(name, "wb") as f:
        f.write(content)
np.save("numbers.npy", spd)
np.save("objects.npy", np.array([1, "a"], dtype=object))
shutil.copy("a.h5", "hdf5.txt")
shutil.copy("a.h5", "cut.h5")
os.truncate("cut.h5", os.path.getsize("a.h5") // 2)
os.mkdir("folder.h5")

SOLVE = "dense solve a.h5:/A --rhs :/b -o x.h5"
ROWS = "give one row for each row of the matrix"
MISSING = "cannot open the file: No such file or directory"
NUMBERS = "wrong type: not real numbers (complex ones are not supported)"
UNSET = "is a variable of the shell unset?"
STORE = "store float64, float32 or integers"
for command, code, said in (
        # the wrong right-hand side
        ("dense solve a.h5:/A --rhs :/short -o x.h5", 3, f"the right-hand side has 29 rows, the matrix 30; a.h5:/short; {ROWS}"),
        ("dense solve a.h5:/A --rhs :/across -o x.h5", 3, f"the right-hand side has 3 rows, the matrix 30; a.h5:/across; {ROWS} (this one is transposed)"),
        ("cg a.h5:/A --rhs :/one -o x.h5", 3, f"the right-hand side has 1 row, the matrix 30; a.h5:/one; {ROWS}"),
        ("band solve a.h5:/columns --rhs :/b -o x.h5", 3, "a band of 30 x 3 is not of a matrix of order 30; a.h5:/columns; add --order column-major if it is stored column by column"),
        ("dense solve a.h5:/A --rhs :/nan -o x.h5", 3, "NaN in the input; a.h5:/nan row 4, column 0; only finite numbers are accepted"),
        ("dense solve a.h5:/A --rhs :/text -o x.h5", 3, f"{NUMBERS}; a.h5:/text; {STORE}"),
        ("dense solve a.h5:/A --rhs :/scalar -o x.h5", 3, "wrong shape: 0 dimensions; a.h5:/scalar; a matrix has 2 dimensions, a vector 1"),
        ("dense solve a.h5:/A --rhs :b -o x.h5", 3, f"{MISSING}; :b; did you mean :/b"),
        ("dense solve a.h5:/A --rhs b -o x.h5", 3, f"{MISSING}; b; check its name (a dataset of the same file is named :/b)"),
        # an unset variable of a shell
        (["dense", "solve", "a.h5:/A", "--rhs", "", "-o", "x.h5"], 2, f"--rhs has an empty value; terrace dense solve; {UNSET} Give a value, or leave --rhs out"),
        (["dense", "solve", "a.h5:/A", "--rhs=", "-o", "x.h5"], 2, f"--rhs has an empty value; terrace dense solve; {UNSET} Give a value, or leave --rhs out"),
        (["dense", "invert", "a.h5:/A", "-o", ""], 2, f"-o has an empty value; terrace dense invert; {UNSET} Give a value, or leave -o out"),
        (["dense", "invert", "", "-o", "x.h5"], 2, f"an empty word; terrace dense invert; {UNSET}"),
        (["cg", "a.h5:/A", "--rhs", ":/b", "--quiet", "", "-o", "x.h5"], 2, f"an empty word; terrace cg; {UNSET}"),
        (["cg", "a.h5:/A", "--rhs", ":/b", "--report", "", "-o", "x.h5"], 2, f"--report has an empty value; terrace cg; {UNSET} Give a value, or leave --report out"),
        # the wrong name
        ("dense invert a.h5/A -o x.h5", 3, "cannot open the file: Not a directory; a.h5/A; did you mean a.h5:/A"),
        ("dense invert a.h5::A -o x.h5", 3, f"{MISSING}; a.h5::A; did you mean a.h5:/A"),
        ("dense invert a.h5:group/B -o x.h5", 3, f"{MISSING}; a.h5:group/B; did you mean a.h5:/group/B"),
        ("dense invert https://host/a.h5 -o x.h5", 2, "an address, not a file; https://host/a.h5; fetch it first"),
        ("dense invert a.h5:/soft -o x.h5", 3, "a link to something that is not there; a.h5:/soft; see h5ls -v, and make what it leads to"),
        ("dense invert a.h5:/external -o x.h5", 3, "a link to something that is not there; a.h5:/external; see h5ls -v, and make what it leads to"),
        ("dense invert folder.h5 -o x.h5", 3, "not a regular file; folder.h5; name an HDF5 file"),
        ("dense invert cut.h5:/A -o x.h5", 3, "the file is damaged or truncated; cut.h5; write it again (HDF5 gives no reason)"),
        ("dense invert empty.h5 -o x.h5", 3, "not an HDF5 file, or a damaged one; empty.h5; write it again, or convert it: see terrace convert --help"),
        ("dense invert numbers.npy -o x.h5", 3, "not an HDF5 file, or a damaged one; numbers.npy; convert it first: terrace convert numbers.npy numbers.h5"),
        ("verify gone.h5", 3, f"{MISSING}; gone.h5; check its name"),
        ("verify words.h5", 3, "not an HDF5 file; words.h5; name a result of terrace"),
        ("verify a.h5", 3, "no group terrace; a.h5; only files that terrace wrote can be verified"),
        ("verify a.h5:/A", 3, "no group terrace; a.h5:/A; only files that terrace wrote can be verified"),
        ("verify a.h5:/gone", 3, "no group terrace; a.h5:/gone; only files that terrace wrote can be verified"),
        ("generate gf2-random --rows 4 --columns 4 --seed 18446744073709551616 -o u.h5", 2, "--seed: 18446744073709551616 is too large; on the command line; see terrace generate gf2-random --help"),
        ("generate dense-random --n 9223372036854775808 -o u.h5", 2, "--n: 9223372036854775808 is too large; on the command line; see terrace generate dense-random --help"),
        ("generate dense-random --n 0x10 -o u.h5", 2, "--n: 0x10 is not a decimal number; on the command line; see terrace generate dense-random --help"),
        ("generate dense-random --n 0X10 -o u.h5", 2, "--n: 0X10 is not a decimal number; on the command line; see terrace generate dense-random --help"),
        ("generate dense-random --n 08x -o u.h5", 2, "'08x' is not a value of --n; terrace generate dense-random; give a whole number"),
        ("dense solve a.h5:/A --rhs :/b -o -", 2, "HDF5 cannot be written to standard output; -; name a file (./- for one called -)"),
        ("generate dense-random --n 4 -o -", 2, "HDF5 cannot be written to standard output; -; name a file (./- for one called -)"),
        ("verify a.h5:/group", 3, "no group terrace; a.h5:/group; only files that terrace wrote can be verified"),
        # the wrong object
        ("dense invert a.h5:/complex -o x.h5", 3, f"{NUMBERS}; a.h5:/complex; {STORE}"),
        ("dense invert a.h5:/compound -o x.h5", 3, f"{NUMBERS}; a.h5:/compound; {STORE}"),
        ("dense invert a.h5:/three -o x.h5", 3, "wrong shape: 3 dimensions; a.h5:/three; a matrix has 2 dimensions, a vector 1"),
        ("dense invert a.h5:/void -o x.h5", 3, "wrong shape: 0 dimensions; a.h5:/void; a matrix has 2 dimensions, a vector 1"),
        ("dense invert a.h5:/group -o x.h5", 3, "a group, not a dataset; a.h5:/group; name a dataset that holds a dense matrix"),
        ("dense invert a.h5:/b -o x.h5", 3, "the matrix is 30 x 1, not square; a.h5:/b; give a square matrix"),
        ("dense invert a.h5:/infinite -o x.h5", 3, "Inf in the input; a.h5:/infinite row 0, column 0; only finite numbers are accepted"),
        ("gf2 rank a.h5:/half", 3, "a value other than 0 and 1: 0.5; a.h5:/half row 0, column 0; a bit matrix holds 0 and 1 only"),
        ("gf2 rank a.h5:/minus", 3, "a value other than 0 and 1: -1; a.h5:/minus row 0, column 0; a bit matrix holds 0 and 1 only"),
        ("gf2 rank a.h5:/complex", 3, "wrong type: not bits; a.h5:/complex; store packed uint64, packed uint8, or integers, bool or floats of 0 and 1"),
        ("gf2 rank a.h5:/negative", 3, "column index -1 outside the matrix; a.h5:/negative row 1; columns are 0 to 2"),
        ("cg a.h5:/pointers --rhs :/b -o x.h5", 3, "wrong shape: 3 row pointers for 3 rows; a.h5:/pointers; indptr has rows + 1 entries"),
        ("cg a.h5:/wide --rhs :/b -o x.h5", 3, "the matrix is 3 x 5, not square; a.h5:/wide; conjugate gradients need a symmetric matrix"),
        ("cg a.h5:/imaginary --rhs :/b -o x.h5", 3, "wrong type of data; a.h5:/imaginary; indices and pointers are integers, data real numbers"),
        # the wrong output
        ("dense invert a.h5:/A -o folder.h5", 2, "the output is a folder; folder.h5; name a file in it"),
        ("dense invert a.h5:/A -o gone/x.h5", 2, "cannot write in the output folder: No such file or directory; gone; choose a writable folder"),
        ("dense invert a.h5:/A -o a.h5", 2, "the output and the input are one file; a.h5; name another one"),
        ("dense invert a.h5:/A -o /dev/full", 2, "the output is not a regular file; /dev/full; choose another name"),
        ("dense invert a.h5:/A -o=x.h5", 2, "'=' would begin the output's name; -o=x.h5; write -o x.h5 or --output=x.h5"),
        ("dense invert a.h5:/A -o x.h5 -o y.h5", 2, "--output is given 2 times; terrace dense invert; give it once"),
        (SOLVE + " --report folder.h5", 2, "the report would replace something that is not a regular file; folder.h5; name a file"),
        (SOLVE + " --checkpoint x.h5", 2, "the output and --checkpoint are one file; x.h5; name another one"),
        # the wrong word
        ("solve a.h5", 2, "unknown command 'solve'; terrace; did you mean gf2 solve, band solve or dense solve? See terrace --help"),
        ("GF2 rank a.h5", 2, "unknown command 'GF2'; terrace; did you mean gf2? See terrace --help"),
        (SOLVE + " --method LU", 2, "'LU' is not a value of --method; terrace dense solve; did you mean lu? use lu, cholesky, gauss-jordan or cramer"),
        (SOLVE + " --n 30", 2, "unknown option '--n'; terrace dense solve; see terrace dense solve --help"),
        (SOLVE + " --restart gone.h5", 3, "no checkpoint to restart from: gone.h5 is refused (cannot open the file: No such file or directory, gone.h5, check its name), gone.h5.old is refused "
                                          "(cannot open the file: No such file or directory, gone.h5.old, check its name); --restart; start without it"),
        (SOLVE + " --factor a.h5:/A", 3, "the dataset does not say that it is a factor of LU or Cholesky's; a.h5:/A; name a dataset that dense factor wrote"),
        # the wrong text
        ("convert data.txt.gz x.h5", 2, "a compressed file; data.txt.gz; unpack it first: gunzip"),
        ("convert packed.txt x.h5", 3, "compressed by gzip; packed.txt; unpack it first: gunzip"),
        ("convert packed.npy x.h5", 3, "compressed by gzip; packed.npy; unpack it first: gunzip"),
        ("convert xz.txt x.h5", 3, "compressed by xz; xz.txt; unpack it first: unxz"),
        ("convert bz.csv x.h5", 3, "compressed by bzip2; bz.csv; unpack it first: bunzip2"),
        ("convert zstd.alist x.h5", 3, "compressed by zstd; zstd.alist; unpack it first: unzstd"),
        ("convert zip.mtx x.h5", 3, "a zip archive; zip.mtx; unpack it first, or name it .npz if NumPy wrote it"),
        ("convert hdf5.txt x.h5", 3, "an HDF5 file; hdf5.txt; give it a name that ends with .h5"),
        ("convert utf16.csv x.h5", 3, "text in UTF-16; utf16.csv; save it in UTF-8"),
        ("convert commas.txt x.h5", 3, "numbers with commas in them and blanks between them; commas.txt line 1; write decimal points, or separate by commas alone"),
        ("convert semicolons.csv x.h5", 3, "numbers with a ';' between them; semicolons.csv line 1; separate them by commas or blanks, with decimal points"),
        ("convert quotes.csv x.h5", 3, "numbers in quotes; quotes.csv line 1; write them without quotes"),
        ("convert ragged.csv x.h5", 3, "a row of 1 numbers, but the first row has 2; ragged.csv line 2; give every row the same count, or n first and then n x n numbers"),
        ("convert trailing.csv x.h5", 3, "an empty field; trailing.csv line 1; give every row all its numbers"),
        ("convert nan.csv x.h5", 3, "'nan' is not a finite number; nan.csv line 1; write it as 1.5 or 1.5e-3"),
        ("convert half.csv x.h5", 3, "'x' is not a finite number; half.csv line 2; write it as 1.5 or 1.5e-3"),
        ("convert empty.csv x.h5", 3, "no numbers in the file; empty.csv line 1; give rows of numbers"),
        ("convert objects.npy x.h5", 3, "wrong type '|O'; objects.npy; save float64, float32, integers or bool"),
        ("convert short.mtx x.h5", 3, "the file ends too early; short.mtx line 3; give all the numbers that it announces"),
        ("convert outside.mtx x.h5", 3, "entry (4, 4) lies outside the matrix; outside.mtx line 3; indices go from 1 to 3 and 3"),
        ("convert complex.mtx x.h5", 3, "complex matrices are not supported; complex.mtx line 1; store a real matrix"),
        ("convert bare.mtx x.h5", 3, "no Matrix Market header; bare.mtx line 1; the first line is '%%MatrixMarket matrix ...'"),
        ("convert book.xlsx x.h5", 2, "unknown extension '.xlsx'; book.xlsx; use .txt, .dat, .csv, .mtx, .sms, .alist, .npy, .npz, .h5 or .hdf5"),
        ("convert numbers.npy folder.h5", 2, "the output is a folder; folder.h5; name a file in it"),
        ("convert a.h5:/A gone/x.npy", 2, "cannot write in the output folder: No such file or directory; gone; choose a writable folder")):
    done = test.refused(command, code, ranks=2 if test.runs % 5 == 0 else 1)
    check(command, done.said == ["terrace: " + said], f"{done.said}, not {said!r}")

# A name nearly right comes first; a long list ends.
done = test.refused("dense invert a.h5:/a -o x.h5", 3)
check("another case", done.said and done.said[0].startswith("terrace: no such dataset; a.h5:/a; did you mean /A? the file holds /A, "), str(done.said))
done = test.refused("dense invert a.h5:/B -o x.h5", 3)
check("another group", done.said and "; did you mean /group/B? the file holds " in done.said[0], str(done.said))
done = test.refused("dense invert many.h5:/A -o x.h5", 3)
check("a long list", done.said and len(done.said[0]) < 260 and done.said[0].endswith(", ..."), str(done.said))

# What is right, and may mislead.
for name in ("x.npy", "x.csv"):
    done = test.run(f"dense invert a.h5:/A -o {name}", 2, 0)
    check(name, done.said == [f"terrace: warning: an HDF5 file is written under this name; {name}; name it .h5, and convert it: terrace convert"], str(done.said))
remove("x.npy", "x.csv")
for value, warned in (("abc", True), ("-3", True), ("2x", True), ("1", False), ("", False), ("0", False)):
    done = test.run("gf2 rank a.h5:/A", 1, 3, env={"TERRACE_THREADS": value})
    said = f"terrace: warning: TERRACE_THREADS={value} is no number of threads; in the environment; the cores count instead"
    check(f"TERRACE_THREADS={value}", (done.said[:1] == [said]) == warned and len(done.said) == 1 + warned, str(done.said))

remove("-")
test.run("generate dense-random --n 4 -o ./-", 1, 0)
check("./- is a file", os.path.exists("-"))
remove("-")

# Numbers are decimal, whatever stands in front.
for words, shape, seed in (("--rows 010 --columns +08", (10, 8), None), ("--rows 3 --columns 4 --seed 00", (3, 4), 0), ("--rows 3 --columns 4 --seed -9223372036854775807", (3, 4), 1 - 2**63)):
    remove("u.h5")
    test.run(f"generate gf2-random {words} -o u.h5", 1, 0)
    with h5py.File("u.h5") as f:
        columns = int(f["A"].attrs["columns"])
        check(words, (f["A"].shape[0], columns) == shape, f"{f['A'].shape}, {columns} columns")
        check(words, seed is None or int(f["terrace"].attrs["seed"]) == seed, str(dict(f["terrace"].attrs)))
remove("u.h5")

# A mark of the byte order is no number; a header line is said once the numbers are read.
with open("mark.csv", "wb") as f:
    f.write(b"\xef\xbb\xbf1,2\n3,4\n")
with open("mark.txt", "wb") as f:
    f.write(b"\xef\xbb\xbf2\n1 2\n3 4\n")
with open("mark.mtx", "wb") as f:
    f.write(b"\xef\xbb\xbf%%MatrixMarket matrix array real general\n2 2\n1\n3\n2\n4\n")
with open("head.csv", "wb") as f:
    f.write(b"\xef\xbb\xbfleft,right\n1,2\n3,4\n")
for name in ("mark.csv", "mark.txt", "mark.mtx", "head.csv"):
    for ranks in (1, 2):
        remove("m.h5")
        done = test.run(f"convert {name} m.h5", ranks, 0)
        with h5py.File("m.h5") as f:
            check(name, np.array_equal(f["A"][...], [[1, 2], [3, 4]]), f"{f['A'][...]}")
        check(name, len(done.said) == (name == "head.csv"), str(done.said))
with open("spaced.txt", "w") as f:
    f.write("1.5, 2\n-3, 4\n")
test.run("convert spaced.txt spaced.h5", 1, 0)
with h5py.File("spaced.h5") as f:
    check("commas and blanks", np.array_equal(f["A"][...], [[1.5, 2], [-3, 4]]), f"{f['A'][...]}")

# A group for a file that another program has open, or writes to meanwhile: nobody's data is lost.
more = "dense solve a.h5:/A --rhs :/b -o a.h5:/more"
with h5py.File("a.h5", "a") as f:
    said = test.refused(more, 2).said
    check("a writer", said == ["terrace: another program has the file open to write; a.h5; close it there, or choose another file"], str(said))
with h5py.File("a.h5") as f:
    test.run(more, 2, 0)
stopped = subprocess.Popen(test.words(more + " --force"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=test.env({"TERRACE_TEST_FAULT": "0:write:stop"}))
os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
try:
    h5py.File("a.h5", "a").close()
    check("a writer meanwhile", False, "HDF5 let it in")
except OSError:
    pass
shutil.copy("a.h5", "later.h5")
with h5py.File("later.h5", "a") as f:
    f["later"] = 5
os.replace("later.h5", "a.h5")
stopped.send_signal(signal.SIGCONT)
said = [line for line in stopped.communicate(timeout=60)[1].splitlines() if line.startswith("terrace: ")]
check("changed meanwhile", stopped.returncode == 5 and said == ["terrace: another program has written to the file meanwhile; a.h5; the result is in a.h5.1, beside what the file held before"],
      f"{stopped.returncode}: {said}")
test.run("verify a.h5.1:/more", 1, 0)
with h5py.File("a.h5") as f:
    check("changed meanwhile", "later" in f and not left_over(), f"{list(f)}, {left_over()}")

# The same of a name that was free.
stopped = subprocess.Popen(test.words("dense invert a.h5:/A -o new.h5"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=test.env({"TERRACE_TEST_FAULT": "0:write:stop"}))
os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
with open("new.h5", "w") as f:
    f.write("mine")
stopped.send_signal(signal.SIGCONT)
said = [line for line in stopped.communicate(timeout=60)[1].splitlines() if line.startswith("terrace: ")]
check("a new name", stopped.returncode == 5 and said == ["terrace: another program has written to the file meanwhile; new.h5; the result is in new.h5.1"], f"{stopped.returncode}: {said}")
with open("new.h5") as f:
    check("a new name", f.read() == "mine" and not left_over(), str(left_over()))
test.run("verify new.h5.1", 1, 0)

# An answer that nobody got is no success; a reader that went away is one.
with h5py.File("bits.h5", "w") as f:
    f["A"] = np.eye(9, dtype="u1")
for option in ("--quiet", "--json"):
    for ranks in (1, 2):
        line = " ".join(test.words(f"gf2 rank bits.h5 {option}", ranks))
        done = subprocess.run(f"{line} > /dev/full", shell=True, capture_output=True, text=True, env=test.env())
        if ranks == 1:  # mpirun's own standard output is a pipe
            check(f"{option} to a full disk", done.returncode == 5 and "could not be written: No space left on device; standard output; " in done.stderr, f"{done.returncode} {done.stderr}")
        done = subprocess.run(f"{line} | true", shell=True, capture_output=True, text=True, env=test.env())
        check(f"{option} to nobody", "could not" not in done.stderr or option == "--json", done.stderr)

# Variables that only some of the hosts get: the first rank's count on all.
with h5py.File("a.h5", "a") as f:
    f.create_dataset("pieces", data=spd, chunks=(4, 4), compression="gzip")
for variable in ("TERRACE_IO_PIECE_BYTES=400", "TERRACE_STRIPE_BYTES=65536"):
    for first, second in ((["env", variable], []), ([], ["env", variable])):
        words = [test.path, "dense", "invert", "a.h5:/pieces", "-o", "alike.h5"]
        done = subprocess.run(["mpirun", "-n", "1", *first, *words, ":", "-n", "2", *second, *words], capture_output=True, text=True, timeout=60, env=test.env(launcher_folder()))
        check(f"{first} : {second}", done.returncode == 0, f"{done.returncode}: {done.stderr[:300]}")
        test.run("verify alike.h5", 1, 0)
        remove("alike.h5")

# One mpirun that starts ranks with different command lines.
INVERT = ["dense", "invert", "a.h5:/A", "-o", "differ.h5"]
for first, second in ((INVERT, ["gf2", "rank", "bits.h5"]), (INVERT, [*INVERT, "--block", "64"]), (INVERT, [*INVERT, "--no-such"]), ([*INVERT, "--no-such"], INVERT),
                      (INVERT, ["dense", "invert", "a.h5:/group/B", "-o", "differ.h5"]), (["gf2", "rank", "bits.h5", "--quiet"], ["gf2", "rank", "bits.h5 --quiet"]),
                      (["--help"], INVERT), (INVERT, ["--version"])):
    command = ["mpirun", "-n", "1", test.path, *first, ":", "-n", "2", test.path, *second]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=test.env(launcher_folder()))
        said = [line for line in done.stderr.splitlines() if line.startswith("terrace: ")]
        check(f"{first} : {second}", done.returncode == 2 and said == ["terrace: the ranks differ in the command line; in the arguments; give the same on each"] and not left_over()
              and not os.path.exists("differ.h5"), f"{done.returncode}: {said}, {left_over()}")
    except subprocess.TimeoutExpired:
        check(f"{first} : {second}", False, "hung")
test.finish()
