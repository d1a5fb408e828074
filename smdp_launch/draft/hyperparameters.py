"""A script's options as hyperparameters: a name and one value that arrives as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smdp_launch.catalog.placeholders import of_hyperparameter
from smdp_launch.source.script.options import Option, Value

#: CreateTrainingJob takes 100; some are left for the engine's own.
MAX_HYPERPARAMETERS = 90
#: Characters of one value (CreateTrainingJob).
MAX_VALUE = 2500

_NOT_ITS = "the script does not take it in the form in which SageMaker passes it"
_NUMBERS = {"int": (int,), "float": (int, float)}


@dataclass(frozen=True)
class Hyperparameter:
    """One option; ``unfit`` says why it is not to be passed, None if it is. What the script requires and has no default
    for has a placeholder as its value."""

    name: str
    value: Value
    unfit: str | None
    help: str


def hyperparameters(options: Sequence[Option], is_refused: Callable[[str], bool]) -> list[Hyperparameter]:
    """The options without those that the platform's environment answers.

    Args:
        is_refused: whether the script refuses the hyperparameter of an option's name.
    """
    found: list[Hyperparameter] = []
    passed = 0
    for option in options:
        if option.from_environment:
            continue
        unfit = _unfit(option) or (_NOT_ITS if is_refused(option.name) else None)
        if unfit is None and passed == MAX_HYPERPARAMETERS:
            unfit = f"SageMaker takes at most 100, and {MAX_HYPERPARAMETERS} stand above"
        passed += unfit is None
        value, help_ = option.default, option.help
        if unfit is None and value is None:
            value, help_ = of_hyperparameter(option.name), f"fill in; {option.help}" if option.help else "fill in"
        found.append(Hyperparameter(option.name, value, unfit, help_))
    return found


def _unfit(option: Option) -> str | None:
    """Why passing the default as text would not give the script what it has without."""
    if option.name.startswith("sagemaker_"):
        return "names that begin with sagemaker_ are the launcher's own"
    if option.kind == "flag":
        return "a flag: SageMaker passes every name with a value, which a flag does not take"
    if option.default is None:
        return None if option.required else "no default that can be read from the script"
    if option.kind == "several":
        return "takes several values, and SageMaker passes one"
    if len(json.dumps(option.default, ensure_ascii=False)) > MAX_VALUE:
        return f"longer than the {MAX_VALUE} characters that SageMaker passes"
    return _lost(option)


def _lost(option: Option) -> str | None:
    value = option.default
    if option.kind == "truthy" and value is False:
        return "type=bool takes the text False for true"
    if isinstance(value, str):
        return None if _reads(option.kind, value) else f"{value!r} is no {option.kind}"
    if option.kind == "text":
        return "has no type: the script would get text in place of what stands here"
    if option.kind in _NUMBERS and (isinstance(value, bool) or not isinstance(value, _NUMBERS[option.kind])):
        return f"its default is no {option.kind}"
    return None


def _reads(kind: str, text: str) -> bool:
    try:
        {"int": int, "float": float}.get(kind, str)(text)
    except ValueError:
        return False
    return True
