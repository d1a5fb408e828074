"""The message of a notification, docs/schemas/notification.schema.json."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

#: Raised when a field changes its meaning or is removed.
_VERSION = 1
_LONGEST_REASON = 1000  # characters

Kind = Literal["completed", "failed", "stopped", "spot_interruption", "stall", "hang", "checkpoints_stall"]


@dataclass(frozen=True)
class Message:
    """Args:
    event: ``end`` or ``trouble``.
    where: the AWS region, or ``local``.
    summary: one sentence without the job's name.
    reason: the failure reason, or details; may be empty.
    usd: the cost of the job until now; None if it is not known.
    """

    event: Literal["end", "trouble"]
    kind: Kind
    job: str
    where: str
    summary: str
    reason: str = ""
    exit_code: int | None = None
    training_seconds: int | None = None
    billable_seconds: int | None = None
    usd: float | None = None

    @property
    def text(self) -> str:
        """The message in one line."""
        first = self.reason.strip().splitlines()[:1]
        return f"{self.job} ({self.where}): {self.summary}" + (f": {first[0]}" if first else "")

    def to_json(self) -> dict[str, Any]:
        return {
            "notification": _VERSION,
            "event": self.event,
            "kind": self.kind,
            "job": self.job,
            "where": self.where,
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "text": self.text,
            "summary": self.summary,
            "reason": self.reason[:_LONGEST_REASON],
            "exit_code": self.exit_code,
            "training_seconds": self.training_seconds,
            "billable_seconds": self.billable_seconds,
            "usd": self.usd,
        }
