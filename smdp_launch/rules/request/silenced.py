"""The codes that a job file silences."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, imported_rules, rule
from smdp_launch.rules.base.pages import codes


@rule("SMDP210", "silence")
def silenced_codes(facts: Facts) -> Iterator[Problem]:
    warnings = {one.code for one in imported_rules() if one.severity is Severity.WARNING}
    for index, code in enumerate(facts.spec.silence):
        if code in warnings:
            continue
        if code in codes():
            message, help_ = f"{code} is an error, and only warnings can be silenced", "remove it and fix the error"
        else:
            message, help_ = f"there is no code {code}", "run `smdp-launch explain` to list all codes"
        yield Problem(("silence", index), message, help_, remove=code in codes())
