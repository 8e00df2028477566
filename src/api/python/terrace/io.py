"""Files that the program terrace reads and writes; needs h5py."""
import numpy as np

from ._arrays import Bits


def save(path, format=None, uplo=None, **arrays):
    """save("p.h5", A=ab, format="band", uplo="upper", b=b): each array a dataset. `format` and `uplo` are of the one named A. Sparse
    matrices of SciPy's become CSR groups, terrace.Bits packed bits."""
    import h5py
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            if isinstance(array, Bits):
                file[name] = array.words
                file[name].attrs.update({"format": "bits", "columns": array.columns})
            elif hasattr(array, "tocsr"):
                csr, group = array.tocsr(), file.create_group(name)
                for part in ("indptr", "indices", "data"):
                    group[part] = getattr(csr, part)
                group.attrs.update({"format": "csr", "shape": np.array(csr.shape, np.int64)})
            else:
                file[name] = np.asarray(array)
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
