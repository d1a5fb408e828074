"""How a test waits: for the condition that it needs, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE = 100.0  # seconds; ends a test that hangs, and a loaded machine does not reach it


def wait_for(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """Return the first true value of the condition. Fail with ``what`` at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)
