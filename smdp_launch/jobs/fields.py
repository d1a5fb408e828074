"""The members of an event line, whatever a script may print: such that they can be written as JSON and as UTF-8."""

from __future__ import annotations

import json
import math
from typing import Any


def read_fields(text: str) -> Any:
    """``text`` as JSON, where numbers that JSON has no form for are their names, such as ``"nan"`` and ``"-inf"``, as
    `smdp_engine.progress` writes them, and half a surrogate pair is U+FFFD.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deep.
    """
    found = json.loads(text, parse_constant=_number, parse_float=_number)
    return _whole(found) if "\\u" in text else found


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else str(value)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole(name): _whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return value
