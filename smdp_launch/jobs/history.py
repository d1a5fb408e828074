"""The jobs launched from one folder, newest last: a line each in ``.smdp/history.jsonl``, written before submit."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem

#: Everything this tool keeps beside the person's files lies in this folder of the current one.
STATE_FOLDER = ".smdp"


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
    file = os.open(state_folder() / "history.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
