"""The fault of a local run, in the form in which the launcher requests it from the local cloud."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, TypeVar, get_args

Kind = Literal["spot", "resume", "kill", "slow", "late", "throttle", "expire", "slow-input", "hang"]

KINDS: tuple[Kind, ...] = get_args(Kind)

#: Where the rank of a ``hang`` stops: in its own code, in an exchange, or in a process of its DataLoader.
Where = Literal["computing", "collective", "loader"]

PLACES: tuple[Where, ...] = get_args(Where)

#: In a request's Environment: the fault as JSON (`Fault.to_text`). Only the local cloud reads it.
VARIABLE = "SMDP_LOCAL_FAULT"

#: For the workers of a job with the fault ``hang``: where they stop, and the number of the signal, as WHERE:NUMBER.
HANG_VARIABLE = "SMDP_REHEARSED_HANG"

#: Seconds between SIGTERM and SIGKILL, as on the platform.
GRACE: float = 120

#: The event (docs/reference/events.md) that the local cloud writes for each injected fault.
EVENT = "fault"

_PLACE = re.compile(r"(?:(?P<host>algo-[1-9]\d{0,2})(?::(?P<rank>\d{1,5}))?)?(?:@(?P<step>\d{1,15}))?")


@dataclass(frozen=True)
class Place:
    """Where and when a fault is injected. None leaves the choice to the kind of fault."""

    host: str | None = None
    rank: int | None = None
    step: int | None = None

    @staticmethod
    def parse(text: str) -> Place:
        """Read ``HOST:RANK@STEP``, of which parts at either end may be absent.

        Raises:
            ValueError: the text has another form.
        """
        match = _PLACE.fullmatch(text)
        if match is None or not text:
            raise ValueError(f"{text!r} is not HOST:RANK@STEP, such as algo-2:3@120, algo-2:3, algo-2 or @120")
        rank, step = match["rank"], match["step"]
        return Place(match["host"], int(rank) if rank is not None else None, int(step) if step is not None else None)


def is_amount(value: object) -> bool:
    """Whether the value is a number of 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


class Described(Protocol):
    """A fault of some kind, as JSON describes it."""

    @property
    def kind(self) -> str: ...


_Fault = TypeVar("_Fault", bound=Described)


def read_fault(make: Callable[..., _Fault], text: str, kinds: Sequence[str], what: str) -> _Fault:
    """The fault of a JSON object with the arguments of ``make``. Its numbers are not checked.

    Raises:
        ValueError: the text is not that of ``what``, such as ``a fault``.
    """
    try:
        fault = make(**json.loads(text))
    except TypeError as error:
        raise ValueError(f"{text!r} is not {what}: {error}") from error
    if fault.kind not in kinds:
        raise ValueError(f"{text!r} is not {what}: its kind must be one of {', '.join(kinds)}")
    return fault


@dataclass(frozen=True)
class Fault:
    """One fault of one job.

    Args:
        host, rank: the target; ignored for ``spot``, ``resume`` and ``slow-input``, which affect all hosts.
        step: inject the fault once a rank has reported this step.
        after: inject the fault after this many seconds of training. Without `step` and `after` the fault is injected
            once a checkpoint is in the bucket (``spot``, ``resume``), at the start (``late``, ``slow-input``), or
            otherwise at the first reported step.
        seconds: how long the fault lasts: the rank is paused, the host is late, there is no capacity.
        grace: seconds from SIGTERM to SIGKILL, for ``spot``; 0 for an end without notice.
        rate: bytes a second that each host reads from its channels, for ``slow-input``.
        latency: seconds before the first bytes of each file, for ``slow-input``.
        where: for ``hang``.
    """

    kind: Kind
    host: str
    rank: int
    step: int | None = None
    after: float | None = None
    seconds: float = 0.0
    grace: float = GRACE
    rate: float = 0.0
    latency: float = 0.0
    where: Where = "computing"

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> Fault:
        """Read the text that `to_text` writes.

        Raises:
            ValueError: the text is not that of a fault.
        """
        fault = read_fault(Fault, text, KINDS, "a fault")
        limits = (fault.grace, fault.rate, fault.latency)
        numbers = (fault.rank, fault.step or 0, fault.after or 0.0, fault.seconds, *limits)
        if not isinstance(fault.host, str) or not all(map(is_amount, numbers)):
            raise ValueError(f"{text!r} is not a fault: it needs a host name and numbers that are 0 or more")
        if fault.where not in PLACES:
            raise ValueError(f"{text!r} is not a fault: its rank must hang in one of {', '.join(PLACES)}")
        return fault
