"""The checks of the AWS account. Each has a code and can be ignored by it. A check whose calls the credentials do not
allow is reported as not checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.errors import Refused, ServiceProblem
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobs.preflight import account, buckets, checkpoints, network, permissions, quotas, training_plan
from smdp_launch.jobs.preflight.check import Account, Check, Result, result_of, run
from smdp_launch.jobs.preflight.weekly_budget import weekly_budget
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.planning.plan import Plan

#: The code of the check that `deploy` runs too.
HOSTING = "SMDP824"
_SHARED = "SMDP710"

CHECKS = (
    Check("SMDP811", "identity", True, account.identity),
    Check("SMDP812", "role", True, account.role),
    Check("SMDP813", "buckets", True, buckets.buckets),
    Check("SMDP814", "image", True, account.image),
    Check("SMDP815", "data", False, buckets.data),
    Check("SMDP816", "quota", False, quotas.training_quota),
    Check("SMDP817", "network", False, network.network),
    Check("SMDP818", "hosts together", False, network.hosts_together),
    Check("SMDP819", "FSx", False, network.lustre),
    Check("SMDP820", "EFS", False, network.nfs),
    Check("SMDP821", "route to S3", False, network.s3_route),
    Check("SMDP822", "permissions", False, permissions.role_permissions),
    Check("SMDP823", "training plan", False, training_plan.training_plan),
    Check("SMDP550", "weekly budget", True, weekly_budget),
    Check(_SHARED, "checkpoints", True, checkpoints.alone),
    Check(HOSTING, "hosting quota", False, lambda one: quotas.hosting_quota(one.plan.spec, one.service)),
)


#: Why a launch is refused if all problems have this code.
_REASONS = {
    "SMDP550": "the weekly budget does not allow this job",
    _SHARED: "another job uses the checkpoint location",
}


@dataclass(frozen=True)
class Preflight:
    """The checks in their order, numbered from 1."""

    results: tuple[Result, ...]

    @property
    def problems(self) -> list[Diagnostic]:
        return [one for each in self.results for one in each.problems]


def preflight(clients: Clients, plan: Plan, ignored: Collection[str] = ()) -> Preflight:
    """Run all checks.

    Args:
        ignored: codes of checks to skip.

    Raises:
        ServiceProblem: AWS cannot be reached, and no problem was found before.
    """
    results = run(CHECKS, Account(plan, clients), ignored)
    unanswered = next((one for one in results if not one.answered), None)
    if unanswered is not None and not any(one.problems for one in results):
        raise ServiceProblem(f"the account cannot be checked: {unanswered.note}")
    return Preflight(tuple(results))


def check_hosting(clients: Clients, spec: JobSpec, own: str) -> Result:
    """The check of the quota for a deployment whose endpoint is called ``own``."""
    inspect = partial(quotas.hosting_quota, spec, clients.service, own)
    return result_of(HOSTING, "hosting quota", inspect, spec.document)


def require_account(clients: Clients, plan: Plan, ignored: Collection[str] = ()) -> None:
    """Run the checks of identity, role, buckets, image, weekly budget and checkpoints before an upload. It reports an
    outage itself.

    Raises:
        Refused: a check failed.
    """
    checks = [one for one in CHECKS if one.before_launch]
    problems = [one for each in run(checks, Account(plan, clients), ignored) for one in each.problems]
    if problems:
        codes = " ".join(f"--ignore {one}" for one in dict.fromkeys(one.code for one in problems))
        first, *others = {one.code for one in problems}
        reason = _REASONS.get(first if not others else "", "AWS would refuse or fail this job")
        raise Refused(f"{reason}; fix it, or launch with {codes}", problems)
