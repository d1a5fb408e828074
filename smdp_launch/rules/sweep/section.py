"""The section that the rules of this package read."""

from __future__ import annotations

from smdp_launch.jobfile.model.sweep import Sweep
from smdp_launch.rules.base.facts import Facts


def section(facts: Facts) -> Sweep | None:
    """The section; None without one, or if anything in it has a schema error."""
    is_broken = any(at[:1] == ("sweep",) for at in facts.loaded.invalid)
    return None if is_broken or not facts.has("sweep") else facts.spec.sweep
