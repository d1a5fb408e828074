"""A job that `launch --local` runs."""

from __future__ import annotations

import subprocess

from tests.endtoend.conftest import Job
from tests.support import command


def launch(job: Job, *arguments: str, hosts: int = 2, workers: int = 2) -> subprocess.CompletedProcess[str]:
    counts = ("--hosts", str(hosts), "--workers-per-host", str(workers))
    return command.run(job.folder, "launch", "--local", *counts, *arguments)
