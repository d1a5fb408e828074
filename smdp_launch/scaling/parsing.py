"""Parsers for the flags of ``smdp-launch scale``. They raise ``ValueError`` with a message for the user."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

#: Limits of the model.
MOST_HOSTS = 4096
MOST_BYTES = 1 << 40
#: Seconds. The model simulates at most an hour.
LONGEST_STEP = 3600.0

_NUMBER = r"(?P<number>\d+(?:\.\d+)?|\.\d+)"
_BYTES = re.compile(rf"{_NUMBER}\s*(?P<unit>[A-Za-z]*)", re.ASCII)
_BYTE_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmg", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmg", 1)},
}
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_OPTION = re.compile(r"SMDP_[A-Z][A-Z0-9_]*", re.ASCII)
_OPTION_VALUE = re.compile(r"[!-~]{1,200}", re.ASCII)


def host_counts(text: str) -> tuple[int, ...]:
    """``1,2,4`` in ascending order, each once."""
    counts = [_host_count(word.strip()) for word in text.split(",")]
    return tuple(sorted(set(counts)))


def _host_count(word: str) -> int:
    if not re.fullmatch(r"\d{1,9}", word, re.ASCII):
        raise ValueError(f"{word!r} is not a number of hosts: write a list such as 1,2,4,8")
    if not 1 <= int(word) <= MOST_HOSTS:
        raise ValueError(f"{word} hosts are out of range: write 1 to {MOST_HOSTS}")
    return int(word)


def gradient_bytes(text: str) -> int:
    """``670000000``, ``670MB`` or ``640MiB`` in bytes."""
    return _amount(text, _BYTES, _BYTE_UNITS, "bytes, such as 670MB or 640MiB")


def parameters(text: str) -> int:
    """``335000000``, ``335M`` or ``1.3B`` as a number of parameters."""
    return _amount(text, _BYTES, _COUNT_UNITS, "a number of parameters, such as 335M or 1.3B")


def _amount(text: str, form: re.Pattern[str], units: dict[str, int], meant: str) -> int:
    match = form.fullmatch(text.strip())
    factor = units.get(match["unit"].lower()) if match is not None else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not {meant}")
    amount = round(float(match["number"]) * factor)
    if not 1 <= amount <= MOST_BYTES:
        raise ValueError(f"{text!r} is out of range: write 1 to {MOST_BYTES}")
    return amount


def seconds(text: str) -> float:
    """The seconds of a step."""
    value = number(text)
    if not 0 < value <= LONGEST_STEP:
        raise ValueError(f"{text!r} is not the time of a step: write more than 0 and at most {LONGEST_STEP:g} seconds")
    return value


def share(text: str) -> float:
    """``0.667`` or ``2/3``: above 0, at most 1."""
    above, slash, below = text.partition("/")
    divisor = number(below) if slash else 1.0
    value = number(above) / divisor if divisor else math.inf
    if not 0 < value <= 1:
        raise ValueError(f"{text!r} is not a share above 0 and at most 1, such as 2/3")
    return value


def number(text: str) -> float:
    """A finite number, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{text!r} is not a number, 0 or more")
    return value


def cost(text: str, schedules: Sequence[str]) -> tuple[str | None, str, float]:
    """``NAME=VALUE`` or ``SCHEDULE.NAME=VALUE`` as schedule (None: all), name and value."""
    named, equals, value = text.partition("=")
    if not equals or not named:
        raise ValueError(f"{text!r} is not NAME=VALUE, such as link_rate=12.5e9, or SCHEDULE.NAME=VALUE")
    schedule, dot, name = named.rpartition(".")
    if dot and schedule not in schedules:
        raise ValueError(f"{schedule!r} is not a schedule: write one of {', '.join(schedules)}")
    return schedule or None, name, number(value)


def option(text: str) -> tuple[str, str]:
    """``SMDP_NAME=VALUE`` of the engine."""
    name, equals, value = text.partition("=")
    if not equals or not _OPTION.fullmatch(name) or not _OPTION_VALUE.fullmatch(value):
        raise ValueError(f"{text!r} is not NAME=VALUE of an engine option, such as SMDP_PIECE_KIB=512")
    return name, value


def costs_file(text: str) -> dict[str, float]:
    """The costs by name in the output of ``calibrate.py`` or of ``smdp_model --costs``."""
    if text.lstrip().startswith("{"):
        return _costs_of_json(text)
    costs: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["cost"]:
            words = words[1:]
        if len(words) == 2 and re.fullmatch(r"[a-z_]+", words[0]) and not line.startswith("|"):
            costs[words[0]] = number(words[1])
    if not costs:
        raise ValueError("it has no line such as `cost copy_byte 2e-10`")
    return costs


def _costs_of_json(text: str) -> dict[str, float]:
    import json

    try:
        costs = json.loads(text).get("costs")
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(costs, dict) or not costs:
        raise ValueError('it has no "costs"')
    return {str(name): number(str(value)) for name, value in costs.items()}
