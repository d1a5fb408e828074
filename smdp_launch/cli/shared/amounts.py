"""Types of options: seconds, and amounts with a unit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import click


class Seconds(click.FloatRange):
    """A finite number: click accepts `nan` in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


class Amount(click.ParamType):  # type: ignore[type-arg]
    """A number with a unit, such as 20MB or 20ms.

    Args:
        units: the factor of each unit.
        least, most: the smallest and the largest amount, in the unit whose factor is 1; 0 is accepted too.
        limits: both, as text.
    """

    def __init__(
        self, name: str, units: Mapping[str, float], least: float, most: float, limits: str, example: str
    ) -> None:
        self.name = name
        self._units = units
        self._least = least
        self._most = most
        self._limits = limits
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?) ?([A-Za-z]+)(?:/s)?", str(value).strip())
        if match is None or match[2] not in self._units:
            self.fail(f"{value!r} is no {self.name} such as {self._example} ({', '.join(self._units)})", param, ctx)
        amount = float(match[1]) * self._units[match[2]]
        if amount and not self._least <= amount <= self._most:
            self.fail(f"{value!r} is out of range: pass {self._limits}, such as {self._example}", param, ctx)
        return amount
