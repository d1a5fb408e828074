"""The network that containers see."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.facts import Facts, Finding, rule


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
    if facts.spec.network.isolated:
        tree = facts.source
        installs = tree is not None and tree.file("requirements.txt") is not None
        fails = "requirements.txt cannot be installed at the start" if installs else "downloads and AWS calls fail"
        message = f"the containers reach each other and nothing else: {fails}"
        help_ = "put what the script needs into the image and the channels; then `silence: [SMDP421]`"
        yield Finding(("network", "isolated"), message, help_)
