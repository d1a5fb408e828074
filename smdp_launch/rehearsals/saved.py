"""The last rehearsal of each kind of each job of the current folder, in ``.smdp/rehearsals``: a report a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.records.history import existing_state_folder, private_state, state_folder
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.rehearsed import REHEARSAL_VERSION, Rehearsed, spec_digest
from smdp_launch.private_files import make_folder, open_file

if TYPE_CHECKING:
    from smdp_launch.rehearsals.report import Report

_FOLDER = "rehearsals"
_LARGEST = 4 << 20  # bytes; a report is some kilobytes


def remember_rehearsal(report: Report) -> None:
    """In place of the last of the same kind of the same job.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    told = report.to_json()
    folder = state_folder() / _FOLDER
    try:
        with private_state():
            make_folder(folder)
    except OSError as error:
        raise EnvironmentProblem(f"{folder} cannot be made: {why(error, folder)}") from error
    write_whole(folder / f"{told['spec_sha256']}-{told['kind']}.json", json.dumps(told, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """``text`` in place of what ``path`` held, for its owner alone, all of it or nothing.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    from smdp_launch.private_files import write_bytes  # `plan` reads reports, and writes none

    try:
        write_bytes(path, text.encode())
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


def with_rehearsals(plan: Plan) -> Plan:
    """The same plan, with what was rehearsed of its job from the current folder."""
    found = sorted(_rehearsals(plan), key=lambda one: one.made)
    return replace(plan, rehearsals=tuple(found))


def _rehearsals(plan: Plan) -> Iterator[Rehearsed]:
    """A file that is no report of this version is passed over, and so is one that is not there."""
    digest, state = spec_digest(plan.spec), existing_state_folder()
    for path in (state / _FOLDER).glob(f"{digest}-*.json") if state is not None else ():
        told = _read(path)
        if told is None or told.get("rehearsal") != REHEARSAL_VERSION:
            continue
        try:
            yield Rehearsed.of({**told, "same_source": told.get("source_sha256") == plan.source.sha256})
        except (TypeError, ValueError):
            continue


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with private_state(), os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            told = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None
