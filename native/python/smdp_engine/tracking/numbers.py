"""Turns event lines into reports: numbers with a name, a step and a time."""

import json
import math
from typing import Any, Dict, NamedTuple, Optional

from ..phases import PHASES

#: The fields of every event, and those that are no metrics.
_ENVELOPE = frozenset({"smdp_event", "event", "time", "rank", "host", "step", "steps"})
_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MOST_NAMES = 512


class Report(NamedTuple):
    """Numbers of one moment.

    Args:
        time: seconds since 1970.
        is_result: the numbers are the run's result.
    """

    time: float
    step: int
    values: Dict[str, float]
    is_result: bool = False


class Numbers:
    """Reads event lines. Knows the last step, because not every event names it."""

    def __init__(self) -> None:
        self._step = 0
        self._has_step = False
        self._names: Dict[str, None] = {}

    def read(self, line: str) -> Optional[Report]:
        """The numbers of the event; None if it has none or the line is no event."""
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict) or not isinstance(fields.get("event"), str):
            return None
        name, time = fields["event"], _number(fields.get("time"))
        step = fields.get("step")
        if isinstance(step, int) and not isinstance(step, bool):
            self._step, self._has_step = step, True
        elif name == "timing" and not self._has_step:
            self._step += int(_number(fields.get("steps")) or 0)
        values = _shares(fields) if name == "timing" else _metrics(name, fields)
        values = {key: value for key, value in values.items() if self._is_known(key)}
        if not values or time is None:
            return None
        return Report(time, self._step, values, name == "result")

    def _is_known(self, name: str) -> bool:
        if name not in self._names and len(self._names) < _MOST_NAMES:
            self._names[name] = None
        return name in self._names


def _metrics(event: str, fields: Dict[str, Any]) -> Dict[str, float]:
    prefix = "" if event == "step" else f"{event}/"
    found = {f"{prefix}{name}": _number(value) for name, value in fields.items() if name not in _ENVELOPE}
    return {name: value for name, value in found.items() if value is not None}


def _shares(fields: Dict[str, Any]) -> Dict[str, float]:
    """The share of each phase in the window, 0 to 1, and the speed of this rank."""
    window = _number(fields.get("window"))
    if not window or not window > 0:
        return {}
    values = {}
    for name in PHASES:
        seconds = _number(fields.get(f"{name}_s"))
        if seconds is not None:
            values[f"timing/{name}"] = seconds / window
    for name in ("steps", "samples"):
        amount = _number(fields.get(name))
        if amount:
            values[f"timing/{name}_per_second"] = amount / window
    memory = _number(fields.get("gpu_memory_bytes"))
    if memory is not None:
        values["timing/gpu_memory_bytes"] = memory
    return values


def _number(value: Any) -> Optional[float]:
    if isinstance(value, str):
        return _NAMES.get(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
