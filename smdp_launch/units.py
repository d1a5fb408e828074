"""Formats numbers, durations, sizes and lists as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def titled(title: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Rows for lines under one title: only the first row has a name."""
    return [(title if index == 0 else "", line) for index, line in enumerate(lines)]


def short(path: Path) -> str:
    """The path relative to the current folder if that is shorter; else the absolute path without ``..``."""
    relative, absolute = os.path.relpath(path), os.path.normpath(path)
    return relative if len(relative) < len(absolute) else absolute


def duration(seconds: int) -> str:
    """Such as ``1 h 30 min``; exact."""
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, seconds = divmod(seconds, length)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts) or "0 s"


def size(amount: int) -> str:
    """Such as ``12.3 kB``; decimal units."""
    value, unit = float(amount), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def listed(names: Sequence[str]) -> str:
    """Such as ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def all_of(noun: str, names: Sequence[str]) -> str:
    """Such as ``channel a`` or ``channels a, b and c``."""
    return f"{noun}{'s' if len(names) > 1 else ''} {listed(names)}"


def count(amount: int, noun: str) -> str:
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"
