"""The plan of a deployment: its requests and what they cost. Plain data; nothing here calls a service."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.catalog.hosting.faults import VARIABLE, EndpointFault
from smdp_launch.catalog.prices import PriceTable
from smdp_launch.checking.job import CheckedJob
from smdp_launch.errors import Refused
from smdp_launch.jobfile.model.serve import Serve
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.request.build import Request
from smdp_launch.request.cost import serving_hourly
from smdp_launch.request.names import S3Location, job_name
from smdp_launch.request.serving import Deployment, deployment, expiry, packed_model, transform_input
from smdp_launch.source.scan import SourceTree

#: Version of ``deploy --json``; raised when a field changes its meaning or is removed.
VERSION = 1
DAY_HOURS = 24

NO_SECTION = (
    "the job file has no section `serve`, which says how the model answers requests: add at least "
    "`serve: {entry: inference.py, instance_type: ml.m5.large}` with a script that has `model_fn`"
)


@dataclass(frozen=True)
class ServingPlan:
    """One deployment, ready to be sent.

    Args:
        name: of the endpoint, its configuration and its model: the name of the training job. A batch transform has a
            new name of the same form.
        where: the AWS region, or ``local``.
        job_file: the file with the section ``serve``.
        trained: S3 location of the model that the training job wrote.
        packed: of the model with the serving script; None if the model is served as it is.
        source: the folder of the serving script.
        prices: the job's price table; None if it has none.
    """

    name: str
    where: str
    job_file: str
    made: datetime
    spec: JobSpec
    serve: Serve
    trained: S3Location
    packed: S3Location | None
    source: SourceTree
    deployment: Deployment
    prices: PriceTable | None = None

    @property
    def is_local(self) -> bool:
        return self.where == LOCAL

    @property
    def requests(self) -> Mapping[str, Request]:
        """By operation, in the order in which they are sent. Nothing schedules a deletion in the local cloud."""
        every = self.deployment.requests
        return {name: one for name, one in every.items() if not (self.is_local and name == "CreateSchedule")}

    @property
    def hosts(self) -> int | None:
        return None if self.serve.kind == "serverless" else self.serve.instance_count

    @property
    def expires(self) -> datetime | None:
        return expiry(self.serve, self.made)

    @property
    def hourly_usd(self) -> float | None:
        """USD per hour of all hosts; None for a local or a serverless endpoint, or without a price."""
        return None if self.is_local else serving_hourly(self.spec, self.prices)

    @property
    def daily_usd(self) -> float | None:
        return None if self.hourly_usd is None else self.hourly_usd * DAY_HOURS

    @property
    def most_usd(self) -> float | None:
        """USD until the end of the lifetime; None without a price or a lifetime."""
        if self.hourly_usd is None or self.serve.lifetime is None or self.serve.kind == "batch":
            return None
        return self.hourly_usd * self.serve.lifetime / 3600

    @property
    def deletes_itself(self) -> bool:
        """Whether AWS deletes the endpoint at the end of its lifetime, also if this machine is gone."""
        return "CreateSchedule" in self.requests

    def to_json(self) -> dict[str, Any]:
        return {
            "deploy": VERSION,
            "endpoint": self.name,
            "kind": self.serve.kind,
            "where": self.where,
            "job_file": self.job_file,
            "hash": self.deployment.hash,
            "model": {"trained": str(self.trained), "packed": str(self.packed) if self.packed is not None else None},
            "requests": dict(self.requests),
            "cost": {"hourly_usd": self.hourly_usd, "daily_usd": self.daily_usd, "most_usd": self.most_usd},
            "expires": self.expires.isoformat() if self.expires is not None else None,
            "deletes_itself": self.deletes_itself,
        }


@dataclass(frozen=True)
class LocalServing:
    """What only a deployment in the local cloud has.

    Args:
        fault: the local cloud injects it.
        has_own_input: a batch transform reads local data, which is uploaded to a location of this transform alone.
    """

    fault: EndpointFault | None = None
    has_own_input: bool = False


def serving_plan(
    job: CheckedJob,
    name: str,
    where: str,
    model: str,
    now: Callable[[], datetime] | None = None,
    run: str | None = None,
    local: LocalServing | None = None,
) -> ServingPlan:
    """The plan for the model at ``model``, an S3 URI, that the training job ``name`` has written.

    Args:
        where: the AWS region, or ``local``.
        now: for the end of the lifetime; the current time by default.
        run: of the deployment, 16 hexadecimal digits; random by default. The name of a batch transform ends with the
            first four.
        local: what only the local cloud gets.

    Raises:
        JobFileRefused: the job file has errors.
        Refused: it has no section ``serve``.
    """
    spec, source = job.require()
    serve = spec.serve
    if serve is None:
        raise Refused(f"{job.path}: {NO_SECTION}")
    run, local = run or secrets.token_hex(8), local or LocalServing()
    made = now() if now is not None else datetime.now(timezone.utc)
    if serve.kind == "batch":
        # The service never accepts the name of a transform job again: each transform has a name of its own.
        name = job_name(spec.name, made, int(run[:4], 16))
        if local.has_own_input:
            serve = serve.model_copy(update={"input": str(transform_input(spec, name))})
    sent = serve
    if local.fault is not None:
        sent = serve.model_copy(update={"environment": {**serve.environment, VARIABLE: local.fault.to_text()}})
    packed = packed_model(spec, name, run) if serve.entry is not None else None
    return ServingPlan(
        name=name,
        where=where,
        job_file=str(job.path),
        made=made,
        spec=spec,
        serve=serve,
        trained=S3Location.parse(model),
        packed=packed,
        source=source,
        deployment=deployment(spec.model_copy(update={"serve": sent}), source, name, str(packed or model), made, run),
        prices=job.facts.prices if job.facts is not None else None,
    )
