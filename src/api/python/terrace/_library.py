"""libterrace.so by ctypes: loaded at the first call, which lets other threads of Python run."""
import ctypes
import glob
import os
import threading

c_double, c_int, c_int64, c_void_p = ctypes.c_double, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
PROGRESS = ctypes.CFUNCTYPE(c_int, c_double, c_void_p)
PRODUCT = ctypes.CFUNCTYPE(None, ctypes.POINTER(c_double), ctypes.POINTER(c_double), c_void_p)
OBSERVE = ctypes.CFUNCTYPE(c_int, c_int64, c_double, c_void_p)


class Options(ctypes.Structure):
    _fields_ = [("backend", c_int), ("threads", c_int), ("unchecked", c_int), ("guard", c_int), ("progress", PROGRESS),
                ("user", c_void_p), ("stream", c_void_p)]


class Report(ctypes.Structure):
    _fields_ = [(name, c_double) for name in
                ("residual", "reciprocal_condition", "log_abs_determinant", "log_abs_determinant_error")]
    _fields_ += [(name, c_int64) for name in ("determinant_sign", "rank", "certified")]
    _fields_ += [(name, c_double) for name in ("seconds_prepare", "seconds_solve", "seconds_check", "seconds_give")]
    _fields_ += [("warning", ctypes.c_char * 256)]


class CgOptions(ctypes.Structure):
    _fields_ = [("rtol", c_double), ("atol", c_double), ("max_iterations", c_int64), ("preconditioner", ctypes.c_char_p),
                ("block", c_int64), ("degree", c_int64), ("start_given", c_int), ("observe", OBSERVE), ("user", c_void_p),
                ("near_null_space", c_void_p), ("near_columns", c_int64), ("near_ld", c_int64),
                ("mixed", c_int)]


class CgResult(ctypes.Structure):
    _fields_ = [("converged", c_int), ("iterations", c_int64), ("residual", c_double), ("scaled_residual", c_double),
                ("reason", ctypes.c_char * 32), ("setup_seconds", c_double)]


class Error(RuntimeError):
    """What the library threw: .code, the program's exit code, and .position, zero-based, or -1."""
    code, position = 70, -1


def _linalg_error():
    from numpy.linalg import LinAlgError
    return LinAlgError


class Inconsistent(Error):
    """A X = B over GF(2) has no solution."""
    code = 4


_lock = threading.Lock()
_loaded = None
_RETURNS = {"terrace_version": ctypes.c_char_p, "terrace_error": ctypes.c_char_p, "terrace_error_position": c_int64,
            "terrace_close": None, "terrace_free": None, "terrace_cg_free": None, "terrace_band_factor_free": None,
            "terrace_band_factor_columns": c_void_p, "terrace_dense_factor_free": None, "terrace_hdf5_close": None,
            "terrace_release_memory": None}


def library():
    """The shared library: TERRACE_LIBRARY, beside this file, or where the loader looks."""
    global _loaded
    with _lock:
        if _loaded is None:
            here = os.path.dirname(os.path.abspath(__file__))
            names = [os.environ.get("TERRACE_LIBRARY")] + sorted(glob.glob(os.path.join(here, "libterrace.so*")))
            name = next((n for n in names if n), "libterrace.so.0.2")
            try:
                _loaded = ctypes.CDLL(name)
            except OSError as error:
                raise ImportError(f"libterrace.so cannot be loaded; {error}; pip install the package, or set TERRACE_LIBRARY to the "
                                  "library of an installed Terrace") from None
            for function, result in _RETURNS.items():
                getattr(_loaded, function).restype = result
        return _loaded


def version():
    return library().terrace_version().decode()


def refuse(code, lib):
    """Raises what a code means in Python."""
    text, position = lib.terrace_error().decode(), lib.terrace_error_position()
    if code in (2, 3):
        raise ValueError(text)
    if code == 4:
        if "inconsistent" in text:
            error = Inconsistent(text)
        else:
            error = _linalg_error()(text)
        error.position = position
        raise error
    if code == 5 and "memory" in text:
        raise MemoryError(text)
    error = Error(text)
    error.code, error.position = code, position
    raise error


def _address(stream):
    """Of a cudaStream_t: CuPy calls it ptr, Torch cuda_stream."""
    for name in ("ptr", "cuda_stream"):
        stream = getattr(stream, name, stream)
    return stream or None


class Context:
    """Ranks that work together, and how. Made for a communicator of mpi4py on all its ranks; alone without.

    backend: "auto", "cpu" or "cuda"; check: hold results against the input; guard: look for flipped bits of
    memory; progress: called with the part done, 0 to 1, and stops the run where it returns False; stream: a stream of
    CuPy's, Torch's or an address, whose work comes before each call (None: all of the device's).
    Give the same one to many calls: what it sets up on the devices is kept."""

    def __init__(self, comm=None, *, backend="auto", threads=0, check=True, guard=False, progress=None, stream=None):
        if backend not in ("auto", "cpu", "cuda"):
            raise ValueError(f"unknown backend '{backend}'; backend; use auto, cpu or cuda")
        if comm is not None and not hasattr(comm, "py2f"):
            raise TypeError(f"comm is of type {type(comm).__name__}; give a communicator of mpi4py or a terrace.Context")
        self._lib, self._raised = library(), None
        self.comm, self._user_progress = comm, progress
        self._progress = PROGRESS(self._ask)  # lives as long as the library may call it
        options = Options(("auto", "cpu", "cuda").index(backend), threads, int(not check), int(guard), self._progress, None,
                          _address(stream))
        self._handle = c_void_p()
        if comm is None:
            code = self._lib.terrace_open_alone(ctypes.byref(options), ctypes.byref(self._handle))
        else:
            code = self._lib.terrace_open_fortran(c_int(comm.py2f()), ctypes.byref(options), ctypes.byref(self._handle))
        if code:
            refuse(code, self._lib)

    def _ask(self, done, _):
        try:  # Ctrl-C is raised here, in the main thread
            return 0 if self._user_progress and self._user_progress(done) is False else 1
        except BaseException as error:
            self._raised = error
            return 0

    def call(self, name, *arguments):
        """Runs a function of the library on this context; what a progress call raised is raised here."""
        self.run(name, self._handle, *arguments)

    def run(self, name, *arguments):
        self._raised = None
        code = getattr(self._lib, name)(*arguments)
        if self._raised is not None:
            raise self._raised
        if code:
            refuse(code, self._lib)

    def get(self, name, *arguments, some):
        """As run(), of a function that returns memory, NULL on an error or where there is not `some`."""
        self._raised = None
        pointer = getattr(self._lib, name)(*arguments)
        if self._raised is not None:
            raise self._raised
        if some and not pointer:
            refuse(5, self._lib)
        return pointer

    def counts(self, mine):
        """First item and number of all items, where each rank holds `mine`."""
        if self.comm is None:
            return 0, mine
        counts = self.comm.allgather(mine)
        return sum(counts[:self.comm.Get_rank()]), sum(counts)

    def agree(self, value):
        """Whether the ranks gave the same value."""
        return self.comm is None or all(v == value for v in self.comm.allgather(value))

    @property
    def rank(self):
        return 0 if self.comm is None else self.comm.Get_rank()

    @property
    def size(self):
        return 1 if self.comm is None else self.comm.Get_size()

    def release_memory(self):
        """Gives back what this process keeps on host and devices for calls to come. Not collective."""
        self._lib.terrace_release_memory(self._handle)

    def close(self):
        """Collective; before MPI_Finalize."""
        if self._handle:
            self._lib.terrace_close(self._handle)
            self._handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) and self.comm is None:
            self.close()


_alone = None


def ranks_of(comm):
    """The communicator of mpi4py behind comm=, which may be a Context; None of one rank alone."""
    return comm.comm if isinstance(comm, Context) else comm


class using:
    """with using(comm) as context: for None the one of this process, for a communicator one for the call."""

    def __init__(self, comm):
        self.given = comm

    def __enter__(self):
        global _alone
        if isinstance(self.given, Context):
            return self.given
        if self.given is None:
            if _alone is None:
                _alone = Context()
            return _alone
        self.made = Context(self.given)
        return self.made

    def __exit__(self, *_):
        if hasattr(self, "made"):
            self.made.close()


def warn(report):
    """The library's warning, as one of Python's."""
    if report.warning:
        import warnings
        try:
            from scipy.linalg import LinAlgWarning as kind
        except ImportError:
            kind = RuntimeWarning
        warnings.warn(report.warning.decode(), kind, stacklevel=3)
