"""A job's state as it is kept on disk: plain data and the two ways it may change."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.files import read_json, write_json

ENDED = ("Completed", "Failed", "Stopped")
_REASON_LIMIT = 1024  # characters, the service's limit of FailureReason


@dataclass
class JobState:
    """Times are seconds since 1970. `started` and `ended` bound the training: from the download to the upload; `away`
    are the seconds of it for which the job had no hosts, which nobody pays."""

    created: float
    modified: float
    status: str = "InProgress"
    secondary: str = "Pending"
    started: float | None = None
    ended: float | None = None
    away: float = 0.0
    failure: str | None = None
    model: str | None = None  # S3 address of the model, once it lies there
    transitions: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # FinalMetricDataList, once it has ended

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
        """Go on to the next step of the job's life."""
        if self.transitions:
            self.transitions[-1]["EndTime"] = now
        self.transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": message})
        self.secondary = secondary
        self.modified = now

    def explain(self, message: str, now: float) -> None:
        """Say why the present step takes longer."""
        self.transitions[-1]["StatusMessage"] = message
        self.modified = now

    def end(self, status: str, secondary: str, message: str, now: float) -> None:
        self.enter(secondary, message, now)
        self.transitions[-1]["EndTime"] = now
        self.status = status
        if self.started is not None:
            self.ended = now

    def fail(self, reason: str, now: float) -> None:
        self.failure = reason[:_REASON_LIMIT]
        self.end("Failed", "Failed", "Training job failed", now)


def new(now: float) -> JobState:
    state = JobState(created=now, modified=now)
    state.enter("Pending", "Preparing the simulated hosts for training", now)
    return state


def read(path: Path) -> JobState | None:
    record = read_json(path)
    return JobState(**record) if record else None


def write(path: Path, state: JobState) -> None:
    write_json(path, asdict(state))
