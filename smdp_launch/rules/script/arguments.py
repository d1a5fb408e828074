"""The hyperparameters against the command line that the script accepts.

SageMaker passes each hyperparameter as ``--name value`` (``-n value`` for one letter), so what the script's parser will
refuse in the container is known before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.catalog.placeholders import of_hyperparameter
from smdp_launch.diagnostics import closest
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import written as as_written
from smdp_launch.request.batch import script_hyperparameters
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.source.script.commandline import Argument, CommandLine

_NEEDS = (
    "script.entry",
    "script.source",
    "script.hyperparameters",
    "batch",
    "compute.instance_type",
    "compute.instance_count",
)
_GIVEN: Location = ("script", "hyperparameters")
_LISTED = 12
#: absl reads these as whole numbers, and nobody writes one for another parser.
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_BATCH: Location = ("batch", "hyperparameter")


class Passed(NamedTuple):
    """One hyperparameter as the script gets it."""

    name: str
    word: str
    value: str
    at: Location
    #: What the parser takes ``word`` for; several where it is an ambiguous abbreviation.
    found: list[Argument]

    @property
    def argument(self) -> Argument | None:
        return self.found[0] if len(self.found) == 1 else None


def passed(facts: Facts, line: CommandLine) -> list[Passed]:
    """The hyperparameters, in the order in which they are passed."""
    values = script_hyperparameters(facts.spec)
    words = script_arguments(values)
    of_batch = facts.spec.batch.hyperparameter if facts.spec.batch is not None else None
    names = sorted(values)
    return [
        Passed(name, word, value, _BATCH if name == of_batch else (*_GIVEN, name), line.find(word))
        for name, word, value in zip(names, words[::2], words[1::2], strict=True)
        # argparse takes a word with a blank for a value, and splits one at an equals sign.
        if not {" ", "="} & set(name)
    ]


@rule("SMDP432", *_NEEDS)
def unknown_hyperparameter(facts: Facts) -> Iterator[Finding]:
    line = facts.command_line
    if line is None or not line.is_closed:
        return
    for one in passed(facts, line):
        if not one.found:
            yield _unknown(facts, line, one)


def _unknown(facts: Facts, line: CommandLine, one: Passed) -> Finding:
    entry = facts.spec.script.entry
    message = f"{entry} has no option {one.word}, and {line.style} refuses unknown ones"
    # SageMaker passes one dash before one letter and two before a longer name, and the script may have it otherwise.
    bare = one.word.lstrip("-")
    dashed = next((each for each in line.arguments if {f"-{bare}", f"--{bare}"} & set(each.spellings)), None)
    if dashed is not None:
        help_ = f"add the spelling {one.word} in line {dashed.line} of {dashed.module}, which has {dashed.name} alone"
        return Finding(one.at, f"{message}; SageMaker passes {one.word}", help_, on_key=one.at[:-1] == _GIVEN)
    names = list(dict.fromkeys(each.name.lstrip("-") for each in line.arguments if each.name.startswith("-")))
    match = _meant(facts, line, one)
    listed = f"it has {', '.join(names[:_LISTED])}" + (", and more" if len(names) > _LISTED else "")
    help_ = f'did you mean "{match}"?' if match else listed if names else "it takes no option at all"
    return Finding(one.at, message, help_, on_key=one.at != _BATCH, replacement=match)


def _meant(facts: Facts, line: CommandLine, one: Passed) -> str | None:
    """The option of which the name is a misspelling, if the job does not give that, too."""
    given = facts.spec.script.hyperparameters
    names = [each.name.lstrip("-") for each in line.arguments if each.name.startswith("--")]
    return closest(one.name, [name for name in names if name not in given])


@rule("SMDP433", *_NEEDS)
def unreadable_value(facts: Facts) -> Iterator[Finding]:
    for one, argument in _values(facts):
        if not _reads(argument.reads, one.value) and not _HEXADECIMAL.fullmatch(one.value):
            kind = "a whole number" if argument.reads == "int" else "a number"
            message = (
                f"{_declared(argument)} reads {one.word} with {argument.reads}(), which refuses {_shown(one.value)}"
            )
            whole = _whole(one.value) if argument.reads == "int" else None
            help_ = f"write {whole if whole is not None else kind}"
            yield Finding(one.at, message, help_, replacement=whole if one.at != _BATCH else None)


@rule("SMDP434", *_NEEDS)
def value_outside_choices(facts: Facts) -> Iterator[Finding]:
    for one, argument in _values(facts):
        if argument.choices is None or argument.reads == "any" or not _reads(argument.reads, one.value):
            continue
        if _converted(argument, one.value) in argument.choices:
            continue
        choices = [str(each) for each in argument.choices]
        listed = ", ".join(choices[:_LISTED]) + (", and more" if len(choices) > _LISTED else "")
        message = f"{_declared(argument)} takes {listed} for {one.word}, not {_shown(one.value)}"
        if argument.reads == "text" and any(not isinstance(each, str) for each in argument.choices):
            message += "; it compares text, since it has no type"
            yield Finding(one.at, message, f"add a type to {argument.name} in the script")
            continue
        match = closest(one.value, choices)
        help_ = f'did you mean "{match}"?' if match else f"write one of: {listed}"
        if match is not None and match.lower() in ("true", "false"):
            help_ = f'write "{match}" in quotes: YAML\'s {match.lower()} is passed as {one.value}'
        yield Finding(one.at, message, help_, replacement=as_written(match) if match and one.at != _BATCH else None)


@rule("SMDP435", *_NEEDS)
def value_for_a_flag(facts: Facts) -> Iterator[Finding]:
    line = facts.command_line
    # A positional argument may take the words that a flag leaves.
    if line is None or line.is_tolerant or any(one.is_positional for one in line.arguments):
        return
    for one in passed(facts, line):
        argument = one.argument
        if argument is None:
            continue
        if argument.takes == "flag":
            yield _flag(line, one, argument)
        elif isinstance(argument.takes, int):
            message = f"{_declared(argument)} wants {argument.takes} values for {one.word}, and SageMaker passes one"
            help_ = "let the script take one value and split it, such as at commas"
            yield Finding(one.at, message, help_, on_key=True)


def _flag(line: CommandLine, one: Passed, argument: Argument) -> Finding:
    outcome = "absl does not read it, and the flag is on" if line.style == "absl" else f"{line.style} refuses it"
    message = f"{_declared(argument)} declares {one.word} as a flag, which takes no value; SageMaker passes"
    means_off = one.value.lower() in ("false", "0", "no", "off", "")
    other = "leave it out, for the flag's default; or " if means_off else ""
    instead = {"argparse": 'type=lambda text: text == "True"', "click": "type=bool", "absl": "DEFINE_string"}[
        line.style
    ]
    help_ = f"{other}let the script read a value, with {instead} in place of the flag"
    return Finding(one.at, f"{message} {one.word} {one.value}, and {outcome}", help_, on_key=one.at != _BATCH)


@rule("SMDP436", *_NEEDS)
def missing_argument(facts: Facts) -> Iterator[Finding]:
    line = facts.command_line
    if line is None or not line.is_one:
        return
    given = passed(facts, line)
    # What a misspelt name stands for is not missing too.
    found = [each for one in given for each in one.found or line.find(f"--{_meant(facts, line, one) or one.name}")]
    # The value of a flag or of an unknown option may be what a positional argument takes.
    leaves = any(one.argument is None or one.argument.takes in ("flag", "unknown") for one in given)
    for argument in line.arguments:
        if not argument.required or not argument.is_certain or argument in found:
            continue
        if argument.is_positional and not leaves:
            message = (
                f"{_declared(argument)} requires the positional argument {argument.name}; SageMaker passes options"
            )
            help_ = f"make it an option: --{argument.name.replace('_', '-')}"
            yield Finding(("script", "entry"), message, help_)
        elif not argument.is_positional:
            name = argument.name.lstrip("-")
            word = script_arguments({name: ""})[0]
            message = f"{_declared(argument)} requires {argument.name}, which the job does not give"
            help_ = f"add `{name}:` to script.hyperparameters"
            if argument not in line.find(word):
                help_ = f"add the spelling {word} to the option, since SageMaker passes {word}; then {help_}"
            yield Finding(_GIVEN, message, help_, on_key=True)


@rule("SMDP436", *_NEEDS)
def placeholder_for_an_argument(facts: Facts) -> Iterator[Finding]:
    line = facts.command_line
    # A launch on AWS is refused with all placeholders.
    for one in passed(facts, line) if line is not None and facts.local else ():
        if one.argument is not None and one.value == of_hyperparameter(one.name):
            message = f"{_declared(one.argument)} gets a placeholder for {one.word}"
            yield Finding(one.at, message, "give the value that the script is to get")


def _values(facts: Facts) -> Iterator[tuple[Passed, Argument]]:
    """The hyperparameters that reach an argument with one value."""
    line = facts.command_line
    for one in passed(facts, line) if line is not None else ():
        argument = one.argument
        if argument is None or argument.takes not in ("value", "several") or one.value == of_hyperparameter(one.name):
            continue
        if not one.value.startswith("-"):  # a value that begins with a dash may be taken for an option
            yield one, argument


def _declared(argument: Argument) -> str:
    return f"line {argument.line} of {argument.module}"


def _shown(value: str) -> str:
    return f'"{value}"'


def _reads(kind: str, text: str) -> bool:
    try:
        {"int": int, "float": float}.get(kind, str)(text)
    except ValueError:
        return False
    return True


def _converted(argument: Argument, text: str) -> object:
    return {"int": int, "float": float}.get(argument.reads, str)(text)


def _whole(text: str) -> str | None:
    """``3`` for ``3.0``, and nothing for what is no whole number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else None
