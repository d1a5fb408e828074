"""Quotas of the account, and what runs already of what they limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.catalog.hosting.quotas import SERVERLESS, of_endpoints, of_training, of_transforms
from smdp_launch.host_counts import hosts_by_type
from smdp_launch.jobfile.model.serve import Serve
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobs.preflight.check import Account, NotChecked
from smdp_launch.jobs.service.listing import PAGE
from smdp_launch.planning.plan import Plan
from smdp_launch.rules.base.facts import Problem

#: Makes a client that retries by itself, unlike `Clients.sagemaker`.
Service = Callable[[str], Any]

_MOST = 500  # running jobs, or endpoints, whose instances are counted: each takes a call
_DEFAULT_CONCURRENCY = 5  # as in the request


@dataclass
class _Use:
    """What is in use: instances by type, or by the name of the quota."""

    what: str
    counts: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True

    def __getitem__(self, name: str) -> int:
        return self.counts[name]

    def shown(self, name: str) -> str:
        return str(self[name]) if self.is_complete else f"at least {self[name]}"

    def as_result(self, numbers: str) -> str:
        """``numbers``, which the quota allows. Raises NotChecked if not everything was counted."""
        if self.is_complete:
            return numbers
        raise NotChecked(f"{numbers}; there are more than {_MOST} {self.what}, and the others were not counted")

    def listed(self, call: Callable[..., Any], answer_field: str, **arguments: str) -> Iterator[dict[str, Any]]:
        """The summaries of all pages of a List call, up to a bound."""
        count = 0
        token: dict[str, str] = {}
        while True:
            answer = call(MaxResults=PAGE, **arguments, **token)
            for one in answer[answer_field]:
                if count == _MOST:
                    self.is_complete = False
                    return
                count += 1
                yield one
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}


def training_quota(account: Account) -> Iterator[Problem | str]:
    """The quota of the instance type, or of each of several: SageMaker passes over a preferred type that has none left,
    and needs the types of all groups."""
    resources, spot = account.plan.request["ResourceConfig"], account.plan.spec.spot is not None
    needs_all, at_a_time = "InstanceGroups" in resources, _at_a_time(account.plan)
    preferences = [
        (str(one["InstanceType"]), int(one["InstanceCount"])) for one in resources.get("InstancePreferences", ())
    ]
    types = preferences or list(hosts_by_type(resources).items())
    wanted = [(kind, hosts * at_a_time) for kind, hosts in types]
    limits = [_limit(account.service, of_training(kind, spot=spot)) for kind, _ in wanted]
    hosts = _training_hosts(account.service, spot)
    numbers = "; ".join(
        f"{f'{kind}: ' if len(wanted) > 1 else ''}limit {limit}, in use {hosts.shown(kind)}, needed {needed}"
        for (kind, needed), limit in zip(wanted, limits, strict=True)
    )
    fits = [hosts[kind] + needed <= limit for (kind, needed), limit in zip(wanted, limits, strict=True)]
    if all(fits) if needs_all else any(fits):
        yield hosts.as_result(numbers)
        return
    small = [one for one, is_enough in zip(wanted, fits, strict=True) if not is_enough]
    names = " or ".join(f"'{of_training(kind, spot=spot)}'" for kind, _ in small)
    what = " or ".join(f"{needed} x {kind}" for kind, needed in small)
    if needs_all:
        names, what = names.replace(" or ", " and "), what.replace(" or ", " and ")
    help_ = f"request an increase of {names} in Service Quotas (takes days), or wait until other jobs have ended"
    at: Location = ("compute", "instance_count")
    if at_a_time > 1:
        at, what = ("sweep", "parallel"), f"{what}, {at_a_time} trials at a time"
        help_ = f"lower `parallel`, or {help_}"
    yield Problem(at, f"the quota is too small for {what}: {numbers}", help_)


def _at_a_time(plan: Plan) -> int:
    """The number of jobs that the plan runs at a time."""
    if plan.tuning is None:
        return 1
    return int(plan.tuning["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxParallelTrainingJobs"])


def hosting_quota(spec: JobSpec, service: Service, own: str = "") -> Iterator[Problem | str]:
    """The quota of what `deploy` creates.

    Args:
        own: the name of an endpoint that is not counted: a deployment that exists already needs nothing more.

    Raises:
        NotChecked, ClientError, BotoCoreError: it cannot be read.
    """
    serve = spec.serve
    if serve is None:
        yield "no section `serve`"
        return
    name, needed = _hosting_need(serve)
    limit = _limit(service, name)
    sagemaker = service("sagemaker")
    used = _transform_hosts(sagemaker) if serve.kind == "batch" else _endpoint_use(sagemaker, own)
    numbers = f"limit {limit}, in use {used.shown(name)}, needed {needed}"
    if used[name] + needed <= limit:
        yield used.as_result(numbers)
        return
    at, what = ("serve", "instance_type"), f"{needed} x {serve.instance_type}"
    if serve.kind == "serverless":
        at, what = ("serve", "concurrency"), f"{needed} requests at a time"
    help_ = f"request an increase of '{name}' in Service Quotas (takes days), or delete what is not needed"
    if serve.kind != "serverless":
        help_ += ", or choose another type"
    yield Problem(at, f"the quota is too small for {what}: {numbers}", help_)


def _hosting_need(serve: Serve) -> tuple[str, int]:
    if serve.kind == "serverless":
        return SERVERLESS, serve.concurrency or _DEFAULT_CONCURRENCY
    kind = str(serve.instance_type)
    return (of_transforms(kind) if serve.kind == "batch" else of_endpoints(kind)), serve.instance_count


def _limit(service: Service, name: str) -> int:
    pages = service("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    for page in pages:
        for one in page["Quotas"]:
            if one["QuotaName"] == name:
                return int(one["Value"])
    raise NotChecked(f"Service Quotas does not list {name!r}")


def _training_hosts(service: Service, spot: bool) -> _Use:
    """The hosts of the jobs that run, by instance type."""
    sagemaker, used = service("sagemaker"), _Use("running jobs")
    for summary in used.listed(sagemaker.list_training_jobs, "TrainingJobSummaries", StatusEquals="InProgress"):
        job = sagemaker.describe_training_job(TrainingJobName=summary["TrainingJobName"])
        if bool(job.get("EnableManagedSpotTraining")) == spot:
            used.counts.update(hosts_by_type(job["ResourceConfig"]))
    return used


def _endpoint_use(sagemaker: Any, own: str) -> _Use:
    """What the endpoints have, by the names of the quotas. A variant whose hosts are added or removed has as many as
    wanted."""
    used = _Use("endpoints")
    for summary in used.listed(sagemaker.list_endpoints, "Endpoints"):
        if summary["EndpointStatus"] == "Failed" or summary["EndpointName"] == own:
            continue
        endpoint = sagemaker.describe_endpoint(EndpointName=summary["EndpointName"])
        wanted = {one["VariantName"]: one.get("DesiredInstanceCount") for one in endpoint.get("ProductionVariants", ())}
        config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
        for one in config["ProductionVariants"]:
            used.counts[SERVERLESS] += int(one.get("ServerlessConfig", {}).get("MaxConcurrency", 0))
            if "InstanceType" in one:
                count = wanted.get(one["VariantName"]) or one.get("InitialInstanceCount", 0)
                used.counts[of_endpoints(one["InstanceType"])] += int(count)
    return used


def _transform_hosts(sagemaker: Any) -> _Use:
    used = _Use("running transform jobs")
    for summary in used.listed(sagemaker.list_transform_jobs, "TransformJobSummaries", StatusEquals="InProgress"):
        job = sagemaker.describe_transform_job(TransformJobName=summary["TransformJobName"])
        resources = job["TransformResources"]
        used.counts[of_transforms(resources["InstanceType"])] += int(resources["InstanceCount"])
    return used
