"""Failure reports between the hosts of a job, and the choice of the report that names the first cause."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from smdp_entrypoint.processes.failure import (
    LONGEST_FILE,
    MAY_BE_HANDLED,
    SAME_MOMENT_S,
    Failure,
    has_certain_cause,
    precedence,
)

_LONGEST_SUMMARY = LONGEST_FILE


@dataclass(frozen=True)
class Report:
    """`began` is in seconds since 1970 on the reporting host's clock; `precedence` as in `failure`: 0 for a crash,
    which no other host can cause, `MAY_BE_HANDLED`, `LOST_PEER`, else 1; `code` is the job's exit code."""

    host: str
    began: float
    precedence: int
    code: int
    summary: str

    @classmethod
    def of(cls, failure: Failure) -> Report:
        return cls(failure.host, failure.began, precedence(failure), failure.exit_code, failure.summary)

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Report:
        """Parse a message of another host. Raises ValueError."""
        try:
            began, code = float(fields["began"]), int(fields["code"])
            report = cls(str(fields["host"]), began, int(fields["precedence"]), code, str(fields["summary"]))
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a report: {error!r}") from None
        if not math.isfinite(began) or not 1 <= code <= 255 or not report.summary:
            raise ValueError(f"not a report: {fields!r}")
        return report

    def fields(self) -> dict[str, Any]:
        return {**asdict(self), "summary": self.summary[:_LONGEST_SUMMARY]}


def first_report(reports: list[Report]) -> Report:
    """The report that began first; among reports of the same moment, the one that no other failure can have caused. An
    exception that its script may have handled counts only where all other failures look like lost peers."""
    if has_certain_cause(report.precedence for report in reports):
        reports = [report for report in reports if report.precedence != MAY_BE_HANDLED]
    earliest = min(report.began for report in reports)
    together = [report for report in reports if report.began - earliest <= SAME_MOMENT_S]
    return min(together, key=lambda report: (report.precedence, report.began, report.host))
