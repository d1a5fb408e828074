"""Whether the script accepts the job's hyperparameters on its command line.

SageMaker passes each hyperparameter as ``--name value`` (``-n value`` for one letter), so these rules can predict what
the script's parser refuses in the container.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import JsonValue

from smdp_launch.catalog.placeholders import of_hyperparameter
from smdp_launch.diagnostics import closest
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.request.batch import script_hyperparameters
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.commandline.arguments import Argument, CommandLine
from smdp_launch.source.commandline.options import reads_as

_NEEDS = (
    "script.entry",
    "script.source",
    "script.hyperparameters",
    "batch",
    "compute.instance_type",
    "compute.instance_count",
)
_HYPERPARAMETERS: Location = ("script", "hyperparameters")
_LISTED = 12
#: absl reads these as whole numbers.
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_BATCH: Location = ("batch", "hyperparameter")
_RANGES: Location = ("sweep", "ranges")


class Passed(NamedTuple):
    """One hyperparameter as the script receives it.

    Args:
        word: such as ``--lr``.
        matches: the arguments that ``word`` may mean; several if it is an ambiguous abbreviation.
    """

    name: str
    word: str
    value: str
    at: Location
    matches: list[Argument]

    @property
    def argument(self) -> Argument | None:
        return self.matches[0] if len(self.matches) == 1 else None


def passed(facts: Facts, line: CommandLine) -> list[Passed]:
    """The hyperparameters, in the order in which they are passed; after them the values of a sweep."""
    values = script_hyperparameters(facts.spec)
    of_batch = facts.spec.batch.hyperparameter if facts.spec.batch is not None else None
    given: list[tuple[str, JsonValue, Location]] = [
        (name, values[name], _BATCH if name == of_batch else (*_HYPERPARAMETERS, name)) for name in sorted(values)
    ]
    return [
        Passed(name, word, text, at, line.find(word))
        for name, value, at in [*given, *_tried(facts)]
        for word, text in [script_arguments({name: value})]
        # argparse reads a word with a blank as a value, and splits a word at an equals sign.
        if not {" ", "="} & set(name)
    ]


def _tried(facts: Facts) -> Iterator[tuple[str, JsonValue, Location]]:
    """The values of the sweep's ranges: the bounds, a number between those of a continuous range, and all of a list."""
    sweep = facts.spec.sweep
    if sweep is None or any(at[:1] == ("sweep",) for at in facts.loaded.invalid):
        return
    for name, whole in sweep.ranges.integer.items():
        for bound in (whole.min, whole.max):
            yield name, bound, (*_RANGES, "integer", name)
    for name, real in sweep.ranges.continuous.items():
        yield name, (real.min + real.max) / 2, (*_RANGES, "continuous", name)
    for name, values in sweep.ranges.categorical.items():
        for index, value in enumerate(values):
            yield name, value, (*_RANGES, "categorical", name, index)


@rule("SMDP432", *_NEEDS)
def unknown_hyperparameter(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    if line is None or not line.is_closed:
        return
    for one in _each_once(passed(facts, line)):
        if not one.matches:
            yield _unknown(facts, line, one)


def _each_once(every: list[Passed]) -> list[Passed]:
    """One of the values of each hyperparameter, at the place of its name."""
    return [
        one._replace(at=one.at[:4]) if one.at[:2] == _RANGES else one
        for index, one in enumerate(every)
        if all(one.name != other.name for other in every[:index])
    ]


def _unknown(facts: Facts, line: CommandLine, one: Passed) -> Problem:
    entry = facts.spec.script.entry
    message = f"{entry} has no option {one.word}, and {line.style} refuses unknown ones"
    # SageMaker passes one dash before one letter and two before a longer name. The script may use other dashes.
    bare = one.word.lstrip("-")
    dashed = next((each for each in line.arguments if {f"-{bare}", f"--{bare}"} & set(each.spellings)), None)
    if dashed is not None:
        help_ = f"add the spelling {one.word} in line {dashed.line} of {dashed.module}, which has only {dashed.name}"
        return Problem(one.at, f"{message}; SageMaker passes {one.word}", help_, on_key=one.at != _BATCH)
    names = list(dict.fromkeys(each.name.lstrip("-") for each in line.arguments if each.name.startswith("-")))
    match = _meant(facts, line, one)
    listed = f"it has {', '.join(names[:_LISTED])}" + (", and more" if len(names) > _LISTED else "")
    help_ = f'did you mean "{match}"?' if match else listed if names else "it has no options"
    return Problem(one.at, message, help_, on_key=one.at != _BATCH, replacement=match)


def _meant(facts: Facts, line: CommandLine, one: Passed) -> str | None:
    """The option that the user probably meant, if no other hyperparameter sets it."""
    others = {*facts.spec.script.hyperparameters, *(name for name, _, _ in _tried(facts))}
    names = [each.name.lstrip("-") for each in line.arguments if each.name.startswith("--")]
    return closest(one.name, [name for name in names if name not in others])


@rule("SMDP433", *_NEEDS)
def unreadable_value(facts: Facts) -> Iterator[Problem]:
    for one, argument in _values(facts):
        if not reads_as(argument.reads, one.value) and not _HEXADECIMAL.fullmatch(one.value):
            kind = "a whole number" if argument.reads == "int" else "a number"
            message = (
                f"{_declared(argument)} reads {one.word} with {argument.reads}(), which refuses {_quoted(one.value)}"
            )
            whole = _whole(one.value) if argument.reads == "int" else None
            help_ = f"write {whole if whole is not None else kind}"
            in_list = len(one.at) == 5
            if one.at[:2] == _RANGES and not in_list:
                help_ = "use `ranges.integer`" if argument.reads == "int" else f"change the type of {one.word}"
            is_written = one.at[:2] == _HYPERPARAMETERS or in_list
            yield Problem(
                one.at,
                message,
                help_,
                on_key=one.at[:2] == _RANGES and not in_list,
                replacement=whole if is_written else None,
            )


@rule("SMDP434", *_NEEDS)
def value_outside_choices(facts: Facts) -> Iterator[Problem]:
    for one, argument in _values(facts):
        if argument.choices is None or argument.reads == "any" or not reads_as(argument.reads, one.value):
            continue
        if _converted(argument, one.value) in argument.choices:
            continue
        choices = [str(each) for each in argument.choices]
        listed = ", ".join(choices[:_LISTED]) + (", and more" if len(choices) > _LISTED else "")
        message = f"{_declared(argument)} accepts {listed} for {one.word}, not {_quoted(one.value)}"
        if argument.reads == "text" and any(not isinstance(each, str) for each in argument.choices):
            message += "; without a type it compares text"
            yield Problem(one.at, message, f"add a type to {argument.name} in the script")
            continue
        match = closest(one.value, choices)
        help_ = f'did you mean "{match}"?' if match else f"write one of: {listed}"
        if match is not None and match.lower() in ("true", "false"):
            help_ = f'write "{match}" in quotes: YAML\'s {match.lower()} is passed as {one.value}'
        is_written = one.at[:2] == _HYPERPARAMETERS or len(one.at) == 5
        yield Problem(one.at, message, help_, replacement=to_yaml(match) if match and is_written else None)


@rule("SMDP435", *_NEEDS)
def value_for_a_flag(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    # A positional argument may take the value after a flag.
    if line is None or line.is_tolerant or any(one.is_positional for one in line.arguments):
        return
    for one in _each_once(passed(facts, line)):
        argument = one.argument
        if argument is None:
            continue
        if argument.takes == "flag":
            yield _flag(line, one, argument)
        elif isinstance(argument.takes, int):
            message = f"{_declared(argument)} needs {argument.takes} values for {one.word}, but SageMaker passes one"
            help_ = "change the script to read one value and split it, for example at commas"
            yield Problem(one.at, message, help_, on_key=True)


def _flag(line: CommandLine, one: Passed, argument: Argument) -> Problem:
    outcome = "absl ignores the value and sets the flag" if line.style == "absl" else f"{line.style} refuses the value"
    message = f"{_declared(argument)} declares {one.word} as a flag, which takes no value; SageMaker passes"
    means_off = one.value.lower() in ("false", "0", "no", "off", "")
    other = "remove it to use the flag's default, or " if means_off else ""
    options = {"argparse": 'type=lambda text: text == "True"', "click": "type=bool", "absl": "DEFINE_string"}
    help_ = f"{other}change the script to read a value, with {options[line.style]} instead of the flag"
    return Problem(one.at, f"{message} {one.word} {one.value}, and {outcome}", help_, on_key=one.at != _BATCH)


@rule("SMDP436", *_NEEDS)
def missing_argument(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    if line is None or not line.is_one:
        return
    values = passed(facts, line)
    # The option that a misspelt name means is not reported as missing.
    present = [each for one in values for each in one.matches or line.find(f"--{_meant(facts, line, one) or one.name}")]
    # A positional argument may take the value after a flag or an unknown option.
    has_free_value = any(one.argument is None or one.argument.takes in ("flag", "unknown") for one in values)
    for argument in line.arguments:
        if not argument.required or not argument.is_certain or argument in present:
            continue
        if argument.is_positional and not has_free_value:
            message = (
                f"{_declared(argument)} requires the positional argument {argument.name}; SageMaker passes only options"
            )
            help_ = f"change it to an option: --{argument.name.replace('_', '-')}"
            yield Problem(("script", "entry"), message, help_)
        elif not argument.is_positional:
            name = argument.name.lstrip("-")
            word = script_arguments({name: ""})[0]
            message = f"{_declared(argument)} requires {argument.name}, which the job does not set"
            help_ = f"add `{name}:` to script.hyperparameters"
            if argument not in line.find(word):
                help_ = f"add the spelling {word}, which SageMaker passes, to the option; then {help_}"
            yield Problem(_HYPERPARAMETERS, message, help_, on_key=True)


@rule("SMDP436", *_NEEDS)
def placeholder_for_an_argument(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    # For a launch on AWS another rule reports all placeholders.
    for one in passed(facts, line) if line is not None and facts.local else ():
        if one.argument is not None and one.value == of_hyperparameter(one.name):
            message = f"the value of {one.word}, which {_declared(one.argument)} reads, is a placeholder"
            yield Problem(one.at, message, "write the value for the script")


def _values(facts: Facts) -> Iterator[tuple[Passed, Argument]]:
    """The hyperparameters whose argument takes one value, with that argument."""
    line = facts.command_line
    for one in passed(facts, line) if line is not None else ():
        argument = one.argument
        if argument is None or argument.takes not in ("value", "several") or one.value == of_hyperparameter(one.name):
            continue
        if not one.value.startswith("-"):  # a value that begins with a dash may be taken for an option
            yield one, argument


def _declared(argument: Argument) -> str:
    return f"line {argument.line} of {argument.module}"


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
