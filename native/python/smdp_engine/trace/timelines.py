"""Reads the ranks' timelines: Chrome trace events, one per line (docs/how-to/slow-runs.md)."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

from .errors import TraceError

Event = Dict[str, Any]

PHASES = ("wait_local", "wait_hosts", "wire", "copy", "reduce")
_FILE = re.compile(r"timeline_rank_\d+(?:\.(\d+))?\.json$")


@dataclass
class Operation:
    """A call on one rank. Times are microseconds of rank 0's clock once aligned, else of the rank's own clock."""

    rank: int
    lane: int
    name: str
    group: str
    key: Tuple[str, str]  # the group's ID and the operation's number, the same on all ranks
    size: int  # bytes
    called: float
    begin: float
    end: float
    failed: bool
    phases: Dict[str, float]  # microseconds
    stretches: List[Event] = field(default_factory=list)


@dataclass
class Clock:
    """A measurement of how far rank 0's clock is ahead, at a time of the rank's own clock; microseconds."""

    at: float
    ahead: float
    error: float


@dataclass
class Timeline:
    """A rank's file. ``engine`` numbers the engines that its process opened, from 1."""

    path: Path
    rank: int
    world_size: int
    host: str
    engine: int
    rank0_clock: bool
    wall_minus_clock: float
    names: List[Event]
    operations: List[Operation]
    clocks: List[Clock]
    totals: Dict[int, Dict[str, float]]  # by class of size
    thinned: int
    dropped: int


def read_timelines(paths: Iterable[Path]) -> List[Timeline]:
    """The timelines of these files, and of all timeline files in these folders, in the order of ranks.

    An incomplete last line, which a killed process leaves, is ignored.

    Raises:
        TraceError: a file is not a timeline or is damaged.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise TraceError("no timeline: pass files timeline_rank_N.json, or the folder in SMDP_TIMELINE")
    return sorted((_read(file) for file in files), key=lambda one: (one.engine, one.rank))


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if _FILE.search(file.name))


def _events(path: Path) -> Iterator[Event]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    whole = lines[-1] == ""
    for number, line in enumerate(lines, 1):
        text = line.rstrip(",")
        if text in {"", "[", "]"}:
            continue
        try:
            event = json.loads(text, parse_constant=_no_number)
        except ValueError as error:
            if number == len(lines) and not whole:
                return
            raise TraceError(f"{path}:{number}: not a timeline event: {error}") from error
        if not isinstance(event, dict):
            raise TraceError(f"{path}:{number}: not a timeline event: {text[:80]}")
        yield event


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _read(path: Path) -> Timeline:
    events = list(_events(path))
    try:
        return _timeline(path, events)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise TraceError(f"{path}: not a timeline of this engine, or of another version ({error!r})") from error


def _timeline(path: Path, events: List[Event]) -> Timeline:
    identity = next(event["args"] for event in events if event["name"] == "smdp_timeline")
    if identity["version"] != 1:
        raise ValueError(f"version {identity['version']}")
    named = _FILE.search(path.name)
    own = {name: [event["args"] for event in events if event["name"] == name] for name in _OWN}
    undrawn = own["smdp_undrawn"][-1] if own["smdp_undrawn"] else {"thinned": 0, "dropped": 0}
    return Timeline(
        path=path,
        rank=int(identity["rank"]),
        world_size=int(identity["world_size"]),
        host=str(identity["host"]),
        engine=int(named.group(1) or 1) if named else 1,
        rank0_clock=bool(identity["rank0_clock"]),
        wall_minus_clock=float(identity["wall_us"]) - float(identity["at_us"]),
        names=[event for event in events if event["name"] in {"process_name", "thread_name"}],
        operations=_operations(events),
        clocks=[
            Clock(float(one["at_us"]), float(one["ahead_us"]), float(one["error_us"])) for one in own["smdp_clock"]
        ],
        totals={int(one["size_class"]): {key: float(one[key]) for key in _TOTALS} for one in own["smdp_totals"]},
        thinned=int(undrawn["thinned"]),
        dropped=int(undrawn["dropped"]),
    )


_OWN = ("smdp_clock", "smdp_totals", "smdp_undrawn")
_TOTALS = ("operations", "bytes", "took_us", *(f"{phase}_us" for phase in PHASES))


def _operations(events: List[Event]) -> List[Operation]:
    by_number: Dict[int, Operation] = {}
    for event in events:
        if event.get("cat") in {"operation", "failed"}:
            by_number[event["args"]["n"]] = _operation(event)
        elif event.get("cat") == "phase" and event["args"]["n"] in by_number:
            place = {"ts": float(event["ts"]), "dur": float(event["dur"])}
            by_number[event["args"]["n"]].stretches.append({**event, **place})
    return list(by_number.values())


def _operation(event: Event) -> Operation:
    arguments = event["args"]
    return Operation(
        rank=int(event["pid"]),
        lane=int(event["tid"]),
        name=str(event["name"]),
        group=str(arguments["group"]),
        key=(str(arguments["group_id"]), str(arguments["operation"])),
        size=int(arguments["bytes"]),
        called=float(arguments["called_us"]),
        begin=float(event["ts"]),
        end=float(event["ts"]) + float(event["dur"]),
        failed=event["cat"] == "failed",
        phases={phase: float(arguments[f"{phase}_us"]) for phase in PHASES},
    )
