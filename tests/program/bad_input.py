#!/usr/bin/env python3
"""Every border of the exit codes: the code, one line of message naming what and where, nothing left behind.

bad_input.py TERRACE [RANKS]     Needs h5py and numpy; runs in a temporary folder.
"""
import concurrent.futures
import os
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np

from terrace import Program, left_over, read_json

test, ranks = Program(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
check = test.check
rng = np.random.default_rng(1)


def run(arguments, n=ranks, **how):
    return test.run(arguments, n, **how)


def refused(arguments, code, *words, n=None):
    """On `n` ranks, as a rule on all; of usage errors, which are found before anything is read, three in four on one."""
    for one in (n,) if n else test.some(1, 1, 1, ranks)[-1:] if code == 2 else (ranks,):
        test.refused(arguments, code, *words, ranks=one)


def accepted(arguments, n=ranks):
    return run(arguments, n, code=0).out


n, m = 40, 4
spd = rng.uniform(-1, 1, (n, n))
spd = spd @ spd.T + n * np.eye(n)
with h5py.File("in.h5", "w") as f:
    f["A"], f["b"], f["short"] = spd, rng.normal(size=n), rng.normal(size=n - 1)
    f["wide"] = rng.normal(size=(n, n + 3))
    f["cube"] = np.zeros((3, 3, 3))
    f["text"] = "a matrix it is not"
    for name, value in (("nan", np.nan), ("inf", np.inf)):
        bad = spd.copy()
        bad[7, 31] = value
        f[name] = bad
    singular = rng.normal(size=(n, n))
    singular[:, 17] = 0
    f["singular"] = singular
    unsymmetric = spd.copy()
    unsymmetric[5, 9] += 1
    f["unsymmetric"] = unsymmetric
    indefinite = spd.copy()
    indefinite[20, 20] = -50
    f["indefinite"] = indefinite
    ab = np.zeros((m + 1, n))
    ab[0], ab[1:] = 2 * m + 1, rng.uniform(-1, 1, (m, n))
    for name, value, place in (("band", None, None), ("band_minor", -1.0, (0, 22)), ("band_nan", np.nan, (2, 6))):
        data = ab.copy()
        if place:
            data[place] = value
        f[name] = data
        f[name].attrs["format"] = "band"
    bits = rng.integers(0, 2, (n, n), dtype=np.uint8)
    f["bits"] = bits
    f["bits2"] = bits
    wrong = bits.copy()
    wrong[11, 13] = 2
    f["two"] = wrong
    low = bits.copy()
    low[-1] = low[0]
    f["bits_low"] = low
    rhs = np.zeros((n, 1), np.uint8)
    rhs[0] = 1
    f["bits_rhs"] = rhs
    f["laplace/data"] = np.array([2.0, -1, -1, 2])
    f["laplace/indices"] = np.array([0, 1, 0, 5], np.int32)
    f["laplace/indptr"] = np.array([0, 2, 4], np.int32)
    f["laplace"].attrs["shape"] = [2, 2]
    f["beyond/data"], f["beyond/indptr"] = f["laplace/data"][()], f["laplace/indptr"][()]
    f["beyond/indices"] = np.array([0, 1, 0, 2], np.int32)  # the first that is no column
    f["beyond"].attrs["shape"] = [2, 2]
# Row pointers that fall: within a piece of 512 that is read at once, at its end, at the end of all, between ranks.
pointed = 5000
falls = (700, 1023, 1024, 1025, 2500, pointed - 1)
with h5py.File("falls.h5", "w") as f:
    f["b"] = np.ones(pointed)
    for k in (0, *falls):
        starts = np.arange(0, 2 * pointed + 2, 2)
        starts[k] = starts[k - 1] - 1 if k else 0
        f[f"{k}/indptr"], f[f"{k}/data"] = starts, np.tile([2.0, -0.5], pointed)
        i = np.arange(pointed)
        f[f"{k}/indices"] = np.stack([i - i % 2, i - i % 2 + 1], axis=1).ravel()
        f[f"{k}/data"][:] = np.where(f[f"{k}/indices"][:] == np.repeat(i, 2), 2.0, -0.5)
        f[f"{k}"].attrs["shape"] = [pointed, pointed]
with h5py.File("one.h5", "w") as f:
    f["A"] = spd
with h5py.File("huge.h5", "w") as f:  # allocated late: no data in the file
    f.create_dataset("A", (3_000_000, 3_000_000), "f8")
    f.create_dataset("bits", (1 << 23, 1 << 17), "u8").attrs.update(columns=1 << 23, format="bits")
    f.create_dataset("band", (1 << 20, 1 << 24), "f8").attrs["format"] = "band"
    f.create_dataset("tall", (1 << 34, 16), "f8", chunks=(1024, 16)).attrs["format"] = "band"
    f["b"] = np.ones(16)
# Virtual datasets of two parts: all there, a file cut off, a file that is gone, a dataset that is gone.
half = len(spd) // 2
for name in ("whole", "cut", "gone", "renamed"):
    layout = h5py.VirtualLayout(spd.shape, "f8")
    for k, rows in enumerate((slice(0, half), slice(half, None))):
        with h5py.File(f"{name}{k}.h5", "w") as f:
            f["part"] = spd[rows]
        layout[rows] = h5py.VirtualSource(f"{name}{k}.h5", "part", spd[rows].shape)
    with h5py.File(f"virtual_{name}.h5", "w") as f:
        f.create_virtual_dataset("A", layout)
os.truncate("cut1.h5", os.path.getsize("cut1.h5") - 900)
os.remove("gone1.h5")
with h5py.File("renamed1.h5", "a") as f:
    f.move("part", "other")
with open("one.h5", "rb") as f:
    whole = f.read()
with open("truncated.h5", "wb") as f:
    f.write(whole[: len(whole) // 2])
# Damage that HDF5 1.10 does not see, and would read or write out of bounds for.
with h5py.File("chunk.h5", "w") as f:
    f.create_dataset("A", data=spd, chunks=(5, 4))
    f["b"] = np.ones(n)
with open("chunk.h5", "rb") as f:
    damaged = bytearray(f.read())
size = (5 * 4 * 8).to_bytes(4, "little") + bytes(4)  # of a chunk, and its filter mask: in a leaf of the tree of chunks
at = damaged.index(size, damaged.index(b"TREE\x01\x00"))
damaged[at:at + 4] = (5 * 4 * 8 + 11).to_bytes(4, "little")
with open("chunk.h5", "wb") as f:
    f.write(damaged)
with h5py.File("precision.h5", "w") as f:
    f.create_dataset("A", data=np.eye(n, dtype=np.int16))
with open("precision.h5", "rb") as f:
    damaged = f.read()
number = b"\x10\x08\x00\x00\x02\x00\x00\x00\x00\x00"  # signed, little, of 2 bytes, from bit 0
assert damaged.count(number + b"\x10\x00") == 1
with open("precision.h5", "wb") as f:
    f.write(damaged.replace(number + b"\x10\x00", number + b"\x00\x00"))
with h5py.File("long.h5", "w") as f:  # integers that no program has; a long double becomes them when one bit flips
    long = h5py.h5t.STD_I64LE.copy()
    long.set_size(16)
    for name, kind, size in (("long", long, 16), ("odd", h5py.h5t.STD_I8LE.copy(), 9), ("five", h5py.h5t.STD_I32LE.copy(), 5),
                             ("nine", h5py.h5t.IEEE_F64LE.copy(), 9), ("sixteen", h5py.h5t.IEEE_F64LE.copy(), 16)):
        kind.set_size(size)
        h5py.h5d.create(f.id, name.encode(), kind, h5py.h5s.create_simple((3, 3))).write(h5py.h5s.ALL, h5py.h5s.ALL, np.eye(3))
with h5py.File("compact.h5", "w") as f:
    f["A"] = spd
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(f.id, b"b", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((n,)), properties).write(h5py.h5s.ALL, h5py.h5s.ALL, np.ones(n))
with open("compact.h5", "rb") as f:
    damaged = f.read()
layout = b"\x03\x00" + (8 * n).to_bytes(2, "little") + np.ones(1).tobytes()  # version 3, compact, its bytes
assert damaged.count(layout) == 1
with open("compact.h5", "wb") as f:
    f.write(damaged.replace(layout, b"\x03\x00\x00\x00" + np.ones(1).tobytes()))
# HDF5 1.10 leaves memory unset for chunks that are not there, where it does not know when they are filled.
with h5py.File("filled.h5", "w") as f:
    f.create_dataset("A", (6, 6), "f8", chunks=(2, 2), fillvalue=2.5)[:2] = 1
with open("filled.h5", "rb") as f:
    damaged = f.read()
filled = b"\x02\x03\x00\x01\x08\x00\x00\x00" + np.float64(2.5).tobytes()  # version, allocated, filled, defined, size
assert damaged.count(filled) == 1
with open("filled.h5", "wb") as f:
    f.write(damaged.replace(filled, b"\x02\x03\x80" + filled[3:]))
with open("noise.h5", "wb") as f:
    f.write(b"this is no HDF5 file" * 100)
with open("taken.h5", "wb") as f:
    f.write(b"precious")

# usage: 2
refused("dense invert filled.h5:/A -o out.h5", 3, "unknown time to fill", "filled.h5", "damaged")
refused("dense invert in.h5:/A", 2, "-o")
refused("dense solve :/b --rhs in.h5:/A -o out.h5", 2, "no file is named", ":/b")
refused("dense invert in.h5:/A -o out.h5 --no-such-option", 2)
refused("frobnicate in.h5", 2)
refused("gf2 rref in.h5:/bits -o out.h5 --method magic", 2, "magic", "--method")
refused("gf2 rref in.h5:/bits -o out.h5 --method tensor --backend cpu", 2, "tensor", "--method")
refused("gf2 rref in.h5:/bits -o out.h5 --block -5", 2, "--block", "-5 is not zero or more")
refused("bench gf2 --n 64 --method magic", 2, "magic", "--method")
refused("band solve in.h5:/band --rhs :/b -o out.h5 --method magic", 2, "magic", "--method")
refused("band solve in.h5:/band --rhs :/b -o out.h5 --parts 3", 2, "--parts", "--method")
refused("band solve in.h5:/band --rhs :/b -o out.h5 --method two-ends --factor :/band", 2, "--factor", "--method")
refused("band solve in.h5:/band --rhs :/b -o out.h5 --factor :/band --diagonal cpu", 2, "--factor", "--diagonal")
refused("band factor in.h5:/band -o out.h5 --method two-ends", 2, "two-ends", "--method")
for option in ("--factor :/band", "--method streamed", "--diagonal cpu", "--substitution cpu", "--parts 3", "--block 64", "--scratch-dir ."):
    refused(f"band solve in.h5:/band --rhs :/b -o out.h5 --precision mixed {option}", 2, option.split()[0], "--precision mixed")
refused("band solve in.h5:/band --rhs :/b -o out.h5 --precision emulated", 2, "emulated", "--precision")
refused("dense invert in.h5:/A -o out.h5 --precision emulated --backend cpu", 2, "emulated", "--precision")
refused("dense invert in.h5:/A -o out.h5 --precision emulated --method textbook", 2, "textbook", "--precision")
for command in ("dense invert in.h5:/A", "dense solve in.h5:/A --rhs :/b"):
    for options in ("--moduli 12", "--moduli 13 --method lu" if "solve" in command else "--moduli 13 --guard",
                    "--moduli 12 --precision mixed" if "solve" in command else "--moduli 12 --method textbook"):
        refused(f"{command} -o out.h5 {options}", 2, "--moduli", "--precision emulated")
    for unchecked in ("--no-check", "--check none"):
        refused(f"{command} -o out.h5 --precision emulated --moduli 12 {unchecked}", 2, "--moduli", unchecked)
    for number in (11, 15, -1, "x"):
        refused(f"{command} -o out.h5 --precision emulated --moduli {number}", 2, str(number), "--moduli")
refused("dense factor in.h5:/A -o out.h5 --moduli 12", 2, "--moduli")
refused("dense invert in.h5:/A -o out.h5 --precision mixed", 2, "dense invert", "--precision")
refused("band factor in.h5:/band -o out.h5 --precision mixed", 2, "band factor", "--precision")
refused("cg in.h5:/A --rhs :/b -o out.h5 --precision mixed --layout rows", 2, "triangle", "--precision")
refused("cg in.h5:/A --rhs :/b -o out.h5 --precision mixed --method pipelined", 2, "classic", "--precision")
refused("cg in.h5:/A --rhs :/b -o out.h5 --method steepest", 2, "steepest", "--method")
refused("cg in.h5:/A --rhs :/b -o out.h5 --preconditioner ic", 2, "Cholesky", "--preconditioner")
refused("cg in.h5:/A --rhs :/b -o out.h5 --preconditioner block-jacobi --block 65", 2, "65", "--block")
refused("cg in.h5:/A --rhs :/b -o out.h5 --layout columns", 2, "columns", "--layout")
refused("cg in.h5:/A --rhs :/b -o out.h5 --norm largest", 2, "largest", "--norm")
refused("cg in.h5:/A --rhs :/b -o out.h5 --at-once 17", 2, "17", "--at-once")
refused("cg in.h5:/A --rhs :/b -o out.h5 --reorder", 2, "CSR", "--reorder")
refused("bench cg --n 50 --method steepest --backend cpu", 2, "steepest", "--method")
refused("bench cg --n 50 --method pipelined --rhs 2 --backend cpu", 2, "right-hand sides", "--rhs")
refused("gf2 rank in.h5:/bits --precision mixed", 2, "--precision")
refused("gf2 rref in.h5:/bits -o out.h5 --k 15", 2, "15", "--k")
refused("gf2 rref in.h5:/bits -o out.h5 --tables remote", 2, "remote", "--tables")
refused("gf2 rref in.h5:/bits -o out.h5 --panels nowhere", 2, "nowhere", "--panels")
refused("gf2 rref in.h5:/bits -o out.h5 --method tensor --k 8", 2, "--k", "--method")
refused("gf2 multiply in.h5:/bits :/bits2 -o out.h5 --tables broadcast", 2, "--tables")
refused("gf2 multiply in.h5:/bits :/bits2 -o out.h5 --panels host", 2, "--panels")
refused("bench gf2 --n 64 --study --backend cpu", 2, "--study")
refused("bench gf2 --n 64 --study=codes --backend cpu", 2, "--study")
refused("bench gf2 --n 64 --study=colours --backend cpu", 2, "colours", "--study")
refused("bench gf2 --n 64 --study=rows --k 3 --backend cpu", 2, "--study", "--k")
refused("bench gf2 --n 64 --echelon --checksum --backend cpu", 2, "--checksum", "--echelon")
refused("bench gf2 --calibrate=columns --backend cpu", 2, "--calibrate")
refused("bench gf2 --calibrate --method tables --backend cpu", 2, "--calibrate", "--method")
refused("bench gf2 --product --n 64 --candidates 2 --backend cpu", 2, "--candidates")
refused("bench gf2 --product --n 64 --method columns --backend cpu", 2, "columns", "--method")
refused("gf2 multiply in.h5:/bits :/bits2 -o out.h5 --method columns --backend cpu", 2, "columns", "--method")
refused("gf2 multiply in.h5:/bits :/bits2 -o out.h5 --candidates 2", 2, "--candidates")
refused("gf2 rref in.h5:/bits -o out.h5 --candidates 17", 2, "17", "--candidates")
refused("gf2 rref in.h5:/bits -o out.h5 --candidates 3 --block 384", 2, "384", "--candidates", "--block")
refused("gf2 rref in.h5:/bits -o out.h5 --candidates 3 --method tensor", 2, "--candidates", "--method")
for option in ("--k 1", "--tables local", "--panels host", "--block 128", "--candidates 3"):
    refused(f"gf2 rref in.h5:/bits -o out.h5 --method columns {option}", 2, option.split()[0], "--method")
refused("bench gf2 --n 64 --levels 1 --backend cpu", 2, "--levels", "--product")
refused("gf2 multiply in.h5:/bits :/bits2 -o out.h5 --method tensor --backend cpu", 2, "tensor", "--method")
refused("bench gf2 --product --n 64 --method tensor --backend cpu", 2, "tensor", "--method")
for option, word in (("--n -5", "-5"), ("--n 0", "0"), ("--columns 0", "--columns"), ("--columns -3", "--columns"),
                     ("--density -0.1", "between 0 and 1"), ("--density 1.5", "between 0 and 1"),
                     ("--density nan", "between 0 and 1"), ("--rank -1", "--rank"), ("--rank 65", "--rank"),
                     ("--columns 10 --rank 11", "--rank"), ("--rank 3 --half-rank", "--half-rank"),
                     ("--product --inverse", "--product"), ("--product --columns 9", "--product"),
                     ("--inverse --density 0.1", "--inverse"), ("--product --stages", "--product"),
                     ("--inverse --echelon", "--inverse"), ("--transfers", "--transfers"),
                     ("--rivals m4ri,magma", "magma")):
    refused("bench gf2 --backend cpu " + ("" if "--n " in option else "--n 64 ") + option, 2, word)
accepted("bench gf2 --backend cpu --n 64 --columns 100 --density 0.1 --rank 7 --echelon --stages --repeat 1")
refused("dense invert in.h5:/A -o out.h5 --backend tpu", 2)
refused("dense invert in.h5:/A -o taken.h5", 2, "taken.h5", "--force")
refused("dense invert in.h5:/A -o nowhere/out.h5", 2, "nowhere")
refused("generate dense-random --n 10", 2, "-o")
refused("dense solve in.h5:/A --rhs :/b --method cramer -o out.h5", 2, "32")
for option in ("--block 16", "--pivoting tournament", "--pivoting partial", "--precision emulated", "--guard", "--checkpoint c.h5",
               "--checkpoint-every 1m", "--restart c.h5"):
    refused(f"dense solve in.h5:/A --rhs :/b --method cramer {option} -o out.h5", 2, option.split()[0])
for option in ("--guard", "--checkpoint c.h5", "--checkpoint-every 1m", "--restart c.h5"):
    refused(f"dense invert in.h5:/A --method textbook {option} -o out.h5", 2, option.split()[0])
refused("gf2 rref in.h5:/bits -o out.h5 --checkpoint-every 10m", 2, "--checkpoint")

# input: 3
refused("dense invert missing.h5:/A -o out.h5", 3, "missing.h5")
refused("dense invert in.h5:/nothing -o out.h5", 3, "nothing", "in.h5")
with h5py.File("several.h5", "w") as f:  # none of them is called A
    f["P"], f["Q"], f["bits"], f["bits2"] = spd, spd, np.eye(9, dtype=np.uint8), np.eye(9, dtype=np.uint8)
refused("dense invert several.h5 -o out.h5", 3, "several.h5", "/P, /Q")
refused("gf2 rref several.h5 -o out.h5", 3, "several.h5", "/bits, /bits2")
refused("dense invert in.h5:/wide -o out.h5", 3, "40", "43")
refused("dense invert in.h5:/cube -o out.h5", 3, "cube")
refused("dense invert in.h5:/text -o out.h5", 3, "text")
refused("dense invert in.h5:/nan -o out.h5", 3, "NaN", "row 7, column 31")
refused("cg in.h5:/inf --rhs :/b -o out.h5", 3, "Inf", "row 7, column 31")
refused("dense solve in.h5:/A --rhs :/short -o out.h5", 3, "39", "40")
refused("band solve in.h5:/band --rhs :/short -o out.h5", 3, "39", "40")
refused("band solve in.h5:/band_nan --rhs :/b -o out.h5", 3, "NaN", "row 8, column 6")
refused("cg in.h5:/A --rhs :/short -o out.h5", 3, "39", "40")
refused("cg in.h5:/unsymmetric --rhs :/b -o out.h5", 3, "symmetric", "5", "9")
refused("cg in.h5:/laplace --rhs :/b -o out.h5", 3, "5")
refused("cg in.h5:/beyond --rhs :/b -o out.h5", 3, "2")
for k in falls:
    for one in (1, ranks):
        test.refused(f"cg falls.h5:/{k} --rhs :/b -o out.h5", 3, f"wrong row pointer {2 * k - 3}; falls.h5:/{k}/indptr entry {k};", ranks=one, env={"TERRACE_IO_PIECE_BYTES": "4096"})
test.run("cg falls.h5:/0 --rhs :/b -o fine.h5", ranks, 0, {"TERRACE_IO_PIECE_BYTES": "4096"})
refused("convert in.h5:/beyond out.mtx", 3, "column index 2")
refused("gf2 rref in.h5:/two -o out.h5", 3, "11", "13")
refused("gf2 inverse in.h5:/wide -o out.h5", 3)
refused("dense invert truncated.h5:/A -o out.h5", 3, "truncated.h5")
refused("dense invert noise.h5:/A -o out.h5", 3, "noise.h5")
refused("dense invert chunk.h5:/A -o out.h5", 3, "chunk", "size")
refused("dense invert precision.h5:/A -o out.h5", 3, "type")
refused("dense invert long.h5:/long -o out.h5", 3, "type")
refused("gf2 rank long.h5:/odd", 3, "type")
for name in ("five", "nine", "sixteen"):
    refused(f"dense invert long.h5:/{name} -o out.h5", 3, "type")
refused("dense solve compact.h5:/A --rhs :/b -o out.h5", 3, "compact.h5", "/b", "end before")
refused("dense invert . -o out.h5", 3)
refused("verify noise.h5", 3)

# sizes that no machine holds, and whose products overflow: 5
for sizes in ("dense-random --n 9223372036854775807", "dense-random --n 5 --rhs 4611686018427387904", "gf2-random --rows 8 --columns 9223372036854775807",
              "band-spd --n 9223372036854775807 --half-bandwidth 9223372036854775806", "csr-laplace --dim 3 --points 4294967296",
              "band-laplace --points 4611686018427387904"):
    refused("generate " + sizes + " -o out.h5", 5, "entries", n=1)
for sizes in ("gf2 --n 64 --columns 9223372036854775807", "dense --n 4611686018427387904", "band --n 9223372036854775807", "matrix --n 4294967296",
              "cg --n 4611686018427387904", "cg --kind csr --points 4294967296", "cg --kind band --n 9223372036854775807"):
    refused("bench " + sizes + " --repeat 1", 5, "entries", n=1)

# outcome: 4
for k in (1, 2, 3, 5):
    refused("dense invert in.h5:/singular -o out.h5 --report r.json --quiet".replace("--report r.json", ""), 4, "singular",
            "17", n=k)
refused("dense solve in.h5:/singular --rhs :/b -o out.h5", 4, "singular", "17")
refused("band factor in.h5:/band_minor -o out.h5", 4, "positive definite", "23")
refused("band solve in.h5:/band_minor --rhs :/b -o out.h5", 4, "positive definite", "23", n=3)
for method in ("two-ends", "partition --parts 3"):  # by the one-ended factorization
    refused(f"band solve in.h5:/band_minor --rhs :/b --method {method} --backend cpu -o out.h5", 4, "positive definite", "23", n=2)
for ranks in (1, 2):  # by FP64
    refused("band solve in.h5:/band_minor --rhs :/b --precision mixed --backend cpu -o out.h5", 4, "positive definite", "23", n=ranks)
refused("gf2 inverse in.h5:/bits_low -o out.h5", 4, "singular")
rank = np.linalg.matrix_rank  # the right-hand side e_0 is outside the column space of a matrix with equal rows 0 and n-1
refused("gf2 solve in.h5:/bits_low --rhs :/bits_rhs -o out.h5", 4, "inconsistent")
for command, key, value in (("dense invert in.h5:/singular", "first_zero_pivot", 17),
                            ("band factor in.h5:/band_minor", "failed_minor", 23),
                            ("gf2 solve in.h5:/bits_low --rhs :/bits_rhs", "consistent", False)):
    run(command + " -o out.h5 --report report.json")
    report = read_json("report.json")
    check(command, report["exit_code"] == 4 and report["result"].get(key) == value, report["result"])
    os.remove("report.json")
code, out, err = run("cg in.h5:/indefinite --rhs :/b -o indefinite.h5 --report report.json")
check("cg indefinite", code == 4 and read_json("report.json")["result"]["reason"] == "indefinite-matrix" and "dense solve" in err, err[:300])
code, out, err = run("cg in.h5:/A --rhs :/b -o slow.h5 --max-iterations 2 --report report2.json")
check("cg not converged", code == 4 and read_json("report2.json")["result"]["reason"] == "max-iterations", err[:300])
with h5py.File("slow.h5") as f:
    check("cg not converged writes x and residuals", f["x"].shape == (n,) and f["residuals"].shape[0] in (2, 3))

accepted("dense invert virtual_whole.h5 -o v.h5")
for name in ("cut", "gone", "renamed"):
    refused(f"dense invert virtual_{name}.h5:/A -o out.h5", 3, "virtual", f"{name}1.h5")

# resources: 5, before anything is read
for command in ("dense invert huge.h5:/A", "gf2 rref huge.h5:/bits", "band factor huge.h5:/band"):
    start = time.time()
    refused(command + " -o out.h5 --backend cpu", 5, "memory")
    check(command, time.time() - start < 20, "refused late")
    accepted(command + " -o out.h5 --backend cpu --plan")
for command in ("cg huge.h5:/tall --rhs :/b", "band solve huge.h5:/tall --rhs :/b", "band factor huge.h5:/tall"):
    start = time.time()
    refused(command + " -o out.h5 --backend cpu", 3, "17179869184 diagonals", "order 16")
    check(command, time.time() - start < 20, "refused late")
refused("dense invert in.h5:/A -o /proc/out.h5", 2, "/proc")

# an input that was refused as output stays as it was, and --force replaces it
check("taken.h5", open("taken.h5", "rb").read() == b"precious")
accepted("dense invert in.h5:/A -o taken.h5 --force")
accepted("dense invert in.h5:/A -o taken.h5:/again")
with h5py.File("taken.h5") as f:
    check("group added", "inverse" in f and "inverse" in f["again"] and "terrace" in f["again"])
    check("inverse", np.allclose(f["inverse"][:] @ spd, np.eye(n)))
refused("dense invert in.h5:/A -o taken.h5:/again", 2, "again")

# Without a launcher: no daemon of Open MPI's is started, and short runs side by side end as they should.
waiting = subprocess.Popen(test.words("generate dense-random --n 2 -o alone.h5"), env=test.env({"TERRACE_TEST_FAULT": "0:write:hang"}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(2)  # it is past MPI_Init and hangs where nothing is written yet
with open(f"/proc/{waiting.pid}/task/{waiting.pid}/children") as f:
    check("a run alone", waiting.poll() is None and not f.read().split(), "it has children, or ended")
waiting.kill()
waiting.wait()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    codes = list(pool.map(lambda _: test.run("convert --wrong").code, range(120)))
check("short runs side by side", set(codes) == {2}, str({c: codes.count(c) for c in set(codes)}))

# a rank that throws alone ends the job within seconds
for phase in ("read", "solve", "check", "write"):
    start = time.time()
    code, out, err = run("dense invert in.h5:/A -o fault.h5", 3, timeout=60,
                         env={"TERRACE_TEST_FAULT": "1:" + phase, "OMPI_MCA_odls_base_sigkill_timeout": "1"})
    check("lonely failure in " + phase, code == 70 and "rank 1" in err and "injected" in err, f"{code} {err[:200]}")
    check("lonely failure in " + phase, time.time() - start < 15, "took long")
    check("lonely failure in " + phase, not os.path.exists("fault.h5"), "output appeared")

# one flipped bit in each kind of result is found
accepted("gf2 rref in.h5:/bits -o v_rref.h5")
accepted("gf2 rank in.h5:/bits -o v_rank.h5")
accepted("gf2 kernel in.h5:/bits_low -o v_kernel.h5")
accepted("gf2 multiply in.h5:/bits in.h5:/bits2 -o v_product.h5")
accepted("band factor in.h5:/band -o v_factor.h5")
accepted("band solve in.h5:/band --rhs :/b -o v_band.h5")
accepted("band solve in.h5:/band --rhs :/b --precision mixed -o v_mixed.h5")
accepted("dense invert in.h5:/A -o v_inverse.h5")
accepted("dense solve in.h5:/A --rhs :/b -o v_dense.h5")
accepted("cg in.h5:/A --rhs :/b -o v_cg.h5")
for result in sorted(f for f in os.listdir(".") if f.startswith("v_")):
    check("verify " + result, "PASS" in accepted("verify " + result))
    with h5py.File(result) as f:
        names = [k for k in f if isinstance(f[k], h5py.Dataset) and f[k].size]
    for name in names:
        shutil.copy(result, "flipped.h5")
        with h5py.File("flipped.h5", "r+") as f:
            data = f[name][...]
            raw = data.view(np.uint8).reshape(-1)
            raw[raw.size // 2] ^= 1
            f[name][...] = data
        code, out, err = run("verify flipped.h5")
        check(f"verify {result}:{name} with one bit flipped", code == 4 and "FAIL" in out, f"{code} {out} {err[:200]}")
os.remove("flipped.h5")

check("nothing left behind", not left_over(), left_over())

test.finish()
