"""A script's options as hyperparameters: a name, and one value that the script gets as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smdp_launch.catalog.placeholders import of_hyperparameter
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.source.commandline.options import Option, Value, reads_as

#: CreateTrainingJob allows 100. The rest is for the engine's own.
MAX_HYPERPARAMETERS = 90
#: Characters of one value (CreateTrainingJob).
MAX_VALUE = 2500

_REFUSED = "the script does not accept the form in which SageMaker passes it"
_COMPUTED = "its default cannot be read from the script"
_NO_DEFAULT = "the script has no default; write a value to pass it"
#: Numbers that launchers such as torchrun pass in variables.
_OF_THE_PROCESS = frozenset({"local_rank", "rank", "node_rank", "world_size"})
_NUMBERS = {"int": (int,), "float": (int, float)}


@dataclass(frozen=True)
class Hyperparameter:
    """One option of the script.

    Args:
        value: the default; a placeholder for an option that is required and has no default.
        unfit: the reason why it cannot be a hyperparameter; None if it can.
    """

    name: str
    value: Value
    unfit: str | None
    help: str


def hyperparameters(options: Sequence[Option], is_refused: Callable[[str, Value], bool]) -> list[Hyperparameter]:
    """The options, without those that get their value from the platform's environment.

    Args:
        is_refused: whether the script refuses the hyperparameter of an option's name with a value.
    """
    result: list[Hyperparameter] = []
    passed = 0
    for option in options:
        if option.from_environment:
            continue
        value, help_ = _value(option), option.help
        unfit = _unfit(option) or (_REFUSED if is_refused(option.name, value) else None)
        if unfit is None and passed == MAX_HYPERPARAMETERS:
            unfit = f"SageMaker allows at most 100, and {MAX_HYPERPARAMETERS} are above"
        passed += unfit is None
        if unfit is None and value is None:
            value, help_ = of_hyperparameter(option.name), f"fill in; {option.help}" if option.help else "fill in"
        result.append(Hyperparameter(option.name, value, unfit, help_))
    return result


def _value(option: Option) -> Value:
    """The default; as text for an option that parses a text which SageMaker does not pass for this value."""
    form = {"json": json.dumps, "yaml": json.dumps, "python": repr}.get(option.kind)
    (_, text) = script_arguments({option.name: option.default})
    if form is None or option.default is None or isinstance(option.default, str):
        return option.default
    is_read = reads_as(option.kind, text) and not isinstance(option.default, dict)
    return option.default if is_read else form(option.default)


def _unfit(option: Option) -> str | None:
    """The reason why the script would not get its own default if SageMaker passed it as text; None if it would."""
    reserved = _reserved(option.name)
    if reserved is not None:
        return reserved
    if option.kind == "flag":
        return "a flag: SageMaker passes every name with a value, which a flag does not accept"
    if option.default is None:
        return None if option.required else _COMPUTED if option.is_computed else _NO_DEFAULT
    if option.kind == "several":
        return "takes several values, and SageMaker passes one"
    if len(json.dumps(option.default, ensure_ascii=False)) > MAX_VALUE:
        return f"longer than the {MAX_VALUE} characters that SageMaker passes"
    return _changed_by_text(option)


def _reserved(name: str) -> str | None:
    if name.startswith("sagemaker_"):
        return "names that start with sagemaker_ are reserved for the launcher"
    if name.replace("-", "_") in _OF_THE_PROCESS:
        return "each process gets a value of its own, in the variable of this name in capital letters"
    return None


def _changed_by_text(option: Option) -> str | None:
    value = option.default
    if option.kind == "truthy" and value is False:
        return "type=bool reads the text False as true"
    if isinstance(value, str):
        return None if reads_as(option.kind, value) else f"{value!r} is not of type {option.kind}"
    if option.kind == "text":
        return "has no type: the script would get text instead of this value"
    if option.kind in _NUMBERS and (isinstance(value, bool) or not isinstance(value, _NUMBERS[option.kind])):
        return f"its default is not of type {option.kind}"
    return None
