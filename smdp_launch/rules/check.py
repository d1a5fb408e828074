"""All rules over one job."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from smdp_launch import rules
from smdp_launch.diagnostics import Diagnostic, Severity, has_errors
from smdp_launch.rules.facts import Facts, Rule


@functools.cache
def every_rule() -> tuple[Rule, ...]:
    """The rules of all modules in this package: writing one is all it takes."""
    names = sorted(one.name for one in pkgutil.iter_modules(rules.__path__))
    modules = [importlib.import_module(f"{rules.__name__}.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    return tuple(sorted(found, key=lambda one: one.code))


def check(facts: Facts) -> list[Diagnostic]:
    """What the rules that hold for every job find, without the warnings that the job file silences. Errors and notes
    are never silenced."""
    silenced = set(facts.spec.silence) if facts.loaded.has("silence") else set()
    rules_ = [one for one in every_rule() if not one.on_launch]
    found = [one for each in rules_ if not each.last for one in each.diagnostics(facts)]
    if not facts.loaded.bad and not has_errors(found):
        found += [one for each in rules_ if each.last for one in each.diagnostics(facts)]
    return [one for one in found if one.severity is not Severity.WARNING or one.code not in silenced]


def check_launch(facts: Facts) -> list[Diagnostic]:
    """What a launch on AWS asks beside that."""
    return [one for each in every_rule() if each.on_launch for one in each.diagnostics(facts)]
