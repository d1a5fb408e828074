"""Output about a job and its results, at 80 and 140 columns, with and without colours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.job.download import print_download
from smdp_launch.cli.render.job.follow import FollowView, JobLayout
from smdp_launch.cli.render.job.launch import (
    FollowResult,
    print_detached,
    print_end,
    print_local_end,
    print_local_start,
)
from smdp_launch.cli.render.job.listing import print_jobs
from smdp_launch.cli.render.job.logs import print_lines
from smdp_launch.cli.render.job.resume import print_resumption
from smdp_launch.cli.render.job.status import print_status, print_stopped
from smdp_launch.cli.render.rehearse import print_verdict
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.checkpoints.listing import Checkpoints
from smdp_launch.jobs.checkpoints.watch import CheckpointKept, CheckpointsStalled, CheckpointsUnseen
from smdp_launch.jobs.follow import ServiceRecovered, StatusChanged
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.logs.messages import LogLine
from smdp_launch.jobs.records.outcome import Outcome, outcome, with_files_found
from smdp_launch.jobs.resume import Resumption
from smdp_launch.jobs.service.error_kinds import ErrorKind
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.description import Description, description
from smdp_launch.jobs.status.list_jobs import ListedJob
from smdp_launch.jobs.transfer.download import Download, Downloaded
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.prepare import make_plan
from tests.conftest import JOB, write_job
from tests.support.jobs.plans import NOW
from tests.support.rehearsals import KILL, SPOT, kill, report_of, spot
from tests.support.terminal import stable

MODEL = "s3://bucket/output/small-20261121000000-0000/output/model.tar.gz"


class NoObjects:
    """An S3 client for a bucket without objects."""

    def list_objects_v2(self, **_request: Any) -> dict[str, Any]:
        return {}


COMPLETED: dict[str, Any] = {
    "TrainingJobStatus": "Completed",
    "ModelArtifacts": {"S3ModelArtifacts": MODEL},
    "TrainingTimeInSeconds": 4000,
}
EMPTY = with_files_found(lambda _: NoObjects(), {**COMPLETED, "TrainingJobName": MODEL.split("/")[4]})
REASON = (
    "AlgorithmError: RuntimeError: the size of tensor a (10) must match the size of tensor b (12) at non-singleton"
    " dimension 1 (rank 3 on algo-2, exit code 1)\nTraceback (most recent call last):\n  File train.py, line 7"
)
FAILED: dict[str, Any] = {"TrainingJobStatus": "Failed", "FailureReason": REASON, "TrainingTimeInSeconds": 61}


def planned(local: LocalRun | None = None) -> Plan:
    return make_plan(check_job(Path("job.yaml"), environ={}), NOW, 0, local)


def fetched(ended: Outcome, unpacked: str | None) -> Download:
    folder = Path("smdp-results", "small-20261121000000-0000")
    into = folder / unpacked if unpacked else None
    return Download(folder.name, ended, folder, (Downloaded(folder / "model.tar.gz", MODEL, 12_345_678, into),))


NAME = "small-20261121000000-0000"
ZERO = datetime(2026, 11, 21, tzinfo=timezone.utc)
STEPS = [("Pending", "Preparing the instances for training", 0), ("Downloading", "Downloading input data", 95)]


def described(**changes: Any) -> Description:
    began = [(status, message, ZERO + timedelta(seconds=after)) for status, message, after in STEPS]
    answer = {
        "TrainingJobName": NAME,
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Downloading",
        "CreationTime": ZERO,
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
        "SecondaryStatusTransitions": [
            {"Status": status, "StatusMessage": message, "StartTime": at} for status, message, at in began
        ],
    }
    return description({**answer, **changes}, ZERO + timedelta(seconds=200))


def lines() -> list[LogLine]:
    at = int(ZERO.timestamp() * 1000)
    return [LogLine("algo-1", None, "2 hosts", at), LogLine("algo-2", 9, "loss 0.5", at + 1234)]


def listed() -> list[ListedJob]:
    paid = {"hosts": 2, "billable_seconds": 4000, "usd": 72.84, "most_usd": 131.1}
    return [
        ListedJob(NAME, "us-east-1", ZERO, "Completed", "completed", **paid),  # type: ignore[arg-type]
        ListedJob("other-20261120000000-0000", "local", ZERO, "InProgress", "InProgress", 1),
        ListedJob("third-20261119000000-0000", "eu-west-1", ZERO, None, "unknown", problem="no AWS credentials"),
    ]


def followed_outage() -> None:
    with FollowView(
        JobLayout(("algo-1", "algo-2"), 8), Console(highlight=False, soft_wrap=True, force_terminal=False)
    ) as view:
        for one in (
            *(StatusChanged(status, message, int(ZERO.timestamp() + after) * 1000) for status, message, after in STEPS),
            LogLine("algo-2", 9, "loss 0.5", int(ZERO.timestamp() + 99) * 1000),
            LogLine("algo-1", 0, "loss 0.7", int(ZERO.timestamp() + 90) * 1000, late=True),
            Waiting(
                "the log of algo-1 cannot be read",
                "ThrottlingException: Rate exceeded",
                ZERO.timestamp() + 120,
                8.0,
                ErrorKind.TEMPORARY,
            ),
            ServiceRecovered(34.2),
        ):
            view.show(one)


def followed_checkpoints() -> None:
    with FollowView(
        JobLayout(("algo-1", "algo-2"), 8), Console(highlight=False, soft_wrap=True, force_terminal=False)
    ) as view:
        where, at = f"s3://bucket/checkpoints/{NAME}", int(ZERO.timestamp() * 1000)
        for one in (
            CheckpointsStalled(where, at, 1830.0, 1800.0, None, None, 0, 0, None, None),
            CheckpointsStalled(where, at, 1830.0, 1800.0, None, None, 3, 1000, None, 900),
            CheckpointsStalled(where, at, 4000.4, 2700.0, 900.0, "step-1200.pt", 24, 12_345_678, 1200, 4800),
            CheckpointKept(where, at, 4200.0, "step-4900\x1b[2J.pt", 25, 12_345_678),
            CheckpointsUnseen(where, "AccessDenied: Access Denied"),
        ):
            view.show(one)


def status_checkpoints() -> None:
    where = f"s3://bucket/checkpoints/{NAME}"
    found = described(CheckpointConfig={"S3Uri": where})
    print_status(job("us-east-1"), found, Checkpoints(where, 24, ZERO, "step-1200.pt", 12_345_678, 4000.0))
    print_status(job("us-east-1"), found)
    print_status(job("us-east-1"), found, ServiceProblem("the checkpoints cannot be listed: AccessDenied: no"))


def resumption() -> Resumption:
    where = f"s3://bucket/checkpoints/{NAME}"
    old = described(
        TrainingJobStatus="Stopped", CheckpointConfig={"S3Uri": where}, StoppingCondition={"MaxRuntimeInSeconds": 3600}
    )
    assert old.outcome is not None
    new = {"TrainingJobName": "small-20261121000100-0001"}
    return Resumption(old, old.outcome, new, Checkpoints(where, 3, ZERO))


def job(where: str) -> Job:
    return Job("small-20261121000000-0000", where, None, nullcontext)  # type: ignore[arg-type]


def stored(_bucket: str, _key: str) -> Path:
    return Path(".smdp/local/s3/bucket/output/model.tar.gz")


def local_start() -> None:
    data = {"train": Path("data")}
    print_local_start(planned(LocalRun(2, 1, data, ("role training, region us-east-1, volumes of 30 GB",))))


TRACEBACK = (("algo-2", 3), ("Traceback",))
VIEWS: dict[str, Callable[[], None]] = {
    "local-start": local_start,
    "local-end": lambda: print_local_end(planned(), FollowResult(outcome(COMPLETED), {"accuracy": 0.98765}), stored),
    "local-failed": lambda: print_local_end(planned(), FollowResult(outcome(FAILED)), stored),
    "local-end-without-results": lambda: print_local_end(planned(), FollowResult(outcome(EMPTY)), stored),
    "end-without-results": lambda: print_end(NAME, "us-east-1", FollowResult(outcome(EMPTY))),
    "end": lambda: print_end(NAME, "us-east-1", FollowResult(outcome(COMPLETED))),
    "failed": lambda: print_end(NAME, "us-east-1", FollowResult(outcome(FAILED))),
    "stopped": lambda: print_end(NAME, "us-east-1", FollowResult(outcome({"TrainingJobStatus": "Stopped"}))),
    "download": lambda: print_download(job("us-east-1"), fetched(outcome(COMPLETED), None)),
    "status": lambda: print_status(job("us-east-1"), described()),
    "status-checkpoints": status_checkpoints,
    "status-failed": lambda: print_status(job("us-east-1"), described(**FAILED, BillableTimeInSeconds=61)),
    "stopped-now": lambda: print_stopped(job("us-east-1"), "Stopping", described()),
    "logs": lambda: print_lines(job("us-east-1"), described(), lines(), True),
    "list": lambda: print_jobs(listed(), None),
    "detached": lambda: print_detached(NAME),
    "followed": lambda: print_end(NAME, "us-east-1", FollowResult(outcome(FAILED), {}, TRACEBACK)),
    "outage": followed_outage,
    "checkpoints": followed_checkpoints,
    "rehearsal": lambda: print_verdict(report_of(SPOT, spot()), Path("spot.html"), as_json=False),
    "rehearsal-failed": lambda: print_verdict(report_of(KILL, kill("no rank is named")), as_json=False),
    "resume": lambda: print_resumption(resumption(), "us-east-1"),
    "download-unpacked": lambda: print_download(job("local"), fetched(outcome(COMPLETED), "model")),
}


def test_resumption_in_a_pipe_is_not_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_resumption(resumption(), "us-east-1")
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"{resumption().job}  from {resumption().old.job}, which {resumption().ended.summary}"


def test_log_lines_in_a_pipe_are_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    at = int(ZERO.timestamp() * 1000)
    print_lines(
        job("us-east-1"), described(), [LogLine("algo-1", 0, "a\tb [red]c", at, coloured="a\tb \x1b[31m[red]c")], True
    )
    assert capsys.readouterr().out == "2026-11-21 00:00:00.000Z algo-1:0  | a\tb [red]c\n"


@pytest.mark.parametrize("colour", ["colour", "plain"])
@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("view", VIEWS)
def test_output_matches_the_snapshot(
    view: str,
    columns: int,
    colour: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    snapshot: SnapshotAssertion,
) -> None:
    write_job(tmp_path, JOB)
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR" if colour == "plain" else "COLORTERM", "truecolor")
    VIEWS[view]()
    shown = capsys.readouterr()
    assert stable(shown.out + shown.err) == snapshot
    if colour == "plain":
        assert "\x1b" not in shown.out + shown.err
        assert all(len(line) <= columns for line in shown.out.splitlines() if "/" not in line)
