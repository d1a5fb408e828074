"""What was rehearsed of a job, as far as it speaks for a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.units import count

#: Version of a rehearsal's document (docs/json.md); raised when a member changes its meaning or goes.
REHEARSAL_VERSION = 1

#: What may differ between the job that was rehearsed and the one that is launched: it names, bills or places the job,
#: and no run on this machine depends on it.
_OF_NO_MATTER = {"name", "local", "tags", "budget", "role", "region"}


@dataclass(frozen=True)
class Rehearsed:
    """One rehearsal, told beside a plan of the same job.

    Args:
        made: when it was planned, ISO 8601 with the time zone.
        same_source: whether the source folder still is what was rehearsed.
    """

    kind: str
    passed: bool
    reason: str
    made: str
    job: str
    hosts: int
    workers_per_host: int
    same_source: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(told: Any) -> Rehearsed:
        """What `to_json` gave; members that it does not know are passed over.

        Raises:
            TypeError, ValueError: it is something else.
        """
        if not isinstance(told, dict):
            raise TypeError(f"{told!r} is no rehearsal")
        found = Rehearsed(**{one.name: told[one.name] for one in fields(Rehearsed) if one.name in told})
        texts = all(isinstance(one, str) for one in (found.kind, found.reason, found.made, found.job))
        flags = all(isinstance(one, bool) for one in (found.passed, found.same_source))
        if not (texts and flags and isinstance(found.hosts, int) and isinstance(found.workers_per_host, int)):
            raise TypeError(f"{told!r} is no rehearsal")
        try:
            datetime.fromisoformat(found.made).astimezone(timezone.utc)
        except OverflowError as error:
            raise ValueError(f"{found.made} is no time that can be shown") from error
        return found


def spec_digest(spec: JobSpec) -> str:
    """SHA-256 of what two jobs must have in common for a rehearsal of one to speak for the other, their source apart:
    the job in the terms of the job file without its name, tags, budget, role, region and local data."""
    told = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_OF_NO_MATTER)
    return hashlib.sha256(json.dumps(told, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def rehearsed_rows(rehearsals: Iterable[Rehearsed]) -> list[str]:
    """One sentence for each."""
    return [_row(one) for one in rehearsals]


def _row(one: Rehearsed) -> str:
    made = datetime.fromisoformat(one.made).astimezone(timezone.utc)
    head = f"{one.kind} {'PASS' if one.passed else 'FAIL'} {made:%Y-%m-%d %H:%M} UTC"
    here = f"{count(one.hosts, 'host')} x {count(one.workers_per_host, 'worker')}"
    earlier = "" if one.same_source else ", of an earlier source"
    return f"{head}, {here}{earlier}: {one.reason}"
