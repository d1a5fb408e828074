"""Ctrl-C as ``KeyboardInterrupt``, but only where Python code gets it: imports and pydantic would change or drop it.

Until Python 3.11, an exception within ``__set_name__``, which runs when a class of enumerations or cached properties is
created, becomes a RuntimeError. pydantic takes an exception within the type check of a value for a wrong value.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_LATER_S = 0.01
#: Modules whose frames are on the stack during an import and during the validation of a model.
_UNINTERRUPTIBLE = frozenset(
    {"_frozen_importlib", "importlib._bootstrap", "pydantic.main", "pydantic.root_model", "pydantic.type_adapter"}
)


def raise_keyboard_interrupt(number: int, frame: FrameType | None) -> None:
    """A signal handler. Within an import or a validation, it sends the signal again a moment later.

    Raises:
        KeyboardInterrupt: the main thread is elsewhere.
    """
    while frame is not None:
        if frame.f_globals.get("__name__") in _UNINTERRUPTIBLE:
            again = threading.Timer(_LATER_S, _send, [number])
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def handle_interrupts() -> None:
    """Install the handler for Ctrl-C, unless the process ignores it, as a job that a shell started with ``&`` does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_keyboard_interrupt)


def _send(number: int) -> None:
    if hasattr(signal, "pthread_kill"):  # reaches the main thread in a system call too
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, number)
    else:  # Windows, where any thread may raise it
        signal.raise_signal(number)
