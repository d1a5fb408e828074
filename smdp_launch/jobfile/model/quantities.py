"""Quantities that people write with a unit where the job file has a plain number."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}
_NUMBER = r"\d{1,12}(?:\.\d{1,6})?"
_PART = re.compile(rf"({_NUMBER})\s*([a-z]+)\s*", re.ASCII)
_CLOCK = re.compile(r"(\d{1,5}):([0-5]\d):([0-5]\d)", re.ASCII)
_PRODUCT = re.compile(r"\d{1,9}(?:\s*\*\s*\d{1,9}){1,3}", re.ASCII)
_SIZE = re.compile(rf"({_NUMBER})\s*([a-z]+)", re.ASCII)
_USD = re.compile(rf"(?:\$\s*|USD\s*)({_NUMBER})|({_NUMBER})\s*(?:\$|USD)", re.ASCII | re.IGNORECASE)
#: GB and GiB are one: a person who writes 100GB for a number of GB means 100.
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def seconds(text: str) -> Fraction | None:
    """``24h``, ``1h30m``, ``90 minutes``, ``1:00:00`` and ``24*3600`` in seconds; None for everything else.

    ``1:30`` is none: it may be minutes or hours.
    """
    text = text.strip().lower()
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        hours, minutes, rest = (int(one) for one in clock.groups())
        return Fraction(hours * 3600 + minutes * 60 + rest)
    if _PRODUCT.fullmatch(text):
        return Fraction(math.prod(int(one) for one in text.split("*")))
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text) or any(unit not in _UNITS for _, unit in parts):
        return None
    factors = [_UNITS[unit] for _, unit in parts]
    if factors != sorted(set(factors), reverse=True):
        return None  # such as "1m 2h" or "1h 2h"
    return sum((Fraction(number) * factor for (number, _), factor in zip(parts, factors, strict=True)), Fraction(0))


def size(text: str, unit: str) -> Fraction | None:
    """``100GB``, ``0.5 TiB`` and the like in ``unit``, one of k, m and g; None for everything else."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in {f"{one}{end}" for one in _POWERS for end in ("", "b", "ib")}:
        return None
    base = 1024 if found[2].endswith("ib") else 1000
    return Fraction(found[1]) * Fraction(base) ** (_POWERS[found[2][0]] - _POWERS[unit])


def dollars(text: str) -> Fraction | None:
    """``$250`` and ``250 USD``; None for everything else."""
    found = _USD.fullmatch(text.strip().replace(",", ""))
    return Fraction(found[1] or found[2]) if found is not None else None


def plain_number(value: Fraction) -> str:
    """As the job file has it: ``86400``, or ``0.5`` where it is no whole number."""
    return str(int(value)) if value.denominator == 1 else repr(float(value))
