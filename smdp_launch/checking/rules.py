"""All rules over one job."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from smdp_launch import rules
from smdp_launch.diagnostics import Diagnostic, Severity, has_errors
from smdp_launch.rules.base.facts import Facts, Rule, imported_rules


@functools.cache
def every_rule() -> tuple[Rule, ...]:
    """The rules of all modules below `smdp_launch.rules`. A new rule needs no registration."""
    for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        importlib.import_module(module.name)
    return imported_rules()


def check(facts: Facts) -> list[Diagnostic]:
    """The diagnostics of the rules for every job, without the warnings that the job file silences.

    Errors and notes cannot be silenced."""
    silenced = set(facts.spec.silence) if facts.loaded.has("silence") else set()
    rules_ = [one for one in every_rule() if not one.on_launch]
    diagnostics = [one for each in rules_ if not each.last for one in each.diagnostics(facts)]
    if not facts.loaded.invalid and not has_errors(diagnostics):
        diagnostics += [one for each in rules_ if each.last for one in each.diagnostics(facts)]
    return [one for one in diagnostics if one.severity is not Severity.WARNING or one.code not in silenced]


def check_launch(facts: Facts) -> list[Diagnostic]:
    """The diagnostics of the additional rules for a launch on AWS."""
    return [one for each in every_rule() if each.on_launch for one in each.diagnostics(facts)]
