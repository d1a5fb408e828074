"""Sums of costs by tag or by week."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

from smdp_launch.jobs.spending.ledger import Spent

By = Literal["job", "tag", "week"]
#: The group of costs without the tag.
NO_TAG = "(no tag)"


@dataclass(frozen=True)
class Group:
    """Costs with the same tag, or of the same week."""

    name: str
    rows: tuple[Spent, ...]

    @property
    def instance_hours(self) -> float:
        return sum(one.instance_hours or 0.0 for one in self.rows)

    @property
    def usd(self) -> float | None:
        """Of the costs that are known; None if none is."""
        known = [one.usd for one in self.rows if one.usd is not None]
        return sum(known) if known else None

    @property
    def saved_usd(self) -> float:
        return sum(one.saved_usd or 0.0 for one in self.rows)

    @property
    def unknown(self) -> int:
        """How many costs are not known."""
        return sum(one.usd is None for one in self.rows)


def grouped(rows: Sequence[Spent], by: By, tag: str | None = None) -> list[Group]:
    """The groups: a job and its warm pool, a tag, or a week, each the most expensive or the latest first.

    Args:
        tag: count only the values of the tag with this key. Without it, a job with several tags is in several groups.
    """
    by_name: dict[str, list[Spent]] = {}
    for one in rows:
        for name in _names(one, by, tag):
            by_name.setdefault(name, []).append(one)
    groups = [Group(name, tuple(found)) for name, found in by_name.items()]
    if by == "week":
        return sorted(groups, key=lambda one: one.name, reverse=True)
    return groups if by == "job" else sorted(groups, key=lambda one: (-(one.usd or 0.0), one.name))


def _names(row: Spent, by: By, tag: str | None) -> Iterable[str]:
    if by == "job":
        return [row.name]
    if by == "week":
        return [week_of(row.began)]
    tags = [f"{key}={value}" for key, value in sorted(row.tags.items()) if tag in (None, key)]
    return tags or [NO_TAG]


def week_of(moment: datetime) -> str:
    """The ISO week in UTC, such as 2026-W48. It begins on Monday at 00:00 UTC."""
    year, week, _ = moment.astimezone(timezone.utc).isocalendar()
    return f"{year}-W{week:02}"


def start_of_week(moment: datetime) -> datetime:
    utc = moment.astimezone(timezone.utc)
    return utc.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=utc.weekday())
