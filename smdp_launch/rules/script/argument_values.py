"""Whether the script's parser can convert the values of the job's hyperparameters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation

from pydantic import JsonValue

from smdp_launch.catalog.placeholders import of_hyperparameter
from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.command_line import HYPERPARAMETERS, NEEDS, RANGES, Passed, declared, means_off, passed
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.commandline.arguments import Argument, CommandLine
from smdp_launch.source.commandline.options import is_taken_for_an_option, reads_as

_LISTED = 12
#: absl reads these as whole numbers.
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
#: Parsers of text: their function, and how the value is written for them.
_FORMS: dict[str, tuple[str, Callable[[object], str]]] = {
    "json": ("json.loads", json.dumps),
    "yaml": ("yaml.safe_load", json.dumps),
    "python": ("ast.literal_eval", repr),
}


@rule("SMDP433", *NEEDS)
def unreadable_value(facts: Facts) -> Iterator[Problem]:
    for one, argument in _values(facts):
        if argument.reads in _FORMS:
            if isinstance(one.written, dict) or not reads_as(argument.reads, one.value):
                yield _unparsed(one, argument)
        elif not reads_as(argument.reads, one.value) and not _HEXADECIMAL.fullmatch(one.value):
            kind = "a whole number" if argument.reads == "int" else "a number"
            message = (
                f"{declared(argument)} reads {one.word} with {argument.reads}(), which refuses {_quoted(one.value)}"
            )
            whole = _whole(one.value) if argument.reads == "int" else None
            help_ = f"write {whole if whole is not None else kind}"
            in_list = len(one.at) == 5
            if one.at[:2] == RANGES and not in_list:
                help_ = "use `ranges.integer`" if argument.reads == "int" else f"change the type of {one.word}"
            is_written = one.at[:2] == HYPERPARAMETERS or in_list
            yield Problem(
                one.at,
                message,
                help_,
                on_key=one.at[:2] == RANGES and not in_list,
                replacement=whole if is_written else None,
            )


def _unparsed(one: Passed, argument: Argument) -> Problem:
    parser, form = _FORMS[argument.reads]
    message = f"{declared(argument)} reads {one.word} with {parser}(), but SageMaker passes {_quoted(one.value)}"
    if isinstance(one.written, str):
        return Problem(one.at, message, f"write a text that {parser}() accepts")
    text = to_yaml(form(one.written))
    return Problem(one.at, message, f"write the value as text: {text}", replacement=text)


@rule("SMDP433", *NEEDS, severity=Severity.WARNING)
def text_that_is_true(facts: Facts) -> Iterator[Problem]:
    for one, argument in _values(facts):
        if argument.reads == "truthy" and one.value and means_off(one.value):
            message = (
                f"{declared(argument)} reads {one.word} with bool(), for which every text except the empty text is"
                f" true; SageMaker passes {_quoted(one.value)}"
            )
            help_ = (
                """change the type in the script to `lambda text: text == "True"`, or write "", which bool() reads"""
            )
            yield Problem(one.at, message, f"{help_} as false")


@rule("SMDP434", *NEEDS)
def value_outside_choices(facts: Facts) -> Iterator[Problem]:
    for one, argument in _values(facts):
        is_known = argument.reads in ("text", "int", "float")
        if argument.choices is None or not is_known or not reads_as(argument.reads, one.value):
            continue
        if _converted(argument, one.value) in argument.choices:
            continue
        choices = [str(each) for each in argument.choices]
        listed = ", ".join(choices[:_LISTED]) + (", and more" if len(choices) > _LISTED else "")
        message = f"{declared(argument)} accepts {listed} for {one.word}, not {_quoted(one.value)}"
        if argument.reads == "text" and any(not isinstance(each, str) for each in argument.choices):
            message += "; without a type it compares text"
            yield Problem(one.at, message, f"add a type to {argument.name} in the script")
            continue
        match = closest(one.value, choices)
        help_ = f'did you mean "{match}"?' if match else f"write one of: {listed}"
        if match is not None and match.lower() in ("true", "false"):
            help_ = f'write "{match}" in quotes: YAML\'s {match.lower()} is passed as {one.value}'
        is_written = one.at[:2] == HYPERPARAMETERS or len(one.at) == 5
        yield Problem(one.at, message, help_, replacement=to_yaml(match) if match and is_written else None)


@rule("SMDP437", *NEEDS)
def value_like_an_option(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    for one in passed(facts, line) if line is not None else ():
        argument = one.argument
        # A sweep's trials get the numbers of a range in the form that SageMaker chooses.
        if argument is None or argument.takes != "value" or one.at[:3] == (*RANGES, "continuous"):
            continue
        if line is not None and _is_refused(facts, line, one):
            message = f"argparse takes the value {_quoted(one.value)} of {one.word} for an option"
            decimal = _decimal(one.written)
            help_ = (
                'change the script to read a value that begins with another character, or write a blank before it: "'
            )
            help_ = f'{help_} {one.value}"'
            if decimal is not None:
                help_ = f"write the number in decimal form, as text: {decimal}"
            yield Problem(one.at, message, help_, replacement=decimal)


def _decimal(value: JsonValue) -> str | None:
    """``"-0.00001"`` for -1e-05; None if the value is not a number."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return to_yaml(f"{number:f}") if number.is_finite() else None


def _values(facts: Facts) -> Iterator[tuple[Passed, Argument]]:
    """The hyperparameters whose argument takes one value, with that argument."""
    line = facts.command_line
    for one in passed(facts, line) if line is not None else ():
        argument = one.argument
        if argument is None or argument.takes not in ("value", "several") or one.value == of_hyperparameter(one.name):
            continue
        if line is not None and not _is_refused(facts, line, one):
            yield one, argument


def _is_refused(facts: Facts, line: CommandLine, one: Passed) -> bool:
    """Whether the parser takes the value for an option."""
    known = facts.has("engine", "image", "framework.name", "framework.version", "framework.python")
    python = image_contents.python(facts.spec) if known else None
    return line.style == "argparse" and is_taken_for_an_option(one.value, python)


def _quoted(value: str) -> str:
    return f'"{value}"'


def _converted(argument: Argument, text: str) -> object:
    return {"int": int, "float": float}.get(argument.reads, str)(text)


def _whole(text: str) -> str | None:
    """``3`` for ``3.0``; None if the text is not a whole number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else None
