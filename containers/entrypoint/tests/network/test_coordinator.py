"""The first host's part, with the messages of hosts that exist only in the test."""

from __future__ import annotations

from typing import Any, Mapping

from smdp_entrypoint.network.coordinator import Coordinator, Terms
from smdp_entrypoint.network.figures import Figure
from smdp_entrypoint.network.messages import Measured, Ready, Round, Value

NAMES = ["algo-1", "algo-2", "algo-3"]
RATE = 0.95 * 1e9 / 8


class Hosts:
    """Answers each round at once; `slow` has the number of values of a link that are slow."""

    def __init__(self, names: list[str], slow: Mapping[tuple[str, str], int] | None = None) -> None:
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self._slow_left = dict(slow or {})
        ready = [(name, Ready({"eth0": (f"10.0.0.{at}", 1)}, "eth0", 0).fields()) for at, name in enumerate(names)]
        self._waiting: list[tuple[str, dict[str, Any]]] = [("an unauthenticated client", {"step": "ready"}), *ready]

    def send(self, host: str, fields: Mapping[str, Any]) -> None:
        self.sent.append((host, fields))
        if fields["step"] == "round":
            round_ = Round.parse(fields)
            values = tuple(Value(host, one.host, one.rail, self._value(round_, host, one.host)) for one in round_.calls)
            self._waiting.append((host, Measured(round_.number, values).fields()))

    def receive(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        return self._waiting.pop(0) if self._waiting else None

    def _value(self, round_: Round, source: str, target: str) -> float:
        if not round_.streams:
            return 0.0001
        if self._slow_left.get((source, target)):
            self._slow_left[source, target] -= 1
            return RATE / 4
        return RATE


def run(hosts: Hosts, wait: float = 60.0, names: list[str] = NAMES) -> Any:
    terms = Terms(60.0, wait, Figure(1, 0), None, 0)
    return Coordinator(names, hosts, terms, lambda text: None, lambda: False).run()


def test_host_that_is_never_ready_is_absent_and_the_others_are_measured() -> None:
    result = run(Hosts(["algo-1", "algo-3"]), wait=0.2)
    assert [(one.kind, one.hosts) for one in result.problems] == [("absent", ("algo-2",))]
    assert {(one.source, one.target) for one in result.links} == {("algo-1", "algo-3"), ("algo-3", "algo-1")}


def test_link_that_seems_slow_once_is_measured_again() -> None:
    assert run(Hosts(NAMES, {("algo-1", "algo-2"): 1})).problems == []


def test_link_that_stays_slow_is_a_problem() -> None:
    result = run(Hosts(NAMES, {("algo-1", "algo-2"): 100}))
    assert [(one.kind, one.hosts) for one in result.problems] == [("slow", ("algo-1", "algo-2"))]


def test_link_that_no_slow_host_explains_is_measured_again_first() -> None:
    names = [f"algo-{number}" for number in range(1, 9)]
    neighbours = [("algo-2", "algo-3"), ("algo-3", "algo-4"), ("algo-3", "algo-2"), ("algo-4", "algo-3")]
    hosts = Hosts(names, {**dict.fromkeys(neighbours, 100), ("algo-5", "algo-4"): 1})
    result = run(hosts, names=names)
    assert [(one.kind, one.hosts) for one in result.problems] == [("slow", ("algo-3",))]
    rounds = [(host, Round.parse(fields)) for host, fields in hosts.sent if fields["step"] == "round"]
    first = [(host, call.host) for host, round_ in rounds if round_.number == 3 for call in round_.calls]
    assert ("algo-5", "algo-4") in first
    assert len({source for source, _ in first}) == len({target for _, target in first}) == len(first)


def test_every_host_learns_of_the_end() -> None:
    hosts = Hosts(NAMES)
    run(hosts)
    assert [host for host, fields in hosts.sent if fields["step"] == "end"] == NAMES
