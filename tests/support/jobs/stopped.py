"""A job that counts, writes checkpoints and is stopped."""

from __future__ import annotations

from pathlib import Path

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import JOB, Command, write_job
from tests.support.jobs.service import name_of
from tests.support.waiting import wait_for

CHECKPOINT = JOB.replace("output: {s3", 'checkpoint: {s3: "s3://bucket/checkpoints"}\noutput: {s3').replace(
    "instance_count: 2", "instance_count: 1"
)


#: Writes one more file in each run, and exits in the second run.
COUNTS = """\
import os, time
folder = "/opt/ml/checkpoints"
there = sorted(os.listdir(folder))
print("found", there, flush=True)
open(os.path.join(folder, f"step-{len(there)}"), "w").close()
while not there:
    time.sleep(0.05)
"""


HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1", "--detach"]


def stored(folder: Path) -> list[Path]:
    return list((folder / STATE_FOLDER / "local" / "s3" / "bucket").glob("checkpoints/*/step-*"))


def stopped_job(folder: Path, smdp_launch: Command, text: str = CHECKPOINT) -> str:
    write_job(folder, text, COUNTS)
    assert smdp_launch(*HERE).returncode == ExitCode.OK
    wait_for(lambda: stored(folder), "the first checkpoint")
    assert smdp_launch("stop").returncode == ExitCode.OK
    assert smdp_launch("follow", "--quiet").returncode == ExitCode.JOB_STOPPED
    return name_of(folder)
