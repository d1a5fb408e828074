"""Checks that the survivors of a fault raise the right error in time and leave no resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fault_injection import faults
from fault_injection.faults import Fault

_RANK = r"rank (\d+)"
_HOST = r"rank (\d+) \(host algo-(\d+)(?:#\d+)?\)"  # with "#": a rank that shares no memory with its host
_ADDRESS = r"rank (\d+) \(at 10\.214\.0\.(\d+)\)"  # lab.py's
# How the running engine names the failed rank: rank and host.
_NAMED = [
    re.compile(_HOST + r" was lost"),
    re.compile(_HOST + r" destroyed the group"),
    re.compile(_HOST + r" ended or closed its engine"),
]
_WAITED_FOR = re.compile(r"the deadline passed on .*?waiting for .*?((?: of|,) " + _HOST + r")+")
# ... and while it opens, before the ranks know the hosts.
_ABSENT = [
    re.compile(_RANK + r"(?: \([^)]*\))? (?:did not arrive|left the rendezvous)"),
    re.compile(r"with " + _RANK + r" failed"),
    re.compile(r"connecting the hosts failed on rank \d+: " + _RANK),
    re.compile(r"; " + _RANK + r"(?: did not arrive|:)"),
    re.compile(r"rendezvous failed: " + _RANK + r":"),
    re.compile(r"(?:nothing arrived over the fabric from|no frame reaches) " + _RANK),
]
_PHASES_OF_OPENING = ("rendezvous", "connecting the hosts", "over the fabric", "no frame reaches")
PHASES = (
    *_PHASES_OF_OPENING,
    *("waiting for the values of the host's ranks", "waiting for the sums of the other hosts"),
    *("waiting for the result", "waiting for the receivers", "had not begun"),
)


#: The descriptors of an endpoint of tcp;ofi_rxm in libfabric 1.17: its own, and the most of each rank of another host.
_ENDPOINT, _CONNECTION = 10, 2


def named_ranks(message: str) -> set[int]:
    """The ranks that the message names as the cause."""
    head = message.split(" [", 1)[0]
    ranks = {int(match[1]) for pattern in _NAMED for match in pattern.finditer(head)}
    waited = _WAITED_FOR.search(head)
    if waited:
        ranks |= {int(rank) for rank, _ in re.findall(_HOST, waited[0].split("waiting for")[-1])}
    if "sent nothing" in head:
        ranks = {int(match[1]) for match in re.finditer(_RANK + r" \(at", head)}
    if not ranks:
        ranks = {int(match[1]) for pattern in _ABSENT for match in pattern.finditer(head)}
    return ranks


def wrong_hosts(message: str, hosts: list[int]) -> list[str]:
    """The ranks for which the message has a wrong host or address."""
    places = [*re.finditer(_HOST, message), *re.finditer(_ADDRESS, message)]
    return [place[0] for place in places if int(place[2]) != hosts[int(place[1])] + 1]


@dataclass
class Verdict:
    fault: Fault
    injected: bool
    state: str  # the observed state: on one host it follows from the survivors' messages
    healed: bool = False
    worst_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


def _allowed_ranks(fault: Fault, raiser: int) -> set[int]:
    """The ranks that a survivor may name. Each end of a broken connection or link sees the other end as lost."""
    if fault.kind == "link":
        there = {rank for rank, host in enumerate(fault.hosts) if host != fault.hosts[raiser]}
        return there | ({fault.victim} if fault.state == "destroy" else set())
    if fault.kind in faults.RESUMED and raiser == fault.victim:  # after the others, for which it waits
        return set(range(len(fault.hosts)))
    if fault.kind == "mute" and not faults.OVER_A_FABRIC:  # each end sees the other end silent and reports it
        return {fault.victim} | {rank for rank, host in enumerate(fault.hosts) if host != fault.hosts[fault.victim]}
    # A fabric does not report that a connection is silent: at the deadline, each rank waits for another one.
    if fault.kind in ("cut", "close", "mute"):
        return set(range(len(fault.hosts)))
    return {fault.victim}


def _observed_state(fault: Fault, messages: list[str]) -> str:
    """On one host there are no frames; the state follows from what the others waited for."""
    if fault.point or fault.line or fault.state not in ("shared-memory wait", "shard send", "return"):
        return fault.state
    if any("waiting for the values" in message for message in messages):
        return "shared-memory wait" if fault.state == "shared-memory wait" else "shard send"
    return "return"


def judge(
    fault: Fault, injected_ns: int, resumed_ns: int, outcomes: Mapping[int, Mapping[str, Any]], time_factor: float
) -> Verdict:
    """``outcomes``: of each rank that must report; a rank without an outcome hangs."""
    messages = [str(outcome["raised"]) for outcome in outcomes.values() if outcome.get("raised")]
    crashed = [f"the script of rank {rank}: {one['error']}" for rank, one in outcomes.items() if "error" in one]
    if crashed:
        return Verdict(fault, injected=True, state=fault.state, failures=crashed)
    verdict = Verdict(fault, injected_ns != 0, _observed_state(fault, messages))
    if not verdict.injected:
        return verdict
    # The engine connects again while a job opens; ofi_rxm does at any time, if the connection had nothing in flight.
    may_heal = fault.opening or faults.OVER_A_FABRIC
    verdict.healed = may_heal and fault.kind in ("cut", "close") and not messages
    for rank, outcome in outcomes.items():
        began_ns = resumed_ns if fault.kind in faults.RESUMED and rank == fault.victim else injected_ns
        _judge_rank(verdict, rank, outcome, began_ns, time_factor)
    return verdict


def _leaks(fault: Fault, rank: int, outcome: Mapping[str, Any]) -> list[str]:
    """The resources left open, without the descriptors of the endpoints of libfabric, one for each rail, which stay
    open if a rank of another host was lost or did not close in time. "close" puts /dev/null in the place of a
    connection, and a rank may then connect once more."""
    leaked: list[str] = outcome["leaked"]
    peers = sum(host != fault.hosts[rank] for host in fault.hosts)
    raised = str(outcome["raised"] or "")
    is_open = not any(phase in raised for phase in _PHASES_OF_OPENING)
    is_cut_off = fault.kind in ("link", "cut", "mute", "close")
    may_stay = is_open and (is_cut_off or raised != "" or outcome["closing_s"] >= faults.CLOSE_S)
    if not (faults.OVER_A_FABRIC and peers and may_stay):
        return leaked
    least = _ENDPOINT * faults.RAILS
    kinds, most = r"\d+ (socket|anon_inode):", least + _CONNECTION * peers * faults.RAILS
    if (fault.kind, fault.victim) == ("close", rank):
        kinds, most = kinds + r"|\d+ /dev/null$", most + faults.RAILS
    others = [one for one in leaked if not re.match(kinds, one)]
    return others if least <= len(leaked) - len(others) <= most else leaked


def _judge_rank(verdict: Verdict, rank: int, outcome: Mapping[str, Any], began_ns: int, time_factor: float) -> None:
    fault, failures = verdict.fault, verdict.failures
    if "at_ns" not in outcome:
        failures.append(f"rank {rank} hangs or died: {outcome}")
        return
    if outcome.get("wrong"):
        failures.append(f"rank {rank}: {outcome['wrong']}")
    leaked = _leaks(fault, rank, outcome)
    if leaked:
        failures.append(f"rank {rank} leaks {leaked}")
    if outcome["closing_s"] > (faults.CLOSE_S + faults.REPORT_S) * time_factor:
        failures.append(f"rank {rank} took {outcome['closing_s']:.1f} s to close")
    message = outcome["raised"]
    if message is None:
        if not verdict.healed and not (rank == fault.victim and (fault.state == "destroy" or fault.kind == "leave")):
            failures.append(f"rank {rank} did not raise")
        return
    names = named_ranks(message)
    if not names or not names <= _allowed_ranks(fault, rank):
        failures.append(f"rank {rank} names {sorted(names)} as the cause: {message}")
    failures += [f"rank {rank} reports {place}" for place in wrong_hosts(message, fault.hosts)]
    if not any(phase in message for phase in PHASES):
        failures.append(f"rank {rank} reports no phase: {message}")
    took = (outcome["at_ns"] - began_ns) / 1e9
    verdict.worst_s = max(verdict.worst_s, took)
    if took > fault.stated_s() * time_factor:
        verdict.late.append(f"rank {rank} raised after {took:.2f} s, the limit is {fault.stated_s():.2f}: {message}")
