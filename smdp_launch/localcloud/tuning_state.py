"""The state of a tuning job on disk, as its supervisor writes it and the server reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from smdp_launch.localcloud.end_state import Ending, known_fields
from smdp_launch.localcloud.files import read_json, write_json


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
class TuningState(Ending):
    """Times are seconds since 1970. `trials` are in the order in which they were started."""

    created: float
    modified: float
    status: str = "InProgress"
    ended: float | None = None
    failure: str | None = None
    trials: list[TrialRecord] = field(default_factory=list)


def read(path: Path) -> TuningState | None:
    record = read_json(path)
    if not record:
        return None
    trials = [TrialRecord(**known_fields(TrialRecord, one)) for one in record["trials"]]
    return TuningState(**{**known_fields(TuningState, record), "trials": trials})


def write(path: Path, state: TuningState) -> None:
    write_json(path, asdict(state))
