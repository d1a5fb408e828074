"""The plan: everything that a launch submits, and its consequences. Plain data; nothing here prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from smdp_launch.catalog.faults import Fault
from smdp_launch.catalog.prices import PriceTable
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.host_counts import host_count
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.notebook_view import NotebookView
from smdp_launch.planning.consequences import Batch, Billing, ImageFacts, batch, billing, image_facts, side_effects
from smdp_launch.planning.origins import Origin
from smdp_launch.planning.past_rehearsals import PastRehearsal
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.ranks import Rank
from smdp_launch.request.sweep_cost import SweepBounds, sweep_bounds
from smdp_launch.rules.request.placeholders import Placeholder
from smdp_launch.source.scan import SourceTree

#: Version of the JSON form (docs/reference/plan.md); raised when a field changes its meaning or is removed.
PLAN_VERSION = 2


@dataclass(frozen=True)
class LocalRun:
    """The options of a local run.

    Args:
        hosts: those that train.
        data: channel to the folder or file with its data.
        not_simulated: one sentence for each part of the job that the run does not simulate.
        containers: whether the hosts run from the job's image.
        network: speed of each host's link, such as ``1gbit``; None for no limit.
        cuda_on_cpu: whether workers get an emulation of CUDA.
        fault: the fault to inject, if the run is a rehearsal.
        other_hosts: those of each other group.
    """

    hosts: int
    workers_per_host: int
    data: Mapping[str, Path] = field(default_factory=dict)
    not_simulated: tuple[str, ...] = ()
    containers: bool = False
    network: str | None = None
    cuda_on_cpu: bool = False
    fault: Fault | None = None
    other_hosts: Mapping[str, int] = field(default_factory=dict)

    @property
    def all_hosts(self) -> int:
        return self.hosts + sum(self.other_hosts.values())


@dataclass(frozen=True)
class Plan(NotebookView):
    """One job, ready to be submitted, and its consequences.

    Args:
        script_arguments: the command line that the script gets.
        origins: the source of each value; empty for a plan that was read from a file.
        placeholders: the values to fill in before a launch on AWS.
        launch_problems: the placeholders as diagnostics, with which a launch on AWS is refused.
        rehearsals: the newest rehearsal of each kind for the same job.
        tuning: the CreateHyperParameterTuningJob request of a sweep, which is submitted in place of ``request``.
            ``request`` is then that of one trial, without the values of the ranges. None for a job without ``sweep``.
    """

    job: str
    job_file: str
    made: datetime
    spec: JobSpec
    request: Request
    ranks: tuple[Rank, ...]
    source: SourceTree
    script_arguments: tuple[str, ...]
    local: LocalRun | None = None
    prices: PriceTable | None = None
    origins: tuple[Origin, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    placeholders: tuple[Placeholder, ...] = ()
    launch_problems: tuple[Diagnostic, ...] = ()
    rehearsals: tuple[PastRehearsal, ...] = ()
    tuning: Request | None = None

    @property
    def hash(self) -> str:
        return next(str(tag["Value"]) for tag in self.submitted["Tags"] if tag["Key"] == PLAN_TAG)

    @property
    def submitted(self) -> Request:
        """The request that a launch sends."""
        return self.tuning if self.tuning is not None else self.request

    @property
    def sweep_bounds(self) -> SweepBounds | None:
        """The maximum cost of the sweep; None for a job without a sweep."""
        return sweep_bounds(self.spec, self.prices) if self.tuning is not None else None

    @property
    def hosts(self) -> int:
        """Those of all groups."""
        return host_count(self.request["ResourceConfig"])

    @property
    def workers_per_host(self) -> int:
        """Of a host that trains."""
        return len(self.ranks) // len({one.host for one in self.ranks})

    @property
    def batch(self) -> Batch | None:
        return batch(self.spec)

    @property
    def image(self) -> ImageFacts:
        return image_facts(self.spec, self.request)

    @property
    def billing(self) -> Billing:
        return billing(self.spec, self.made, self.prices)

    @property
    def side_effects(self) -> tuple[str, ...]:
        return tuple(side_effects(self.spec, self.request))

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": PLAN_VERSION,
            "job": self.job,
            "made": self.made.isoformat(timespec="seconds"),
            "job_file": self.job_file,
            "engine": self.spec.engine,
            "policy": self.spec.policy,
            "hash": self.hash,
            "request": self.request,
            "tuning": self.tuning,
            "sweep": self.sweep_bounds._asdict() if self.sweep_bounds is not None else None,
            "world_size": len(self.ranks),
            "ranks": [
                {"rank": one.rank, "host": one.host, "local_rank": one.local_rank, "gpu": one.gpu} for one in self.ranks
            ],
            "script_arguments": list(self.script_arguments),
            "batch": asdict(self.batch) if self.batch is not None else None,
            "image": asdict(self.image),
            "billing": asdict(self.billing) | {"latest_end": _time(self.billing.latest_end)},
            "side_effects": list(self.side_effects),
            "origins": [one.to_json() for one in self.origins],
            "spec": self.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
            "source": {
                "folder": str(self.source.folder),
                "files": [{"name": one.name, "bytes": one.size} for one in self.source.files],
                "bytes": self.source.size,
                "sha256": self.source.sha256,
            },
            "local": self._local_json(),
            "rehearsals": [one.to_json() for one in self.rehearsals],
            "to_fill_in": [one.to_json() for one in self.placeholders],
            "diagnostics": [one.to_json() for one in self.diagnostics],
        }

    def _local_json(self) -> dict[str, Any] | None:
        if self.local is None:
            return None
        return {
            "hosts": self.local.hosts,
            **({"other_hosts": dict(self.local.other_hosts)} if self.local.other_hosts else {}),
            "workers_per_host": self.local.workers_per_host,
            "data": {name: str(path) for name, path in self.local.data.items()},
            "not_simulated": list(self.local.not_simulated),
            "not_honoured": list(self.local.not_simulated),  # deprecated: the old name of the same field
        }


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment is not None else None


def refused_json(job_file: str, diagnostics: list[Diagnostic]) -> dict[str, Any]:
    """The JSON output if there is no plan."""
    return {
        "plan": PLAN_VERSION,
        "job_file": job_file,
        "request": None,
        "diagnostics": [one.to_json() for one in diagnostics],
    }
