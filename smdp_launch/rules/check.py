"""All rules over one job."""

from __future__ import annotations

from collections.abc import Sequence

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobfile.load import Loaded
from smdp_launch.rules import account, compute, data, framework
from smdp_launch.rules.facts import Facts, Rule

#: The rules that hold for every job, wherever it runs.
RULES: tuple[Rule, ...] = (
    compute.instance_type,
    framework.framework_version,
    framework.cuda_11,
    framework.python_version,
    framework.native_image,
    framework.image_holds_library,
    data.source_folder,
    data.entry_point,
    data.local_channels,
    data.local_data,
    data.channels_have_local_data,
)

#: What a launch on AWS asks beside them.
LAUNCH_RULES: tuple[Rule, ...] = (account.placeholders,)


def check(loaded: Loaded, facts: Facts, rules: Sequence[Rule] = RULES) -> list[Diagnostic]:
    """What the rules find, those left out whose fields have schema errors."""
    return [found for one in rules if _can_run(one, loaded) for found in one.check(facts)]


def _can_run(one: Rule, loaded: Loaded) -> bool:
    return all(loaded.has(*need) for need in one.needs)
