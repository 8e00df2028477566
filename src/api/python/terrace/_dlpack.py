"""The memory behind __dlpack__(), without a copy: what __cuda_array_interface__ says, of arrays that have none."""
import ctypes

CUDA, CUDA_MANAGED = 2, 13


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Type),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


def on_cuda(array):
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in (CUDA, CUDA_MANAGED)


def interface(array):
    """shape, typestr, data and strides (in bytes) as __cuda_array_interface__ has them, or None for an array of the host. The memory
    lives as long as the entry "owner"."""
    if not on_cuda(array):
        return None
    capsule = array.__dlpack__()  # its end releases the memory: it is never renamed
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(get(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    size = tensor.dtype.bits * tensor.dtype.lanes // 8
    strides = tuple(size * tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    return {"shape": shape, "typestr": f"<{_KINDS.get(tensor.dtype.code, 'V')}{size}", "strides": strides,
            "data": ((tensor.data or 0) + tensor.byte_offset, False), "owner": capsule}
