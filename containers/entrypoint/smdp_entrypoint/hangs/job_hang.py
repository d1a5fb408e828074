"""The first host's view of a hang: what the ranks of all hosts do, which rank they wait for, and when the job ends.

a host hangs                 the hosts that report nothing by themselves are asked what their ranks do: the rank that
                             all wait for may have stopped before its usual step was known
the states change            the event `hang_cause` names the ranks that all others wait for
no host hangs any more       the hosts that were asked learn that the hang is over
a host wishes the end        the job ends, unless a rank computes outside its steps
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.hangs.cause import RankState, causes, summary
from smdp_entrypoint.processes.console import Console

# The other hosts see the same hang within the window of their ranks' measurements.
_SETTLE_S = 2.0
_ANSWER_S = 10.0  # a host that is asked answers within this time, most of which the stacks need


@dataclass(frozen=True)
class Wish:
    """What a host says about the end of the job. `end`: one of its ranks hangs for long enough. `computing`: its ranks
    that use the processor outside all phases. `at_once`: such ranks do not delay the end, because a rank of this host
    hangs within a step, or hangs for longer than the delay."""

    end: bool = False
    computing: tuple[int, ...] = ()
    at_once: bool = False

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Wish:
        ranks = fields.get("computing")
        computing = tuple(one for one in ranks if isinstance(one, int)) if isinstance(ranks, (list, tuple)) else ()
        return cls(bool(fields.get("end")), computing, bool(fields.get("at_once")))


class JobHang:
    """The main thread calls it, and `note` from the thread that reports.

    Args:
        after: seconds that ranks have to make progress after those that they have waited for.
        answer: called with the seconds of the hang and the time if this host is asked.
        end_answer: called at the end of the hang if this host was asked.
    """

    def __init__(
        self,
        layout: Layout,
        console: Console,
        peers: Peers,
        after: float,
        answer: Callable[[float, float], None],
        end_answer: Callable[[], None],
    ) -> None:
        self._layout, self._console, self._peers, self._after = layout, console, peers, after
        self._answer, self._end_answer = answer, end_answer
        self._lock = threading.Lock()
        self._states: dict[int, RankState] = {}
        self._hanging: set[str] = set()  # hosts that report a hang by themselves
        self._named: list[int] | None = None  # the ranks of the last event `hang_cause`
        self._ask_at: float | None = None
        self._asked: set[str] | None = None
        self._unanswered: set[str] = set()
        self._wishes: dict[str, Wish] = {}
        self._delayed_by: list[int] = []
        self._decide_at: float | None = None

    # --- What the hosts say ---

    def note(self, host: str, states: Sequence[RankState], *, asked: bool) -> None:
        """Take what the ranks of a host do. `asked`: the host does not hang by itself."""
        with self._lock:
            self._unanswered.discard(host)
            self._states.update((state.rank, state) for state in states)
            if not asked:
                self._hanging.add(host)

    def over(self, host: str, now: float) -> None:
        """The ranks of a host make progress again, or have exited."""
        self.wish(host, Wish(), now)
        with self._lock:
            self._unanswered.discard(host)
            self._hanging.discard(host)
            self._states = {rank: one for rank, one in self._states.items() if one.host != host}

    def wish(self, host: str, wish: Wish, now: float) -> None:
        before, self._wishes[host] = self._wishes.get(host, Wish()), wish
        wishes = self._wishes.values()
        at_once = any(one.at_once for one in wishes)
        ends = any(one.end for one in wishes)
        self._delay_by([] if at_once or not ends else sorted(rank for one in wishes for rank in one.computing))
        if not ends or self._delayed_by:
            self._decide_at = None
        elif (before.computing and not wish.computing and not at_once) or (before.end and not wish.end):
            # The ranks that have waited for this host's ranks need time to make progress too, or to exit.
            self._decide_at = now + self._after
        else:
            self._decide_at = self._decide_at or now + _SETTLE_S

    def _delay_by(self, ranks: list[int]) -> None:
        if ranks and not self._delayed_by:
            text = ", ".join(map(str, ranks))
            self._console.say(f"hang: not ending the job yet, because a rank computes outside its steps: {text}")
        self._delayed_by = ranks

    # --- What follows ---

    def turn(self, now: float) -> None:
        with self._lock:
            hanging, states = set(self._hanging), list(self._states.values())
        if hanging:
            self._name_causes(states)
            self._ask(hanging, states, now)
        else:
            self._end()

    def states_at_end(self, now: float) -> list[RankState]:
        """What all ranks do, if the job must end now; else nothing."""
        if self._decide_at is None or now < self._decide_at or self._awaits_answers(now):
            return []
        with self._lock:
            return sorted(self._states.values(), key=lambda state: state.rank)

    def say_all(self) -> None:
        """After a report of another host: the cause, as the hosts show it together."""
        with self._lock:
            states = list(self._states.values())
        hosts = sorted({one.host for one in states})
        if len(hosts) > 1:
            self._console.say(f"{summary(states)} (of the hosts {', '.join(hosts)})")

    def _name_causes(self, states: Sequence[RankState]) -> None:
        """Only the first host knows the states of all hosts. Other views of the hang name the ranks of its event."""
        named = sorted(state.rank for state in causes(states))
        if states and named != self._named:
            self._console.event("hang_cause", ranks=named)
            self._named = named

    def _ask(self, hanging: set[str], states: Sequence[RankState], now: float) -> None:
        if self._ask_at is None:
            self._ask_at = now + _SETTLE_S
        if self._asked is not None or now < self._ask_at:
            return
        self._asked = set(self._layout.hosts) - hanging
        with self._lock:
            self._unanswered = set(self._asked)
        seconds = max((state.idle for state in states), default=0.0)
        for host in self._asked:
            if host == self._layout.current_host:
                self._answer(seconds, now)
            else:
                self._peers.send(host, {"for": "hang", "hang": "report", "seconds": seconds})

    def _awaits_answers(self, now: float) -> bool:
        if self._ask_at is None or self._asked is None:
            return len(self._hanging) < len(self._layout.hosts)
        return bool(self._unanswered) and now < self._ask_at + _ANSWER_S

    def _end(self) -> None:
        """No host hangs by itself. What the hosts that were asked have said is no longer so."""
        for host in self._asked or ():
            if host == self._layout.current_host:
                self._end_answer()
            else:
                self._peers.send(host, {"for": "hang", "hang": "over"})
        with self._lock:
            self._states, self._unanswered = {}, set()
        self._named = self._ask_at = self._asked = None
