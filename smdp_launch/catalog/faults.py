"""What a rehearsal has happen to a job: the words in which the launcher asks the local cloud for it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Literal, get_args

Kind = Literal["spot", "resume", "kill", "slow", "late", "throttle", "expire"]

KINDS: tuple[Kind, ...] = get_args(Kind)

#: In a request's Environment: the fault, as `Fault.to_text` writes it. Only the local cloud reads it.
VARIABLE = "SMDP_LOCAL_FAULT"

#: Seconds between SIGTERM and SIGKILL, as on the platform.
GRACE: float = 120

#: Name of the event (docs/events.md) by which the local cloud tells what it did to a job.
EVENT = "fault"

_PLACE = re.compile(r"(?:(?P<host>algo-[1-9]\d{0,2})(?::(?P<rank>\d{1,5}))?)?(?:@(?P<step>\d{1,15}))?")


@dataclass(frozen=True)
class Place:
    """Where and when a fault strikes; None for what is left to the kind of fault."""

    host: str | None = None
    rank: int | None = None
    step: int | None = None

    @staticmethod
    def parse(text: str) -> Place:
        """Of ``HOST:RANK@STEP``, any part of which may be left out from either end.

        Raises:
            ValueError: it is not of that form.
        """
        match = _PLACE.fullmatch(text)
        if match is None or not text:
            raise ValueError(f"{text!r} is not HOST:RANK@STEP, such as algo-2:3@120, algo-2:3, algo-2 or @120")
        rank, step = match["rank"], match["step"]
        return Place(match["host"], int(rank) if rank is not None else None, int(step) if step is not None else None)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


@dataclass(frozen=True)
class Fault:
    """One fault of one job.

    Args:
        host, rank: whom it strikes; of no meaning for ``spot`` and ``resume``, which take all hosts.
        step: it strikes once some rank has reported this step.
        after: seconds of training after which it strikes. Without either it strikes once a checkpoint is kept
            (``spot``, ``resume``), or at the first step that is reported; ``late`` strikes at the start.
        seconds: how long it lasts: the rank stands still, the host comes late, no capacity is to be had.
        grace: seconds from SIGTERM to SIGKILL, for ``spot``; 0 for an end without notice.
    """

    kind: Kind
    host: str
    rank: int
    step: int | None = None
    after: float | None = None
    seconds: float = 0.0
    grace: float = GRACE

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> Fault:
        """What `to_text` wrote.

        Raises:
            ValueError: something else.
        """
        try:
            fault = Fault(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"{text!r} is no fault: {error}") from error
        if fault.kind not in KINDS:
            raise ValueError(f"{text!r} is no fault: its kind is none of {', '.join(KINDS)}")
        numbers = (fault.rank, fault.step or 0, fault.after or 0.0, fault.seconds, fault.grace)
        if not isinstance(fault.host, str) or not all(map(_is_amount, numbers)):
            raise ValueError(f"{text!r} is no fault: a host's name and numbers from 0 on are wanted")
        return fault
