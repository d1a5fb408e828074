"""A series of values as a line of small bars."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*#"


def sparkline(values: Sequence[float], columns: int, encoding: str = "utf-8") -> str:
    """The values, the latest on the right, at most ``columns`` wide. ASCII where the encoding has no block elements.

    Each column is the mean of its values; the lowest of them is the lowest bar.
    """
    if not values or columns < 1:
        return ""
    marks = _BLOCKS if _can_write(encoding) else _ASCII
    means = list(_means(values, min(columns, len(values))))
    least, greatest = min(means), max(means)
    scale = (len(marks) - 1) / (greatest - least) if greatest > least else 0.0
    return "".join(marks[round((one - least) * scale)] for one in means)


def _means(values: Sequence[float], columns: int) -> Sequence[float]:
    edges = [index * len(values) // columns for index in range(columns + 1)]
    parts = (values[first:last] for first, last in itertools.pairwise(edges))
    return [sum(one / len(part) for one in part) for part in parts]


def _can_write(encoding: str) -> bool:
    try:
        return bool(codecs.encode(_BLOCKS, encoding))
    except (LookupError, UnicodeError):
        return False
