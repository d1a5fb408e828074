"""The answer of ``smdp-launch scale``: plain data for a terminal, a drawing and a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.scaling.question import SCHEDULES
from smdp_launch.scaling.verdict import Point, Stop, definition
from smdp_launch.scaling.workload import Assumption, Workload

#: Version of ``scale --json``; raised when a member changes its meaning or goes.
SCALE_VERSION = 1


@dataclass(frozen=True)
class Hosts:
    """One instance type.

    Args:
        hourly_usd: of one host; None without a price.
        points: by schedule, each by hosts.
        stops: by schedule.
    """

    instance_type: str
    gpus: int
    gpu: str
    step_s: float
    hourly_usd: float | None
    points: Mapping[str, tuple[Point, ...]]
    stops: Mapping[str, Stop]

    def to_json(self) -> dict[str, Any]:
        return {
            "instance_type": self.instance_type,
            "gpus": self.gpus,
            "gpu": self.gpu,
            "compute_step_s": self.step_s,
            "hourly_usd": self.hourly_usd,
            "schedules": [
                {
                    "schedule": name,
                    "points": [asdict(one) for one in self.points[name]],
                    "stop": asdict(self.stops[name]),
                }
                for name in SCHEDULES
            ],
        }


@dataclass(frozen=True)
class Report:
    """Args:
    job_file: as it was named.
    worth: the part of their work that added hosts must do to pay.
    price_hint: why there is no money in it; None where there is.
    diagnostics: of the job file, none of them an error.
    """

    job_file: str
    workload: Workload
    hosts: tuple[Hosts, ...]
    worth: float
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    price_hint: str | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    def to_json(self) -> dict[str, Any]:
        work = self.workload
        return {
            "scale": SCALE_VERSION,
            "job_file": self.job_file,
            "workload": {
                "gradient_bytes": work.gradient_bytes,
                "buckets": len(work.buckets),
                "dtype": work.dtype,
                "backward_share": work.backward_share,
                "batch": work.batch,
                "samples": work.samples,
            },
            "worth": self.worth,
            "definition": definition(self.worth),
            "instance_types": [one.to_json() for one in self.hosts],
            "assumptions": [one.to_json() for one in self.assumptions],
            "warnings": list(self.warnings),
            "diagnostics": [one.to_json() for one in self.diagnostics],
        }


def refused_json(job_file: str, diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The same form of a job file that was refused."""
    told = [one.to_json() for one in diagnostics]
    return {"scale": SCALE_VERSION, "job_file": job_file, "instance_types": [], "diagnostics": told}


def verdicts(one: Hosts) -> Sequence[str]:
    """Where each schedule stops to pay on this type, a sentence each."""
    return [_verdict(name, one.points[name], one.stops[name]) for name in SCHEDULES]


def _verdict(name: str, points: Sequence[Point], found: Stop) -> str:
    share = f"{100 * found.marginal:.0f} %"
    if found.stops is None:
        most = f"{_hosts(found.pays)}, the most modelled"
        return f"{name}: pays up to {most}; the hosts added last do {share} of their work"
    if not found.pays:
        return f"{name}: does not pay: {share} of the work is left on {_hosts(found.stops)}"
    told = f"{name}: pays up to {_hosts(found.pays)}; at {found.stops} the hosts added do {share} of their work"
    before, after = (next(one for one in points if one.hosts == hosts) for hosts in (found.pays, found.stops))
    if before.usd is None or after.usd is None:
        return told
    return f"{told}, and an epoch costs {after.usd:,.2f} instead of {before.usd:,.2f} USD"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
