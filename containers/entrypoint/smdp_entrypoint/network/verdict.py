"""What the measured values of a probe show: which links, rails and hosts are slow or missing. Does no I/O."""

from __future__ import annotations

import statistics
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
    """A link in one direction. `gbit` is its measured rate; `share` that rate as a share of the figure; `times` is how
    often it was measured; `verdict` is "ok", "slow", "unequal", "latency", "unreachable" or "unknown"."""

    source: str
    target: str
    rail: str
    gbit: float | None = None
    share: float | None = None
    times: int = 0
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
    rates: dict[tuple[str, str, str], list[float]] = {}
    for one in observed.values:
        key = (one.source, one.target, one.rail)
        link = links.setdefault(key, Link(*key))
        if one.value is not None:
            rates.setdefault(key, []).append(one.value / _BYTES)
        elif not link.error:
            link.error = one.error
    for key, measured in rates.items():
        gbit = statistics.median_high(measured)  # of two values, the better one
        links[key].gbit, links[key].times = gbit, len(measured)
        links[key].share = gbit / observed.figure.rail_gbit if observed.figure is not None else None
    for one in observed.latencies:
        for ends in ((one.source, one.target), (one.target, one.source)):
            known = links.get((*ends, one.rail))
            if known is not None:
                known.latency = one.value if one.value is not None else known.latency
    live = {link.rail for link in links.values() if link.gbit is not None} | set(observed.rails[:1])
    found = [link for link in links.values() if link.rail in live]
    usual = {rail: _Usual.of([link for link in found if link.rail == rail]) for rail in live}
    for link in found:
        link.verdict = _verdict(link, usual[link.rail], observed, require)
    return found


@dataclass(frozen=True)
class _Usual:
    """The medians of a rail; None for fewer than three links."""

    gbit: float | None
    latency: float | None

    @classmethod
    def of(cls, links: Sequence[Link]) -> _Usual:
        rates = [one.gbit for one in links if one.gbit is not None]
        latencies = [one.latency for one in links if one.latency is not None]
        return cls(*(statistics.median(values) if len(values) > 2 else None for values in (rates, latencies)))


def _verdict(link: Link, usual: _Usual, observed: Observed, require: float | None) -> str:
    if link.gbit is None:
        return "unknown" if {link.source, link.target} & set(observed.silent) else "unreachable"
    if link.share is None:
        return "ok"
    if link.share < (SLOW if require is None else require):
        return "slow"
    if usual.gbit is not None and link.gbit < UNEQUAL * usual.gbit:
        return "unequal"
    if link.latency is None or usual.latency is None:
        return "ok"
    return "latency" if link.latency > max(HIGH_LATENCY_S, HIGH_LATENCY_FACTOR * usual.latency) else "ok"


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
    of_host: dict[str, list[Link]] = {}
    for link in links:
        of_host.setdefault(link.source, []).append(link)
        of_host.setdefault(link.target, []).append(link)
    left = {id(link): link for link in links if link.verdict == kind}
    candidates = [
        (explained, host, direction)
        for host in sorted({end for link in left.values() for end in (link.source, link.target)})
        for direction in ("", "sends", "receives")
        for explained in [_explained(host, direction, of_host[host], kind)]
    ]
    # A host with more links is the likelier cause; the links of two neighbouring causes belong to both.
    for explained, host, direction in sorted(candidates, key=lambda one: -len(one[0])):
        unexplained = [link for link in explained if id(link) in left]
        if len(unexplained) >= 2:
            yield _problem(kind, (host,), direction, unexplained)
            for link in unexplained:
                del left[id(link)]
    pairs: dict[tuple[str, ...], list[Link]] = {}
    for link in left.values():
        pairs.setdefault(tuple(sorted((link.source, link.target))), []).append(link)
    for ends, of_pair in pairs.items():
        if kind == "unequal" and sum(link.times for link in of_pair) < 2:
            continue  # one measurement of one link: a busy processor is as likely
        one_way = len(of_pair) == 1
        yield _problem(kind, (of_pair[0].source, of_pair[0].target) if one_way else ends, "sends" * one_way, of_pair)


def _explained(host: str, direction: str, links: Sequence[Link], kind: str) -> list[Link]:
    """The links of the host in this direction if all of them have the verdict, and lead to different hosts."""
    own = [
        link
        for link in links
        if (host == link.source and direction != "receives") or (host == link.target and direction != "sends")
    ]
    others = {link.target if link.source == host else link.source for link in own}
    return own if len(others) > 1 and all(link.verdict == kind for link in own) else []


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
