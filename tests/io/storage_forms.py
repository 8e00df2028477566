#!/usr/bin/env python3
"""One dataset of every storage form that h5py writes, for each kind of input, and what h5py reads from it.

storage_forms.py FOLDER     Writes HDF5 files, FOLDER/expected (bytes) and FOLDER/list: a line for each,
kind file path rows columns offset length [refused]     length in bytes of `expected`
"""
import os
import sys

import h5py
import numpy as np

folder = os.path.abspath(sys.argv[1])
os.chdir(folder)
low = h5py.h5d
SKIP = object()


def number_type(data, form):
    """The type in the file."""
    base = h5py.h5t.py_create(data.dtype, logical=True)
    if "big" in form and data.dtype != bool:
        return h5py.h5t.py_create(data.dtype.newbyteorder(">"))
    if not form.startswith("odd"):
        return base
    if data.dtype.kind in "iu":
        odd, bits = base.copy(), 8 * data.dtype.itemsize
        odd.set_precision(max(bits - 3, 3 * bits // 4))
        odd.set_offset(2)
        odd.set_pad(h5py.h5t.PAD_ONE, h5py.h5t.PAD_ZERO)
        return odd
    if data.dtype == np.float64:  # 51 bits, no IEEE type
        odd = base.copy()
        odd.set_fields(55, 44, 11, 0, 44)
        odd.set_precision(56)
        odd.set_offset(4)
        odd.set_ebias(1023)
        return odd
    return None


def create(f, path, data, form):
    """Writes `data` under `path` in `form`; None where the form does not exist for it."""
    kind = number_type(data, form)
    if kind is None:
        return None
    shape, nd = data.shape, data.ndim
    chunk = tuple(max(1, min(c, s)) for c, s in zip((7, 5) if nd == 2 else (6,), shape))
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    most, fill, first = shape, None, shape
    words = form.split("_")
    has = lambda *w: any(x in words for x in w)
    if has("compact"):
        how.set_layout(low.COMPACT)
    if has("late", "early", "incremental"):
        how.set_alloc_time({"late": low.ALLOC_TIME_LATE, "early": low.ALLOC_TIME_EARLY, "incremental": low.ALLOC_TIME_INCR}[
            next(w for w in words if w in ("late", "early", "incremental"))])
    if has("wide"):
        chunk, most = tuple(s + 3 for s in shape), (h5py.h5s.UNLIMITED,) * nd
    if has("grown"):
        first, most = tuple(max(1, s // 2) for s in shape), (h5py.h5s.UNLIMITED,) * nd
    if has("shrunk"):
        first, most = tuple(s + 4 for s in shape), (h5py.h5s.UNLIMITED,) * nd
    if has("extensible"):
        most = (h5py.h5s.UNLIMITED,) + shape[1:]
    if has("single"):
        chunk = shape
    if has("chunked"):
        how.set_chunk(chunk)
    if has("fill"):
        fill = np.array(1 if data.dtype == bool else 1, data.dtype)
        how.set_fill_value(fill)
    if has("neverfill"):
        how.set_fill_time(low.FILL_TIME_NEVER)
    if has("sumfirst"):
        how.set_fletcher32()
    if has("shufflelast"):
        how.set_deflate(4)
        how.set_shuffle()
    if has("shuffle"):
        how.set_shuffle()
    if has("gzip", "twice", "mask"):
        how.set_deflate(4)
    if has("twice"):
        how.set_deflate(9)
    if has("fletcher"):
        how.set_fletcher32()
    if has("scaleoffset"):
        if data.dtype == bool or data.dtype == np.float16:  # HDF5 has none
            return None
        how.set_scaleoffset(h5py.h5z.SO_FLOAT_DSCALE if data.dtype.kind == "f" else h5py.h5z.SO_INT, 0)
    if has("nbit"):
        how.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_OPTIONAL)
    if has("lzf"):
        how.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
    if has("external"):
        raw = os.path.join(folder, f"raw{os.path.basename(f.filename)}{path.replace('/', '-')}")
        half = data.nbytes // 2
        if has("pieces"):
            how.set_external(raw.encode(), 32, half)
            how.set_external((raw + "b").encode(), 0, data.nbytes - half)
        else:
            how.set_external(raw.encode(), 16, data.nbytes)
    if has("committed"):
        kind = kind.copy()
        kind.commit(f.id, (path + "_type").encode(), lcpl=h5py.h5p.create(h5py.h5p.LINK_CREATE))
    space = h5py.h5s.create_simple(first, most)
    name, links = path.encode(), h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    d = h5py.Dataset(low.create(f.id, name, kind, space, dcpl=how, lcpl=links))
    if has("never"):
        return d
    memory = h5py.h5t.py_create(data.dtype, logical=True)

    def write(part):
        chosen = h5py.h5s.create_simple(d.shape)
        start, count = tuple(p.start for p in part), tuple(p.stop - p.start for p in part)
        chosen.select_hyperslab(start, count)
        d.id.write(h5py.h5s.create_simple(count), chosen, np.ascontiguousarray(data[part]), memory)

    if has("mask"):  # chunks whose filter was left out, as the filter's mask says
        padded = np.zeros([-(-s // c) * c for s, c in zip(shape, chunk)], data.dtype)
        padded[tuple(slice(0, s) for s in shape)] = data
        for k, at in enumerate(np.ndindex(*[p // c for p, c in zip(padded.shape, chunk)])):
            start = tuple(a * c for a, c in zip(at, chunk))
            part = np.ascontiguousarray(padded[tuple(slice(s, s + c) for s, c in zip(start, chunk))])
            if k % 2:
                d.id.write_direct_chunk(start, part.tobytes(), 1)
            else:
                inside = tuple(slice(s, min(s + c, n)) for s, c, n in zip(start, chunk, shape))
                write(inside)
        return d
    if has("grown"):
        write(tuple(slice(0, s) for s in first))
        d.resize(shape)
        write((slice(0, shape[0]),) + tuple(slice(s, t) for s, t in zip(first[1:], shape[1:])) if nd == 2 else (slice(first[0], shape[0]),))
        return d
    if has("shrunk"):
        write(tuple(slice(0, s) for s in shape))
        d.resize(shape)
        return d
    if has("partly"):
        for k in range(min(shape)):
            if k % 4 < 2:
                write(tuple(slice(k, k + 1) for _ in shape))
        return d
    write(tuple(slice(0, s) for s in shape))
    return d


storage = """contiguous compact early fill_late_never never committed big odd odd_partly neverfill
chunked chunked_wide chunked_single chunked_grown chunked_shrunk chunked_early chunked_incremental chunked_partly
chunked_partly_fill chunked_partly_early chunked_never chunked_never_fill chunked_never_early chunked_extensible
chunked_big chunked_odd chunked_odd_nbit chunked_nbit chunked_scaleoffset chunked_lzf chunked_mask
chunked_gzip chunked_shuffle chunked_shuffle_gzip chunked_shufflelast chunked_twice chunked_fletcher chunked_fletcher_gzip
chunked_sumfirst_gzip chunked_sumfirst_shuffle chunked_sumfirst_fletcher chunked_partly_fletcher
chunked_partly_gzip chunked_partly_fill_gzip chunked_grown_gzip chunked_shrunk_gzip chunked_neverfill chunked_gzip_single
external external_pieces external_big external_partly""".split()
storage = [s.replace("chunked_odd", "odd_chunked") for s in storage]
links = ["soft", "hard", "away", "away_again", "away_group", "away_chunked", "away_partly", "virtual", "virtual_holes", "virtual_big"]

rng = np.random.default_rng(3)
rows, columns = 23, 17


def number(i, j):
    return (i * 31 + j * 17) % 101 - 50.0


dense = np.fromfunction(number, (rows, columns))
tall = np.fromfunction(number, (9, 700))
bit = (rng.integers(0, 2, (rows, 90))).astype(np.uint8)
n, m = 19, 6
band = np.fromfunction(number, (m + 1, n))
wordy = rng.integers(0, 2, (rows, 6 * 64)).astype(np.uint8)
words = np.packbits(wordy, axis=1, bitorder="little").view(np.uint64)
words &= np.uint64((1 << 55) - 1)  # fits the odd precision, h5py's too
octets = np.packbits(wordy[:, :40], axis=1, bitorder="little") & 0x07
some = """contiguous big odd odd_partly fill_late_never odd_chunked odd_chunked_nbit chunked_scaleoffset chunked_shuffle_gzip chunked_partly
chunked_partly_fill_gzip chunked_grown external away virtual""".split()
per = {  # kind: data, attributes, forms
    "dense": (dense, {}, storage + links),
    "dense_turned": (dense.T.copy(), {"order": "column-major"}, storage + links),
    "tall": (tall, {"order": "column-major"}, ["contiguous", "away", "chunked_gzip", "external"]),
    "vector": (dense[:, 0].copy(), {}, storage + links),
    "lower": (band, {"format": "band"}, storage + links),
    "upper": (band, {"format": "band", "uplo": "upper"}, storage + links),
    "words": (words, {"format": "bits", "columns": 6 * 64}, storage + links),
    "words_turned": (words.T.copy(), {"format": "bits", "columns": 6 * 64, "order": "column-major"}, some),
    "octets": (octets, {"bitorder": "little", "columns": 40}, storage + links),
    "octets_turned": (octets.T.copy(), {"bitorder": "big", "columns": 40, "order": "column-major"}, some),
    "plain": (bit, {}, storage + links),
    "plain_turned": (bit.T.copy(), {"order": "column-major"}, some),
    "signed": (bit.astype(np.int8), {}, ["contiguous", "odd", "odd_chunked", "chunked_gzip"]),
    "bool": (bit.astype(bool), {}, ["contiguous", "compact", "chunked", "chunked_gzip", "chunked_partly", "away", "never"]),
    "bool_turned": (bit.T.astype(bool), {"order": "column-major"}, ["contiguous", "chunked_gzip", "chunked_partly"]),
    "csr": (dense, {}, storage + ["away_children", "away_group", "soft", "virtual"]),
}
for t in ("f2", "f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
    data = np.abs(dense) if t[0] == "u" else dense
    per["dense_" + t] = (data.astype(t), {}, some)
    if t in ("f4", "i2", "u8"):
        per["dense_turned_" + t] = (data.T.astype(t), {"order": "column-major"}, some)
# The same place in both files.
files = {"plain.h5": (per, dict()),
         "latest.h5": (("dense", "words_turned", "plain", "upper", "csr"), dict(libver="latest")),
         "user.h5": (("dense_turned", "words", "lower", "octets_turned", "vector", "csr"), dict(userblock_size=1024)),
         "order.h5": (("dense",), dict(track_order=True))}
made = []  # kind, file, path, refused


def put(f, path, data, form):
    """Any form; the attributes' owner, or None."""
    if form in storage:
        return create(f, path, data, form)
    parent = f.require_group(os.path.dirname(path)) if os.path.dirname(path) not in ("", "/") else f
    name = os.path.basename(path)
    inner = {"away_chunked": "chunked_gzip", "away_partly": "chunked_partly", "virtual_big": "big"}.get(form, "contiguous")
    if form in ("soft", "hard"):
        d = create(f, path + "_target", data, inner)
        if form == "soft":
            parent[name] = h5py.SoftLink(path + "_target")
        else:
            parent[name] = d
        return d
    away = f.filename.replace(".h5", ".away.h5")
    with h5py.File(away, "a", **({"userblock_size": 512} if not os.path.exists(away) and "user" in away else {})) as g:
        if form == "virtual_holes":
            source = create(g, path, data[: data.shape[0] // 2].copy(), "contiguous")
        else:
            source = create(g, path, data, inner)
        if form == "away_again":
            g[path + "_next"] = h5py.SoftLink(path)
        real = g[path].dtype
    if form.startswith("virtual"):
        layout = h5py.VirtualLayout(shape=data.shape, dtype=data.dtype)
        half = data.shape[0] // 2
        source = h5py.VirtualSource(os.path.abspath(away), path, shape=(half,) + data.shape[1:] if form == "virtual_holes" else data.shape,
                                    dtype=real)
        layout[:half] = source[:half]
        if form != "virtual_holes":
            layout[half:] = source[half:]
        return f.create_virtual_dataset(path, layout, fillvalue=0)
    if form == "away_group":
        parent[name + "_group"] = h5py.ExternalLink(away, os.path.dirname(path))
        return ("in", path + "_group/" + name)
    parent[name] = h5py.ExternalLink(away, path + ("_next" if form == "away_again" else ""))
    return ("in", path)


def attach(f, found, attributes):
    if isinstance(found, tuple):
        found = f[found[1]]
    for key, value in attributes.items():
        found.attrs[key] = value


def csr(f, path, form):
    """A CSR group whose children have the form, or stand behind links."""
    pointers = np.arange(rows + 1, dtype=np.int64) * 3
    parts = {"data": dense.ravel()[: 3 * rows].copy(), "indices": (np.arange(3 * rows, dtype=np.int32) * 5) % columns, "indptr": pointers}
    lossy = any(w in form for w in ("partly", "never", "holes"))
    f.require_group(path)
    for name, data in parts.items():
        own = "contiguous" if (lossy and name == "indptr") else "away" if form == "away_children" else "away" if form == "away_group" else form
        if put(f, path + "/" + name, data, own) is None:
            put(f, path + "/" + name, data, "contiguous")
    f[path].attrs["shape"] = (rows, columns)


for file, (kinds, options) in files.items():
    with h5py.File(file, "w", **options) as f:
        f["first"] = np.full((rows, columns), 77.0)  # what a reader of the wrong file would find
        for kind, (data, attributes, forms) in per.items():
            if kind not in kinds:
                continue
            for form in forms if file != "order.h5" else some:
                path = f"/{kind}/{form}"
                if kind == "csr":
                    csr(f, path, form)
                    made.append((kind, file, path, "lzf" in form))
                    continue
                found = put(f, path, data, form)
                if found is None:
                    continue
                attach(f, found, attributes)
                made.append((kind, file, found[1] if isinstance(found, tuple) else path, "lzf" in form))


def to_words(b):
    b = np.ascontiguousarray(b)
    padded = np.zeros((b.shape[0], -(-b.shape[1] // 64) * 64), np.uint8)
    padded[:, : b.shape[1]] = b
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def truth(kind, f, path):
    """kind for the reader, rows, columns, bytes that it must deliver."""
    if kind == "csr":
        g = f[path]
        return "csr", rows, columns, g["indptr"][:].astype("<i8").tobytes() + g["indices"][:].astype("<i8").tobytes() + g["data"][:].astype("<f8").tobytes()
    v, turned = f[path][...], "turned" in kind or kind == "tall"
    if turned:
        v = v.T
    if kind.startswith("dense") or kind == "tall":
        return "dense", v.shape[0], v.shape[1], np.ascontiguousarray(v.astype("<f8")).tobytes()
    if kind == "vector":
        return "dense", v.shape[0], 1, v.astype("<f8").tobytes()
    if kind in ("lower", "upper"):
        out = np.zeros((n, m + 1))
        for j in range(n):
            for d in range(min(m + 1, n - j)):
                out[j, d] = v[d, j] if kind == "lower" else v[m - d, j + d]
        return "band", n, m, out.tobytes()
    if kind.startswith("words"):
        return "bits", v.shape[0], 6 * 64, np.ascontiguousarray(v.astype("<u8")).tobytes()
    if kind.startswith("octets"):
        b = np.unpackbits(np.ascontiguousarray(v), axis=1, bitorder=str(f[path].attrs["bitorder"]))
        return "bits", v.shape[0], 40, to_words(b).tobytes()
    return "bits", v.shape[0], v.shape[1], to_words(v.astype(np.uint8)).tobytes()


offset = 0
with open("expected", "wb") as expected, open("list", "w") as lines:
    for file in files:
        with h5py.File(file) as f:
            for kind, where, path, refused in made:
                if where != file:
                    continue
                reader, r, c, data = truth(kind, f, path)
                expected.write(data)
                print(reader, file, path, r, c, offset, len(data), "refused" if refused else "", file=lines)
                offset += len(data)
