"""What the states of jobs, endpoints, transform jobs and tuning jobs on disk share: their ends and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

ENDED = ("Completed", "Failed", "Stopped")
_REASON_LIMIT = 1024  # characters, the service's limit of FailureReason


def limited(reason: str) -> str:
    """The reason as FailureReason can have it."""
    return reason[:_REASON_LIMIT]


def known_fields(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the record that the dataclass has: a later version may add fields, which are ignored."""
    return {one.name: record[one.name] for one in fields(kind) if one.name in record}


class Ending:
    """The end of a transform job or a tuning job. Times are seconds since 1970."""

    status: str
    failure: str | None
    ended: float | None
    modified: float

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def end(self, status: str, failure: str | None, now: float) -> None:
        self.status, self.failure = status, limited(failure) if failure else None
        self.ended = self.modified = now
