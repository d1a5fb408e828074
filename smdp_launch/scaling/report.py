"""The report of ``smdp-launch scale``: plain data for text, charts and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.scaling.question import SCHEDULES
from smdp_launch.scaling.verdict import Point, Stop, definition
from smdp_launch.scaling.workload import Assumption, Workload
from smdp_launch.units import count

#: Version of ``scale --json``; increased when a field changes its meaning or is removed.
SCALE_VERSION = 1


@dataclass(frozen=True)
class Hosts:
    """The results for one instance type.

    Args:
        hourly_usd: of one host; None without a price.
        points: by schedule, in ascending order of hosts.
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
    """The results of a study.

    Args:
        job_file: the path that the user wrote.
        worth: the share of their work that added hosts must do to pay.
        price_hint: why there are no costs; None if there are.
        diagnostics: the warnings and notes about the job file.
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
    """The JSON output for a job file with errors."""
    listed = [one.to_json() for one in diagnostics]
    return {"scale": SCALE_VERSION, "job_file": job_file, "instance_types": [], "diagnostics": listed}


def verdicts(one: Hosts) -> Sequence[str]:
    """One sentence for each schedule: the number of hosts up to which more hosts pay."""
    return [_verdict(name, one.points[name], one.stops[name]) for name in SCHEDULES]


def _verdict(name: str, points: Sequence[Point], stop: Stop) -> str:
    share = f"{100 * stop.marginal:.0f} %"
    if stop.stops is None:
        most = f"{_hosts(stop.pays)}, the most modelled"
        return f"{name}: pays up to {most}; the hosts added last do {share} of their work"
    if not stop.pays:
        return f"{name}: does not pay: {_hosts(stop.stops)} can do only {share} of the work"
    sentence = f"{name}: pays up to {_hosts(stop.pays)}; at {stop.stops} the added hosts do {share} of their work"
    before, after = (next(one for one in points if one.hosts == hosts) for hosts in (stop.pays, stop.stops))
    if before.usd is None or after.usd is None:
        return sentence
    return f"{sentence}, and an epoch costs {after.usd:,.2f} instead of {before.usd:,.2f} USD"


def _hosts(hosts: int) -> str:
    return count(hosts, "host")
