"""The state of a tuning job on disk, as its supervisor writes it and the server reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from smdp_launch.localcloud.files import read_json, write_json

_REASON_LIMIT = 1024  # characters, the service's limit of FailureReason


@dataclass
class TrialRecord:
    """One training job of a tuning job. Times are seconds since 1970.

    Args:
        values: the hyperparameters with a range, as the request of the training job has them.
        status: None until it has ended; the job's own folder has the state until then.
        value: of the objective, once it has ended; None without one.
    """

    name: str
    values: dict[str, str]
    created: float
    status: str | None = None
    started: float | None = None
    ended: float | None = None
    failure: str | None = None
    value: float | None = None


@dataclass
class TuningState:
    """Times are seconds since 1970. `trials` are in the order in which they were started."""

    created: float
    modified: float
    status: str = "InProgress"
    ended: float | None = None
    failure: str | None = None
    trials: list[TrialRecord] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.status in ("Completed", "Failed", "Stopped")

    def end(self, status: str, failure: str | None, now: float) -> None:
        self.status, self.failure = status, failure[:_REASON_LIMIT] if failure else None
        self.ended = self.modified = now


def read(path: Path) -> TuningState | None:
    """A later version may add fields, which are ignored."""
    record = read_json(path)
    if not record:
        return None
    known = {one.name: record[one.name] for one in fields(TuningState) if one.name in record}
    names = {one.name for one in fields(TrialRecord)}
    trials = [TrialRecord(**{key: value for key, value in one.items() if key in names}) for one in record["trials"]]
    return TuningState(**{**known, "trials": trials})


def write(path: Path, state: TuningState) -> None:
    write_json(path, asdict(state))
