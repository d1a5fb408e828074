"""The faults: which states, layouts and kinds there are, and one drawn at random."""

from __future__ import annotations

import random
from dataclasses import dataclass

LAYOUTS: dict[str, list[int]] = {"1x4": [4], "2x2": [2, 2], "3+1": [3, 1]}
STATES = ("rendezvous", "hello", "group creation", "shared-memory wait", "shard send", "return", "destroy")
OPENING = ("rendezvous", "hello")

# What happens to the victim; the numbers are those of strike.cc.
# "mute": a connection takes in nothing any more; "close": its descriptor is closed; "leave": the script is over.
KINDS = {
    **{"kill": 0, "stop": 1, "exit": 2, "abort": 3, "memory": 4, "link": 5, "cut": 6},
    **{"mute": 7, "close": 8, "leave": 9},
}
DEADLY = ("kill", "exit", "abort", "memory")
# In strike.cc too: where a process may strike itself, and when in the call.
POINTS = {"meeting": 1, "hello": 2, "host sum": 3, "publish": 4, "words": 5}
MANNERS = {"before": 0, "after": 1, "half": 2}

# The options of every job, small so that a run is quick; in seconds.
RENDEZVOUS_S = 1.5
OPERATION_S = 1.0
HEARTBEAT_S = 0.6
CLOSE_S = 0.5
# What rank 0 gives those that waited for a silent rank, and what the others give rank 0.
LAST_CALL_S = 1.0
SILENT_JUDGE_S = 5.0
# To tell the others (docs/engine.md, "When something goes wrong").
TELLING_S = 1.0
# That what a rank sent before it left is waited for.
LEAVE_S = 0.5


@dataclass(frozen=True)
class Fault:
    number: int
    state: str
    layout: str
    kind: str
    victim: int
    # Where: a call of the engine (``point``, its ``call``-th, ``manner``), a time after a call began (``after_us``),
    # or a line of the script ("before", "between", "behind" the making or the end of a group; "round", the ``call``-th
    # sum).
    point: str
    call: int
    manner: str
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
        """The heartbeat finds it."""
        return self.kind in ("link", "mute")

    def stated_s(self) -> float:
        """From the strike until the last survivor has raised, at most."""
        if self.opening:
            judged = SILENT_JUDGE_S if self.kind == "link" or (self.kind, self.victim) == ("stop", 0) else LAST_CALL_S
            return RENDEZVOUS_S + max(self.late_ms) / 1000 + judged + TELLING_S
        if self.kind == "stop":
            return OPERATION_S + TELLING_S
        if self.is_silent_link:
            return 1.5 * HEARTBEAT_S + TELLING_S
        if self.kind == "leave":
            return LEAVE_S + TELLING_S
        return TELLING_S


def kinds_of(state: str, layout: str) -> list[str]:
    """What can happen there. One host has no link; a connection within a host is cut only where a call shows it."""
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
    return kinds


# The calls that show a state, and among how many of them the strike is drawn.
_SHOWN_BY = {
    "rendezvous": ("meeting", 30),
    "hello": ("hello", 16),
    "shard send": ("host sum", 12),
    "return": ("publish", 12),
}


def _place(state: str, layout: str, kind: str, draw: random.Random) -> tuple[str, int, str, int, str]:
    """Point, call, manner, microseconds, line."""
    manner = draw.choice(list(MANNERS))
    if kind == "leave" and state != "group creation":
        return "", draw.randint(0, 5), manner, 0, "round"
    if state in ("group creation", "destroy"):
        if state == "destroy" and draw.random() < 0.5:
            return "words", draw.randint(1, 4), manner, 0, ""
        return "", 0, "", draw.randint(0, 3_000), draw.choice(["before", "between", "behind"])
    if state in _SHOWN_BY and (state in OPENING or len(LAYOUTS[layout]) > 1):
        point, calls = _SHOWN_BY[state]
        return point, draw.randint(1, calls), manner, 0, ""
    if state == "shared-memory wait" and draw.random() < 0.7:
        return "", 0, "", draw.randint(0, 20_000), "before"
    return "", 0, "", draw.randint(0, 12_000), ""


def _victim(state: str, layout: str, kind: str, draw: random.Random) -> int:
    sizes = LAYOUTS[layout]
    ranks = list(range(sum(sizes)))
    if state == "shared-memory wait":  # somebody on its host waits for it
        ranks = [
            rank
            for host, size in enumerate(sizes)
            if size > 1
            for rank in range(sum(sizes[:host]), sum(sizes[: host + 1]))
        ]
    return draw.choice(ranks)


def draw_fault(number: int, seed: int, states: tuple[str, ...], layout: str = "") -> Fault:
    """The ``number``-th fault of a seed: the same whenever it is drawn. States and layouts go round."""
    draw = random.Random(f"{seed}/{number}")
    state = states[number % len(states)]
    layout = layout or list(LAYOUTS)[number // len(states) % len(LAYOUTS)]
    kind = draw.choice(kinds_of(state, layout))
    point, call, manner, after_us, line = _place(state, layout, kind, draw)
    return Fault(
        number=number,
        state=state,
        layout=layout,
        kind=kind,
        victim=_victim(state, layout, kind, draw),
        point=point,
        call=call,
        manner=manner,
        after_us=after_us,
        line=line,
        count=draw.choice([1 << 17, 1 << 18, 1 << 19, 1 << 20]),
        piece_kib=draw.choice([32, 64, 256]),
        late_ms=tuple(draw.choice([0, 0, 5, 20, 60]) for _ in range(sum(LAYOUTS[layout]))),
    )
