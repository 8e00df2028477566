"""Every form in which a matrix may stand in an HDF5 file, drawn at random: for differential.py."""
import os

os.environ.setdefault("HDF5_EXTFILE_PREFIX", "${ORIGIN}")  # raw files lie beside the HDF5 file; HDF5 looks once

import hashlib
import json
import sys

import h5py
import numpy as np
import scipy.sparse

LAYOUTS = ["contiguous"] * 5 + ["chunked", "gzip", "shuffle", "fletcher", "partly", "compact", "external-storage", "virtual", "soft-link",
                                "hard-link", "external-link", "grown", "early", "fill"]


# What a later HDF5 writes at will, the 1.10 that may read it does not know.
LATER = h5py.version.hdf5_version_tuple >= (1, 12)
NEWEST = ("earliest", "v110") if LATER else "latest"


class Forms:
    """Writes objects into the folder's files; `tags` says what was drawn."""

    def __init__(self, draw, folder, without):
        self.draw, self.folder, self.without, self.tags = draw, folder, without, []
        self.options, self.by_columns, self.format = [], False, None  # what the command line says of the matrix /A; its sparse form
        self.userblock = 512 if draw.chance(0.06) and "user-block" not in without else 0
        self.libver = draw.pick([None, None, NEWEST, ("earliest", "v108"), ("v110", "v110")])
        self.track_order = draw.chance(0.1)
        if self.userblock:
            self.tags.append("user-block")

    def said(self, path, attrs, name, *words, p=0.3):
        """Whether the command line says of the matrix what then no attribute says."""
        if path != "/A" or "options" in self.without or not self.draw.chance(p):
            return False
        attrs.pop(name, None)
        self.options += [str(w) for w in words]
        self.tags.append(" ".join(self.options))
        return True

    def open(self, name):
        path = os.path.join(self.folder, name)
        if os.path.exists(path):
            return h5py.File(path, "r+", libver=self.libver)
        return h5py.File(path, "w", libver=self.libver, userblock_size=self.userblock, track_order=self.track_order)

    def layout(self):
        return self.draw.pick([x for x in LAYOUTS if x not in self.without])

    def dataset(self, file, path, data, attrs=None):
        """One dataset in a drawn layout, attributes in drawn types."""
        layout = self.layout()
        if layout == "virtual" and (LATER or isinstance(self.libver, tuple)):
            layout = "contiguous"
        data = np.ascontiguousarray(data)
        if layout != "contiguous":
            self.tags.append(layout)
        if data.size == 0 and layout in ("external-storage", "virtual", "grown", "partly", "compact"):
            layout = "contiguous"
        chunks = tuple(min(max(1, s), int(self.draw.whole(1, 70))) for s in data.shape)
        with self.open(file) as f:
            target, name = f, path
            if layout == "external-link":
                other = "behind-" + os.path.basename(file)
                f[path] = h5py.ExternalLink(other, "/somewhere" + path)
                self.create(other, "/somewhere" + path, data, self.layout_of_target(), chunks, attrs)
                return
            if layout in ("soft-link", "hard-link"):
                name = "/store" + path
            self.fill(target, name, data, layout, chunks, attrs)
            if layout == "soft-link":
                f[path] = h5py.SoftLink(name)
            elif layout == "hard-link":
                f[path] = f[name]

    def layout_of_target(self):
        return self.draw.pick(["contiguous", "contiguous", "chunked", "gzip"])

    def create(self, file, path, data, layout, chunks, attrs):
        with self.open(file) as f:
            self.fill(f, path, data, layout, chunks, attrs)

    def fill(self, f, name, data, layout, chunks, attrs):
        if 0 in data.shape and layout in ("chunked", "gzip", "shuffle", "fletcher"):
            layout = "contiguous"
        how = {"chunked": {"chunks": chunks}, "gzip": {"chunks": chunks, "compression": "gzip", "compression_opts": int(self.draw.whole(1, 9))},
               "shuffle": {"chunks": chunks, "compression": "gzip", "shuffle": True},
               "fletcher": {"chunks": chunks, "fletcher32": True}}.get(layout)
        if how is not None:
            made = f.create_dataset(name, data=data, **how)
        elif layout == "partly":  # chunks of zeros are never written
            made = f.create_dataset(name, data.shape, data.dtype, chunks=chunks, compression=self.draw.pick([None, "gzip"]))
            for where in made.iter_chunks():
                if np.any(data[where] != 0):
                    made[where] = data[where]
        elif layout == "grown":
            first = tuple(max(1, s // 2) for s in data.shape)
            made = f.create_dataset(name, first, data.dtype, maxshape=tuple(None for _ in first), chunks=chunks)
            made[...] = data[tuple(slice(0, s) for s in first)]
            made.resize(data.shape)
            made[...] = data
        elif layout == "external-storage":
            raw = name.strip("/").replace("/", "-") + ".raw"
            made = f.create_dataset(name, data.shape, data.dtype, external=[(raw, 24, h5py.h5f.UNLIMITED)], data=data) if self.in_folder(raw) else None
        elif layout == "virtual":
            half = data.shape[0] // 2
            whole = h5py.VirtualLayout(data.shape, data.dtype)
            for k, part in enumerate((slice(0, half), slice(half, data.shape[0]))):
                other = f"virtual{k}.h5"
                if part.start == part.stop:
                    continue
                with self.open(other) as g:
                    g["/part" + name] = data[part]
                whole[part] = h5py.VirtualSource(other, "/part" + name, data[part].shape)
            made = f.create_virtual_dataset(name, whole)
        elif layout in ("compact", "early", "fill"):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            if layout == "compact" and data.nbytes < 60000:
                plist.set_layout(h5py.h5d.COMPACT)
            elif layout == "early":
                plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            else:
                plist.set_fill_value(np.ones((), data.dtype))
            parent = f.require_group(os.path.dirname(name))
            made = h5py.Dataset(h5py.h5d.create(parent.id, os.path.basename(name).encode(), h5py.h5t.py_create(data.dtype, logical=True),
                                                h5py.h5s.create_simple(data.shape), plist))
            made[...] = data
        else:
            made = f.create_dataset(name, data=data)
        self.attributes(made, attrs or {})

    def in_folder(self, raw):
        path = os.path.join(self.folder, raw)
        with open(path, "wb") as f:
            f.write(bytes(24))
        return True

    def attributes(self, made, attrs):
        for key, value in attrs.items():
            if isinstance(value, str):
                kind = self.draw.pick(["variable", "fixed", "array"])
                value = {"variable": value, "fixed": np.bytes_(value), "array": np.array([value.encode()])}[kind]
            elif isinstance(value, int):
                value = self.draw.pick([np.int64, np.int32, np.uint64, np.uint16, lambda v: np.array([v])])(value)
            made.attrs[key] = value

    # --- matrices: each returns what the program shall see ------------------------------------------
    def dense(self, file, path, a, whole=False, order=True):
        """A real matrix or vector in a drawn type; float32 rounds it first."""
        types = ["<f8"] * 6 + [">f8"]
        small = a.size == 0 or (np.abs(a).max() < 1e30 and np.abs(a[a != 0]).min(initial=1.0) > 1e-30)
        if small:
            types += ["<f4", ">f4"]
        if whole and a.size and np.abs(a).max() < 120:
            types += ["i4", ">i8", "i2", "u8" if a.min() >= 0 else "i8"] * 2
        if "f16" not in self.without:
            types.append("f16")
        kind = np.dtype(np.longdouble) if (t := self.draw.pick(types)) == "f16" else np.dtype(t)
        stored = a.astype(kind)
        if t != "<f8":
            self.tags.append(t)
        seen, attrs = stored.astype(np.float64), {}
        if order and a.ndim == 2 and self.draw.chance(0.15):
            attrs["order"], stored = "column-major", stored.T.copy()
            self.tags.append("column-major")
            self.by_columns = self.said(path, attrs, "order", "--order", "column-major")
        elif self.draw.chance(0.05) and order:
            attrs["order"] = "row-major"
        elif self.by_columns and a.ndim == 2:  # the option counts for right-hand sides that say nothing
            if self.draw.chance(0.3):
                attrs["order"] = "row-major"
            else:
                stored = stored.T.copy()
        self.dataset(file, path, stored, attrs)
        return seen

    def band(self, file, path, ab):
        """ab as SciPy's lower form; the unused corner holds rubbish."""
        stored, m = ab.copy(), ab.shape[0] - 1
        if self.draw.chance(0.2) and np.abs(ab).max(initial=0) < 1e30 and np.abs(ab[ab != 0]).min(initial=1.0) > 1e-30:
            stored = stored.astype(np.float32)
            self.tags.append("f4")
        seen = stored.astype(np.float64)
        attrs, corner = {"format": "band"}, self.draw.pick([0.0, np.nan, np.inf, 7.0])
        for d in range(1, m + 1):
            stored[d, max(0, ab.shape[1] - d):] = corner
        if self.draw.chance(0.3):
            attrs["uplo"] = "upper"
            upper = np.full_like(stored, corner)
            for d in range(min(m + 1, ab.shape[1])):
                upper[m - d, d:] = stored[d, : ab.shape[1] - d]
            stored = upper
            self.tags.append("upper")
        elif self.draw.chance(0.2):
            attrs["uplo"] = "lower"
        if self.draw.chance(0.2):
            stored = stored.astype(stored.dtype.newbyteorder(">"))
        self.said(path, attrs, "format", "--format", "band")
        if "uplo" in attrs:
            self.said(path, attrs, "uplo", "--uplo", attrs["uplo"])
        if ab.size:
            self.said(path, attrs, "shape", "--shape", f"{ab.shape[1]}x{ab.shape[1]}", p=0.1)
        self.dataset(file, path, stored, attrs)
        return seen

    def group(self, file, path, arrays, attrs):
        for name, data in arrays.items():
            self.dataset(file, f"{path}/{name}", data)
        with self.open(file) as f:
            self.attributes(f[path], {k: v for k, v in attrs.items() if k != "shape"})
            if "shape" not in attrs:
                return
            if self.draw.chance(0.15):
                f[path + "/shape"] = np.array(attrs["shape"])
            else:
                f[path].attrs["shape"] = np.array(attrs["shape"], self.draw.pick(["i8", "i4", "u8"]))

    def sparse(self, file, path, a, whole=False):
        """CSR, CSC, COO, Binsparse, MATLAB's, one triangle, counted from one; the entries of a sparse group in any order."""
        form = self.draw.pick(["csr"] * 4 + ["csc", "csc", "coo", "coo", "binsparse", "matlab", "one"]) if "sparse" not in self.without else "csr"
        symmetric = a.shape[0] == a.shape[1] and np.array_equal(a, a.T)
        if form in ("matlab", "one") and (0 in a.shape or not a.any()):
            form = "csc"
        triangle = self.draw.pick(["lower", "upper"]) if symmetric and form in ("csr", "csc", "coo") and self.draw.chance(0.3) else None
        if form == "csr" and triangle is None and self.draw.chance(0.7):
            self.format = "csr"
            return self.csr(file, path, a, whole)
        s = scipy.sparse.coo_matrix(np.tril(a) if triangle == "lower" else np.triu(a) if triangle == "upper" else a)
        by_columns = form in ("csc", "matlab")
        compressed = s.tocsc() if by_columns else s.tocsr()
        kind = self.draw.pick(["i4", "i8", ">i4", "u4"])
        indices, pointers = compressed.indices.astype(kind), compressed.indptr.astype(kind)
        attrs = {"shape": a.shape}
        self.format = {"coo": "coo", "csc": "csc", "matlab": "csc"}.get(form, "csr")
        self.tags.append(form + (" " + triangle if triangle else ""))
        if form == "binsparse":
            attrs = {"binsparse": json.dumps({"binsparse": {"version": "0.1", "format": "CSR", "shape": list(a.shape), "number_of_stored_values": int(s.nnz),
                                                            "data_types": {"values": "float64"}}})}
            with self.open(file) as f:
                g = f.create_group(path)
                g["values"], g["indices_1"], g["pointers_to_1"] = compressed.data, indices, pointers
                g.attrs.update(attrs)
            return a
        if form == "matlab":
            with self.open(file) as f:
                g = f.create_group(path)
                g["data"], g["ir"], g["jc"] = compressed.data, indices.astype("u8"), pointers.astype("u8")
                g.attrs.update({"MATLAB_sparse": np.uint64(a.shape[0]), "MATLAB_class": np.bytes_("double")})
            return a
        if triangle:
            attrs["symmetry"] = triangle
            self.said(path, attrs, "symmetry", "--uplo", triangle)
        if form == "coo":
            order = self.draw.order(s.nnz)
            arrays = {"data": s.data[order], "row": s.row[order].astype(kind), "col": s.col[order].astype(kind)}
        else:
            one = form == "one"
            arrays = {"data": compressed.data, "indices": indices + one, "indptr": pointers + one}
            if by_columns:
                attrs["encoding-type"] = "csc_matrix"
                self.said(path, attrs, "encoding-type", "--format", "csc")
        if form != "one" and 0 not in a.shape:
            self.said(path, attrs, "shape", "--shape", f"{a.shape[0]}x{a.shape[1]}", p=0.2)
        self.group(file, path, arrays, attrs)
        return a

    def csr(self, file, path, a, whole):
        """Rows in any order, entries cut into duplicates; not where they are whole numbers."""
        kind = self.draw.pick(["i4", "i8", ">i4", "u4"])
        data, indices, start = [], [], [0]
        shuffled, split = self.draw.chance(0.4), self.draw.chance(0.3) and not whole
        for row in a:
            at = list(np.flatnonzero(row))
            entries = [(j, row[j]) for j in at]
            if split:
                entries = [e for j, v in entries for e in (((j, v * 0.5), (j, v * 0.5)) if self.draw.chance(0.3) else ((j, v),))]
            if shuffled:
                entries = [entries[k] for k in self.draw.order(len(entries))]
            indices += [j for j, _ in entries]
            data += [v for _, v in entries]
            start.append(len(data))
        self.tags.append("csr" + (" duplicates" if split else "") + (" shuffled" if shuffled else ""))
        data = np.array(data, np.float64)
        if not split and self.draw.chance(0.15) and np.all(data == data.astype(np.float32)):
            data = data.astype(np.float32)
        self.dataset(file, path + "/data", data)
        self.dataset(file, path + "/indices", np.array(indices, kind))
        self.dataset(file, path + "/indptr", np.array(start, kind))
        with self.open(file) as f:
            f[path].attrs["shape"] = np.array(a.shape, self.draw.pick(["i8", "i4", "u8"]))
            if self.draw.chance(0.6):
                f[path].attrs["encoding-type"] = "csr_matrix"
        return a

    def bits(self, file, path, a):
        form = self.draw.pick(["plain", "plain", "words", "words", "little", "big", "sparse"])
        rows, columns = a.shape
        if form == "sparse" and (path != "/A" or a.size == 0 or "sparse" in self.without):
            form = "plain"
        if form == "sparse":  # odd numbers are ones, stored even ones nothing
            x = self.draw.rng.integers(-4, 4, a.shape) * 2 + a
            x[(a == 0) & (self.draw.rng.random(a.shape) < 0.9)] = 0
            self.sparse(file, path, x.astype(float), whole=True)
            return a
        if columns == 0:
            form = "plain"
        self.tags.append(form)
        if form == "plain":
            self.dataset(file, path, a.astype(self.draw.pick(["u1", "i1", "bool", "i8", "i4", ">i4", "u2", "<f8", ">f8", "f4"])))
            return a
        attrs = {"columns": columns}
        if form == "words":
            wide = np.zeros((rows, (columns + 63) // 64 * 64), np.uint8)
            wide[:, :columns] = a
            stored = np.packbits(wide, axis=1, bitorder="little").view("<u8")
            if self.draw.chance(0.15):
                stored = stored.astype(">u8")
            attrs["format"] = "bits"
        else:
            stored = np.packbits(a, axis=1, bitorder=form)
            attrs["bitorder"] = form
            if self.draw.chance(0.3):
                attrs["format"] = "bits"
            self.said(path, attrs, "bitorder", "--bitorder", form)
        if rows and self.draw.chance(0.2):
            self.said(path, attrs, "columns", "--shape", f"{rows}x{columns}")
        else:
            self.said(path, attrs, "columns", "--columns", columns)
        self.dataset(file, path, stored, attrs)
        return a


if __name__ == "__main__":  # hashes of what h5py reads in the inputs of a folder: {part: hash, or null where it cannot read}
    seen = {}

    def take(part, read):
        try:
            seen[part] = hashlib.sha256(read()).hexdigest()
        except Exception:
            seen[part] = None

    def attributes(where, thing):
        names = []
        take("names " + where, lambda: names.extend(sorted(thing.attrs)) or repr(names).encode())
        for key in names:
            take(f"attribute {where} {key}", lambda: f"{thing.attrs[key]}".encode())

    def walk(where, group, depth=0):
        keys = []
        take("members " + where, lambda: keys.extend(sorted(group)) or repr(keys).encode())
        for key in keys:
            at, thing = f"{where}/{key}", []
            take("object " + at, lambda: thing.append(group[key]) or type(thing[0]).__name__.encode())
            if not thing:
                seen["numbers " + at] = None
                continue
            attributes(at, thing[0])
            if isinstance(thing[0], h5py.Dataset):
                take("numbers " + at, lambda: f"{thing[0].shape} {thing[0].dtype}".encode() + thing[0][...].tobytes())
            elif depth < 5:
                walk(at, thing[0], depth + 1)

    for name in sorted(os.listdir(sys.argv[1])):
        if name.endswith(".h5") and not name.startswith(("out", "again", "resumed", "part", "damaged", "c.h5")):
            take("file " + name, lambda: h5py.File(os.path.join(sys.argv[1], name)).filename.encode())
            if seen["file " + name]:
                with h5py.File(os.path.join(sys.argv[1], name)) as f:
                    walk(name, f)
    print(json.dumps(seen))
