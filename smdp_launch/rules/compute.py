"""Which instances, and how many."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.instances import replacement, supported_instances
from smdp_launch.diagnostics import closest
from smdp_launch.rules.facts import Facts, Finding, rule


@rule("SMDP301", "compute.instance_type", "policy", "engine")
def instance_type(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    name = spec.compute.instance_type
    allowed = supported_instances(spec.policy, spec.engine)
    if name in allowed:
        return
    later = [] if spec.policy == "extended" else supported_instances("extended", spec.engine)
    listed = ", ".join(allowed)
    if replacement(name) is not None:
        message, help_ = f"{name} does not exist, though AWS's documents mention it", f"write {replacement(name)}"
    elif name in later:
        message = f"policy strict allows what the library's documentation states, which is not {name}"
        help_ = f"one of {listed}; or `policy: extended`"
    else:
        match = closest(name, allowed, cutoff=0.8)  # instance names are much alike
        message = f"{name} is no instance that the {spec.engine} engine serves under policy {spec.policy}"
        help_ = f"did you mean {match}?" if match else f"one of {listed}"
    yield Finding(("compute", "instance_type"), message, help_)
