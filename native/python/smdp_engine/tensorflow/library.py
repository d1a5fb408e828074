"""The compiled operations (``smdp_engine/_tensorflow-VERSION.so``), loaded once, and the engine that they use."""

import ctypes
import functools
import importlib
from pathlib import Path
from typing import Any, Tuple

tf: Any = importlib.import_module("tensorflow")

_FOLDER = Path(__file__).parents[1]
_LONGEST_ERROR = 2044  # bytes, as in smdp_error


def _require_tensorflow_2() -> None:
    if int(tf.__version__.split(".")[0]) < 2:
        raise ImportError(
            f"TensorFlow 1.x has no distributed data parallel library, and this is {tf.__version__}: "
            "smdistributed.dataparallel.tensorflow needs TensorFlow 2.3.0 or later"
        )


@functools.lru_cache(maxsize=None)
def _loaded() -> Tuple[Any, ctypes.CDLL]:
    _require_tensorflow_2()
    file = _FOLDER / f"_tensorflow-{tf.__version__}.so"
    advice = f"They are built against the installed TensorFlow, here {tf.__version__}: install smdp-engine again."
    if not file.exists():
        others = [other.stem.partition("-")[2] for other in _FOLDER.glob("_tensorflow-*.so")]
        built = f"were built for TensorFlow {others[0]}" if others else "were not built"
        raise ImportError(f"smdp-engine's operations for TensorFlow {built}. {advice}")
    _let_run_in_any_order()
    try:
        # TensorFlow first: it knows only the operations that come while it loads a library.
        return tf.load_op_library(str(file)), ctypes.CDLL(str(file))
    except (tf.errors.OpError, OSError) as error:
        raise ImportError(f"smdp-engine's operations for TensorFlow cannot be loaded ({error}). {advice}") from error


def _let_run_in_any_order() -> None:
    """In a ``tf.function`` what has an effect runs in the order of the program, one after the other has ended.

    Gradients that were exchanged like that would wait for each other, and ranks for ever. What this list names runs
    when it can, and runs even where nobody uses what it gives: the other ranks wait for it.
    """
    dependencies: Any = importlib.import_module("tensorflow.python.framework.auto_control_deps")
    dependencies.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= {"SmdpAllReduce", "SmdpBroadcast", "SmdpAllGather"}


def operations() -> Any:
    """The generated wrappers, such as ``smdp_all_reduce``.

    Raises:
        ImportError: they were not built, or were built for another TensorFlow.
    """
    return _loaded()[0]


def open_engine(rank: int, size: int, master: str) -> None:
    """Blocks until all ranks are connected.

    Raises:
        RuntimeError: they are not, with the same reason on every rank.
    """
    error = ctypes.create_string_buffer(_LONGEST_ERROR)
    if _loaded()[1].smdp_tensorflow_open(rank, size, master.encode(), error, len(error)) != 0:
        raise RuntimeError(f"smdp: {error.value.decode(errors='replace')}")


def close_engine() -> None:
    _loaded()[1].smdp_tensorflow_close()


def abandon_engine() -> None:
    _loaded()[1].smdp_tensorflow_abandon()


def retire() -> None:
    """No thread of the engine runs anything of TensorFlow's from here on."""
    _loaded()[1].smdp_tensorflow_retire()
