"""Ranks that hang, as the hosts report them (event ``hang``). Does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.units import listed

_EXCHANGE = "exchange"
_MOST_NAMED = 3
_LONGEST = 200  # characters of what a rank does
_MOST_RANKS = 10_000
_LAST = 253_402_300_799.0  # the end of the year 9999


@dataclass(frozen=True)
class HungRank:
    """A rank without progress.

    Args:
        since: its last progress, in seconds since 1970.
        waits: for other ranks.
        doing: text that continues a sentence, such as ``is in forward at load (data.py:14)``.
    """

    rank: int
    host: str
    since: float
    waits: bool
    waits_for: tuple[int, ...]
    doing: str

    @property
    def text(self) -> str:
        return f"rank {self.rank} on {self.host} {self.doing}"


@dataclass(frozen=True)
class Hang:
    """Args:
    ranks: that the others wait for; all ranks of the report if that is unknown.
    is_of_ended_job: the job ended before the hang was over.
    """

    ranks: tuple[HungRank, ...]
    is_of_ended_job: bool = False

    @property
    def since(self) -> float:
        """The last progress of these ranks, in seconds since 1970."""
        return min(one.since for one in self.ranks)

    @property
    def short(self) -> str:
        """Such as ``hangs since 10:15:30 UTC: rank 1``."""
        more = f" and {len(self.ranks) - 1} more" if len(self.ranks) > 1 else ""
        return f"hangs since {_utc(self.since):%H:%M:%S} UTC: rank {self.ranks[0].rank}{more}"

    @property
    def text(self) -> str:
        """Such as ``hangs since 10:15:30 UTC: rank 1 on algo-2 waits for input at load (data.py:14)``."""
        return f"hangs since {_utc(self.since):%H:%M:%S} UTC: {self.doing}"

    @property
    def sentence(self) -> str:
        since = f"no progress since {_utc(self.since):%Y-%m-%d %H:%M:%S} UTC"
        if self.is_of_ended_job:
            return f"The job hung before it ended: {since}. The last report: {self.doing}."
        return f"The job hangs: {since}, {self.doing}."

    @property
    def doing(self) -> str:
        texts = [one.text for one in self.ranks[:_MOST_NAMED]]
        more = len(self.ranks) - len(texts)
        return listed([*texts, *([f"{more} more ranks hang"] if more else [])])

    def to_json(self) -> dict[str, Any]:
        ranks = [{"rank": one.rank, "host": one.host, "doing": one.doing} for one in self.ranks]
        return {"since": self.since, "ranks": ranks}


def reported(fields: Mapping[str, Any], host: str, at: float) -> tuple[HungRank, ...]:
    """The ranks of a host's report; those that are no ranks are left out."""
    ranks = fields.get("ranks")
    found = (_rank(one, host, at) for one in (ranks[:_MOST_RANKS] if isinstance(ranks, list) else []))
    return tuple(one for one in found if one is not None)


def cause_of(states: Iterable[HungRank], causes: Collection[int] | None) -> Hang | None:
    """The ranks that the others wait for.

    Args:
        causes: the ranks that the first host names. None before it names them, and in logs of older entrypoints: those
            that do not wait, else those that most ranks wait for.
    """
    ranks = sorted(states, key=lambda one: one.rank)
    if not ranks:
        return None
    if causes is not None:
        return Hang(tuple(one for one in ranks if one.rank in causes) or tuple(ranks))
    awaited = Counter(other for one in ranks for other in one.waits_for)
    most = max(awaited.values(), default=0)
    named = [one for one in ranks if not one.waits] or [one for one in ranks if awaited[one.rank] == most]
    return Hang(tuple(named or ranks))


def _rank(fields: object, host: str, at: float) -> HungRank | None:
    rank = fields.get("rank") if isinstance(fields, Mapping) else None
    if not isinstance(fields, Mapping) or not isinstance(rank, int) or isinstance(rank, bool):
        return None
    idle, doing, waits_for = fields.get("idle_s"), fields.get("doing"), fields.get("waits_for")
    return HungRank(
        rank,
        host,
        at - idle if isinstance(idle, int | float) and 0 <= idle < _LAST else at,
        fields.get("phase") == _EXCHANGE,
        tuple(one for one in waits_for if isinstance(one, int)) if isinstance(waits_for, list) else (),
        doing[:_LONGEST] if isinstance(doing, str) and doing else "makes no progress",
    )


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(0.0, at), _LAST), timezone.utc)
