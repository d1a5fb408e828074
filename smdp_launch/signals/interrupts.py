"""Ctrl-C as ``KeyboardInterrupt``, but only where Python code gets it: imports and pydantic would change or drop it.

Until Python 3.11, an exception within ``__set_name__``, which runs when a class of enumerations or cached properties is
created, becomes a RuntimeError. pydantic takes an exception within the type check of a value for a wrong value.
"""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable
from functools import partial
from types import FrameType

_LATER_S = 0.01
#: Modules whose frames are on the stack during an import and during the validation of a model.
_UNINTERRUPTIBLE = frozenset(
    {"_frozen_importlib", "importlib._bootstrap", "pydantic.main", "pydantic.root_model", "pydantic.type_adapter"}
)


def raise_keyboard_interrupt(number: int, frame: FrameType | None) -> None:
    """A signal handler. Within an import or a validation, the signal's handler is called again afterwards.

    Raises:
        KeyboardInterrupt: the main thread is elsewhere.
    """
    if not _is_uninterruptible(frame):
        raise KeyboardInterrupt
    # Alarms until one is handled: the main thread may begin to wait at the moment of the first one.
    signal.signal(signal.SIGALRM, partial(_call_handler, [number]))
    signal.setitimer(signal.ITIMER_REAL, _LATER_S, _LATER_S)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # Python removes its handlers at exit


def handle_interrupts() -> None:
    """Install the handler for Ctrl-C, unless the process ignores it, as a job that a shell started with ``&`` does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_keyboard_interrupt)


def _call_handler(pending: list[int], _: int, frame: FrameType | None) -> None:
    if not pending or _is_uninterruptible(frame):
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    number = pending.pop()
    handler: Callable[[int, FrameType | None], object] | int | signal.Handlers | None = signal.getsignal(number)
    if callable(handler):
        handler(number, frame)


def _is_uninterruptible(frame: FrameType | None) -> bool:
    """Never on Windows, which has no alarms."""
    while frame is not None and hasattr(signal, "setitimer"):
        if frame.f_globals.get("__name__") in _UNINTERRUPTIBLE:
            return True
        frame = frame.f_back
    return False
