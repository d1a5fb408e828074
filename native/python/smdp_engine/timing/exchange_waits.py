"""What a rank waits for in an exchange that does not end, from the engine's flight recorder."""

import contextlib
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .clock import EXCHANGE, Clock

_MOST_RANKS = 64  # the event has to fit into PIPE_BUF


class Waiting:
    """The fields ``operation`` and ``waits_for`` of the event ``timing``, in a rank that has been in an exchange for a
    whole window, without a step, and whose exchange is the engine's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: Optional[Tuple[int, int]] = None

    def __call__(self) -> Dict[str, Any]:
        if self._clock.phase != EXCHANGE:
            self._before = None
            return {}
        now = sum(self._clock.read().steps.values()), self._clock.passes
        before, self._before = self._before, now
        return _unfinished() if now == before else {}


def _unfinished() -> Dict[str, Any]:
    """The oldest operation that has begun and not ended."""
    if "smdp_engine._torch_adapter" not in sys.modules:  # another library exchanges
        return {}
    trace = importlib.import_module("smdp_engine.trace")
    entries: List[Dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="smdp-flight-") as folder, contextlib.suppress(RuntimeError, ImportError):
        entries = trace.read_records(trace.dump(Path(folder)))["entries"]
    for entry in entries:
        if entry["state"] not in ("completed", "failed"):
            return {"operation": entry["collective"], "waits_for": list(entry["waits_for"][:_MOST_RANKS])}
    return {}
