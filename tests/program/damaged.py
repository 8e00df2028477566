#!/usr/bin/env python3
"""Every byte of a small HDF5 file's structure damaged, in every layout: what terrace reads is what h5py reads, or is refused.

damaged.py TERRACE [--tries 12] [--seed 1] [--jobs 2] [--layout NAME,...] [--only LAYOUT:BYTE:MASK] [--refused]

--tries: damaged bytes per layout, drawn by the seed; 0: all, eight bits each. --refused: also says what h5py reads as before and terrace refuses.
Where h5py reads no number, the one flip is in the structure: the numbers are as before, or terrace refuses them.
"""
import argparse
import concurrent.futures
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings

os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")
os.environ.setdefault("HDF5_EXTFILE_PREFIX", "${ORIGIN}")

import h5py
import numpy as np
import scipy.io
import scipy.sparse

from terrace import Program

warnings.simplefilter("ignore")
NEWEST = ("earliest", "v110") if h5py.version.hdf5_version_tuple >= (1, 12) else "latest"
ROWS, COLUMNS = 6, 5
rng = np.random.default_rng(5)
NUMBERS = rng.integers(-40, 40, (ROWS, COLUMNS)) / 4  # text and float32 hold them
BITS = rng.integers(0, 2, (ROWS, 70), dtype=np.uint8)
WORDS = np.packbits(np.pad(BITS, ((0, 0), (0, 58))), axis=1, bitorder="little").view("<u8")
BAND = np.array([[9.0, 9, 8, 7, 9], [1, -2, 0.5, 3, 0], [2, 1, -1, 0, 0]])


def put(f, name, data, layout="contiguous", attrs=None, **how):
    """One dataset, its attributes one after the other."""
    if layout == "compact":
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        made = h5py.Dataset(h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(data.dtype, logical=True), h5py.h5s.create_simple(data.shape), plist))
        made[...] = data
    elif layout == "partly":
        made = f.create_dataset(name, data.shape, data.dtype, chunks=(2, 2), **how)
        made[:2] = data[:2]
    else:
        made = f.create_dataset(name, data=data, **how)
    for key, value in (attrs or {}).items():
        made.attrs[key] = value
    return made


def filtered(f, *filters):
    """Filters in any order; h5py's options have one."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 2))
    for name in filters:
        getattr(plist, "set_" + name)(*([4] if name == "deflate" else []))
    h5py.Dataset(h5py.h5d.create(f.id, b"A", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple(NUMBERS.shape), plist))[...] = NUMBERS


def virtual(f):
    with h5py.File("part.h5", "w") as g:
        g["x"] = NUMBERS
    layout = h5py.VirtualLayout(NUMBERS.shape, "f8")
    layout[...] = h5py.VirtualSource("part.h5", "x", NUMBERS.shape)
    f.create_virtual_dataset("A", layout)


def linked(f, kind):
    put(f, "store", NUMBERS)
    f["A"] = f["store"] if kind == "hard" else h5py.SoftLink("/store")


def outside(f):
    with h5py.File("away.h5", "w") as g:
        g["x"], g["A"] = NUMBERS, NUMBERS + 1
    f["A"] = h5py.ExternalLink("away.h5", "/x")


def raw(f):
    with open("raw.bin", "wb") as g:
        g.write(bytes(24) + NUMBERS.tobytes())
    f.create_dataset("A", NUMBERS.shape, "f8", external=[("raw.bin", 24, NUMBERS.nbytes)])


def sparse(f, **how):
    full = np.triu(np.round(NUMBERS), -1)
    s = scipy.sparse.csr_matrix(full)
    for key, data in (("data", s.data), ("indices", s.indices), ("indptr", s.indptr)):
        put(f, "A/" + key, data, **how)
    f["A"].attrs["shape"], f["A"].attrs["encoding-type"] = full.shape, "csr_matrix"


def coo(f):
    s = scipy.sparse.coo_matrix(np.round(NUMBERS))
    for key, data in (("data", s.data), ("row", s.row), ("col", s.col)):
        f["A/" + key] = data
    f["A/shape"] = np.array(s.shape)


text = np.bytes_
LAYOUTS = {  # name: what is written, HDF5's versions, options of the file
    "contiguous": (lambda f: put(f, "A", NUMBERS), None),
    "newest": (lambda f: put(f, "A", NUMBERS.T.copy(), attrs={"order": text("column-major")}), NEWEST),
    "order": (lambda f: put(f, "A", NUMBERS.T.copy(), attrs={"order": text("column-major")}), None),
    "variable": (lambda f: put(f, "A", NUMBERS.T.copy(), attrs={"order": "column-major"}), None),
    "float": (lambda f: put(f, "A", NUMBERS.astype(">f4"), attrs={"order": "row-major"}), None),
    "whole": (lambda f: put(f, "A", np.round(NUMBERS).astype("i2")), None),
    "bool": (lambda f: put(f, "A", BITS[:, :5].astype(bool)), None),
    "long": (lambda f: put(f, "A", NUMBERS.astype("f16")), None),
    "chunked": (lambda f: put(f, "A", NUMBERS, chunks=(4, 2)), None),
    "gzip": (lambda f: put(f, "A", NUMBERS, chunks=(4, 2), compression="gzip", shuffle=True), None),
    "gzip newest": (lambda f: put(f, "A", NUMBERS, chunks=(4, 2), compression="gzip", shuffle=True), NEWEST),
    "fletcher": (lambda f: put(f, "A", NUMBERS, chunks=(4, 2), fletcher32=True), None),
    "gzip fletcher": (lambda f: filtered(f, "deflate", "fletcher32"), None),
    "fletcher gzip": (lambda f: filtered(f, "fletcher32", "deflate"), None),
    "all filters": (lambda f: filtered(f, "shuffle", "fletcher32", "deflate", "fletcher32"), NEWEST),
    "partly": (lambda f: put(f, "A", NUMBERS, "partly", fillvalue=2.5), None),
    "grown": (lambda f: put(f, "A", NUMBERS, chunks=(4, 2), maxshape=(None, None)), NEWEST),
    "compact": (lambda f: put(f, "A", NUMBERS, "compact"), None),
    "hard link": (lambda f: linked(f, "hard"), None),
    "soft link": (lambda f: linked(f, "soft"), None),
    "external link": (outside, None),
    "external storage": (raw, None),
    "virtual": (virtual, None),
    "words": (lambda f: put(f, "A", WORDS, attrs={"columns": 70, "format": text("bits")}), None),
    "big words": (lambda f: put(f, "A", WORDS.T.astype(">u8"), attrs={"columns": 70, "format": "bits", "order": text("column-major")}), None),
    "bytes": (lambda f: put(f, "A", np.packbits(BITS, axis=1), attrs={"columns": np.int16(70), "bitorder": text("big")}), None),
    "band": (lambda f: put(f, "A", BAND, attrs={"format": text("band"), "uplo": text("lower")}), None),
    "upper band": (lambda f: put(f, "A", np.array([[np.roll(BAND[2 - d], 2 - d)] for d in range(3)])[:, 0], attrs={"format": "band", "uplo": text("upper")}), None),
    "csr": (sparse, None),
    "csr gzip": (lambda f: sparse(f, chunks=(3,), compression="gzip"), NEWEST),
    "coo": (coo, None),
}
LAYOUTS["user block"] = (LAYOUTS["words"][0], "userblock")
TO = {"band": "mtx", "upper band": "mtx", "csr": "mtx", "csr gzip": "mtx", "coo": "mtx"}


# --- what h5py reads, and io/README.md says of it ----------------------------------------------------
class Other(Exception):
    """The file says what no file of the test says: h5py's reading is no oracle for it."""


def word(attrs, name):
    if name not in attrs:
        return ""
    value = attrs[name]
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, bytes):
        value = value.split(b"\0")[0].decode()
    if not isinstance(value, str):
        raise Other(f"{name} is {value!r}")
    return value.split("\0")[0].rstrip(" ")


def real(d):
    if d.dtype.kind not in "fiub":
        raise Other(str(d.dtype))
    if d.dtype.kind == "f" and d.dtype.itemsize > 8:  # by HDF5: the processor takes patterns of 80 bits that no number has for NaN
        return d.astype(np.float64)[...]
    return d[...].astype(np.float64)


def dense(d):
    order, form = word(d.attrs, "order"), word(d.attrs, "format")
    if order not in ("", "row-major", "column-major") or d.ndim not in (1, 2):
        raise Other(order)
    turned = order == "column-major" and d.ndim == 2
    if d.size > 10**6:
        raise Other("large")
    if form == "band":
        return band(d)
    if d.dtype.kind == "u" and (d.dtype.itemsize == 8 and ("columns" in d.attrs or form == "bits") and form != "dense" or d.dtype.itemsize == 1 and word(d.attrs, "bitorder")):
        items = d[...].T if turned else d[...]
        each, columns = 8 * d.dtype.itemsize, int(np.reshape(d.attrs["columns"], -1)[0])
        if items.ndim != 2 or columns < 0 or -(-columns // each) != items.shape[1]:
            raise Other("columns")
        order = "little" if d.dtype.itemsize == 8 else word(d.attrs, "bitorder")
        bits = np.unpackbits(np.ascontiguousarray(items.astype(items.dtype.newbyteorder("<"))).view(np.uint8), axis=1, bitorder=order)
        if bits[:, columns:].any():
            raise Other("unused bits")
        return bits[:, :columns]
    if form not in ("", "dense", "bits"):
        raise Other(form)
    return real(d).T if turned else real(d)


def band(d):
    ab, uplo = real(d), word(d.attrs, "uplo")
    if d.ndim != 2 or uplo not in ("", "lower", "upper"):
        raise Other(uplo)
    m, n = ab.shape[0] - 1, ab.shape[1]
    upper = uplo == "upper" or not uplo and m > 0 and n > 1 and not ab[:m, 0].any() and ab[m, 0] > 0
    full = np.zeros((n, n))
    for d_ in range(min(m + 1, n)):
        values = ab[m - d_, d_:] if upper else ab[d_, : n - d_]
        full += np.diag(values, -d_) + (np.diag(values, d_) if d_ else 0)
    return full


def group(g):
    if any(g[k].size > 10**6 for k in g):
        raise Other("large")
    parts = {k: g[k][...] for k in ("data", "indices", "indptr", "row", "col") if k in g}
    shape = tuple(int(x) for x in (g.attrs["shape"] if "shape" in g.attrs else g["shape"][...]))
    form = word(g.attrs, "encoding-type")
    if form not in ("", "csr_matrix", "coo_matrix") or len(shape) != 2 or min(shape) < 0 or max(shape) > 1000:
        raise Other(form)
    if word(g.attrs, "symmetry") or word(g.attrs, "uplo"):
        raise Other("triangle")
    if "indptr" in parts:
        return scipy.sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape).toarray()
    return scipy.sparse.coo_matrix((parts["data"], (parts["row"], parts["col"])), shape).toarray()


def by_h5py(name):
    with h5py.File(name, "r") as f:
        thing = f["A"]
        return group(thing) if isinstance(thing, h5py.Group) else dense(thing)


def read(name):
    """("read", array), ("other", why) or ("unreadable", why), by a process of its own: HDF5 may die of a damaged file."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        signal.alarm(20)
        try:
            answer = ("read", np.asarray(by_h5py(name)))
        except Other as e:
            answer = ("other", str(e))
        except BaseException as e:
            answer = ("unreadable", repr(e)[:200])
        with os.fdopen(there, "wb") as f:
            f.write(pickle.dumps(answer))
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as f:
        said = f.read()
    os.waitpid(child, 0)
    return pickle.loads(said) if said else ("unreadable", "HDF5 died")


# --- one damaged byte --------------------------------------------------------------------------------
def same(a, b):
    return a.shape == b.shape and np.array_equal(np.asarray(a, float), np.asarray(b, float)) if a.ndim == b.ndim else \
        a.size == b.size and max(a.ndim, b.ndim) == 2 and np.array_equal(np.ravel(a), np.ravel(b))


def by_terrace(path, out):
    if os.path.exists(out):
        os.remove(out)
    try:
        done = subprocess.run([path, "convert", "in.h5:/A", out, "--quiet"], capture_output=True, text=True, errors="replace", timeout=120)  # HDF5 may go in circles: 5 s of CPU time
    except subprocess.TimeoutExpired:
        return "none", "took too long", None
    if done.returncode != 0 or not os.path.exists(out):
        return done.returncode, done.stderr, None
    array = np.load(out) if out.endswith(".npy") else scipy.io.mmread(out)
    if np.prod([float(s) for s in array.shape]) > 10**6:
        return "none", "large", None
    return 0, done.stderr, array.toarray() if scipy.sparse.issparse(array) else np.asarray(array)


def attempt(job):
    """(what is wrong, what became of it) of one damaged byte."""
    path, home, layout, at, mask = job
    folder = os.path.join(home, f"at{os.getpid()}")
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    for name in os.listdir(os.path.join(home, layout)):
        shutil.copy(os.path.join(home, layout, name), name)
    before = by_h5py("in.h5")
    with open("in.h5", "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ mask]))
    how, truth = read("in.h5")
    code, said, got = by_terrace(path, "out." + TO.get(layout, "npy"))
    lines = [x for x in said.splitlines() if x.startswith("terrace: ") and not x.startswith("terrace: warning: ")]
    if how == "other" and code == "none":
        return None, "large"
    if code not in (0, 3, 5):
        return f"exit {code}: {said[-200:]}", "wrong"
    if code:
        if len(lines) != 1 or lines[0].count("; ") < 2:
            return f"exit {code} with {len(lines)} messages: {said[-200:]}", "wrong"
        if how == "read" and same(truth, before):
            return None, f"needlessly refused: {lines[0]}"
        return None, "refused"
    if how == "other":
        return None, "read, as no file of the test" if not same(got, before) else "as before"
    if how == "read":
        return (None, "as h5py") if same(got, truth) else (f"h5py reads {truth.tolist()}, terrace {got.tolist()}"[:700], "wrong")
    return (None, f"h5py cannot read: {truth}") if same(got, before) else (f"h5py cannot read ({truth}), terrace reads {got.tolist()}"[:700], "wrong")


def places(layout, size, data, options):
    """(byte, mask) of what is damaged: the structure; long runs of zeros less often."""
    draw = np.random.default_rng([options.seed, sorted(LAYOUTS).index(layout)])
    known = [k for k in range(size) if not any(a <= k < b for a, b in data)]
    if options.tries == 0:
        return [(k, 1 << bit) for k in known for bit in range(8)]
    with open(os.path.join(layout, "in.h5"), "rb") as f:
        text = f.read()
    near = [k for k in known if any(text[max(0, k - 8):k + 9])]
    return [(int(draw.choice(near if draw.random() < 0.9 else known)), 1 << int(draw.integers(8))) for _ in range(options.tries)]


def make(layout):
    """Writes the layout's files; the file's size, and where numbers lie."""
    os.mkdir(layout)
    os.chdir(layout)
    write, version = LAYOUTS[layout]
    how = {"userblock_size": 512} if version == "userblock" else {"libver": version}
    with h5py.File("in.h5", "w", **how) as f:
        write(f)
    with h5py.File("in.h5") as f, open("in.h5", "rb") as g:
        data, text, at = [], g.read(), 0
        f.visititems(lambda _, d: data.append((d.id.get_offset(), d.id.get_offset() + d.id.get_storage_size()))
                     if isinstance(d, h5py.Dataset) and d.id.get_offset() is not None else None)
        for d in [f["A"]] if isinstance(f["A"], h5py.Dataset) else f["A"].values():
            if d.chunks and d.id.get_create_plist().get_nfilters() == 0:  # a chunk lies as it is
                for where in d.iter_chunks():
                    tile = np.full(d.chunks, d.fillvalue, d.dtype)
                    tile[tuple(slice(0, s) for s in d[where].shape)] = d[where]
                    at = text.find(tile.tobytes()[: d.dtype.itemsize])
                    data.append((at, at + tile.nbytes))
            if d.id.get_create_plist().get_layout() == h5py.h5d.COMPACT:
                at = text.find(d[...].tobytes())
                data.append((at, at + d.id.get_storage_size()))
    os.chdir("..")
    return len(text), data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("terrace")
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--layout", type=lambda x: x.split(","), default=list(LAYOUTS))
    parser.add_argument("--only")
    parser.add_argument("--refused", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("TERRACE_THREADS", "1")
    test = Program(options.terrace)
    jobs, again = [], f"{sys.argv[0]} {options.terrace} --only "
    if options.only:
        layout, at, mask = options.only.split(":")
        make(layout)
        jobs = [(test.path, test.folder, layout, int(at), int(mask))]
    else:
        for layout in options.layout:
            jobs += [(test.path, test.folder, layout, *place) for place in places(layout, *make(layout), options)]
    tally = {}
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        for (_, _, layout, at, mask), (wrong, what) in zip(jobs, pool.map(attempt, jobs, chunksize=8)):
            line = f"{again}'{layout}:{at}:{mask}'"
            test.check(line, wrong is None, wrong)
            if options.only or options.refused and what.startswith(("needlessly", "h5py")):
                print(f"{line}   # {what}", flush=True)
            kind = what.split(":")[0]
            tally[kind] = tally.get(kind, 0) + 1
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(tally.items())))
    test.finish()


if __name__ == "__main__":
    main()
