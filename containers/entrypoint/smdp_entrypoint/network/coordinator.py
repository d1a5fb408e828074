"""The first host's part in a probe: it waits for the other hosts, plans the rounds and collects the values."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Protocol, Sequence

from smdp_entrypoint.network.figures import Figure
from smdp_entrypoint.network.messages import Measured, Ready, Round, Value
from smdp_entrypoint.network.plan import Probe
from smdp_entrypoint.network.report import Result
from smdp_entrypoint.network.verdict import Observed, links_of

_TICK_S = 0.25
# The hosts that are missing after this time are named in the log.
_NAME_AFTER_S = 5.0
# A host that is ready so much of `wait` after the first one is late.
_LATE_PART = 1 / 6
# Of the time limit of all rounds: from the end of a round on a host to its values on the first host.
_GRACE_PART = 0.03
# Links are measured again in so many rounds at most.
_MOST_REPEATED = 8


class Hosts(Protocol):
    """The messages between the first host and all hosts, itself included."""

    def send(self, host: str, fields: Mapping[str, Any]) -> None: ...
    def receive(self, seconds: float) -> tuple[str, dict[str, Any]] | None: ...


@dataclass(frozen=True)
class Terms:
    """`limit` is for all rounds, `wait` for the hosts to be ready, both in seconds; `require` is the required share of
    the figure; `adapters` is the number of Elastic Fabric Adapters that a host should have."""

    limit: float
    wait: float
    figure: Figure | None
    require: float | None
    adapters: int


class Coordinator:
    """One probe of `hosts`, which are in the order of the exchange. `is_over` ends it at once."""

    def __init__(
        self,
        hosts: Sequence[str],
        messages: Hosts,
        terms: Terms,
        say: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._hosts, self._messages, self._terms = hosts, messages, terms
        self._say, self._is_over = say, is_over
        self._ready: dict[str, Ready] = {}
        self._ready_at: dict[str, float] = {}
        self._probe = Probe([], {}, None, 0.0)
        self._begin = 0.0
        self._answers: list[dict[str, Measured]] = []  # of each round
        self._repeated: list[dict[str, Measured]] = []

    def run(self) -> Result | None:
        """The result; None if the probe was ended before."""
        self._await_hosts()
        present = [host for host in self._hosts if host in self._ready]
        if self._is_over():
            return None
        self._probe = Probe(present, self._ready, self._terms.figure, self._terms.limit)
        self._begin = time.monotonic()
        for plan in self._probe.rounds() if len(present) > 1 else []:
            silent = self._silent()
            rest = {host: round_.without(silent) for host, round_ in plan.items() if host not in silent}
            self._answers.append(self._measure(rest, plan[present[0]].limit) if rest else {})
        self._repeat()
        seconds = time.monotonic() - self._begin
        for host in present:
            self._messages.send(host, {"step": "end"})
        return None if self._is_over() else Result.of(self._observed(), self._terms.require, seconds)

    def _observed(self) -> Observed:
        present, answers = self._probe.hosts, self._answers
        return Observed(
            hosts=present,
            rails=self._probe.rails(),
            ready=self._ready,
            figure=self._terms.figure,
            adapters=self._terms.adapters,
            absent=[host for host in self._hosts if host not in self._ready],
            late=self._late(),
            silent=self._silent(),
            latencies=_values(answers[:1]),
            values=self._with_gaps(_values([*answers[1:], *self._repeated])),
        )

    def _silent(self) -> list[str]:
        """The hosts that did not report their values of each round: no further round waits for them."""
        return [host for host in self._probe.hosts if any(host not in answers for answers in self._answers)]

    def _repeat(self) -> None:
        """Measure the links again that seem slow, as long as there is time."""
        for _ in range(_MOST_REPEATED):
            left = self._terms.limit * (1 - _GRACE_PART) - (time.monotonic() - self._begin)
            doubtful = self._doubtful()
            if self._is_over() or not doubtful or left < self._probe.again_seconds:
                return
            plan = self._probe.again(len(self._answers) + len(self._repeated), doubtful, left)
            if not plan:
                return
            self._repeated.append(self._measure(plan, left))

    def _doubtful(self) -> list[tuple[str, str, str]]:
        """The links that seem slow (source, target, rail), in the order in which they are measured again."""
        observed = self._observed()
        seen = Counter((one.source, one.target, one.rail) for one in observed.values)
        doubtful = [
            (link.source, link.target, link.rail)
            for link in links_of(observed, self._terms.require)
            if link.verdict in ("slow", "unequal", "unreachable")
            and not {link.source, link.target} & set(observed.silent)
        ]
        at = Counter((host, rail) for source, target, rail in doubtful for host in (source, target))
        return sorted(doubtful, key=lambda one: (seen[one], max(at[one[0], one[2]], at[one[1], one[2]])))

    def _await_hosts(self) -> None:
        begin, named = time.monotonic(), False
        while not self._is_over():
            missing = [host for host in self._hosts if host not in self._ready]
            waited = time.monotonic() - begin
            if not missing or waited >= self._terms.wait:
                return
            if waited >= _NAME_AFTER_S and not named:
                named = True
                self._say(f"network: the probe waits for {', '.join(missing[:10])}{' ...' * (len(missing) > 10)}")
            self._take(self._messages.receive(_TICK_S))

    def _take(self, message: tuple[str, dict[str, Any]] | None) -> None:
        if message is not None and message[1].get("step") == "ready" and message[0] in self._hosts:
            try:
                self._ready.setdefault(message[0], Ready.parse(message[1]))
                self._ready_at.setdefault(message[0], time.monotonic())
            except ValueError:
                pass  # a host with another version: it counts as absent

    def _late(self) -> dict[str, float]:
        first = min(self._ready_at.values(), default=0.0)
        limit = self._terms.wait * _LATE_PART
        return {host: at - first for host, at in self._ready_at.items() if at - first > limit}

    def _measure(self, plan: Mapping[str, Round], limit: float) -> dict[str, Measured]:
        """One round; the values of each of its hosts that reported them in time."""
        answers: dict[str, Measured] = {}
        hosts = list(plan)
        for host, round_ in plan.items():
            self._messages.send(host, round_.fields())
        number = plan[hosts[0]].number
        deadline = time.monotonic() + limit + self._terms.limit * _GRACE_PART
        while len(answers) < len(hosts) and not self._is_over():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            message = self._messages.receive(min(_TICK_S, remaining))
            if message is not None and message[1].get("step") == "measured" and message[0] in hosts:
                try:
                    measured = Measured.parse(message[1])
                except ValueError:
                    continue
                if measured.number == number:
                    answers.setdefault(message[0], measured)
        return answers

    def _with_gaps(self, values: Sequence[Value]) -> list[Value]:
        """The values, with one without a rate for each planned link that no host reported."""
        known = {(one.source, one.target, one.rail) for one in values}
        gaps = [
            Value(host, call.host, call.rail, None, "no host reported it")
            for plan in (self._probe.rounds()[1:] if len(self._probe.hosts) > 1 else [])
            for host, round_ in plan.items()
            for call in round_.calls
            if (host, call.host, call.rail) not in known
        ]
        return [*values, *gaps]


def _values(rounds: Sequence[Mapping[str, Measured]]) -> list[Value]:
    return [value for answers in rounds for measured in answers.values() for value in measured.values]
