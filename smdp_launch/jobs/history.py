"""The jobs launched from one folder, newest last: a line each in ``.smdp/history.jsonl``, written before submit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem

#: Everything this tool keeps beside the person's files lies in this folder of the current one.
STATE_FOLDER = ".smdp"

_FILE = "history.jsonl"

#: `where` of a job of this machine.
LOCAL = "local"


@dataclass(frozen=True)
class Launch:
    """``where`` is the AWS region, or "local"."""

    job: str
    where: str
    job_file: str
    plan_hash: str
    time: str


def state_folder(beside: Path | None = None) -> Path:
    """The folder in the current one, or in ``beside``, made if need be; git does not see it.

    Raises:
        EnvironmentProblem: it cannot be made here.
    """
    folder = (beside or Path.cwd()) / STATE_FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be made ({error.strerror}): run from a folder that you can write to"
        ) from error
    return folder


def remember(job: str, where: str, job_file: str, plan_hash: str, now: datetime) -> None:
    entry = Launch(job, where, job_file, plan_hash, now.astimezone(timezone.utc).isoformat(timespec="seconds"))
    line = json.dumps(asdict(entry)) + "\n"
    # One write to a file opened for appending: launches at the same time do not mix their lines.
    file = os.open(state_folder() / _FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def launches() -> list[Launch]:
    """From the current folder, in order; a line that is no launch of this version is passed over."""
    try:
        lines = (Path.cwd() / STATE_FOLDER / _FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return list(_read(lines))


def find_launch(job: str | None = None) -> Launch | None:
    """That of ``job``, or the last of all."""
    return next((one for one in reversed(launches()) if job in (None, one.job)), None)


def _read(lines: list[str]) -> Iterator[Launch]:
    for line in lines:
        try:
            yield Launch(**json.loads(line))
        except (ValueError, TypeError):
            continue
