"""Which rank a hanging job waits for, and what that rank does."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Sequence

from smdp_entrypoint.hangs.progress import EXCHANGE, INPUT

#: The start of the failure text, by which smdp-launch recognizes a hang.
PREFIX = "hang: "
_MOST_NAMED = 3
_LONGEST_STACK = 700  # characters
_MOST_STATES = 8  # in one message: a state has about 1.1 KB, and a connection takes messages of 64 KiB


@dataclass(frozen=True)
class RankState:
    """A rank that makes no progress. `idle`: seconds since its last progress. `usual`: seconds of its usual step; both
    are 0 if no step of it is known. `place` is where its main thread is; `loader` where the busy worker of its loader
    is; `stack` the innermost frames of the one of both that matters."""

    rank: int
    host: str
    idle: float
    usual: float
    phase: str = ""
    waits_for: tuple[int, ...] = ()
    operation: str = ""
    place: str = ""
    loader: str = ""
    stack: str = ""

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks."""
        return self.phase == EXCHANGE

    @property
    def doing(self) -> str:
        at = f" at {self.place}" if self.place else ""
        if self.waits:
            ranks = f" for {_ranks(self.waits_for)}" if self.waits_for else ""
            return f"waits{ranks} in {self.operation or 'an exchange'}{at}"
        if self.loader:
            return f"waits for its loader, whose worker is at {self.loader}"
        if self.phase == INPUT:
            return f"waits for input{at}"
        return f"is in {self.phase}{at}" if self.phase not in ("", "other") else f"is{at or ' at an unknown place'}"

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> RankState:
        """Parse a state that another host has sent. Raises ValueError."""
        try:
            texts = {name: str(fields[name])[:_LONGEST_STACK] for name in ("host", "phase", "operation", "place")}
            more = {name: str(fields[name])[:_LONGEST_STACK] for name in ("loader", "stack")}
            waits = tuple(int(one) for one in fields["waits_for"])
            idle, usual = float(fields["idle"]), float(fields["usual"])
            return cls(rank=int(fields["rank"]), idle=idle, usual=usual, waits_for=waits, **texts, **more)
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a rank's state: {error!r}") from None

    def fields(self) -> dict[str, Any]:
        fields = asdict(self)
        texts = {name: value[:_LONGEST_STACK] for name, value in fields.items() if isinstance(value, str)}
        return {**fields, **texts, "waits_for": list(self.waits_for[:64])}

    def event_fields(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "idle_s": round(self.idle, 1),
            "phase": self.phase or None,
            "waits_for": list(self.waits_for[:64]),
            "doing": self.doing,
        }


def state_messages(states: Sequence[RankState]) -> list[dict[str, Any]]:
    """The messages with which a host reports its states. `more`: whether others with further states follow."""
    starts = range(0, len(states), _MOST_STATES)
    parts = [[state.fields() for state in states[start : start + _MOST_STATES]] for start in starts]
    return [
        {"hang": "reported", "states": part, "more": number < len(parts)} for number, part in enumerate(parts, start=1)
    ]


def causes(states: Sequence[RankState]) -> list[RankState]:
    """The ranks that the others wait for; none if that cannot be said.

    A rank that does not wait for another one is a cause. If all wait, it is the one that most wait for, directly or by
    way of others: it has not begun the operation in which they are. Only the engine knows whom a rank waits for; with
    another library it is the rank that waits at another place than most.
    """
    computing = [state for state in states if not state.waits]
    if computing:
        return computing
    awaited = _awaited(states)
    if awaited:
        return [state for state in states if state.rank in awaited]
    place, count = Counter(state.place for state in states).most_common(1)[0]
    return [state for state in states if state.place != place] if count > len(states) / 2 else []


def _awaited(states: Sequence[RankState]) -> list[int]:
    """The ranks that most of these ranks wait for in the end; they need not be among these."""
    known = {state.rank: state for state in states}
    ends: Counter[int] = Counter()
    for state in states:
        passed, waiting = {state.rank}, list(state.waits_for)
        while waiting:
            rank = waiting.pop()
            if rank in passed:
                continue
            passed.add(rank)
            further = known[rank].waits_for if rank in known else ()
            waiting += further
            if not further:
                ends[rank] += 1
    if not ends:  # they wait for each other
        ends = Counter(rank for state in states for rank in set(state.waits_for))
    most = max(ends.values(), default=0)
    return sorted(rank for rank, count in ends.items() if count == most)


def summary(states: Sequence[RankState]) -> str:
    """One line, which names the cause with its host and what it does."""
    named = causes(states) or list(states)
    idle, usual = max(state.idle for state in named), max(state.usual for state in named)
    since = "no progress" + (f" for {_seconds(idle)} s" if idle else "")
    since += f" (a step usually takes {usual:.2g} s)" if usual else ""
    who = ", ".join(f"rank {state.rank} on {state.host}" for state in named[:_MOST_NAMED])
    more = f" and {len(named) - _MOST_NAMED} more ranks" if len(named) > _MOST_NAMED else ""
    if len(named) == 1:
        return f"{PREFIX}{who} has made {since}: it {named[0].doing}"
    elsewhere = _awaited(states)
    if elsewhere and not causes(states):
        return f"{PREFIX}{who}{more} have made {since}: they wait for {_ranks(elsewhere)} on another host"
    doing = "; ".join(f"rank {state.rank} {state.doing}" for state in named[:_MOST_NAMED])
    return f"{PREFIX}{who}{more} have made {since}: {doing}"


def failure_text(states: Sequence[RankState]) -> str:
    """The summary and the innermost frames of the first cause."""
    named = causes(states) or list(states)
    return "\n".join(filter(None, [summary(states), named[0].stack]))


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def is_hang(text: str) -> bool:
    return text.startswith(PREFIX)


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
