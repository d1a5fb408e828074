"""Hyperparameters that the shell of AWS's training toolkit changes."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.diagnostics import Severity
from smdp_launch.request.batch import script_hyperparameters
from smdp_launch.request.hyperparameters import changed_by_shell, script_arguments
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.command_line import HYPERPARAMETERS, tried
from smdp_launch.rules.base.facts import Facts, Problem, rule

_OLD = "AWS's toolkit up to 5.1.1 passes the arguments through a shell, which"


@rule("SMDP469", "engine", "image", "script.hyperparameters", "batch", "sweep", severity=Severity.WARNING)
def words_of_the_shell(facts: Facts) -> Iterator[Problem]:
    named = image_contents.image(facts)
    is_aws = facts.spec.image is None or (named is not None and named.is_aws)
    if facts.local or facts.spec.engine not in TORCH_DISTRIBUTED or not is_aws:
        return
    values = [(name, value, (*HYPERPARAMETERS, name)) for name, value in script_hyperparameters(facts.spec).items()]
    for name, value, at in [*values, *tried(facts)]:
        word, text = script_arguments({name: value})
        if not changed_by_shell(text):
            continue
        if not text:
            yield Problem(at, f"{_OLD} loses the empty value of {word}", "remove it, or write another value")
        else:
            message = f"{_OLD} changes the value of {word}: it has blanks or characters of the shell"
            help_ = "write a value without them, read it from a file or from `environment`, or put it in single quotes"
            yield Problem(at, message, f"{help_} for such an image")
