"""The hyperparameters as the script's command line receives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import JsonValue

from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.batch import script_hyperparameters
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.rules.base.facts import Facts
from smdp_launch.source.commandline.arguments import Argument, CommandLine

#: The fields that ``passed`` reads.
NEEDS = (
    "script.entry",
    "script.source",
    "script.hyperparameters",
    "batch",
    "compute.instance_type",
    "compute.instance_count",
)
HYPERPARAMETERS: Location = ("script", "hyperparameters")
BATCH: Location = ("batch", "hyperparameter")
RANGES: Location = ("sweep", "ranges")


class Passed(NamedTuple):
    """One hyperparameter as the script receives it.

    Args:
        word: such as ``--lr``.
        written: the value in the job file.
        matches: the arguments that ``word`` may mean; several if it is an ambiguous abbreviation.
    """

    name: str
    word: str
    value: str
    written: JsonValue
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
        (name, values[name], BATCH if name == of_batch else (*HYPERPARAMETERS, name)) for name in sorted(values)
    ]
    return [
        Passed(name, word, text, value, at, line.find(word))
        for name, value, at in [*given, *tried(facts)]
        for word, text in [script_arguments({name: value})]
        # argparse reads a word with a blank as a value, and splits a word at an equals sign.
        if not {" ", "="} & set(name)
    ]


def tried(facts: Facts) -> Iterator[tuple[str, JsonValue, Location]]:
    """The values of the sweep's ranges: the bounds, a number between those of a continuous range, and all of a list."""
    sweep = facts.spec.sweep
    if sweep is None or any(at[:1] == ("sweep",) for at in facts.loaded.invalid):
        return
    for name, whole in sweep.ranges.integer.items():
        for bound in (whole.min, whole.max):
            yield name, bound, (*RANGES, "integer", name)
    for name, real in sweep.ranges.continuous.items():
        yield name, (real.min + real.max) / 2, (*RANGES, "continuous", name)
    for name, values in sweep.ranges.categorical.items():
        for index, value in enumerate(values):
            yield name, value, (*RANGES, "categorical", name, index)


def each_once(every: list[Passed]) -> list[Passed]:
    """One of the values of each hyperparameter, at the place of its name."""
    return [
        one._replace(at=one.at[:4]) if one.at[:2] == RANGES else one
        for index, one in enumerate(every)
        if all(one.name != other.name for other in every[:index])
    ]


def means_off(value: str) -> bool:
    return value.lower() in ("false", "0", "no", "off", "")


def declared(argument: Argument) -> str:
    return f"line {argument.line} of {argument.module}"
