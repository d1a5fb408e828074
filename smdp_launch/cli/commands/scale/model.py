"""The program that models a study, and its progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from smdp_launch.scaling.program import Answer
    from smdp_launch.scaling.study import Study


def model_program() -> Path:
    """Raises:
    EnvironmentProblem: it is not installed; the message has the command that installs it.
    """
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.scaling.program import ProgramMissing, find_program

    try:
        return find_program()
    except ProgramMissing as error:
        raise EnvironmentProblem(_install(error)) from error


def _install(error: Exception) -> str:
    from smdp_launch.doctor.installer import install_engine
    from smdp_launch.doctor.packages import folder_hint, is_installed
    from smdp_launch.systems import linux_refusal

    refusal = linux_refusal("the cost model, a part of the engine,")
    if refusal is not None:
        return f"{error}: {refusal}"
    command = install_engine(is_again=is_installed("smdp_engine"))
    return f"{error}: the cost model is part of the engine; install it{folder_hint()} with {command}"


def model_answers(program: Path, study: Study, timeout: float) -> dict[str, Answer]:
    from smdp_launch.cli.render.scale import ModelProgress
    from smdp_launch.cli.shared.follow_session import sigterm_as_sigint
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.scaling.program import ModelTimeout, ProgramMissing, QuestionRefused, ask_all

    try:
        with sigterm_as_sigint(), ModelProgress() as progress:
            return ask_all(program, study.questions(), progress.show, timeout=timeout)
    except QuestionRefused as error:
        raise click.UsageError(f"the cost model refuses this input: {error}") from error
    except ModelTimeout as error:
        raise EnvironmentProblem(f"{error}: remove large counts from --hosts, or raise --timeout") from error
    except ProgramMissing as error:
        raise EnvironmentProblem(_install(error)) from error
