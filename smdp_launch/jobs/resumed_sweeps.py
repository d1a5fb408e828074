"""Resumes a sweep: a new tuning job that starts from the trials of the old one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.catalog.limits import request_shape
from smdp_launch.errors import Refused, ServiceProblem
from smdp_launch.host_counts import host_count
from smdp_launch.jobs.records.history import find_launch, record_resumption
from smdp_launch.jobs.resume import tags_of_resumption, user_tags
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.status.interrupted_resume import is_unknown
from smdp_launch.jobs.submit import create_once
from smdp_launch.jobs.sweeps import ENDED, SweepState, describe_sweep
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.hyperparameters import encode_value
from smdp_launch.request.names import sweep_name
from smdp_launch.request.tuning import IDENTICAL, MOST_PARENTS, OPERATION

_NAME = re.compile(r"(?P<base>.+)-\d{10}-[0-9a-f]{4}")
_LONGEST_BASE = 16
#: The service adds it to the fixed hyperparameters of its description.
_ADDED = "_tuning_objective_metric"


@dataclass(frozen=True)
class SweepResumption:
    """A sweep about to be resumed.

    Args:
        request: what will be submitted.
        trials: the most that it runs; None for a grid, whose service decides.
    """

    old: SweepState
    request: Request
    hosts: int
    trials: int | None

    @property
    def sweep(self) -> str:
        return str(self.request["HyperParameterTuningJobName"])

    @property
    def parents(self) -> list[str]:
        return _parents(self.request)


def prepare_sweep(clients: Clients, name: str) -> SweepResumption:
    """The request of the sweep under a new name, with the old sweep as a parent.

    Raises:
        Refused: the sweep runs, was resumed before, or is a grid of which each combination is complete.
        ServiceProblem: the service refused, does not know the sweep, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    try:
        old = describe_sweep(clients, name)
    except ServiceProblem as error:
        launched = find_launch(name)
        if launched is None or launched.resumes is None or not is_unknown(error.__cause__):
            raise
        return prepare_sweep(clients, launched.resumes)  # the resumption was interrupted before it was created
    if not old.has_ended:
        raise Refused(f"{name} still runs ({old.status}): run smdp-launch stop {name} before you resume it")
    answer = _describe(clients, name)
    request = _request(clients, answer, old)
    _require_first(clients, name, request["HyperParameterTuningJobName"])
    config = request["HyperParameterTuningJobConfig"]
    if config["Strategy"] == "Grid" and answer.get("TrainingJobDefinition"):
        _require_rest(clients, request, old)
    definition = next(_definitions(request))
    hosts = host_count(definition.get("ResourceConfig", {}))
    return SweepResumption(old, request, hosts, config["ResourceLimits"].get("MaxNumberOfTrainingJobs"))


def resume_sweep(clients: Clients, prepared: SweepResumption, where: str) -> None:
    """Record the launch in the history, with the old sweep's file, and create the sweep. Retries do not create a second
    one.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    request, name = prepared.request, prepared.sweep
    tag = next(str(one["Value"]) for one in request["Tags"] if one["Key"] == PLAN_TAG)
    record_resumption(name, prepared.old.name, where, tag, datetime.now(timezone.utc), prepared.hosts)

    def call() -> None:
        clients.sagemaker.create_hyper_parameter_tuning_job(**request)

    def arn() -> str:
        found = clients.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        return str(found["HyperParameterTuningJobArn"])

    create_once(clients, "sweep", name, call, arn, request["Tags"])


def _describe(clients: Clients, name: str) -> Mapping[str, Any]:
    def call() -> Mapping[str, Any]:
        found: Mapping[str, Any] = clients.sagemaker.describe_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name
        )
        return found

    return call_with_retries(clients, f"sweep {name} cannot be described", call)


def _require_first(clients: Clients, old: str, new: str) -> None:
    from botocore.exceptions import ClientError

    def status() -> str | None:
        try:
            found = clients.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=new)
        except ClientError as error:
            if not is_unknown(error):
                raise
            return None
        return str(found["HyperParameterTuningJobStatus"])

    existing = call_with_retries(clients, f"{old} cannot be checked for an earlier resume", status)
    if existing is not None:
        verb = "resume" if existing in ENDED else "trials"
        raise Refused(f"{old} was resumed as {new} ({existing}): run smdp-launch {verb} {new}")


def _request(clients: Clients, answer: Mapping[str, Any], old: SweepState) -> Request:
    """The fields of the old request, out of the service's description of the sweep."""
    name = old.name
    known = request_shape(OPERATION).members
    request: Request = {key: value for key, value in answer.items() if key in known and key != "Tags"}
    match = _NAME.fullmatch(name)
    base = (match["base"] if match else name)[:_LONGEST_BASE].rstrip("-")
    # The name depends on the old sweep only: a repeated resume, or a retry after a lost answer, means the same sweep.
    ended = answer.get("HyperParameterTuningEndTime") or answer["CreationTime"]
    new = sweep_name(base, ended, int(hashlib.sha256(name.encode()).hexdigest()[:4], 16))
    request["HyperParameterTuningJobName"] = new
    request["HyperParameterTuningJobConfig"] = _config(answer["HyperParameterTuningJobConfig"], old)
    if "TrainingJobDefinition" in request:
        request["TrainingJobDefinition"] = _definition(request["TrainingJobDefinition"], new)
    if "TrainingJobDefinitions" in request:
        request["TrainingJobDefinitions"] = [_definition(one, new) for one in request["TrainingJobDefinitions"]]
    # A parent's own parents count only if they are named.
    parents = [*_parents(request), name][-MOST_PARENTS:]
    request["WarmStartConfig"] = {
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": one} for one in parents],
        "WarmStartType": IDENTICAL,
    }
    arn = answer["HyperParameterTuningJobArn"]
    tags = call_with_retries(clients, f"the tags of {name} cannot be read", lambda: user_tags(clients, arn))
    return {**request, "Tags": tags_of_resumption(tags, name, request)}


def _config(config: Mapping[str, Any], old: SweepState) -> Request:
    """With the number of trials that have no result yet; if each has one, with the same number again."""
    limits, changed = dict(config["ResourceLimits"]), dict(config)
    if config["Strategy"] != "Grid" and "MaxNumberOfTrainingJobs" in limits:
        most = limits["MaxNumberOfTrainingJobs"]
        limits["MaxNumberOfTrainingJobs"] = rest = most - sum(_is_complete(one) for one in old.trials) or most
        limits["MaxParallelTrainingJobs"] = min(limits["MaxParallelTrainingJobs"], rest)
        if "RandomSeed" in config:  # with the same seed, the values would be the same
            changed["RandomSeed"] = config["RandomSeed"] + 1
    return {**changed, "ResourceLimits": limits}


def _is_complete(trial: Any) -> bool:
    return trial.status == "Completed" and trial.objective is not None


def _definition(definition: Mapping[str, Any], name: str) -> Request:
    fixed = {key: value for key, value in definition.get("StaticHyperParameters", {}).items() if key != _ADDED}
    if "sagemaker_job_name" in fixed:
        fixed["sagemaker_job_name"] = encode_value(name)
    output = {key: value for key, value in definition["OutputDataConfig"].items() if value != ""}
    return {**definition, "StaticHyperParameters": fixed, "OutputDataConfig": output}


def _definitions(request: Request) -> Iterator[Mapping[str, Any]]:
    yield from request.get("TrainingJobDefinitions") or [request["TrainingJobDefinition"]]


def _parents(request: Mapping[str, Any]) -> list[str]:
    warm = request.get("WarmStartConfig", {})
    if warm.get("WarmStartType", IDENTICAL) != IDENTICAL:
        return []
    return [one["HyperParameterTuningJobName"] for one in warm.get("ParentHyperParameterTuningJobs", [])]


def _require_rest(clients: Clients, request: Request, old: SweepState) -> None:
    """Refuse a grid of which each combination is complete in a parent."""
    earlier = [describe_sweep(clients, one) for one in _parents(request) if one != old.name]
    done = {frozenset(one.values.items()) for each in [old, *earlier] for one in each.trials if _is_complete(one)}
    lists = request["HyperParameterTuningJobConfig"]["ParameterRanges"]["CategoricalParameterRanges"]
    total = 1
    for one in lists:
        total *= len(one["Values"])
    if len(done) >= total:
        raise Refused(
            f"{old.name} is a grid, and each of its {total} combinations has a result: there is nothing to resume; to "
            "try others, add values to the lists of `sweep.ranges` and launch again with "
            f"`--set 'sweep.warm_start={{parents: [{old.name}]}}'`"
        )
