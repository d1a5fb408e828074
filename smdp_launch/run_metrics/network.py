"""The result of the probe of a job's network at its start (event ``network``). Does no I/O.

The values come from the job: what has another form is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MOST = 1024


@dataclass(frozen=True)
class NetworkLink:
    """A link between two hosts in one direction.

    Args:
        rail: the network interface.
        gbit: the measured Gbit/s; None if it could not be measured.
        share: of the known rate.
        verdict: ``ok``, ``slow``, ``unequal``, ``latency``, ``unreachable`` or ``unknown``.
    """

    source: str
    target: str
    rail: str
    gbit: float | None
    share: float | None
    latency_ms: float | None
    verdict: str


@dataclass(frozen=True)
class NetworkProblem:
    """Args:
    kind: the verdict of a link, or ``absent``, ``silent``, ``late``, ``rail`` or ``adapters``.
    hosts: the host that is the cause, or the two ends of a link.
    text: one sentence without its full stop.
    fails: whether it ends a job with a requirement.
    """

    kind: str
    hosts: tuple[str, ...]
    text: str
    fix: str
    fails: bool


@dataclass(frozen=True)
class NetworkReport:
    """Args:
    seconds: how long the hosts measured.
    rail_gbit: the known rate of a link; None if it is not known.
    required: the share of it that the job requires.
    met: whether the job has the network that it requires; None without a requirement, or if it cannot be checked.
    measured: the number of links; ``links`` has only the slowest of many.
    """

    seconds: float
    hosts: int
    rail_gbit: float | None
    required: float | None
    met: bool | None
    measured: int
    links: tuple[NetworkLink, ...]
    problems: tuple[NetworkProblem, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> NetworkReport:
        met = fields.get("met")
        return cls(
            seconds=_number(fields, "seconds") or 0.0,
            hosts=int(_number(fields, "hosts") or 0),
            rail_gbit=_number(fields, "rail_gbit"),
            required=_number(fields, "required"),
            met=met if isinstance(met, bool) else None,
            measured=int(_number(fields, "measured") or 0),
            links=tuple(map(_link, _mappings(fields, "links"))),
            problems=tuple(map(_problem, _mappings(fields, "problems"))),
        )

    def summary(self) -> str:
        """Such as ``32 links, 0.94 to 0.95 of 1 Gbit/s, no problem``."""
        rates = sorted(one.gbit for one in self.links if one.gbit is not None)
        parts = [f"{self.measured} links"]
        if rates:
            known = f" of {self.rail_gbit:.3g}" if self.rail_gbit is not None else ""
            parts.append(f"{rates[0]:.3g} to {rates[-1]:.3g}{known} Gbit/s")
        parts.append(f"{len(self.problems) or 'no'} problem{'' if len(self.problems) < 2 else 's'}")
        return ", ".join(parts)

    def lines(self) -> Iterator[str]:
        """The summary, then each problem with its fix."""
        yield self.summary()
        for one in self.problems:
            yield f"{one.text}. {one.fix}"

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "hosts": self.hosts,
            "rail_gbit": self.rail_gbit,
            "required": self.required,
            "met": self.met,
            "measured": self.measured,
            "links": [
                {
                    "from": one.source,
                    "to": one.target,
                    "rail": one.rail,
                    "gbit": one.gbit,
                    "share": one.share,
                    "latency_ms": one.latency_ms,
                    "verdict": one.verdict,
                }
                for one in self.links
            ],
            "problems": [
                {"kind": one.kind, "hosts": list(one.hosts), "text": one.text, "fix": one.fix, "fails": one.fails}
                for one in self.problems
            ],
        }


def _link(fields: Mapping[str, Any]) -> NetworkLink:
    ends = (_text(fields, "from"), _text(fields, "to"), _text(fields, "rail"))
    values = (_number(fields, "gbit"), _number(fields, "share"), _number(fields, "latency_ms"))
    return NetworkLink(*ends, *values, verdict=_text(fields, "verdict"))


def _problem(fields: Mapping[str, Any]) -> NetworkProblem:
    hosts = fields.get("hosts")
    names = tuple(map(str, hosts[:2])) if isinstance(hosts, list) else ()
    texts = _text(fields, "text"), _text(fields, "fix")
    return NetworkProblem(_text(fields, "kind"), names, *texts, fails=fields.get("fails") is True)


def _mappings(fields: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    items = fields.get(name)
    return [one for one in items[:_MOST] if isinstance(one, Mapping)] if isinstance(items, list) else []


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
