"""Writes timeline files as ranks do, with the calls and clocks that a test defines."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Tuple

NO_TIME = {"wait_local_us": 0.0, "wait_hosts_us": 0.0, "wire_us": 0.0, "copy_us": 0.0, "reduce_us": 0.0}


@dataclass
class Rank:
    """A rank's file. ``ahead``: the microseconds by which this rank's clock is ahead of the true time."""

    rank: int
    host: str = "algo-1"
    ahead: float = 0.0
    rank0_clock: bool = True
    clocks: List[Tuple[float, float, float]] = field(default_factory=list)  # at, ahead of rank 0, error
    events: List[Dict[str, Any]] = field(default_factory=list)

    def call(self, operation: str, called: float, begin: float, heard: float, end: float, group: str = "world") -> None:
        """An operation in which this rank waited until ``heard`` and then copied until ``end``; true microseconds."""
        number = len(self.events)
        times = {**NO_TIME, "wait_local_us": heard - begin, "copy_us": end - heard}
        whole = {
            "n": number,
            "group": group,
            "group_id": "0a",
            "operation": operation,
            "bytes": 4096,
            "dtype": "float32",
            "called_us": called + self.ahead,
            "last_heard": -1,
            **times,
        }
        self.events.append(self._bar("all_reduce 4 KiB", "operation", begin, end, whole))
        self.events.append(self._bar("wait local", "phase", begin, heard, {"n": number}))
        self.events.append(self._bar("copy", "phase", heard, end, {"n": number}))

    def _bar(self, name: str, category: str, begin: float, end: float, arguments: Dict[str, Any]) -> Dict[str, Any]:
        place = {"pid": self.rank, "tid": 0, "ts": begin + self.ahead, "dur": end - begin}
        return {"name": name, "cat": category, "ph": "X", **place, "args": arguments}

    def _own(self, event: str, **arguments: Any) -> Dict[str, Any]:
        return {"name": event, "ph": "M", "pid": self.rank, "args": arguments}

    def lines(self, size: int) -> List[str]:
        calls = [event for event in self.events if event["cat"] == "operation"]
        sums = {key: sum(event["args"][key] for event in calls) for key in NO_TIME}
        took = sum(event["dur"] for event in calls)
        totals = {"size_class": 13, "operations": len(calls), "bytes": 4096 * len(calls), "took_us": took, **sums}
        identity = {
            "version": 1,
            "rank": self.rank,
            "world_size": size,
            "host": self.host,
            "build": "test",
            "rank0_clock": self.rank0_clock,
            "at_us": self.ahead,
            "wall_us": 5e9,
        }
        events = [
            self._own("process_name", name=f"rank {self.rank}@{self.host}"),
            self._own("smdp_timeline", **identity),
            *(self._own("smdp_clock", at_us=at, ahead_us=ahead, error_us=error) for at, ahead, error in self.clocks),
            *self.events,
            self._own("smdp_totals", **totals),
        ]
        return [json.dumps(event) for event in events]


def write(folder: Path, ranks: List[Rank]) -> List[Path]:
    paths = []
    for rank in ranks:
        path = folder / f"timeline_rank_{rank.rank}.json"
        path.write_text("[\n" + ",\n".join(rank.lines(len(ranks))) + "\n]\n", encoding="utf-8")
        paths.append(path)
    return paths
