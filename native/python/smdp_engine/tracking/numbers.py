"""Turns event lines into reports: numbers with a name, a step and a time."""

import json
import math
from typing import Any, Callable, Dict, NamedTuple, Optional

from ..phases import PHASES

#: The fields of every event, and those that are no metrics.
_ENVELOPE = frozenset({"smdp_event", "event", "time", "rank", "host", "step", "steps"})
_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MOST_NAMES = 512
_STEPS = range(-(2**63), 2**63)  # that a tracker can store


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
    """Reads event lines. Knows the last step, because not every event names it.

    Args:
        say: prints a line about numbers that are not sent.
    """

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say
        self._said: Dict[str, None] = {}
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
            if step not in _STEPS:
                self._say_once("no tracker stores a step of more than 64 bits: reports with such a step are not sent")
                return None
            self._step, self._has_step = step, True
        elif name == "timing" and not self._has_step:
            steps = fields.get("steps")
            self._step += steps if isinstance(steps, int) and steps in _STEPS else 0
        values = _shares(fields) if name == "timing" else _metrics(name, fields)
        values = {key: value for key, value in values.items() if self._is_known(key)}
        if not values or time is None:
            return None
        return Report(time, self._step, values, name == "result")

    def _is_known(self, name: str) -> bool:
        if name not in self._names and len(self._names) < _MOST_NAMES:
            self._names[name] = None
        if name not in self._names:
            self._say_once(f"the run has more than {_MOST_NAMES} metrics: {name[:100]!r} and later ones are not sent")
        return name in self._names

    def _say_once(self, text: str) -> None:
        about = text.partition(":")[0]
        if about not in self._said:
            self._said[about] = None
            self._say(text)


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
