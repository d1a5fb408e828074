"""Every Python process of a worker imports this module. After `import torch` it registers the backend `smddp`, installs
the CUDA emulation where the job requests it, and installs the hooks that measure a rank. After `import tensorflow` it
installs the hooks of TensorFlow. At its start each process registers `faulthandler` for the signal with which the
entrypoint reads the stacks of a job that hangs. An uncaught exception is reported to the entrypoint, which cannot
distinguish its traceback from one that the script has handled and logged.

In AWS's containers a script must import `smdistributed.dataparallel.torch.torch_smddp` for that, and many scripts do
not. The registration follows the complete import of torch, in every version of torch. The `sitecustomize` that this
module hides runs too.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Callable, Optional


class _After(importlib.abc.MetaPathFinder):
    """Finds a package as usual, and has its loader call a function after the import."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name = name
        self._function = function

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> "Optional[importlib.machinery.ModuleSpec]":
        if fullname != self._name or path is not None:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            _run_afterwards(spec.loader, self._function)
        return spec


def _run_afterwards(loader: Any, function: Callable[[], None]) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        function()

    loader.exec_module = exec_module


def _after_torch() -> None:
    # First: the emulation looks for the functions of torch.Tensor that it finds now.
    _measure("smdp_engine.timing.torch_hooks")
    if os.environ.get("SMDP_CUDA_ON_CPU") == "1":
        importlib.import_module("smdp_engine.cuda_on_cpu").install()  # an error is the script's: it has no CUDA
    _register()


def _after_tensorflow() -> None:
    _measure("smdp_engine.timing.tensorflow_hooks")


def _register() -> None:
    try:
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")
    except Exception as error:  # the script may not use the backend
        sys.stderr.write(f"smdp: the torch backend smddp is not available: {type(error).__name__}: {error}\n")


def _measure(hooks: str) -> None:
    if "RANK" not in os.environ or "SMDP_EVENT_PIPE" not in os.environ:
        return
    try:
        importlib.import_module(hooks).install()
    except Exception as error:  # the script runs without the measurement
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("smdp_engine"):
            return  # the engine is older than this entrypoint, or absent
        sys.stderr.write(f"smdp: this rank is not measured: {type(error).__name__}: {error}\n")


_stacks: "Optional[int]" = None  # the descriptor of this process's file


def _register_stacks() -> None:
    """On the signal in SMDP_STACKS (FOLDER:NUMBER), write the stacks of all threads into an unnamed file of this
    process. A forked process has one of its own, so that the stacks of two processes do not mix."""
    global _stacks  # noqa: PLW0603 (a process has one file)
    folder, _, number = os.environ.get("SMDP_STACKS", "").rpartition(":")
    if not folder:
        return
    try:
        import faulthandler

        path = f"{folder}/{os.getpid()}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.unlink(path)  # noqa: PTH108
        faulthandler.register(int(number), file, all_threads=True)
    except (ImportError, OSError, ValueError, RuntimeError):  # a process without stacks to show
        return
    if _stacks is not None:
        os.close(_stacks)
    elif hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_register_stacks)
    _stacks = file


def _report_uncaught_exceptions() -> None:
    """After the traceback of an uncaught exception, write a line to the pipe in SMDP_EVENT_PIPE."""
    if "SMDP_EVENT_PIPE" not in os.environ:
        return
    original = sys.excepthook

    def print_and_report(kind: Any, error: Any, trace: Any) -> None:
        try:
            original(kind, error, trace)
        finally:
            _write_to_entrypoint(f"uncaught exception in process {os.getpid()}\n")

    # Packages restore `__excepthook__`, and install a hook of their own only where it is the current one.
    if original is sys.__excepthook__:
        sys.__excepthook__ = print_and_report
    sys.excepthook = print_and_report


def _write_to_entrypoint(line: str) -> None:
    try:
        fd, *identity = map(int, os.environ.get("SMDP_EVENT_PIPE", "").split(":"))
        status = os.fstat(fd)
        if identity == [status.st_dev, status.st_ino]:
            os.write(fd, line.encode())
    except (OSError, OverflowError, ValueError):  # a program in between has closed the pipe
        pass


def _is_measured(frame: Any) -> bool:
    """Whether a call that is measured has not returned, such as a backward pass, in which a rank waits for others."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("smdp_engine.timing"):
            return True
        frame = frame.f_back
    return False


def _register_rehearsed_hang() -> None:
    """In a local run that rehearses a hang, stop for ever on the signal in SMDP_REHEARSED_HANG (WHERE:NUMBER)."""
    where, _, number = os.environ.get("SMDP_REHEARSED_HANG", "").partition(":")
    if not number:
        return
    import signal
    import threading
    import time

    def hang_for_rehearsal(_: int, frame: Any) -> None:
        if where != "loader" and _is_measured(frame):
            threading.Timer(0.001, os.kill, (os.getpid(), int(number))).start()
            return
        torch, distributed = sys.modules.get("torch"), sys.modules.get("torch.distributed")
        if where == "collective" and torch is not None and distributed is not None and distributed.is_initialized():
            world = distributed.get_world_size()
            if world > 1:  # a message that no rank sends
                distributed.recv(torch.zeros(1), src=(distributed.get_rank() + 1) % world)
        while True:
            time.sleep(0.5)

    signal.signal(int(number), hang_for_rehearsal)  # a forked process, such as one of a DataLoader, inherits it


def _run_the_hidden_one() -> None:
    # No pathlib: every Python process of the job imports this module.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    others = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_register_stacks()
_report_uncaught_exceptions()
_register_rehearsed_hang()
sys.meta_path.insert(0, _After("torch", _after_torch))
sys.meta_path.insert(0, _After("tensorflow", _after_tensorflow))
_run_the_hidden_one()
