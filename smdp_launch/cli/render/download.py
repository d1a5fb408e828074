"""A download for a person, and for a program."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from rich.progress import TaskID
from rich.text import Text

from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.next import DEFAULT_JOB_FILE, after_local_run, say_next
from smdp_launch.cli.render.status import place
from smdp_launch.cli.render.terminal.bars import TransferBars
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.records.history import LOCAL, find_launch
from smdp_launch.jobs.transfer.download import Download
from smdp_launch.jobs.transfer.results import Result
from smdp_launch.plain_text import without_controls
from smdp_launch.units import short, size

#: Version of ``download --json``; raised when a member changes its meaning or goes.
_VERSION = 1


class DownloadView(TransferBars):
    """A bar for each file."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[Result, TaskID] = {}

    def show(self, result: Result, fetched: int) -> None:
        if result not in self._tasks:
            self._tasks[result] = self._bars.add_task(without_controls(str(result.name)), total=result.size)
        self._bars.update(self._tasks[result], completed=fetched)


def show_download(job: Job, fetched: Download) -> None:
    console = Console(highlight=False)
    console.print(Text(fetched.job, "bold"), Text(f"{fetched.outcome.summary}, {place(job.where)}"), sep="  ")
    rows = []
    for one in fetched.files:
        unpacked = f", unpacked to {short(one.unpacked)}" if one.unpacked is not None else ""
        rows.append((_title(one.path.name), f"{short(one.path)}, {size(one.size)}{unpacked}"))
    print_rows(console, rows)
    say_next(_next(job, fetched))


def _title(name: str) -> str:
    return name.partition(".")[0] if name in {"model.tar.gz", "output.tar.gz"} else "file"


def _next(job: Job, fetched: Download) -> str:
    """A run here is followed by one on AWS; what came from there is looked at."""
    if job.where == LOCAL:
        launched = find_launch(job.name)
        job_file = launched.job_file if launched is not None else DEFAULT_JOB_FILE
        return after_local_run(job_file, check_job(Path(job_file)).placeholders)
    first = fetched.files[0]
    if first.unpacked is not None or not first.path.name.endswith(".tar.gz"):
        return shlex.join(["ls", "-lR", short(fetched.folder)])
    return shlex.join(["tar", "-tzf", short(first.path)])


def as_document(job: Job, fetched: Download) -> dict[str, Any]:
    return {
        "download": _VERSION,
        "job": fetched.job,
        "where": job.where,
        "status": fetched.outcome.status,
        "folder": str(fetched.folder),
        "files": [
            {
                "path": str(one.path),
                "s3": one.source,
                "bytes": one.size,
                "unpacked": str(one.unpacked) if one.unpacked is not None else None,
            }
            for one in fetched.files
        ],
    }
