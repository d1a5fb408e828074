"""Results of earlier rehearsals of a job, which its plan lists."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.units import count

#: Version of a rehearsal's JSON report (docs/reference/json.md); raised when a field changes its meaning or is removed.
REHEARSAL_VERSION = 1

#: Fields that may differ between the rehearsed job and the launched one: no local run depends on them.
_IRRELEVANT = {"name", "local", "tags", "budget", "tracking", "notify", "remote_debug", "role", "region"}


@dataclass(frozen=True)
class PastRehearsal:
    """The result of one rehearsal.

    Args:
        made: the time of its plan, ISO 8601 with the time zone.
        workers_per_host: None for an endpoint.
        same_source: whether the source folder has not changed since.
    """

    kind: str
    passed: bool
    reason: str
    made: str
    job: str
    hosts: int
    workers_per_host: int | None
    same_source: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> PastRehearsal:
        """Read the output of `to_json`; unknown fields are ignored.

        Raises:
            TypeError, ValueError: it is something else.
        """
        if not isinstance(data, dict):
            raise TypeError(f"{data!r} is not a rehearsal")
        result = PastRehearsal(**{one.name: data[one.name] for one in fields(PastRehearsal) if one.name in data})
        texts = all(isinstance(one, str) for one in (result.kind, result.reason, result.made, result.job))
        flags = all(isinstance(one, bool) for one in (result.passed, result.same_source))
        if not (texts and flags and isinstance(result.hosts, int) and isinstance(result.workers_per_host, int | None)):
            raise TypeError(f"{data!r} is not a rehearsal")
        try:
            datetime.fromisoformat(result.made).astimezone(timezone.utc)
        except OverflowError as error:
            raise ValueError(f"{result.made} is not a time that can be shown") from error
        return result

    @property
    def summary(self) -> str:
        """One line: kind, result, time, size and reason."""
        made = datetime.fromisoformat(self.made).astimezone(timezone.utc)
        head = f"{self.kind} {'PASS' if self.passed else 'FAIL'} {made:%Y-%m-%d %H:%M} UTC"
        size = count(self.hosts, "host")
        if self.workers_per_host is not None:
            size += f" x {count(self.workers_per_host, 'worker')}"
        earlier = "" if self.same_source else ", of an earlier source"
        return f"{head}, {size}{earlier}: {self.reason}"


def spec_digest(spec: JobSpec) -> str:
    """SHA-256 of the values, apart from the source, that two jobs must share for a rehearsal to apply to both.

    These are all fields of the job file except name, tags, budget, notifications, role, region and local data.
    """
    values = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_IRRELEVANT)
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
