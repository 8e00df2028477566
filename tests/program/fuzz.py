#!/usr/bin/env python3
"""Mutated files and command lines: only documented exit codes, one line of message, nothing left behind.

fuzz.py TERRACE [--count 250] [--first 0] [--seed 1] [--jobs 2] [--only I] [--limit 10] [--sanitized]

Input I of a seed is the same whenever it is made. What it finds stays in a folder that is printed at the end.
"""
import argparse
import hashlib
import multiprocessing
import os
import pickle
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings

import h5py
import numpy as np

from terrace import launcher_folder

warnings.simplefilter("ignore")
parser = argparse.ArgumentParser()
parser.add_argument("terrace", type=os.path.abspath)
parser.add_argument("--count", type=int, default=250)
parser.add_argument("--first", type=int, default=0, help="where a run that was ended goes on")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--jobs", type=int, default=2)
parser.add_argument("--only", type=int, help="this input alone, its files kept")
parser.add_argument("--limit", type=float, default=10, help="seconds")
parser.add_argument("--sanitized", action="store_true", help="no limit on memory; sanitizer reports count")
options = parser.parse_args()

N, M = 12, 3
DTYPES = ["f2", "f4", ">f4", "f8", ">f8", "f16", "i1", "i2", ">i4", "i4", "i8", "u1", "u2", "u4", "u8", ">u8", "c16", "bool", "S5", "V7",
          h5py.string_dtype(), h5py.ref_dtype, h5py.regionref_dtype, h5py.vlen_dtype("i4"), h5py.enum_dtype({"A": 0, "B": 1}),
          np.dtype([("re", "f8"), ("im", "i4")]), np.dtype(("f8", (2, 2)))]
TEXTS = ["band", "bits", "dense", "csr_matrix", "upper", "lower", "column-major", "row-major", "little", "big", "", "BAND", "b\u00e4nd", "x" * 70000,
         " band ", "%s%n", "a\nb"]
WHOLES = [-1, 0, 1, 3, 8, 11, 12, 13, 63, 64, 65, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -2**63]


# ---- valid objects: path -> data, attributes, creation options ------------------------------------
def seeds():
    rng = np.random.default_rng(7)
    spd = rng.uniform(-1, 1, (N, N))
    spd = spd @ spd.T + N * np.eye(N)
    b = rng.normal(size=N)
    ab = np.zeros((M + 1, N))
    ab[0], ab[1:] = 2 * M + 1, rng.uniform(-1, 1, (M, N))
    up = np.zeros_like(ab)
    for d in range(M + 1):
        up[M - d, d:] = ab[d, : N - d]
    bits = rng.integers(0, 2, (N, 70), dtype=np.uint8)
    square = bits[:, :N].copy()
    wide = np.zeros((N, 128), np.uint8)
    wide[:, :70] = bits
    words = np.packbits(wide, axis=1, bitorder="little").view("<u8")

    def item(data, attrs=None, **how):
        return {"data": data, "attrs": attrs or {}, "how": how}

    def csr(kind):
        full = np.tril(np.triu(spd, -2), 2)
        full += N * np.eye(N)
        rows = [np.flatnonzero(full[i]) for i in range(N)]
        return {"/A/data": item(np.concatenate([full[i, r] for i, r in enumerate(rows)])),
                "/A/indices": item(np.concatenate(rows).astype(kind)),
                "/A/indptr": item(np.cumsum([0] + [len(r) for r in rows]).astype(kind)),
                "/A": {"group": True, "attrs": {"shape": np.array([N, N]), "encoding-type": "csr_matrix"}}, "/b": item(b)}

    dense = ["dense invert in.h5:/A -o out.h5", "dense solve in.h5:/A --rhs :/b -o out.h5", "cg in.h5:/A --rhs :/b -o out.h5",
             "dense invert in.h5 -o out.h5", "convert in.h5:/A out.mtx", "convert in.h5:/A out.npy", "convert in.h5:/A out.txt"]
    band = ["band factor in.h5:/A -o out.h5", "band solve in.h5:/A --rhs :/b -o out.h5", "cg in.h5:/A --rhs :/b -o out.h5 --format band",
            "band solve in.h5:/A --rhs :/b -o out.h5 --method streamed", "band factor in.h5 -o out.h5", "convert in.h5:/A out.mtx"]
    gf2 = ["gf2 rref in.h5:/A -o out.h5", "gf2 rank in.h5:/A", "gf2 kernel in.h5 -o out.h5", "gf2 solve in.h5:/A --rhs :/A -o out.h5",
           "gf2 multiply in.h5:/A :/B -o out.h5", "gf2 inverse in.h5:/B -o out.h5", "convert in.h5:/A out.mtx"]
    sparse = ["cg in.h5:/A --rhs :/b -o out.h5", "cg in.h5 --rhs :/b -o out.h5 --preconditioner jacobi --reorder", "convert in.h5:/A out.mtx"]
    both = {"/b": item(b)}
    turned = {"order": "column-major"}
    chunked = {"chunks": (5, 4), "compression": "gzip", "shuffle": True}
    return [("dense", {"/A": item(spd), **both}, dense),
            ("column-major", {"/A": item(spd.T.copy(), turned), **both}, dense),
            ("float32", {"/A": item(spd.astype(">f4")), **both}, dense),
            ("int16", {"/A": item(np.round(spd).astype("i2")), "/b": item(np.round(b * 9).astype("i8"))}, dense),
            ("chunked", {"/A": item(spd, chunks=(5, 4)), **both}, dense),
            ("gzip", {"/A": item(spd, **chunked), **both}, dense),
            ("gzip column-major", {"/A": item(spd.T.copy(), turned, **chunked), **both}, dense),
            ("lzf", {"/A": item(spd, chunks=(5, 4), compression="lzf", fletcher32=True), **both}, dense),
            ("band", {"/A": item(ab, {"format": "band"}), **both}, band),
            ("band upper", {"/A": item(up, {"format": "band", "uplo": "upper"}), **both}, band),
            ("band gzip", {"/A": item(ab, {"format": "band"}, chunks=(2, 5), compression="gzip"), **both}, band),
            ("csr int32", csr("i4"), sparse), ("csr int64", csr("i8"), sparse),
            ("words", {"/A": item(words, {"columns": 70, "format": "bits"}), "/B": item(square)}, gf2),
            ("little", {"/A": item(np.packbits(bits, axis=1, bitorder="little"), {"columns": 70, "bitorder": "little"}), "/B": item(square)}, gf2),
            ("big", {"/A": item(np.packbits(bits, axis=1), {"columns": 70, "bitorder": "big"}), "/B": item(square)}, gf2),
            ("plain", {"/A": item(bits), "/B": item(square.astype(bool))}, gf2),
            ("matlab", {"/A": item(spd.T.copy(), {"MATLAB_class": np.bytes_("double"), **turned}), "/b": item(b.reshape(1, N), turned)}, dense)]


def build(objects, path):
    with h5py.File(path, "w") as f:
        for name, o in sorted(objects.items(), key=lambda x: (len(x[0]), x[0])):
            try:
                if "link" in o:
                    f[name] = o["link"]
                    continue
                if o.get("group"):
                    made = f.require_group(name)
                elif "shape" in o:
                    made = f.create_dataset(name, o["shape"], o["dtype"], **o["how"])
                else:
                    made = f.create_dataset(name, data=o["data"], **o["how"])
                for key, value in o["attrs"].items():
                    try:
                        made.attrs[key] = value
                    except Exception:
                        pass
            except Exception:
                pass  # not every mutation can be stored: the object is missing then


# ---- mutations of the structure -----------------------------------------------------------------
def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def mutate_structure(rng, objects):
    name = pick(rng, sorted(objects))
    o = dict(objects[name])
    o["attrs"] = dict(o["attrs"])
    objects[name] = o
    kind = pick(rng, ["dtype", "shape", "attribute", "attribute", "value", "value", "layout", "huge", "link", "replace", "extra"])
    if o.get("group"):
        kind = pick(rng, ["attribute", "attribute", "link", "extra"])
    if kind != "extra" and kind != "link" and kind != "attribute" and "data" not in o:
        return
    data = o.get("data")
    if kind == "dtype":
        to = pick(rng, DTYPES)
        with np.errstate(all="ignore"):
            try:
                o["data"] = np.asarray(data).astype(to)
            except (TypeError, ValueError):
                o.pop("data"), o.update(shape=np.shape(data), dtype=to)
    elif kind == "shape":
        data = np.atleast_1d(data)
        o["data"] = pick(rng, [data.T.copy(), data[..., :-1], data[1:], data.reshape(-1), data[None], data[:0], data[..., :0], data.reshape(-1)[0] if data.size else data,
                               np.zeros((1,) * 9), np.zeros((2,) * 5), h5py.Empty("f8"), np.repeat(data, 2, 0), np.repeat(data, 3, -1)])
        if np.ndim(o["data"]) != 2:
            o["how"] = {}
    elif kind == "attribute":
        keys = sorted(o["attrs"]) + ["format", "order", "uplo", "columns", "bitorder", "shape", "encoding-type", "other"]
        key = pick(rng, keys)
        choice = rng.integers(8)
        if choice == 0:
            o["attrs"].pop(key, None)
        else:
            o["attrs"][key] = [None, pick(rng, TEXTS), np.bytes_(pick(rng, TEXTS).encode()), pick(rng, WHOLES), np.array([pick(rng, WHOLES) for _ in range(int(rng.integers(0, 5)))]),
                               float(pick(rng, [np.nan, np.inf, 70.0, 70.5, 1e300])), h5py.Empty("i8"), np.array([pick(rng, TEXTS[:9])] * 2, dtype=h5py.string_dtype())][choice]
    elif kind == "value" and np.size(data):
        data = np.array(data)
        flat = data.reshape(-1)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(flat.size))
            if flat.dtype.kind == "f":
                flat[at] = pick(rng, [np.nan, np.inf, -np.inf, 0.0, 1e308, -1e308, 5e-324, -1.0])
            elif flat.dtype.kind in "iu":
                limits = np.iinfo(flat.dtype)
                flat[at] = pick(rng, [limits.min, limits.max, 0, 1, 2, N, N - 1, limits.max // 2])
        o["data"] = data
    elif kind == "layout":
        side = int(rng.integers(1, 14))
        o["how"] = pick(rng, [{}, {"chunks": True}, {"chunks": (side,) * max(1, np.ndim(data)), "compression": "gzip"}, {"compression": "gzip", "shuffle": True, "fletcher32": True},
                              {"compression": "lzf"}, {"fletcher32": True}, {"scaleoffset": 3}, {"maxshape": (None,) * max(1, np.ndim(data))},
                              {"compression": "gzip", "maxshape": (None,) * max(1, np.ndim(data)), "chunks": (side,) * max(1, np.ndim(data))}, {"compression": "szip"},
                              {"external": [(os.path.join(home, "outside.bin"), 0, h5py.h5f.UNLIMITED)]}, {"external": [("/dev/zero", 0, 10**9)]}, {"track_times": True}])
    elif kind == "huge":
        far = pick(rng, [2**31, 2**40, 2**62, 10**6, 2**20])
        o.pop("data")
        shape = tuple(pick(rng, [far, 3, N]) for _ in range(max(1, np.ndim(data))))
        o.update(shape=shape, dtype=np.asarray(data).dtype, how=pick(rng, [{}, {"chunks": (16,) * len(shape)}, {"chunks": (16,) * len(shape), "compression": "gzip"},
                                                                           {"chunks": (16,) * len(shape), "fillvalue": 1}]))
    elif kind == "link":
        objects[name] = {"attrs": {}, "link": pick(rng, [h5py.SoftLink(name), h5py.SoftLink("/b"), h5py.SoftLink("/nowhere"), h5py.SoftLink("/"), h5py.ExternalLink("in.h5", name),
                                                         h5py.ExternalLink("in.h5", "/b"), h5py.ExternalLink("missing.h5", "/A"), h5py.ExternalLink("/dev/zero", "/A")])}
        for child in [c for c in objects if c.startswith(name + "/")]:
            del objects[child]
    elif kind == "replace":
        other = pick(rng, sorted(objects))
        if "data" in objects[other]:
            o["data"], o["how"] = objects[other]["data"], {}
    elif kind == "extra":
        objects[pick(rng, ["/A2", "/terrace/A", "/g/h/i/A", "/A/A", "/\u00e4", "/a b", "/A:/B"])] = {"data": np.eye(3), "attrs": {}, "how": {}}


# ---- mutations of the bytes ---------------------------------------------------------------------
def mutate_bytes(rng, raw, other):
    raw = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(raw) if rng.random() < 0.5 else min(len(raw), 3000)))
        kind = pick(rng, ["flip", "flip", "flip", "byte", "cut", "zero", "ones", "splice", "own", "word", "word"])
        length = int(2 ** rng.uniform(0, 9))
        if kind == "flip":
            for _ in range(int(rng.integers(1, 9))):
                raw[int(rng.integers(at, min(len(raw), at + 64)))] ^= 1 << int(rng.integers(8))
        elif kind == "byte":
            raw[at] = int(rng.integers(256))
        elif kind == "cut":
            del raw[max(1, at):]
        elif kind in ("zero", "ones"):
            length = min(length, len(raw) - at)
            raw[at:at + length] = (b"\0" if kind == "zero" else b"\xff") * length
        elif kind == "splice":
            piece = other[at:at + length]
            raw[at:at + len(piece)] = piece
        elif kind == "own":
            start = int(rng.integers(len(raw)))
            piece = raw[start:start + length][: len(raw) - at]
            raw[at:at + len(piece)] = piece
        elif kind == "word":
            value = pick(rng, [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, len(raw), len(raw) - 8, 96, 2048])
            size = pick(rng, [2, 4, 8])
            raw[at:at + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")[: len(raw) - at]
        if len(raw) < 2:
            break
    return bytes(raw)


# ---- mutations of the command line --------------------------------------------------------------
NUMBERS = ["-1", "0", "1", "2", "3", "7", "8", "64", "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616", "-9223372036854775809",
           "1e400", "nan", "inf", "-inf", "abc", "", " ", "1.5", "0x10", "1e3", "--5", "5,6", "\u0663", "1" * 400]
PATHS = [".", "/", "null", "zero", "full", "pipe", "", " ", "in.h5", "in.h5:", "in.h5:/", "in.h5:/A", ":/A", ":/b", ":", "::", "in.h5:/A:/b", "missing.h5", "folder",
         "folder/out.h5", "nowhere/out.h5", "closed.h5", "x" * 300, "y/" * 2500, "in.h5:/" + "z" * 5000, "\u00fcn\u00efc\u00f6d\u00e9.h5", "a'b.h5", 'a"b.h5', "a b.h5", "-", "--", "-o", "$HOME",
         "out.h5:/new/group", "out.h5:/", "old.h5", "old.h5:/g", "old.h5:/terrace", "in.h5:/missing/group", "a\nb.h5", "/proc/self/mem", "/proc/x.h5"]
WORDS = ["auto", "cpu", "cuda", "fp64", "mixed", "emulated", "always", "never", "cramer", "textbook", "streamed", "partition", "two-ends", "classic", "pipelined", "four-russians", "jacobi",
         "ic", "chebyshev", "amg", "dense", "band", "csr", "rows", "triangle", "", "magic", "\u2603", "-1"]
SOLVER = {"-o": PATHS, "--backend": WORDS, "--report": PATHS, "--progress": WORDS, "--plan": None, "--no-check": None, "--block": NUMBERS, "--method": WORDS, "--precision": WORDS,
          "--seed": NUMBERS, "--quiet": None, "--force": None, "--no-such-option": None, "--help": None, "-x": NUMBERS}
EXTRA = {"gf2": {"--k": NUMBERS, "--tables": WORDS, "--panels": WORDS, "--echelon": None, "--levels": NUMBERS, "--rhs": PATHS},
         "band": {"--rhs": PATHS, "--factor": PATHS, "--parts": NUMBERS, "--diagonal": WORDS, "--substitution": WORDS, "--scratch-dir": PATHS},
         "dense": {"--rhs": PATHS, "--pivoting": ["auto", "partial", "tournament", "none"], "--grid": NUMBERS, "--threads": NUMBERS},
         "cg": {"--rhs": PATHS, "--rtol": NUMBERS, "--atol": NUMBERS, "--norm": WORDS, "--x0": PATHS, "--near-null-space": PATHS, "--preconditioner": WORDS, "--degree": NUMBERS, "--layout": WORDS, "--reorder": None,
                "--at-once": NUMBERS, "--monitor": NUMBERS, "--format": WORDS},
         "generate": {"--n": NUMBERS, "--rows": NUMBERS, "--columns": NUMBERS, "--density": NUMBERS, "--rank": NUMBERS, "--half-bandwidth": NUMBERS, "--condition": NUMBERS, "--dim": NUMBERS,
                      "--points": NUMBERS, "--rhs": NUMBERS},
         "convert": {"--tabs": None}, "verify": {"--input": PATHS}, "bench": {"--n": NUMBERS[:8] + NUMBERS[9:], "--rivals": WORDS, "--stages": None, "--energy": None},
         "info": {}}
MADE = ["generate gf2-random --rows 9 --columns 70 -o out.h5", "generate gf2-rank --rows 9 --columns 9 --rank 4 -o out.h5", "generate band-spd --n 20 --half-bandwidth 3 --rhs 1 -o out.h5",
        "generate band-laplace --n 16 -o out.h5", "generate dense-random --n 9 --rhs 2 -o out.h5", "generate dense-condition --n 9 --condition 100 -o out.h5", "generate dense-spd --n 9 -o out.h5",
        "generate csr-laplace --dim 2 --points 4 -o out.h5", "verify old.h5", "verify old.h5 --input in.h5", "convert text.txt out.h5", "convert text.txt out.h5 --tabs", "convert made.npy out.h5",
        "convert made.mtx out.h5", "info", "bench gf2 --n 64 --repeat 1", "bench band --n 64 --repeat 1", "bench dense --n 64 --repeat 1", "bench cg --n 64 --repeat 1"]


def mutate_words(rng, words):
    family = words[0]
    possible = {**SOLVER, **EXTRA.get(family, {})}
    for _ in range(int(rng.integers(1, 4))):
        kind = pick(rng, ["option", "option", "option", "value", "drop", "double", "swap", "path"])
        at = int(rng.integers(len(words))) if words else 0
        if kind == "option":
            name = pick(rng, sorted(possible))
            values = possible[name]
            text = [name] if values is None or rng.random() < 0.1 else [name, pick(rng, values)] if rng.random() < 0.9 else [name + "=" + pick(rng, values)]
            place = len(words) if rng.random() < 0.8 else at
            words[place:place] = text
        elif kind == "value" and words:
            words[at] = pick(rng, pick(rng, [PATHS, NUMBERS, WORDS]))
        elif kind == "drop" and words:
            del words[at]
        elif kind == "double" and words:
            words.insert(at, words[at])
        elif kind == "swap" and words:
            other = int(rng.integers(len(words)))
            words[at], words[other] = words[other], words[at]
        elif kind == "path":
            places = [k for k, w in enumerate(words) if ".h5" in w or ":/" in w or "." in w]
            if places:
                words[pick(rng, places)] = pick(rng, PATHS)
    # Sizes that are sound but long to work on, and repeated runs, are no findings.
    for k, word in enumerate(words[:-1]):
        if word == "--repeat" and words[k + 1] != "1":
            words[k + 1] = "1"
    return [w.replace("\0", "") for w in words]


def mutate_text(rng, folder):
    name = pick(rng, ["text.txt", "made.npy", "made.mtx"])
    with open(os.path.join(folder, name), "rb") as f:
        raw = f.read()
    with open(os.path.join(folder, name), "wb") as f:
        f.write(mutate_bytes(rng, raw, b"1e999 nan -5 99999999999999999999 %%MatrixMarket matrix coordinate real symmetric\n" * 9))
    return "convert " + name + " out.h5"


# ---- one input ----------------------------------------------------------------------------------
home = tempfile.mkdtemp(prefix="terrace-fuzz-")
kept = os.path.join(home, "findings")
os.mkdir(kept)
SEEDS = seeds()
FILES = []
for k, (_, objects, _) in enumerate(SEEDS):
    path = os.path.join(home, f"seed{k}.h5")
    build(objects, path)
    with open(path, "rb") as f:
        FILES.append(f.read())
environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "TERRACE_THREADS": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
               # mpirun looks for networks before it starts, and sleeps after an exit code that is not 0
               "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_odls_base_sigkill_timeout": "0"}
environment.setdefault("ASAN_OPTIONS", "detect_leaks=0")
environment.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")


def limits():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    if not options.sanitized:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))


def start(command, folder, seconds):
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**environment, **launcher_folder()}, preexec_fn=limits, start_new_session=True)
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return None, "", ""


def listing(folder):
    found = {}
    for base, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(base, name)
            mode = os.lstat(path).st_mode
            if not stat.S_ISREG(mode):
                found[os.path.relpath(path, folder)] = stat.S_IFMT(mode)
                continue
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = hashlib.md5(f.read()).hexdigest()
    return found


with h5py.File(os.path.join(home, "old-in.h5"), "w") as f:
    f["A"] = np.eye(4) + 1
subprocess.run([options.terrace, "dense", "invert", "old-in.h5:/A", "-o", "old.h5", "--quiet", "--backend", "cpu"], cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)


def prepare(index, folder):
    """Files and words of input `index`."""
    rng = np.random.default_rng([options.seed, index])
    shutil.copy(os.path.join(home, "old.h5"), folder)
    os.mkdir(os.path.join(folder, "folder"))
    for device in ("null", "zero", "full"):  # links: what replaces one does no harm to the machine
        os.symlink("/dev/" + device, os.path.join(folder, device))
    os.mkfifo(os.path.join(folder, "pipe"))
    which = int(rng.integers(len(SEEDS)))
    name, objects, commands = SEEDS[which]
    command = pick(rng, commands)
    path = os.path.join(folder, "in.h5")
    draw = rng.random()
    if draw < 0.40:
        objects = dict(objects)
        for _ in range(int(rng.integers(1, 4))):
            mutate_structure(rng, objects)
        build(objects, path)
        kind = "structure"
    elif draw < 0.75:
        with open(path, "wb") as f:
            f.write(mutate_bytes(rng, FILES[which], FILES[int(rng.integers(len(FILES)))]))
        kind = "bytes"
        if rng.random() < 0.1:
            os.rename(path, os.path.join(folder, "old.h5"))
            with open(path, "wb") as f:
                f.write(FILES[which])
            with open(os.path.join(home, "old.h5"), "rb") as f:
                old = f.read()
            with open(os.path.join(folder, "old.h5"), "wb") as f:
                f.write(mutate_bytes(rng, old, FILES[which]))
            command = pick(rng, ["verify old.h5", "verify old.h5 --input in.h5:/A", "dense invert in.h5:/A -o old.h5:/more"])
    else:
        with open(path, "wb") as f:
            f.write(FILES[which])
        kind = "words"
        with open(os.path.join(folder, "text.txt"), "w") as f:
            f.write("3\n1 2 3\n4 5 6\n7 8 10\n")
        np.save(os.path.join(folder, "made.npy"), np.arange(12.0).reshape(4, 3))
        with open(os.path.join(folder, "made.mtx"), "w") as f:
            f.write("%%MatrixMarket matrix coordinate real general\n3 3 4\n1 1 2.5\n2 2 1\n3 3 4\n1 3 -1\n")
        open(os.path.join(folder, "closed.h5"), "w").close()
        if rng.random() < 0.15:
            command = mutate_text(rng, folder)
            return name, "text", command.split(), rng
        if rng.random() < 0.4:
            command = pick(rng, MADE)
        return name, kind, mutate_words(rng, command.split()), rng
    return name, kind, command.split(), rng


def judge(index):
    folder = tempfile.mkdtemp(dir=home)
    name, kind, words, rng = prepare(index, folder)
    before = listing(folder)
    ranks = 2 if index % 20 == 19 and ":" not in words else 1  # mpirun would take the colon for its own
    command = (["mpirun", "-n", "2"] if ranks == 2 else []) + [options.terrace] + words
    code, out, err = start(command, folder, options.limit * ranks)
    if code is None:  # once more, on a machine that may be less busy
        for extra in set(listing(folder)) - set(before):
            os.remove(os.path.join(folder, extra))
        code, out, err = start(command, folder, 6 * options.limit * ranks)
    after = listing(folder)
    wrong = []
    if code is None:
        wrong.append("took too long")
    else:
        lines = [line for line in err.splitlines() if line.startswith("terrace: ")]
        if code not in (0, 2, 3, 4, 5):
            wrong.append(f"exit code {code}")
        if "Sanitizer" in err or "runtime error:" in err:
            wrong.append("sanitizer report")
        failed_verify = words[:1] == ["verify"] and code == 4 and "FAIL" in out
        if code != 0 and len(lines) != 1 and not failed_verify:
            wrong.append(f"{len(lines)} lines of message")
        report = {words[k + 1] for k, w in enumerate(words[:-1]) if w == "--report"} | {w.split("=", 1)[1] for w in words if w.startswith("--report=")}
        report = {os.path.normpath(r) for r in report if r}
        changed = {f for f in set(before) | set(after) if before.get(f) != after.get(f)} - report
        if code != 0 and not (words[:1] == ["cg"] and code == 4) and changed:
            wrong.append(f"exit {code}, and files changed: {sorted(changed)}")
        if [f for f in changed if f.endswith(".tmp") or ".terrace-" in f]:
            wrong.append(f"left behind: {sorted(changed)}")
        if [f for f in changed if f in ("null", "zero", "full", "pipe")]:
            wrong.append("a device was replaced")
    if not wrong and options.only is None:
        shutil.rmtree(folder)
        return index, kind, code, []
    where = os.path.join(kept, f"{options.seed}-{index}")
    shutil.rmtree(where, ignore_errors=True)
    os.rename(folder, where)
    with open(os.path.join(where, "command.txt"), "w") as f:
        f.write(f"{name}, {kind}: {command}\nexit {code}: {wrong}\n{out[-2000:]}\n{err[-6000:]}\n")
    return index, kind, code, [f"{index} ({name}, {kind}): {'; '.join(wrong) or 'nothing wrong'}: terrace {words}: {err.strip()[-400:]}"]


def apart(index):
    """judge(index) in a process of its own: HDF5 may die of what the driver itself writes or reads, and that is a finding about this input."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        with os.fdopen(there, "wb") as f:
            f.write(pickle.dumps(judge(index)))
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as f:
        said = f.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return pickle.loads(said) if said else (index, "driver", status, [f"{index}: the driver itself ended with {status}: --only {index}"])


def begin():
    """Of a worker: a folder of Open MPI's of its own. Of two mpirun in one, one removes what the other has just made."""
    own = os.path.join(home, f"mpi-{os.getpid()}")
    os.mkdir(own)
    os.environ["OMPI_MCA_orte_tmpdir_base"] = environment["OMPI_MCA_orte_tmpdir_base"] = own


indices = [options.only] if options.only is not None else range(options.first, options.count)
codes, findings = {}, 0
with multiprocessing.get_context("fork").Pool(options.jobs, begin) as pool:
    for index, kind, code, wrong in pool.imap(apart, indices):
        codes[(kind, code)] = codes.get((kind, code), 0) + 1
        findings += len(wrong)
        for line in wrong:
            print("FOUND   " + line, flush=True)
        if (index + 1) % 1000 == 0 and index + 1 < options.count:
            print(f"{index + 1} of {options.count}, {findings} found something", flush=True)
for kind in sorted({k for k, _ in codes}):
    print(f"{kind:<10}", ", ".join(f"exit {c}: {n}" for (k, c), n in sorted(codes.items(), key=str) if k == kind))
if findings:
    print(f"{findings} of {len(list(indices))} inputs found something; they lie in {kept}")
else:
    shutil.rmtree(home)
    print(f"all passed: {len(list(indices))} inputs, seed {options.seed}")
sys.exit(findings != 0 and options.only is None)
