"""Whether the survivors of a fault said what they should, in time, and left nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fire import faults
from fire.faults import Fault

_RANK = r"rank (\d+)"
_HOST = r"rank (\d+) \(host algo-(\d+)\)"
_ADDRESS = r"rank (\d+) \(at 10\.214\.0\.(\d+)\)"  # lab.py's
# How the engine names who is to blame once it runs: rank and host.
_BLAMED = [
    re.compile(_HOST + r" was lost"),
    re.compile(_HOST + r" destroyed the group"),
    re.compile(_HOST + r" closed its engine"),
]
_WAITED_FOR = re.compile(r"the deadline passed on .*?waiting for .*?((?: of|,) " + _HOST + r")+")
# ... and while it opens, when nobody knows the hosts yet.
_ABSENT = [
    re.compile(_RANK + r"(?: \([^)]*\))? (?:did not arrive|left the rendezvous)"),
    re.compile(r"with " + _RANK + r" failed"),
    re.compile(r"connecting the hosts failed on rank \d+: " + _RANK),
    re.compile(r"; " + _RANK + r"(?: did not arrive|:)"),
    re.compile(r"rendezvous failed: " + _RANK + r":"),
]
PHASES = (
    *("waiting for the values of the host's ranks", "waiting for the sums of the other hosts"),
    *("waiting for the result", "waiting for the receivers", "had not begun", "rendezvous", "connecting the hosts"),
)


def blamed(message: str) -> set[int]:
    """Ranks that the message calls to account."""
    head = message.split(" [", 1)[0]
    found = {int(match[1]) for pattern in _BLAMED for match in pattern.finditer(head)}
    waited = _WAITED_FOR.search(head)
    if waited:
        found |= {int(rank) for rank, _ in re.findall(_HOST, waited[0].split("waiting for")[-1])}
    if "said nothing" in head:
        found = {int(match[1]) for match in re.finditer(_RANK + r" \(at", head)}
    if not found:
        found = {int(match[1]) for pattern in _ABSENT for match in pattern.finditer(head)}
    return found


def misplaced(message: str, hosts: list[int]) -> list[str]:
    """Ranks that the message puts on a host, or at an address, which is not theirs."""
    places = [*re.finditer(_HOST, message), *re.finditer(_ADDRESS, message)]
    return [place[0] for place in places if int(place[2]) != hosts[int(place[1])] + 1]


@dataclass
class Verdict:
    fault: Fault
    struck: bool
    state: str  # as it was: on one host the survivors' words tell
    healed: bool = False
    worst_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


def _may_blame(fault: Fault, raiser: int) -> set[int]:
    """Whom a rank may name. A cut connection or link has two ends, and each sees the other one go."""
    if fault.kind == "link":
        there = {rank for rank, host in enumerate(fault.hosts) if host != fault.hosts[raiser]}
        return there | ({fault.victim} if fault.state == "destroy" else set())
    if fault.kind == "mute":  # each end sees the other one go silent, and tells all
        return {fault.victim} | {rank for rank, host in enumerate(fault.hosts) if host != fault.hosts[fault.victim]}
    if fault.kind in ("cut", "close"):
        return set(range(len(fault.hosts)))
    return {fault.victim}


def _state_seen(fault: Fault, messages: list[str]) -> str:
    """On one host no frame shows itself; what the others waited for from the victim does."""
    if fault.point or fault.line or fault.state not in ("shared-memory wait", "shard send", "return"):
        return fault.state
    if any("waiting for the values" in message for message in messages):
        return "shared-memory wait" if fault.state == "shared-memory wait" else "shard send"
    return "return"


def judge(fault: Fault, struck_ns: int, outcomes: Mapping[int, Mapping[str, Any]], patience: float) -> Verdict:
    """``outcomes`` by rank: of all that were to tell; what is missing there hung."""
    messages = [str(outcome["raised"]) for outcome in outcomes.values() if outcome.get("raised")]
    verdict = Verdict(fault, struck_ns != 0, _state_seen(fault, messages))
    if not verdict.struck:
        return verdict
    verdict.healed = fault.opening and fault.kind in ("cut", "close") and not messages
    for rank, outcome in outcomes.items():
        _judge_one(verdict, rank, outcome, struck_ns, patience)
    return verdict


def _judge_one(verdict: Verdict, rank: int, outcome: Mapping[str, Any], struck_ns: int, patience: float) -> None:
    fault, failures = verdict.fault, verdict.failures
    if "at_ns" not in outcome:
        failures.append(f"rank {rank} hung or died: {outcome}")
        return
    if outcome.get("wrong"):
        failures.append(f"rank {rank}: {outcome['wrong']}")
    if outcome["left"]:
        failures.append(f"rank {rank} left {outcome['left']}")
    if outcome["closing_s"] > (faults.CLOSE_S + faults.TELLING_S) * patience:
        failures.append(f"rank {rank} took {outcome['closing_s']:.1f} s to close")
    message = outcome["raised"]
    if message is None:
        if not verdict.healed and not (rank == fault.victim and (fault.state == "destroy" or fault.kind == "leave")):
            failures.append(f"rank {rank} did not raise")
        return
    names = blamed(message)
    if not names or not names <= _may_blame(fault, rank):
        failures.append(f"rank {rank} blames {sorted(names)}: {message}")
    failures += [f"rank {rank} says {place}" for place in misplaced(message, fault.hosts)]
    if not any(phase in message for phase in PHASES):
        failures.append(f"rank {rank} tells no phase: {message}")
    took = (outcome["at_ns"] - struck_ns) / 1e9
    verdict.worst_s = max(verdict.worst_s, took)
    if took > fault.stated_s() * patience:
        verdict.late.append(f"rank {rank} raised after {took:.2f} s, stated {fault.stated_s():.2f}: {message}")
