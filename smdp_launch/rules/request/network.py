"""The network that containers see."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.source.requirements import REQUIREMENTS_FILE
from smdp_launch.units import count


@rule("SMDP419", "network.subnets", "network.security_groups")
def whole_vpc(facts: Facts) -> Iterator[Finding]:
    network = facts.spec.network
    if (network.subnets is None) != (network.security_groups is None):
        given, missing = "subnets", "security_groups"
        if network.subnets is None:
            given, missing = missing, given
        message = f"half a VPC: `network.{given}` is named without `{missing}`"
        yield Finding(("network", given), message, f"add `{missing}:`, or leave both out", on_key=True)


@rule("SMDP421", "network.isolated", severity=Severity.WARNING)
def isolation_advice(facts: Facts) -> Iterator[Finding]:
    # Whoever isolates a job knows that it has no network; that its start needs one stands in another file.
    packages = facts.requirements.packages
    if facts.spec.network.isolated and packages:
        asked = count(len(packages), "package")
        message = f"{REQUIREMENTS_FILE} asks for {asked}, and pip has no network to download what the image lacks"
        help_ = "install them in the image; `silence: [SMDP421]` if it has them"
        yield Finding(("network", "isolated"), message, help_)
