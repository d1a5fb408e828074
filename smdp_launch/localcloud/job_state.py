"""A job's state on disk: plain data, and the ways in which it may change."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.end_state import ENDED, known_fields, limited
from smdp_launch.localcloud.files import read_json, write_json


@dataclass
class JobState:
    """Times are seconds since 1970.

    Args:
        started: begin of the download.
        ended: end of the upload.
        away: seconds between both without hosts, which are not billed.
        model: S3 address of the model, once it is uploaded.
        metrics: FinalMetricDataList, once the job has ended.
    """

    created: float
    modified: float
    status: str = "InProgress"
    secondary: str = "Pending"
    started: float | None = None
    ended: float | None = None
    away: float = 0.0
    failure: str | None = None
    model: str | None = None
    transitions: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def billable_seconds(self) -> int:
        if self.started is None or self.ended is None:
            return 0
        return max(1, round(self.ended - self.started - self.away))

    @property
    def training_seconds(self) -> int:
        if self.started is None or self.ended is None:
            return 0
        return max(1, round(self.ended - self.started))

    def enter(self, secondary: str, message: str, now: float) -> None:
        """Begin the next secondary status."""
        if self.transitions:
            self.transitions[-1]["EndTime"] = now
        self.transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": message})
        self.secondary = secondary
        self.modified = now

    def explain(self, message: str, now: float) -> None:
        """Set the message of the current secondary status."""
        self.transitions[-1]["StatusMessage"] = message
        self.modified = now

    def end(self, status: str, secondary: str, message: str, now: float) -> None:
        self.enter(secondary, message, now)
        self.transitions[-1]["EndTime"] = now
        self.status = status
        if self.started is not None:
            self.ended = now

    def fail(self, reason: str, now: float) -> None:
        self.failure = limited(reason)
        self.end("Failed", "Failed", "Training job failed", now)


def new(now: float) -> JobState:
    state = JobState(created=now, modified=now)
    state.enter("Pending", "Preparing the simulated hosts for training", now)
    return state


def read(path: Path) -> JobState | None:
    record = read_json(path)
    if not record:
        return None
    return JobState(**known_fields(JobState, record))


def write(path: Path, state: JobState) -> None:
    write_json(path, asdict(state))
