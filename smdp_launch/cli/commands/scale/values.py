"""Parsers and completions of the options of ``scale``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from smdp_launch.cli.shared import completers

Callback = Callable[[click.Context, click.Parameter, Any], Any]


def parsed(parser: str) -> Callback:
    """Parse the value, or each value of a repeated option, with the function of that name in ``scaling.parsing``."""

    def parse(_: click.Context, __: click.Parameter, value: Any) -> Any:
        from smdp_launch.scaling import parsing

        read = getattr(parsing, parser)
        try:
            if isinstance(value, tuple):
                return tuple(read(one) for one in value)
            return read(value) if value is not None else None
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return parse


def instance_types(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    if not values:
        return ()
    from smdp_launch.scaling.inputs import gpu_instance

    try:
        return tuple(dict.fromkeys(gpu_instance(value).name for value in values))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def step_times(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str | None, float]:
    """Parse ``SECONDS``, or ``TYPE=SECONDS`` of each type."""
    from smdp_launch.scaling.inputs import gpu_instance
    from smdp_launch.scaling.parsing import seconds

    times: dict[str | None, float] = {}
    for value in values:
        name, equals, text = value.rpartition("=")
        try:
            instance_type = gpu_instance(name).name if equals else None
            if instance_type in times:
                raise ValueError(f"the step time of {instance_type or 'every type'} is given twice")
            times[instance_type] = seconds(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return times


def trace(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from smdp_launch.scaling.inputs import MODELS

    if value not in MODELS:
        raise click.BadParameter(f"{value!r} is no known model: one of {', '.join(MODELS)}")
    return value


def costs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[tuple[str | None, str, float]]:
    from smdp_launch.scaling.parsing import cost
    from smdp_launch.scaling.question import SCHEDULES

    try:
        return [cost(value, SCHEDULES) for value in values]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def complete_types(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from smdp_launch.catalog.instances import instances

    return completers.matching([one.name for one in instances()], incomplete)


def complete_models(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from smdp_launch.scaling.inputs import MODELS

    return completers.matching(MODELS, incomplete)
