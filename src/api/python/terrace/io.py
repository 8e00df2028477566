"""Files that the program terrace reads and writes; save and load need h5py."""
import ctypes

import numpy as np

from ._arrays import Bits, Reals, to_host

_int64 = ctypes.c_int64


def save(path, format=None, uplo=None, **arrays):
    """save("p.h5", A=ab, format="band", uplo="upper", b=b): each array a dataset. `format` and `uplo` are of the one named A. Sparse
    matrices of SciPy's become CSR groups, terrace.Bits packed bits."""
    import h5py
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            if isinstance(array, Bits):
                file[name] = to_host(array.words)
                file[name].attrs.update({"format": "bits", "columns": array.columns})
            elif hasattr(array, "tocsr"):
                csr, group = array.tocsr(), file.create_group(name)
                for part in ("indptr", "indices", "data"):
                    group[part] = getattr(csr, part)
                group.attrs.update({"format": "csr", "shape": np.array(csr.shape, np.int64)})
            else:
                file[name] = to_host(array)
            if name == "A":
                for key, value in (("format", format), ("uplo", uplo)):
                    if value is not None:
                        file[name].attrs[key] = value


def load(location):
    """load("x.h5:/x"), or load("x.h5") where the file has one object: an array, Bits, or a CSR matrix of SciPy's."""
    import h5py
    path, _, name = location.partition(":")
    with h5py.File(path, "r") as file:
        if not name:
            names = [key for key in file if key != "terrace"]
            if len(names) != 1:
                raise ValueError(f"{path} holds {', '.join(names) or 'nothing'}; name one: {path}:/NAME")
            name = names[0]
        item = file[name]
        if isinstance(item, h5py.Group):
            from scipy.sparse import csr_matrix
            return csr_matrix(tuple(item[part][()] for part in ("data", "indices", "indptr")), shape=tuple(item.attrs["shape"]))
        form = item.attrs.get("format")
        if form in ("bits", b"bits"):
            return Bits(item[()], item.attrs["columns"])
        return item[()]


def save_factor(target, factor, overwrite=False):
    """save_factor("f.h5", terrace.linalg.lu_factor(a)): for `terrace dense solve --factor f.h5:/factor`, and load_factor."""
    context, output = factor._context, ctypes.c_void_p()
    context.call("terrace_hdf5_create", str(target).encode(), int(overwrite), ctypes.byref(output))
    try:
        context.run("terrace_hdf5_write_factor", output, b"factor", factor._handle, None)
        context.run("terrace_hdf5_commit", output)
    finally:
        context._lib.terrace_hdf5_close(output)


def load_factor(location, a, *, comm=None):
    """load_factor("f.h5:/factor", a): the factor of a that save_factor or `terrace dense factor` wrote, LU's or Cholesky's, for
    terrace.linalg.lu_solve() or cho_solve(). Solutions are held against a."""
    from . import linalg
    matrix = Reals(a, "a")

    def make(context, handle, report):
        sizes = linalg._square(context, matrix)
        n, first, count = sizes
        context.call("terrace_hdf5_read_factor", str(location).encode(), n, first, count, matrix.p, _int64(matrix.ld), handle, report)
        return sizes
    return linalg._made(linalg.DenseFactor, comm, make)
