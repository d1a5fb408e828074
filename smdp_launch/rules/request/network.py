"""The network of the containers."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.requirements import REQUIREMENTS_FILE
from smdp_launch.units import count


@rule("SMDP419", "network.subnets", "network.security_groups")
def vpc_is_complete(facts: Facts) -> Iterator[Problem]:
    network = facts.spec.network
    if (network.subnets is None) != (network.security_groups is None):
        present, missing = "subnets", "security_groups"
        if network.subnets is None:
            present, missing = missing, present
        message = f"`network.{present}` is set without `{missing}`: a VPC needs both"
        yield Problem(("network", present), message, f"add `{missing}:`, or remove `{present}`", on_key=True)


@rule("SMDP421", "network.isolated", severity=Severity.WARNING)
def isolated_job_needs_no_downloads(facts: Facts) -> Iterator[Problem]:
    packages = facts.requirements.packages
    if facts.spec.network.isolated and packages:
        amount = count(len(packages), "package")
        message = f"{REQUIREMENTS_FILE} requires {amount}, but pip has no network to download what the image lacks"
        help_ = "install them in the image; if it has them already, write `silence: [SMDP421]`"
        yield Problem(("network", "isolated"), message, help_)


@rule("SMDP332", "network.isolated", "remote_debug", severity=Severity.WARNING)
def isolated_job_has_no_shell(facts: Facts) -> Iterator[Problem]:
    if facts.spec.network.isolated and facts.spec.remote_debug:
        message = "remote_debug with `network.isolated`: Systems Manager reaches the containers through their network"
        yield Problem(("remote_debug",), message, "remove one of the two", on_key=True)
