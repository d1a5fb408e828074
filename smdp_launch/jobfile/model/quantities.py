"""Quantities with a unit, for fields of the job file that are plain numbers."""

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
_AMOUNT = re.compile(rf"({_NUMBER})\s*([kmb])", re.ASCII | re.IGNORECASE)
_USD = re.compile(rf"(?:\$\s*|USD\s*)({_NUMBER})|({_NUMBER})\s*(?:\$|USD)", re.ASCII | re.IGNORECASE)
#: The powers of 1000 or 1024. If a field counts GB, both 100GB and 100 mean 100.
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def seconds(text: str) -> Fraction | None:
    """``24h``, ``1h30m``, ``90 minutes``, ``1:00:00`` and ``24*3600`` in seconds; None for everything else.

    ``1:30`` gives None: it can be minutes or hours.
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
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in {f"{one}{end}" for one in _POWERS for end in ("", "b", "ib")}:
        return None
    base = 1024 if match[2].endswith("ib") else 1000
    return Fraction(match[1]) * Fraction(base) ** (_POWERS[match[2][0]] - _POWERS[unit])


def amount(text: str) -> Fraction | None:
    """``335M`` and ``1.3B`` as a plain number, as ``scale --parameters`` reads them; None for everything else."""
    match = _AMOUNT.fullmatch(text.strip())
    return Fraction(match[1]) * 1000 ** ("KMB".index(match[2].upper()) + 1) if match is not None else None


def dollars(text: str) -> Fraction | None:
    """``$250`` and ``250 USD``; None for everything else."""
    match = _USD.fullmatch(text.strip().replace(",", ""))
    return Fraction(match[1] or match[2]) if match is not None else None


def plain_number(value: Fraction) -> str:
    """``value`` as text for a job file: ``86400``, or ``0.5`` if it is not a whole number."""
    return str(int(value)) if value.denominator == 1 else repr(float(value))
