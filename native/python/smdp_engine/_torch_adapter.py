"""The compiled adapter of torch: a module of this Python for torch before 2.6, else a library with a C interface."""

import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Tuple

_LONGEST_ERROR = 2044  # bytes, as in smdp_error
_LONGEST_PATH = 4096
_INVALID, _SYSTEM = 1, 6  # smdp_code
_numbers = itertools.count()


class _Error(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("message", ctypes.c_char * _LONGEST_ERROR))


def open_adapter(path: Path) -> Any:
    """The adapter in the file: the functions and the attribute of _Adapter.

    Raises:
        ImportError, OSError: the file cannot be loaded.
    """
    if "-cp" not in path.name:
        return _Adapter(path)
    loader = importlib.machinery.ExtensionFileLoader("smdp_engine._torch", str(path))
    spec = importlib.util.spec_from_file_location("smdp_engine._torch", path, loader=loader)
    assert spec is not None  # noqa: S101 (a loader was passed)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class _Adapter:
    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        library.smdp_torch_built_for.restype = ctypes.c_char_p
        library.smdp_torch_create.argtypes = (
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_int),
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_int64,
            ctypes.c_int,
            ctypes.POINTER(_Error),
        )
        library.smdp_torch_hosts.argtypes = (
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_int),
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.POINTER(_Error),
        )
        library.smdp_torch_reduce_within_host.argtypes = (*(ctypes.c_char_p,) * 5, ctypes.POINTER(_Error))
        library.smdp_torch_name_next.argtypes = (ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
        library.smdp_torch_name_next.restype = None
        library.smdp_torch_dump.argtypes = (
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.POINTER(_Error),
        )
        library.smdp_torch_retire.restype = library.smdp_torch_abandon.restype = None
        library.smdp_torch_depart.restype = None
        self._library = library
        self._torch: Any = importlib.import_module("torch")
        self._c10d: Any = importlib.import_module("torch._C._distributed_c10d")
        self.built_for = library.smdp_torch_built_for().decode()

    def create(
        self,
        *,
        store: Any,
        rank: int,
        size: int,
        global_ranks: Sequence[int],
        name: str,
        timeout: timedelta,
        opens_engine: bool,
    ) -> Any:
        """The backend of a process group. It comes from C++ on a group that exists for this alone."""
        group = self._c10d.ProcessGroup(store, rank, size)
        error = _Error()
        with self._registered(group) as handle:
            code = self._library.smdp_torch_create(
                handle,
                (ctypes.c_int * len(global_ranks))(*global_ranks),
                len(global_ranks),
                name.encode(),
                timeout // timedelta(milliseconds=1),
                opens_engine,
                error,
            )
        self._check(code, error)
        return group._get_backend(self._torch.device("cpu"))

    def hosts(self, backend: Any) -> Tuple[List[int], str]:
        """By rank of the backend's group, the number of its host; and the value of SMDP_LOCAL_REDUCER."""
        found, reducer, error = (ctypes.c_int * backend.size())(), ctypes.create_string_buffer(64), _Error()
        with self._registered(self._group_of(backend, "cpu")) as handle:
            code = self._library.smdp_torch_hosts(handle, found, reducer, len(reducer), error)
        self._check(code, error)
        return list(found), reducer.value.decode()

    def reduce_within_host(
        self, backend: Any, reducer: str, scatter: Optional[Any], gather: Optional[Any], device: Optional[str]
    ) -> None:
        """From here on an all_reduce of the backend sums within the host first, in these two backends of its ranks.

        Args:
            scatter, gather: None where this rank is alone on its host.
            device: the kind of tensors that the two take; None: any.
        """
        error = _Error()
        with contextlib.ExitStack() as registered:
            handles = [
                registered.enter_context(self._registered(self._group_of(one, kind))) if one is not None else None
                for one, kind in ((backend, "cpu"), (scatter, device or "cpu"), (gather, device or "cpu"))
            ]
            code = self._library.smdp_torch_reduce_within_host(
                handles[0], reducer.encode(), *handles[1:], device.encode() if device else None, error
            )
        self._check(code, error)

    def _group_of(self, backend: Any, device: str) -> Any:
        """A process group that has this backend for the kind of device."""
        group = self._c10d.ProcessGroup(self._c10d.HashStore(), backend.rank(), backend.size())
        group._register_backend(self._torch.device(device), self._c10d.ProcessGroup.BackendType.CUSTOM, backend)
        return group

    @contextlib.contextmanager
    def _registered(self, group: Any) -> Iterator[bytes]:
        """The name under which C++ finds the process group meanwhile."""
        handle = f"smdp/{next(_numbers)}"
        self._c10d._register_process_group(handle, group)
        try:
            yield handle.encode()
        finally:
            self._c10d._unregister_process_group(handle)

    def average_named(self, backend: Any, buffer: Any, lane: str, step: int, index: int, buffers: int) -> Any:
        """Begin the average of a flat buffer that has a name instead of a place in the order of calls."""
        if backend.name() != "smddp":
            raise RuntimeError(f"smddp: the process group's backend is '{backend.name()}', not smddp")
        self._library.smdp_torch_name_next(lane.encode(), step, index, buffers)
        try:
            return backend.allreduce([buffer], self._c10d.AllreduceOptions())
        finally:
            self._library.smdp_torch_name_next(None, 0, 0, 0)

    def dump(self, folder: str) -> str:
        path, error = ctypes.create_string_buffer(_LONGEST_PATH), _Error()
        code = self._library.smdp_torch_dump(os.fsencode(folder), path, len(path), error)
        self._check(code, error)
        return os.fsdecode(path.value)

    def retire(self) -> None:
        """From here on no thread of the adapter uses Python, torch or a device."""
        self._library.smdp_torch_retire()

    def abandon(self) -> None:
        """The other ranks see a loss, not the end of a script."""
        self._library.smdp_torch_abandon()

    def depart(self) -> None:
        """The other ranks see that this process ends, and no group that is destroyed. Waits until they end too."""
        self._library.smdp_torch_depart()

    def _check(self, code: int, error: _Error) -> None:
        if code == 0:
            return
        message = error.message.decode(errors="replace")
        if code == _INVALID:
            raise ValueError(message)
        raise (self._torch.distributed.DistBackendError if code == _SYSTEM else RuntimeError)(message)
