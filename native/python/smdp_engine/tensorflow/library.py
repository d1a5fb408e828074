"""The compiled operations, loaded once, and the engine that they use."""

import ctypes
import functools
import importlib
from pathlib import Path
from typing import Any, Tuple

from .. import adapters
from .._library import library

tf: Any = importlib.import_module("tensorflow")

_LONGEST_ERROR = 2044  # bytes, as in smdp_error


def _require_tensorflow_2() -> None:
    if int(tf.__version__.split(".")[0]) < 2:
        raise ImportError(
            f"smdistributed.dataparallel.tensorflow needs TensorFlow 2.11 or later, this is {tf.__version__}: "
            "the distributed data parallel library does not support TensorFlow 1.x"
        )


@functools.lru_cache(maxsize=None)
def _loaded() -> Tuple[Any, ctypes.CDLL]:
    _require_tensorflow_2()
    library()  # the operations need it
    _let_run_in_any_order()
    return adapters.load("tensorflow", _open)


def _open(file: Path) -> Tuple[Any, ctypes.CDLL]:
    try:
        # TensorFlow first: it registers only the operations that appear while it loads a library.
        return tf.load_op_library(str(file)), ctypes.CDLL(str(file))
    except tf.errors.OpError as error:
        raise ImportError(str(error)) from error


def _let_run_in_any_order() -> None:
    """Exempt the exchange of gradients from the program order.

    In a ``tf.function`` operations with effects run one after the other, in program order. With that order the ranks
    could wait for each other forever. The operations in this list run as soon as their inputs are ready. They run even
    if their results are not used, since the other ranks wait for them.
    """
    dependencies: Any = importlib.import_module("tensorflow.python.framework.auto_control_deps")
    dependencies.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= {"SmdpAllReduce", "SmdpBroadcast", "SmdpAllGather"}


def operations() -> Any:
    """The module of generated wrappers, such as ``smdp_all_reduce``.

    Raises:
        ImportError: no operations fit the installed TensorFlow, and none can be built (adapters.AdapterMissing).
    """
    return _loaded()[0]


def open_engine(rank: int, size: int, master: str) -> None:
    """Connect all ranks; blocks until they are connected.

    Raises:
        RuntimeError: the connection failed, with the same reason on every rank.
    """
    error = ctypes.create_string_buffer(_LONGEST_ERROR)
    if _loaded()[1].smdp_tensorflow_open(rank, size, master.encode(), error, len(error)) != 0:
        raise RuntimeError(f"smdp: {error.value.decode(errors='replace')}")


def close_engine() -> None:
    _loaded()[1].smdp_tensorflow_close()


def abandon_engine() -> None:
    _loaded()[1].smdp_tensorflow_abandon()


def retire() -> None:
    """From here on no thread of the engine calls TensorFlow."""
    _loaded()[1].smdp_tensorflow_retire()
