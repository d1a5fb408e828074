"""The figures of a measurement, their limits, and the table of what ran.

A limit is written for a reader (``<= 2 %``), and a figure is within it or not. A figure without a value
says why it was not measured.
"""

import json
import math
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

PASSED, FAILED, NOT_RUN, NO_LIMIT = "passed", "FAILED", "not run", "no limit"


@dataclass(frozen=True)
class Figure:
    """``at_most`` and ``at_least`` bound the value; a figure with neither is shown without a verdict."""

    name: str
    value: Optional[float]
    unit: str = ""
    at_most: Optional[float] = None
    at_least: Optional[float] = None
    #: Why there is no value, or what else a reader has to know.
    note: str = ""
    details: Dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def result(self) -> str:
        if self.value is None:
            return NOT_RUN
        if math.isnan(self.value):
            return FAILED
        if self.at_most is None and self.at_least is None:
            return NO_LIMIT
        above = self.at_most is not None and self.value > self.at_most
        below = self.at_least is not None and self.value < self.at_least
        return FAILED if above or below else PASSED

    @property
    def limit(self) -> str:
        if self.at_most is not None and self.at_most == self.at_least:
            return f"{self.at_most:.4g}{self._unit}"
        if self.at_most is not None:
            return f"<= {self.at_most:.4g}{self._unit}"
        return f">= {self.at_least:.4g}{self._unit}" if self.at_least is not None else ""

    @property
    def shown(self) -> str:
        return "" if self.value is None else f"{self.value:.4g}{self._unit}"

    @property
    def _unit(self) -> str:
        return f" {self.unit}" if self.unit else ""

    def line(self) -> str:
        parts = [f"{self.name}: {self.shown or NOT_RUN}"]
        if self.limit:
            parts.append(f"limit {self.limit}")
        if self.result in (PASSED, FAILED):
            parts.append(self.result)
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)


def not_run(name: str, reason: str) -> Figure:
    return Figure(name, None, note=reason)


def write(path: Path, figures: List[Figure], **more: Any) -> None:
    rows = [{**asdict(one), "result": one.result, "limit": one.limit} for one in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**more, "figures": rows}, indent=1, allow_nan=True) + "\n", encoding="utf-8")


def read(path: Path) -> List[Figure]:
    rows = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return [Figure(**{name: value for name, value in row.items() if name not in ("result", "limit")}) for row in rows]


def finish(figures: List[Figure], path: Optional[Path], **more: Any) -> int:
    """Print the figures of one program and write them; the exit code says whether a limit was not met."""
    for one in figures:
        sys.stdout.write(one.line() + "\n")
    if path is not None:
        write(path, figures, **more)
    return 1 if any(one.result == FAILED for one in figures) else 0


def table(figures: List[Figure]) -> str:
    lines = ["| what | measured | limit | result | note |", "|---|---|---|---|---|"]
    lines += [f"| {one.name} | {one.shown} | {one.limit} | {one.result} | {one.note} |" for one in figures]
    return "\n".join(lines)
