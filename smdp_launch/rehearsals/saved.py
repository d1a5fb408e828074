"""The reports in ``.smdp/rehearsals``: one file for the last rehearsal of each kind of each job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.records.history import existing_state_folder, private_state, state_folder
from smdp_launch.planning.past_rehearsals import REHEARSAL_VERSION, PastRehearsal, spec_digest
from smdp_launch.planning.plan import Plan
from smdp_launch.private_files import make_folder, open_file, write_bytes
from smdp_launch.saved_versions import other_version

if TYPE_CHECKING:
    from smdp_launch.rehearsals.report import Report

_FOLDER = "rehearsals"
_LARGEST = 4 << 20  # bytes; a report has some kilobytes


def save_report(report: Report) -> None:
    """Write the report. It replaces the last one of the same kind of the same job.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    document = report.to_json()
    folder = state_folder() / _FOLDER
    try:
        with private_state():
            make_folder(folder)
    except OSError as error:
        raise EnvironmentProblem(f"{folder} cannot be created: {why(error, folder)}") from error
    name = f"{document['spec_sha256']}-{document['kind']}.json"
    replace_file(folder / name, json.dumps(document, allow_nan=False) + "\n")


def replace_file(path: Path, text: str) -> None:
    """Replace ``path`` by a file with ``text`` in one step. Only its owner may read it.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    try:
        write_bytes(path, text.encode())
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


def with_rehearsals(plan: Plan, note: Callable[[str], None] = lambda _: None) -> Plan:
    """The same plan with the rehearsals of its job from the current folder.

    Args:
        note: called with a sentence for each report of another version, which is left out.
    """
    return replace(plan, rehearsals=tuple(sorted(_rehearsals(plan, note), key=lambda one: (one.made, one.kind))))


def _rehearsals(plan: Plan, note: Callable[[str], None]) -> Iterator[PastRehearsal]:
    """A file that is no report is skipped."""
    digest, state = spec_digest(plan.spec), existing_state_folder()
    for path in (state / _FOLDER).glob(f"{digest}-*.json") if state is not None else ():
        document = _read(path)
        if document is None or "rehearsal" not in document:
            continue
        reason = other_version(path, document["rehearsal"], REHEARSAL_VERSION, "rehearse the job again")
        if reason is not None:
            note(f"a rehearsal is left out, because {reason}")
            continue
        try:
            yield PastRehearsal.from_json(
                {**document, "same_source": document.get("source_sha256") == plan.source.sha256}
            )
        except (TypeError, ValueError):
            continue


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with private_state(), os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            document = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
