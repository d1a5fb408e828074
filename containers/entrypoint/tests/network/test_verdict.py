"""What the measured values of a ring of hosts show."""

from __future__ import annotations

from typing import Mapping

import pytest

from smdp_entrypoint.network.figures import Figure
from smdp_entrypoint.network.messages import Ready, Value
from smdp_entrypoint.network.report import Result
from smdp_entrypoint.network.verdict import Observed

NAMES = [f"algo-{i}" for i in range(1, 9)]
BYTES = 1e9 / 8
BOTH = {"eth0": ("10.0.0.1", 1), "eth1": ("10.1.0.1", 1)}


def ring(
    names: list[str], rates: Mapping[tuple[str, str], float | None], rails: tuple[str, ...] = ("eth0",)
) -> list[Value]:
    """The values of all links at 0.95 Gbit/s, except those in `rates` (of the first rail)."""
    pairs = [(names[i], names[(i + step) % len(names)]) for step in (1, -1) for i in range(len(names))]
    values = []
    for rail in rails:
        for source, target in dict.fromkeys(pairs):
            rate = rates.get((source, target), 0.95) if rail == rails[0] else 0.95
            values.append(Value(source, target, rail, rate * BYTES if rate is not None else None, "refused"))
    return values


def result(names: list[str], values: list[Value], require: float | None = None, **more: object) -> Result:
    known: dict[str, object] = {
        "hosts": names,
        "rails": sorted({one.rail for one in values}),
        "ready": {name: Ready(dict(BOTH), "eth0", 0) for name in names},
        "figure": Figure(1, 0),
        "values": values,
    }
    return Result.of(Observed(**{**known, **more}), require, 1.0)  # type: ignore[arg-type]


def found(one: Result) -> list[tuple[str, tuple[str, ...], str]]:
    return [(problem.kind, problem.hosts, problem.direction) for problem in one.problems]


def around(
    host: str, rate: float | None, outgoing: bool = True, incoming: bool = True
) -> dict[tuple[str, str], float | None]:
    at = NAMES.index(host)
    others = (NAMES[at - 1], NAMES[(at + 1) % len(NAMES)])
    rates: dict[tuple[str, str], float | None] = {}
    for other in others:
        if outgoing:
            rates[host, other] = rate
        if incoming:
            rates[other, host] = rate
    return rates


def test_equal_links_have_no_problem() -> None:
    assert found(result(NAMES, ring(NAMES, {}))) == []


def test_host_whose_links_are_all_slow_is_the_cause() -> None:
    assert found(result(NAMES, ring(NAMES, around("algo-3", 0.24)))) == [("slow", ("algo-3",), "")]


def test_host_that_only_sends_slowly_is_the_cause() -> None:
    rates = around("algo-3", 0.24, incoming=False)
    assert found(result(NAMES, ring(NAMES, rates))) == [("slow", ("algo-3",), "sends")]


def test_host_that_only_receives_slowly_is_the_cause() -> None:
    rates = around("algo-1", 0.24, outgoing=False)
    assert found(result(NAMES, ring(NAMES, rates))) == [("slow", ("algo-1",), "receives")]


def test_one_slow_link_is_named_with_both_ends() -> None:
    assert found(result(NAMES, ring(NAMES, {("algo-4", "algo-5"): 0.2}))) == [("slow", ("algo-4", "algo-5"), "sends")]


def test_two_slow_neighbours_are_both_named() -> None:
    rates = {**around("algo-3", 0.24), **around("algo-4", 0.24)}
    assert {one[1] for one in found(result(NAMES, ring(NAMES, rates)))} == {("algo-3",), ("algo-4",)}


def test_pair_of_two_hosts_is_named_as_a_pair() -> None:
    names = NAMES[:2]
    rates = {("algo-1", "algo-2"): 0.2, ("algo-2", "algo-1"): 0.2}
    assert found(result(names, ring(names, rates))) == [("slow", ("algo-1", "algo-2"), "")]


def test_unequal_host_does_not_fail_a_requirement() -> None:
    one = result(NAMES, ring(NAMES, around("algo-2", 0.6)), require=0.5)
    assert found(one) == [("unequal", ("algo-2",), "")]
    assert one.met is True


def test_single_unequal_link_is_named_once_it_was_measured_twice() -> None:
    values = ring(NAMES, {("algo-3", "algo-4"): 0.6})
    assert found(result(NAMES, values)) == []
    again = [Value("algo-3", "algo-4", "eth0", 0.61 * BYTES, "")]
    assert found(result(NAMES, [*values, *again])) == [("unequal", ("algo-3", "algo-4"), "sends")]


def test_requirement_decides_what_is_slow() -> None:
    one = result(NAMES, ring(NAMES, around("algo-2", 0.6)), require=0.8)
    assert found(one) == [("slow", ("algo-2",), "")]
    assert one.met is False
    assert one.failure().startswith("SMDP901: the network is below the required 80 % of 1 Gbit/s: the link of algo-2 ")


def test_host_without_a_rail_is_named() -> None:
    ready = {name: Ready(dict(BOTH), "eth0", 0) for name in NAMES}
    ready["algo-5"] = Ready({"eth0": BOTH["eth0"]}, "eth0", 0)
    values = [
        one
        for one in ring(NAMES, {}, ("eth0", "eth1"))
        if one.rail == "eth0" or "algo-5" not in (one.source, one.target)
    ]
    one = result(NAMES, values, ready=ready)
    assert [(problem.kind, problem.hosts, problem.rail) for problem in one.problems] == [("rail", ("algo-5",), "eth1")]


def test_rail_that_connects_no_hosts_is_no_problem() -> None:
    values = [*ring(NAMES, {}), *(Value(one.source, one.target, "eth1", None, "no route") for one in ring(NAMES, {}))]
    assert found(result(NAMES, values)) == []


def test_unreachable_host_is_named_with_the_reason() -> None:
    one = result(NAMES, ring(NAMES, around("algo-6", None)), require=0.8)
    assert found(one) == [("unreachable", ("algo-6",), "")]
    assert "the link of algo-6 cannot be used on eth0: refused" in one.failure()


def test_silent_host_is_named_once_without_its_links() -> None:
    one = result(NAMES, ring(NAMES, around("algo-6", None)), silent=["algo-6"])
    assert found(one) == [("silent", ("algo-6",), "")]


def test_host_with_fewer_adapters_is_named() -> None:
    ready = {name: Ready(dict(BOTH), "eth0", 4) for name in NAMES}
    ready["algo-7"] = Ready(dict(BOTH), "eth0", 1)
    one = result(NAMES, ring(NAMES, {}), ready=ready, adapters=4)
    assert next(one.lines()).endswith("1 problem found")
    assert [problem.hosts for problem in one.problems] == [("algo-7",)]
    assert "algo-7 shows 1 of 4 Elastic Fabric Adapters" in list(one.lines())[1]


def test_absent_and_late_hosts_are_named_and_only_the_absent_one_fails() -> None:
    names = NAMES[:-1]
    one = result(names, ring(names, {}), require=0.5, absent=["algo-8"], late={"algo-2": 12.0})
    assert found(one) == [("absent", ("algo-8",), ""), ("late", ("algo-2",), "")]
    assert [problem.kind for problem in one.failing] == ["absent"]


def test_high_latency_of_a_host_is_named() -> None:
    latencies = [
        Value(one.source, one.target, "eth0", 0.04 if "algo-4" in (one.source, one.target) else 0.0002)
        for one in ring(NAMES, {})
    ]
    assert found(result(NAMES, ring(NAMES, {}), latencies=latencies)) == [("latency", ("algo-4",), "")]


def test_without_a_figure_rates_are_not_judged() -> None:
    one = result(NAMES, ring(NAMES, around("algo-3", 0.24)), require=0.8, figure=None)
    assert found(one) == []
    assert one.met is None
    assert any("is not checked" in line for line in one.lines())


def test_better_of_two_values_counts() -> None:
    values = ring(NAMES, around("algo-3", 0.24))
    again = [Value(*key, "eth0", 0.94 * BYTES) for key in around("algo-3", 0.24)]
    assert found(result(NAMES, [*values, *again])) == []


@pytest.mark.parametrize("hosts", [64, 1000])
def test_event_of_many_hosts_fits_one_line(hosts: int) -> None:
    names = [f"algo-{i}" for i in range(1, hosts + 1)]
    event = result(names, ring(names, {("algo-1", "algo-2"): 0.1})).fields()
    assert len(str(event)) < 60_000
    assert event["measured"] == 2 * hosts
    assert event["links"][0]["verdict"] == "slow"
