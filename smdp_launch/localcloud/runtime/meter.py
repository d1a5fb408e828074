"""The values that a job's metric definitions find in its log. The job's supervisor searches the log as it grows.

The expressions come from a client. The supervisor's main thread can interrupt a search, so one that does not end costs
its own metric and nothing else; in the server it would block every client.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from smdp_launch.localcloud.layout import LOG_SUFFIX, JobFolder

_LONGEST_LINE = 4096  # characters that are searched
_LONGEST_SEARCH = 1.0  # seconds of CPU time, after which an expression is not used again


@dataclass(frozen=True)
class Point:
    """`time` in seconds since 1970."""

    name: str
    time: float
    value: float


class Meter:
    """Only for the main thread, since no other thread receives signals."""

    def __init__(self, folder: JobFolder, request: Mapping[str, Any]) -> None:
        self._folder = folder
        definitions = request["AlgorithmSpecification"].get("MetricDefinitions", [])
        compiled = [(one["Name"], _compiled(one["Regex"])) for one in definitions]
        self._expressions = [(name, one) for name, one in compiled if one is not None]
        self._offsets: dict[Path, int] = {}  # bytes of each log that are searched
        if self._expressions:
            signal.signal(signal.SIGVTALRM, _interrupt)

    def update(self) -> None:
        """Search the new lines and write the values found. Values that the disk has no space for are lost."""
        if not self._expressions:
            return
        with suppress(OSError), self._folder.metrics.open("a", encoding="utf-8") as file:
            for path in sorted(self._folder.logs.glob(f"*{LOG_SUFFIX}")):
                for event in self._new_events(path):
                    file.writelines(json.dumps(asdict(one)) + "\n" for one in self._points(event))

    def _new_events(self, path: Path) -> Iterator[Mapping[str, Any]]:
        with path.open("rb") as lines:
            lines.seek(self._offsets.get(path, 0))
            for line in lines:
                if not line.endswith(b"\n"):  # not yet whole
                    return
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                yield json.loads(line)

    def _points(self, event: Mapping[str, Any]) -> Iterator[Point]:
        for name, expression in tuple(self._expressions):
            try:
                value = _value(expression, event["message"][:_LONGEST_LINE])
            except TimeoutError:
                self._expressions.remove((name, expression))
                sys.stderr.write(f"metric {name} is no longer collected: a search took more than {_LONGEST_SEARCH} s\n")
            else:
                if value is not None:
                    yield Point(name, event["timestamp"] / 1000, value)


def points(folder: JobFolder) -> Iterator[Point]:
    """Every value so far, in roughly the order of time."""
    try:
        lines = folder.metrics.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with suppress(ValueError, TypeError):  # a line that a full disk cut
            yield Point(**json.loads(line))


def final(folder: JobFolder) -> list[dict[str, Any]]:
    """FinalMetricDataList: the last value of each metric."""
    last: dict[str, Point] = {}
    for one in points(folder):
        if one.name not in last or one.time >= last[one.name].time:
            last[one.name] = one
    return [{"MetricName": one.name, "Value": one.value, "Timestamp": one.time} for one in last.values()]


def _compiled(expression: str) -> re.Pattern[str] | None:
    try:
        return re.compile(expression)
    except re.error:
        return None


def _interrupt(*_: object) -> NoReturn:
    raise TimeoutError


def _value(expression: re.Pattern[str], text: str) -> float | None:
    """The number in the expression's first group, or None. Raises TimeoutError."""
    signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST_SEARCH)
    try:
        match = expression.search(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return _number(match.group(1)) if match is not None and expression.groups else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
