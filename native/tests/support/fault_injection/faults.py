"""The states, layouts and kinds of faults, and the random choice of a fault."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

LAYOUTS: dict[str, list[int]] = {"1x4": [4], "2x2": [2, 2], "3+1": [3, 1]}
STATES = ("rendezvous", "hello", "group creation", "shared-memory wait", "shard send", "return", "destroy")
OPENING = ("rendezvous", "hello")

# What happens to the victim, with the injector's numbers.
# "mute": a connection accepts no more data; "close": its descriptor is closed; "leave": the script ends. "pause": the
# process stops, and "slow": one call of it or of the engine does not return, until all others have raised.
KINDS = {
    **{"kill": 0, "stop": 1, "exit": 2, "abort": 3, "memory": 4, "link": 5, "cut": 6},
    **{"mute": 7, "close": 8, "leave": 9, "pause": 10, "slow": 11},
}
DEADLY = ("kill", "exit", "abort", "memory")
RESUMED = ("pause", "slow")
# As in the injector: the calls in which it injects a fault, and when in the call.
POINTS = {"meeting": 1, "hello": 2, "host sum": 3, "publish": 4, "words": 5}
TIMINGS = {"before": 0, "after": 1, "half": 2}

# The options of every job, in seconds; they are small so that a run is quick. Over a fabric a job takes longer to open.
OVER_A_FABRIC = os.environ.get("SMDP_TRANSPORT") == "ofi"
RAILS = int(os.environ.get("SMDP_FABRIC_RAILS", "0")) or 1  # every host of these jobs has one device
RENDEZVOUS_S = 5.0 if OVER_A_FABRIC else 1.5
OPEN_S = 15.0  # in place of it where the fault comes later
OPERATION_S = 1.0
SILENT_OPERATION_S = 4.0  # where only the heartbeat detects the fault: it must do so before the deadline
HEARTBEAT_S = 0.6
CLOSE_S = 0.5
# How long rank 0 waits for ranks that waited for a silent rank, and how long the others wait for rank 0.
LAST_CALL_S = 1.0
SILENT_JUDGE_S = 5.0
# The time to report a failure to the others (docs/explanation/engine.md, "When something goes wrong").
REPORT_S = 1.0
# How long data that a rank sent before it left are awaited.
LEAVE_S = 0.5


@dataclass(frozen=True)
class Fault:
    number: int
    state: str
    layout: str
    kind: str
    victim: int
    # The place: a call of the engine (``point``, its ``call``-th, ``timing``), a time after a call began
    # (``after_us``), or a line of the script ("before", "between", "behind" the creation or end of a group; "round",
    # the ``call``-th sum).
    point: str
    call: int
    timing: str
    after_us: int
    line: str
    count: int  # float32 elements of the large call
    piece_kib: int
    late_ms: tuple[int, ...]  # by rank: how long after the others it starts

    @property
    def hosts(self) -> list[int]:
        """Host of each rank."""
        return [host for host, ranks in enumerate(LAYOUTS[self.layout]) for _ in range(ranks)]

    @property
    def opening(self) -> bool:
        return self.state in OPENING

    @property
    def is_silent_link(self) -> bool:
        """Whether only the heartbeat detects it."""
        return self.kind in ("link", "mute")

    def stated_s(self) -> float:
        """The time limit from the fault until the last survivor raises, in seconds."""
        if self.opening:
            judged = SILENT_JUDGE_S if self.kind == "link" or (self.kind, self.victim) == ("stop", 0) else LAST_CALL_S
            return RENDEZVOUS_S + max(self.late_ms) / 1000 + judged + REPORT_S
        if self.kind in ("stop", *RESUMED):
            return OPERATION_S + REPORT_S
        if self.kind == "mute" and OVER_A_FABRIC:  # which has no heartbeat
            return SILENT_OPERATION_S + REPORT_S
        if self.is_silent_link:
            return 1.5 * HEARTBEAT_S + REPORT_S
        if self.kind == "leave":
            return LEAVE_S + REPORT_S
        return REPORT_S


def kinds_of(state: str, layout: str) -> list[str]:
    """The possible kinds. A single host has no link; a connection is cut only in states with a call that uses it."""
    kinds = [*DEADLY, "stop"]
    if len(LAYOUTS[layout]) > 1 and state != "shared-memory wait":
        kinds.append("link")
    shows_frames = state in ("shard send", "return") and len(LAYOUTS[layout]) > 1
    if state in OPENING or shows_frames:
        kinds += ["cut", "close"]
    if shows_frames:
        kinds.append("mute")
    if state not in (*OPENING, "destroy"):
        kinds.append("leave")
    if state not in OPENING:
        kinds += RESUMED
    return kinds


# The calls that occur in a state, and from how many of them the place of the fault is chosen.
_CALLS_OF_STATE = {
    "rendezvous": ("meeting", 30),
    "hello": ("hello", 16),
    "shard send": ("host sum", 12),
    "return": ("publish", 12),
}


def _place(state: str, layout: str, kind: str, draw: random.Random) -> tuple[str, int, str, int, str]:
    """Point, call, timing, microseconds, line."""
    timing = draw.choice(list(TIMINGS))
    has_frames = state in ("shard send", "return") and len(LAYOUTS[layout]) > 1
    is_late = kind == "slow" and not has_frames and state != "destroy"
    if (kind == "leave" or is_late) and state != "group creation":
        return "", draw.randint(0, 5), timing, 0, "round"
    if state in ("group creation", "destroy"):
        if state == "destroy" and draw.random() < 0.5:
            return "words", draw.randint(1, 4), timing, 0, ""
        return "", 0, "", draw.randint(0, 3_000), draw.choice(["before", "between", "behind"])
    if state in _CALLS_OF_STATE and (state in OPENING or len(LAYOUTS[layout]) > 1):
        point, calls = _CALLS_OF_STATE[state]
        return point, draw.randint(1, calls), timing, 0, ""
    if state == "shared-memory wait" and draw.random() < 0.7:
        return "", 0, "", draw.randint(0, 20_000), "before"
    return "", 0, "", draw.randint(0, 12_000), ""


def _victim(state: str, layout: str, kind: str, draw: random.Random) -> int:
    sizes = LAYOUTS[layout]
    ranks = list(range(sum(sizes)))
    if state == "shared-memory wait":  # a rank on the same host must wait for it
        ranks = [
            rank
            for host, size in enumerate(sizes)
            if size > 1
            for rank in range(sum(sizes[:host]), sum(sizes[: host + 1]))
        ]
    return draw.choice(ranks)


def draw_fault(
    number: int,
    seed: int,
    states: Sequence[str] = STATES,
    layouts: Sequence[str] = tuple(LAYOUTS),
    kinds: Collection[str] = KINDS,
) -> Fault:
    """The ``number``-th fault of a seed, which is reproducible. States and layouts alternate."""
    draw = random.Random(f"{seed}/{number}")
    state = states[number % len(states)]
    layout = layouts[number // len(states) % len(layouts)]
    kind = draw.choice([one for one in kinds_of(state, layout) if one in kinds])
    point, call, timing, after_us, line = _place(state, layout, kind, draw)
    return Fault(
        number=number,
        state=state,
        layout=layout,
        kind=kind,
        victim=_victim(state, layout, kind, draw),
        point=point,
        call=call,
        timing=timing,
        after_us=after_us,
        line=line,
        count=draw.choice([1 << 17, 1 << 18, 1 << 19, 1 << 20]),
        piece_kib=draw.choice([32, 64, 256]),
        late_ms=tuple(draw.choice([0, 0, 5, 20, 60]) for _ in range(sum(LAYOUTS[layout]))),
    )
