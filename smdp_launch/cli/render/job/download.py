"""A download for a person, and for a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.progress import TaskID
from rich.text import Text

from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.job.status import place
from smdp_launch.cli.render.next_step import DEFAULT_JOB_FILE, next_after_local_run, print_next
from smdp_launch.cli.render.terminal.bars import TransferBars
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.records.history import LOCAL, find_launch
from smdp_launch.jobs.transfer.download import Download
from smdp_launch.jobs.transfer.results import Result
from smdp_launch.plain_text import without_controls
from smdp_launch.systems import IS_WINDOWS, command_line
from smdp_launch.units import short, size

#: Version of ``download --json``; raised when a field changes its meaning or is removed.
_VERSION = 1


class DownloadView(TransferBars):
    """A progress bar for each file."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[Result, TaskID] = {}

    def show(self, result: Result, received: int) -> None:
        if result not in self._tasks:
            self._tasks[result] = self._bars.add_task(without_controls(str(result.name)), total=result.size)
        self._bars.update(self._tasks[result], completed=received)


def print_download(job: Job, download: Download) -> None:
    console = Console(highlight=False)
    console.print(Text(download.job, "bold"), Text(f"{download.outcome.summary}, {place(job.where)}"), sep="  ")
    rows = []
    for one in download.files:
        unpacked = f", extracted to {short(one.unpacked)}" if one.unpacked is not None else ""
        rows.append((_title(one.path.name), f"{short(one.path)}, {size(one.size)}{unpacked}"))
    print_rows(console, rows)
    print_next(_next(job, download))


def _title(name: str) -> str:
    return name.partition(".")[0] if name in {"model.tar.gz", "output.tar.gz"} else "file"


def _next(job: Job, download: Download) -> str:
    """After a local run, suggest a launch on AWS; after a job on AWS, a look at its files."""
    if job.where == LOCAL:
        launch = find_launch(job.name)
        job_file = launch.job_file if launch is not None else DEFAULT_JOB_FILE
        return next_after_local_run(job_file, check_job(Path(job_file)).placeholders)
    first = download.files[0]
    if first.unpacked is not None or not first.path.name.endswith(".tar.gz"):
        return command_line([*(("dir", "/s") if IS_WINDOWS else ("ls", "-lR")), short(download.folder)])
    return command_line(["tar", "-tzf", short(first.path)])


def download_json(job: Job, download: Download) -> dict[str, Any]:
    return {
        "download": _VERSION,
        "job": download.job,
        "where": job.where,
        "status": download.outcome.status,
        "folder": str(download.folder),
        "files": [
            {
                "path": str(one.path),
                "s3": one.source,
                "bytes": one.size,
                "unpacked": str(one.unpacked) if one.unpacked is not None else None,
            }
            for one in download.files
        ],
    }
