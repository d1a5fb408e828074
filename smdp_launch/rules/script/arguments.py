"""Whether the script has the options of the job's hyperparameters, and gets those that it requires.

SageMaker passes each hyperparameter as ``--name value`` (``-n value`` for one letter), so these rules can predict what
the script's parser refuses in the container.
"""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.placeholders import of_hyperparameter
from smdp_launch.diagnostics import closest
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.rules.base.command_line import (
    BATCH,
    HYPERPARAMETERS,
    NEEDS,
    Passed,
    declared,
    each_once,
    means_off,
    passed,
    tried,
)
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.commandline.arguments import Argument, CommandLine

_LISTED = 12


@rule("SMDP432", *NEEDS)
def unknown_hyperparameter(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    if line is None:
        return
    for one in each_once(passed(facts, line)):
        if not one.matches and line.is_closed:
            yield _unknown(facts, line, one)
        elif line.is_one and len(names := _abbreviated(one)) > 1:
            message = f"{one.word} is an abbreviation of {' and '.join(names)}, which {line.style} refuses as ambiguous"
            yield Problem(one.at, message, "write the whole name of the option", on_key=one.at != BATCH)


def _abbreviated(one: Passed) -> list[str]:
    """The options that every run declares and that ``one`` abbreviates; empty if it is the name of an option."""
    if any(one.word in each.spellings for each in one.matches):
        return []
    return list(dict.fromkeys(each.name for each in one.matches if each.is_certain))


def _unknown(facts: Facts, line: CommandLine, one: Passed) -> Problem:
    entry = facts.spec.script.entry
    message = f"{entry} has no option {one.word}, and {line.style} refuses unknown ones"
    # SageMaker passes one dash before one letter and two before a longer name. The script may use other dashes.
    bare = one.word.lstrip("-")
    dashed = next((each for each in line.arguments if {f"-{bare}", f"--{bare}"} & set(each.spellings)), None)
    if dashed is not None:
        help_ = f"add the spelling {one.word} in line {dashed.line} of {dashed.module}, which has only {dashed.name}"
        return Problem(one.at, f"{message}; SageMaker passes {one.word}", help_, on_key=one.at != BATCH)
    names = list(dict.fromkeys(each.name.lstrip("-") for each in line.arguments if each.name.startswith("-")))
    match = _meant(facts, line, one)
    listed = f"it has {', '.join(names[:_LISTED])}" + (", and more" if len(names) > _LISTED else "")
    help_ = f'did you mean "{match}"?' if match else listed if names else "it has no options"
    return Problem(one.at, message, help_, on_key=one.at != BATCH, replacement=match)


def _meant(facts: Facts, line: CommandLine, one: Passed) -> str | None:
    """The option that the user probably meant, if no other hyperparameter sets it."""
    others = {*facts.spec.script.hyperparameters, *(name for name, _, _ in tried(facts))}
    names = [each.name.lstrip("-") for each in line.arguments if each.name.startswith("--")]
    return closest(one.name, [name for name in names if name not in others])


@rule("SMDP435", *NEEDS)
def value_for_a_flag(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    # A positional argument may take the value after a flag.
    if line is None or any(one.is_positional for one in line.arguments):
        return
    for one in each_once(passed(facts, line)):
        argument = one.argument
        if argument is None:
            continue
        if argument.takes == "flag" and (not line.is_tolerant or means_off(one.value)):
            yield _flag(line, one, argument)
        elif isinstance(argument.takes, int):
            message = f"{declared(argument)} needs {argument.takes} values for {one.word}, but SageMaker passes one"
            help_ = "change the script to read one value and split it, for example at commas"
            yield Problem(one.at, message, help_, on_key=True)


def _flag(line: CommandLine, one: Passed, argument: Argument) -> Problem:
    ignores = line.style == "absl" or line.is_tolerant
    outcome = f"{line.style} {'ignores the value and sets the flag' if ignores else 'refuses the value'}"
    message = f"{declared(argument)} declares {one.word} as a flag, which takes no value; SageMaker passes"
    other = "remove it to use the flag's default, or " if means_off(one.value) else ""
    options = {"argparse": 'type=lambda text: text == "True"', "click": "type=bool", "absl": "DEFINE_string"}
    help_ = f"{other}change the script to read a value, with {options[line.style]} instead of the flag"
    return Problem(one.at, f"{message} {one.word} {one.value}, and {outcome}", help_, on_key=one.at != BATCH)


@rule("SMDP436", *NEEDS)
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
                f"{declared(argument)} requires the positional argument {argument.name}; SageMaker passes only options"
            )
            help_ = f"change it to an option: --{argument.name.replace('_', '-')}"
            yield Problem(("script", "entry"), message, help_)
        elif not argument.is_positional:
            name = argument.name.lstrip("-")
            word = script_arguments({name: ""})[0]
            message = f"{declared(argument)} requires {argument.name}, which the job does not set"
            help_ = f"add `{name}:` to script.hyperparameters"
            if argument not in line.find(word):
                help_ = f"add the spelling {word}, which SageMaker passes, to the option; then {help_}"
            yield Problem(HYPERPARAMETERS, message, help_, on_key=True)


@rule("SMDP436", *NEEDS)
def missing_subcommand(facts: Facts) -> Iterator[Problem]:
    line = facts.subcommand_line
    if line is None or len(line.subcommands) != 1 or not line.subcommands[0].is_certain:
        return
    (commands,) = line.subcommands
    values = passed(facts, line)
    # The value of an option that the parser does not know is read as the subcommand.
    if any(one.value in commands.names for one in values):
        return
    where = f"line {commands.line} of {commands.module}"
    given = next((one for one in values if one.matches and all(each.is_of_command for each in one.matches)), None)
    if commands.required:
        message = f"{where} requires a subcommand; SageMaker passes only options"
    elif given is not None:
        message = f"{given.word} is an option of a subcommand ({where}); SageMaker passes only options, no subcommand"
    else:
        return
    help_ = "name a second script that inserts the subcommand into `sys.argv`, or make the subcommand an option"
    yield Problem(("script", "entry"), message, help_)


@rule("SMDP438", *NEEDS)
def exclusive_options(facts: Facts) -> Iterator[Problem]:
    line, first = facts.command_line, dict[tuple[str, int], Passed]()
    for one in each_once(passed(facts, line)) if line is not None else ():
        argument = one.argument
        if argument is None or argument.exclusive is None or not argument.is_certain or not one.value:
            continue
        other = first.setdefault((argument.module, argument.exclusive), one)
        if other.argument != argument:
            message = (
                f"{one.word} and {other.word} exclude each other: line {argument.exclusive} of {argument.module} puts"
                " them into one mutually exclusive group"
            )
            yield Problem(one.at, message, "remove one of the two", on_key=one.at != BATCH)


@rule("SMDP436", *NEEDS)
def placeholder_for_an_argument(facts: Facts) -> Iterator[Problem]:
    line = facts.command_line
    # For a launch on AWS another rule reports all placeholders.
    for one in passed(facts, line) if line is not None and facts.local else ():
        if one.argument is not None and one.value == of_hyperparameter(one.name):
            message = f"the value of {one.word}, which {declared(one.argument)} reads, is a placeholder"
            yield Problem(one.at, message, "write the value for the script")
