"""Shell completion of arguments. Invalid input has no completions: the command reports it when it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

#: Job files, and plans that `plan --out` saved.
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def job_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The job files in the folder typed so far. Without any, the shell completes file names itself."""
    folder, start = _split(incomplete)
    items = [CompletionItem(f"{folder}{name}") for name in _job_files(folder) if name.startswith(start)]
    return items or [CompletionItem(incomplete, type="file")]


def launched_jobs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The jobs launched from this folder, newest first."""
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.jobs.records.history import launches

    try:
        known = launches()
    except EnvironmentProblem:
        return []
    return [CompletionItem(one.job, help=one.where) for one in reversed(known) if one.job.startswith(incomplete)]


def deployed_endpoints(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The endpoints deployed from this folder, newest first."""
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.jobs.records.endpoints import served

    try:
        known = served()
    except EnvironmentProblem:
        return []
    matching_ = [one for one in reversed(known) if one.endpoint.startswith(incomplete)]
    return [CompletionItem(one.endpoint, help=one.where) for one in matching_]


def codes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from smdp_launch.rules.base import pages

    # `explain` accepts 301 and smdp301 for SMDP301, too.
    start = f"SMDP{incomplete}" if incomplete.isdigit() else incomplete.upper()
    return [CompletionItem(one, help=pages.title(one)) for one in pages.codes() if one.startswith(start)]


def account_codes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from smdp_launch.jobs.preflight.run import CHECKS

    start = incomplete.upper()
    return [CompletionItem(one.code, help=one.subject) for one in CHECKS if one.code.startswith(start)]


def matching(words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(one) for one in words if one.startswith(incomplete)]


def _split(incomplete: str) -> tuple[str, str]:
    """The folder as typed, with its slash, and the start of the file name."""
    folder, slash, start = incomplete.rpartition("/")
    return f"{folder}{slash}", start


def _job_files(folder: str) -> Iterator[str]:
    try:
        names = sorted(one.name for one in Path(folder).expanduser().iterdir())
    except (OSError, RuntimeError):  # RuntimeError: `~user` of an unknown user
        return
    yield from (one for one in names if Path(one).suffix in _SUFFIXES and not one.startswith("."))
