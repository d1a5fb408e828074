"""Check of the training plan."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.jobs.preflight.check import Account, code_of
from smdp_launch.rules.base.facts import Problem
from smdp_launch.units import listed

_AT = ("compute", "training_plan")
_USABLE = ("Active", "Scheduled", "Pending")
_UNKNOWN = ("ResourceNotFound", "ValidationException")


def training_plan(account: Account) -> Iterator[Problem | str]:
    from botocore.exceptions import ClientError

    compute = account.plan.spec.compute
    if compute.training_plan is None:
        yield "no training plan"
        return
    name = compute.training_plan.rpartition("/")[2]
    try:
        plan = account.service("sagemaker").describe_training_plan(TrainingPlanName=name)
    except ClientError as error:
        if code_of(error) not in _UNKNOWN:
            raise
        region = account.plan.spec.region
        yield Problem(_AT, f"there is no training plan {name} in {region}", "give the ARN of a plan that exists")
        return
    status, types = str(plan["Status"]), {str(one["InstanceType"]) for one in plan.get("ReservedCapacitySummaries", [])}
    if status not in _USABLE:
        yield Problem(_AT, f"the training plan {name} is {status}", "use another plan, or remove `training_plan`")
        return
    if types and compute.instance_type not in types:
        message = f"the training plan {name} has {listed(sorted(types))}, and the job needs {compute.instance_type}"
        yield Problem(_AT, message, f"write `instance_type: {min(types)}`, or use another plan")
        return
    available = plan.get("AvailableInstanceCount")
    if available is not None and int(available) < compute.instance_count:
        message = f"the training plan {name} has {available} free, and the job needs {compute.instance_count}"
        yield Problem(_AT, message, f"write `instance_count: {available}` or less, or wait until other jobs have ended")
        return
    yield f"{name}: {status}"
