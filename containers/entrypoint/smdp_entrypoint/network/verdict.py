"""What the measured values of a probe show: which links, rails and hosts are slow or missing. Does no I/O."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Collection, Iterable, Iterator, Mapping, Sequence

from smdp_entrypoint.network.figures import Figure
from smdp_entrypoint.network.messages import Ready, Value

#: A link with less than this share of its figure is slow, unless the job requires another share.
SLOW = 0.5
#: A link with less than this share of the median rate of its rail is unequal.
UNEQUAL = 0.7
#: A link's latency is high above this time, and above this multiple of the median of its rail.
HIGH_LATENCY_S, HIGH_LATENCY_FACTOR = 0.005, 10.0
_BYTES = 1e9 / 8  # in a Gbit


@dataclass
class Link:
    """A link in one direction. `gbit` is its measured rate; `share` that rate as a share of the figure; `verdict` is
    "ok", "slow", "unequal", "latency", "unreachable" or "unknown"."""

    source: str
    target: str
    rail: str
    gbit: float | None = None
    share: float | None = None
    latency: float | None = None
    error: str = ""
    verdict: str = "unknown"


@dataclass(frozen=True)
class Problem:
    """`kind` is the verdict of the links, or "silent", "absent", "late", "rail" or "adapters". `hosts` has one host
    that is the cause, or the two ends of a link. `direction` is "sends", "receives", or "" for both."""

    kind: str
    hosts: tuple[str, ...]
    rail: str = ""
    direction: str = ""
    gbit: float | None = None
    share: float | None = None
    seconds: float | None = None
    found: int = 0
    expected: int = 0
    error: str = ""


@dataclass
class Observed:
    """All that a probe has found out. `absent` were not ready in time; `late` were ready so many seconds after the
    first; `silent` did not report their values."""

    hosts: Sequence[str]
    rails: Sequence[str]
    ready: Mapping[str, Ready]
    figure: Figure | None
    adapters: int = 0
    absent: Collection[str] = ()
    late: Mapping[str, float] = field(default_factory=dict)
    silent: Collection[str] = ()
    values: Sequence[Value] = ()
    latencies: Sequence[Value] = ()


def links_of(observed: Observed, require: float | None) -> list[Link]:
    """The measured links with their verdicts. A rail on which no link at all could be measured, except the first one,
    connects no hosts and is left out."""
    links: dict[tuple[str, str, str], Link] = {}
    for one in observed.values:
        link = links.setdefault((one.source, one.target, one.rail), Link(one.source, one.target, one.rail))
        if one.value is not None:
            link.gbit = max(one.value / _BYTES, link.gbit or 0.0)
            link.share = link.gbit / observed.figure.rail_gbit if observed.figure is not None else None
        elif not link.error:
            link.error = one.error
    for one in observed.latencies:
        for ends in ((one.source, one.target), (one.target, one.source)):
            known = links.get((*ends, one.rail))
            if known is not None:
                known.latency = one.value if one.value is not None else known.latency
    live = {link.rail for link in links.values() if link.gbit is not None} | set(observed.rails[:1])
    found = [link for link in links.values() if link.rail in live]
    for link in found:
        link.verdict = _verdict(link, found, observed, require)
    return found


def _verdict(link: Link, links: Sequence[Link], observed: Observed, require: float | None) -> str:
    if link.gbit is None:
        return "unknown" if {link.source, link.target} & set(observed.silent) else "unreachable"
    if link.share is not None and link.share < (SLOW if require is None else require):
        return "slow"
    if observed.figure is None:
        return "ok"
    alike = [one for one in links if one.rail == link.rail]
    rates = [one.gbit for one in alike if one.gbit is not None]
    if len(rates) > 2 and link.gbit < UNEQUAL * statistics.median(rates):
        return "unequal"
    latencies = [one.latency for one in alike if one.latency is not None]
    limit = max(HIGH_LATENCY_S, HIGH_LATENCY_FACTOR * statistics.median(latencies or [0.0]))
    return "latency" if link.latency is not None and len(latencies) > 2 and link.latency > limit else "ok"


def problems_of(observed: Observed, links: Sequence[Link]) -> list[Problem]:
    """The problems, each with its host: those that end a job with a requirement first."""
    return [
        *(Problem("absent", (host,)) for host in observed.absent),
        *(Problem("silent", (host,)) for host in observed.silent),
        *_missing_rails(observed, links),
        *_missing_adapters(observed),
        *_bad_links(links, observed.rails),
        *(Problem("late", (host,), seconds=seconds) for host, seconds in observed.late.items()),
    ]


def fails(problem: Problem) -> bool:
    """Whether a job that requires a network cannot run with this problem."""
    return problem.kind not in ("late", "latency", "unequal")


def _missing_rails(observed: Observed, links: Iterable[Link]) -> Iterator[Problem]:
    live = {link.rail for link in links}
    for host in observed.hosts:
        for rail in observed.rails:
            if rail in live and rail not in observed.ready[host].rails:
                yield Problem("rail", (host,), rail)


def _missing_adapters(observed: Observed) -> Iterator[Problem]:
    for host in observed.hosts:
        found = observed.ready[host].adapters
        if found < observed.adapters:
            yield Problem("adapters", (host,), found=found, expected=observed.adapters)


def _bad_links(links: Sequence[Link], rails: Sequence[str]) -> Iterator[Problem]:
    for rail in rails:
        for kind in ("unreachable", "slow", "unequal", "latency"):
            yield from _causes([link for link in links if link.rail == rail], kind)


def _causes(links: Sequence[Link], kind: str) -> Iterator[Problem]:
    """The hosts that explain the links with this verdict, then the links that no host explains.

    A host is the cause if all its links, or all that leave it, or all that arrive at it, have the verdict: with two
    neighbours that is no coincidence. Of two ends, the one that explains more links is the cause.
    """
    bad = [link for link in links if link.verdict == kind]
    while bad:
        explained, host, direction = max(
            (
                (explained, host, direction)
                for host in sorted({end for link in bad for end in (link.source, link.target)})
                for direction in ("", "sends", "receives")
                for explained in [_explained(host, direction, links, bad)]
            ),
            key=lambda one: len(one[0]),
        )
        if len(explained) < 2:
            break
        yield _problem(kind, (host,), direction, explained)
        bad = [link for link in bad if link not in explained]
    pairs: dict[tuple[str, ...], list[Link]] = {}
    for link in bad:
        pairs.setdefault(tuple(sorted((link.source, link.target))), []).append(link)
    for ends, of_pair in pairs.items():
        one_way = len(of_pair) == 1
        yield _problem(kind, (of_pair[0].source, of_pair[0].target) if one_way else ends, "sends" * one_way, of_pair)


def _explained(host: str, direction: str, links: Sequence[Link], bad: Sequence[Link]) -> list[Link]:
    """The bad links of the host in this direction if all of them are bad, and lead to different hosts."""
    own = [
        link
        for link in links
        if (host == link.source and direction != "receives") or (host == link.target and direction != "sends")
    ]
    others = Counter(link.target if link.source == host else link.source for link in own)
    mine = [link for link in own if link in bad]
    return mine if len(mine) == len(own) and len(others) > 1 else []


def _problem(kind: str, hosts: tuple[str, ...], direction: str, links: Sequence[Link]) -> Problem:
    rates = [link for link in links if link.gbit is not None]
    slowest = min(rates, key=lambda link: link.gbit or 0.0) if rates else None
    return Problem(
        kind,
        hosts,
        links[0].rail,
        direction,
        gbit=slowest.gbit if slowest is not None else None,
        share=slowest.share if slowest is not None else None,
        seconds=max((link.latency for link in links if link.latency is not None), default=None),
        error=next((link.error for link in links if link.error), ""),
    )
