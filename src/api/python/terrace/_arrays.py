"""Arrays of others as pointers, rows and leading dimensions; bits packed and unpacked."""
import ctypes
import sys

import numpy as np

from . import _dlpack


def on_device(array):
    """What the array says of its memory on a CUDA device, or None."""
    found = getattr(array, "__cuda_array_interface__", None)
    return found if found is not None else _dlpack.interface(array)


def copied(array):
    return array.clone() if hasattr(array, "clone") else array.copy()


def host(array):
    """NumPy's view of an array of the host, of one too that knows DLPack alone."""
    if hasattr(array, "__dlpack__") and not any(hasattr(array, name) for name in ("__array__", "__array_interface__")):
        return np.from_dlpack(array)
    if isinstance(array, np.ma.MaskedArray):
        raise ValueError("masked arrays are not supported; fill them first")
    return np.asarray(array)


def to_host(array):
    """NumPy's view or copy of anything that is an array."""
    if not hasattr(array, "__array_interface__") and (hasattr(array, "__cuda_array_interface__") or _dlpack.on_cuda(array)):
        array = array.get() if hasattr(array, "get") else array.cpu() if hasattr(array, "cpu") else array
    return host(array)


def require_real(array, name):
    if array.dtype.kind == "c":
        raise TypeError(f"{name} is complex; only real matrices are solved")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} holds {array.dtype}; numbers are needed")


class Reals:
    """Rows of float64: the caller's own memory where it is so already, on the host or a CUDA device."""

    def __init__(self, array, name, *, writable=False, columns=None):
        self.device = on_device(array)
        self.original = array
        if self.device is not None:
            shape, strides = tuple(self.device["shape"]), self.device.get("strides")
            if self.device["typestr"] != "<f8":
                raise TypeError(f"'{name}' on a device must be float64, and is {self.device['typestr']}")
            self.pointer, self.array = self.device["data"][0], array
            self._shape(shape)
            if strides is None:
                strides = tuple(8 * int(np.prod(shape[i + 1:])) for i in range(len(shape)))
            if self.columns > 1 and len(shape) == 2 and strides[1] != 8:
                raise ValueError(f"'{name}' on a device must have contiguous rows")
            self.ld = max(self.columns, strides[0] // 8) if self.rows > 1 else self.columns
            return
        array = host(array)
        require_real(array, f"'{name}'")
        rowwise = array.dtype == np.float64 and array.ndim in (1, 2) and (
            array.size == 0 or array.strides[-1] == 8 and (array.ndim == 1 or array.strides[0] % 8 == 0
                                                           and array.strides[0] >= 8 * array.shape[-1]))
        if not rowwise or (writable and array is not self.original):
            array = np.array(array, dtype=np.float64, order="C")
        self.array, self.pointer = array, array.ctypes.data
        self._shape(array.shape)
        self.ld = array.strides[0] // 8 if array.ndim == 2 and array.shape[0] > 1 and array.size else self.columns

    def _shape(self, shape):
        if len(shape) not in (1, 2):
            raise ValueError(f"an array of {len(shape)} dimensions; give one or two")
        self.shape, self.rows = shape, shape[0]
        self.columns = shape[1] if len(shape) == 2 else 1

    @property
    def p(self):
        return ctypes.c_void_p(self.pointer)


def owned(array, overwrite):
    """A copy that the library may write, or the caller's own array."""
    if on_device(array) is not None:
        return array if overwrite else copied(array)
    array = host(array)
    if overwrite and array.dtype == np.float64 and array.flags.c_contiguous and array.flags.writeable:
        return array
    require_real(array, "the array")
    return np.array(array, dtype=np.float64, order="C")


class Bits:
    """A matrix over GF(2), packed: .words, rows x ceil(columns / 64) of 64-bit integers, bit j % 64 of word j / 64 is column j. Words of
    a CUDA device (CuPy, Torch, JAX) stay there, and so do results of the same call. np.from_dlpack(bits) and its like give the words."""

    def __init__(self, words, columns):
        self.columns = int(columns)
        self._device = on_device(words)
        if self._device is None:
            self.words = np.ascontiguousarray(host(words))
            if self.words.dtype != np.uint64:
                self.words = self.words.view(np.uint64) if self.words.dtype == np.int64 else self.words.astype(np.uint64)
            shape, self.ld, self.pointer = self.words.shape, 0, self.words.ctypes.data
        else:
            self.words, shape, strides = words, tuple(self._device["shape"]), self._device.get("strides")
            if self._device["typestr"] not in ("<u8", "<i8"):
                raise TypeError(f"words on a device must be 64-bit integers, and are {self._device['typestr']}")
            if strides is not None and len(shape) == 2 and shape[1] > 1 and strides[1] != 8:
                raise ValueError("words on a device must have contiguous rows")
            self.ld = strides[0] // 8 if strides is not None and len(shape) == 2 and shape[0] > 1 and shape[1] else 0
            self.pointer = self._device["data"][0]
        if len(shape) != 2 or shape[1] != -(-self.columns // 64):
            raise ValueError(f"{self.columns} columns need rows of {-(-self.columns // 64)} words")
        self.shape = shape[0], self.columns

    def copy(self):
        return Bits(copied(self.words), self.columns)

    def zeros(self, rows, columns):
        """Of zeros, where these bits are."""
        shape = rows, -(-columns // 64)
        if self._device is None:
            return Bits(np.zeros(shape, np.uint64), columns)
        if hasattr(self.words, "new_zeros"):  # Torch
            return Bits(self.words.new_zeros(shape), columns)
        name = type(self.words).__module__.partition(".")[0]
        package = sys.modules.get("jax.numpy" if name.startswith("jax") else name)
        return Bits(getattr(package, "zeros", np.zeros)(shape, dtype=getattr(self.words, "dtype", np.uint64)), columns)

    def __dlpack__(self, **how):
        return self.words.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.words.__dlpack_device__()

    @classmethod
    def pack(cls, array):
        """From 0 and 1: NumPy, SciPy's sparse matrices, galois; anything else that is no 0 or 1 is a ValueError."""
        if isinstance(array, cls):
            return array
        if hasattr(array, "tocsr"):
            sparse = array.tocsr()
            rows, columns = sparse.shape
            words = np.zeros((rows, -(-columns // 64)), np.uint64)
            step = max(1, (64 << 20) // max(1, columns))
            for i in range(0, rows, step):
                words[i:i + step] = cls.pack(sparse[i:i + step].toarray()).words
            return cls(words, columns)
        array = to_host(array)
        if array.ndim != 2:
            raise ValueError(f"an array of {array.ndim} dimensions; a matrix has two")
        rows, columns = array.shape
        plain = array.view(np.ndarray)
        if plain.dtype != bool:
            if plain.dtype.kind not in "iuf":
                raise TypeError(f"a matrix over GF(2) holds 0 and 1, not {plain.dtype}")
            ones = plain == 1
            if not np.array_equal(ones, plain != 0):
                i, j = np.argwhere(ones != (plain != 0))[0]
                raise ValueError(f"{plain[i, j]} is neither 0 nor 1; row {i}, column {j}; reduce modulo 2 first")
            plain = ones
        packed = np.zeros((rows, 8 * -(-columns // 64)), np.uint8)
        packed[:, :-(-columns // 8)] = np.packbits(plain, axis=1, bitorder="little")
        return cls(packed.view("<u8"), columns)

    def unpack(self):
        """uint8 of 0 and 1."""
        if 0 in self.shape:
            return np.zeros(self.shape, np.uint8)
        return np.unpackbits(np.ascontiguousarray(to_host(self.words)).view(np.uint8), axis=1, bitorder="little", count=self.columns)

    @property
    def p(self):
        """Pointer and leading dimension, as the library's functions take them."""
        return ctypes.c_void_p(self.pointer), ctypes.c_int64(self.ld)


def like(bits, original):
    """As the caller gave it: packed, galois's type, else uint8."""
    if isinstance(original, Bits):
        return bits
    array = bits.unpack()
    if type(original) is not np.ndarray and isinstance(original, np.ndarray):
        return array.view(type(original))  # galois.GF2
    return array
