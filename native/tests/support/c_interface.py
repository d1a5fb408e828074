"""The engine through its C interface (include/smdp/engine.h), for tests: no torch, no adapter."""

import ctypes
from pathlib import Path
from typing import Dict, List, Optional, Union

import numpy as np

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
OPS = ["sum", "avg", "min", "max", "product", "band", "bor", "bxor"]
COLLECTIVES = ["all_reduce", "broadcast", "reduce", "all_gather", "barrier"]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 2044)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("world_size", ctypes.c_int),
        ("master", ctypes.c_char_p),
        ("store", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("log_context", ctypes.c_void_p),
        ("options", ctypes.POINTER(ctypes.c_char_p)),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("collective", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("op", ctypes.c_int),
        ("root", ctypes.c_int),
        ("count", ctypes.c_uint64),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("timeout_s", ctypes.c_double),
        ("done", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("step", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("buffers", ctypes.c_uint32),
    ]


class EngineError(Exception):
    """The engine's error message."""


class Library:
    def __init__(self, path: Path) -> None:
        self.functions = ctypes.CDLL(str(path))
        self.functions.smdp_engine_build.restype = ctypes.c_char_p

    @property
    def build(self) -> str:
        return str(self.functions.smdp_engine_build().decode())


class Engine:
    """A rank. Ranks may be threads of one process, since the calls release Python's lock."""

    def __init__(
        self, library: Library, rank: int, world_size: int, options: Dict[str, str], master: str = "127.0.0.1"
    ) -> None:
        self._functions = library.functions
        self.rank = rank
        words = [word.encode() for pair in options.items() for word in pair]
        config = Config(ctypes.sizeof(Config), rank, world_size, master.encode())
        config.options = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        self._engine = ctypes.c_void_p()
        self._checked("smdp_engine_open", ctypes.byref(config), ctypes.byref(self._engine))

    def _checked(self, name: str, *arguments: object) -> None:
        error = Error()
        if getattr(self._functions, name)(*arguments, ctypes.byref(error)) != 0:
            raise EngineError(error.message.decode())

    def group(self, members: List[int], name: Union[str, bytes], timeout_s: float = 30) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        ranks = (ctypes.c_int * len(members))(*members)
        self._checked(
            "smdp_group_create",
            self._engine,
            ranks,
            len(members),
            name if isinstance(name, bytes) else name.encode(),
            ctypes.c_double(timeout_s),
            ctypes.byref(made),
        )
        return made

    def all_reduce(self, group: ctypes.c_void_p, data: "np.ndarray", dtype: str, op: str) -> "np.ndarray":
        """The result for ``data``, whose bytes are elements of ``dtype`` (bfloat16 as uint16)."""
        result = np.empty_like(data)
        call = Call(ctypes.sizeof(Call), 0, DTYPES.index(dtype), OPS.index(op), 0, data.size)
        call.input, call.output = data.ctypes.data, result.ctypes.data
        self._run(group, call)
        return result

    def add_up(self, group: ctypes.c_void_p, data: "np.ndarray", timeout_s: float = 0) -> None:
        """Sums float32 in place. ``timeout_s`` 0: the group's."""
        at = data.ctypes.data
        self._run(group, Call(ctypes.sizeof(Call), 0, 0, 0, 0, data.size, at, at, timeout_s))

    def _run(self, group: ctypes.c_void_p, call: Call) -> None:
        operation = ctypes.c_void_p()
        self._checked("smdp_submit", group, ctypes.byref(call), ctypes.byref(operation))
        try:
            self._checked("smdp_operation_wait", operation, ctypes.c_double(-1))
        finally:
            self._functions.smdp_operation_release(operation)

    def destroy(self, group: ctypes.c_void_p) -> None:
        self._functions.smdp_group_destroy(group)

    def close(self) -> None:
        self._functions.smdp_engine_close(self._engine)


def installed() -> Path:
    """The engine's library in the installed package."""
    import smdp_engine

    return Path(str(smdp_engine.__file__)).with_name("libsmdp_engine.so")


def options_of(host: str, port: int, more: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    return {
        "SMDP_HOST_ID": host,
        "SMDP_INTERFACE": "127.0.0.1",
        "SMDP_RENDEZVOUS_PORT": str(port),
        "SMDP_RENDEZVOUS_TIMEOUT_S": "30",
        "SMDP_JOB_TOKEN": "0123456789abcdef0123456789abcdef",
        "SMDP_ARENA_MIB": "64",
        **(more or {}),
    }
