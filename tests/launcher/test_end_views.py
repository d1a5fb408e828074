"""What is said when a job has ended and when its results are here, at 80 and 140 columns, with colours and without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from smdp_launch.cli.following import Followed
from smdp_launch.cli.render.download import show_download
from smdp_launch.cli.render.launch import show_end, show_local_end, show_local_start
from smdp_launch.jobs.download import Download, Downloaded
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.outcome import Outcome, outcome
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.prepare import check_job, make_plan
from tests.conftest import JOB, write_job
from tests.launcher.test_request import NOW
from tests.launcher.test_views import stable

MODEL = "s3://bucket/output/small-20261121000000-0000/output/model.tar.gz"
COMPLETED: dict[str, Any] = {
    "TrainingJobStatus": "Completed",
    "ModelArtifacts": {"S3ModelArtifacts": MODEL},
    "TrainingTimeInSeconds": 4000,
}
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


def job(where: str) -> Job:
    return Job("small-20261121000000-0000", where, None, nullcontext)  # type: ignore[arg-type]


def stored(_bucket: str, _key: str) -> Path:
    return Path(".smdp/local/s3/bucket/output/model.tar.gz")


def local_start() -> None:
    data = {"train": Path("data")}
    show_local_start(planned(LocalRun(2, 1, data, ("role training, region us-east-1, volumes of 30 GB",))))


VIEWS: dict[str, Callable[[], None]] = {
    "local-start": local_start,
    "local-end": lambda: show_local_end(planned(), Followed(outcome(COMPLETED), {"accuracy": 0.98765}), stored),
    "local-failed": lambda: show_local_end(planned(), Followed(outcome(FAILED)), stored),
    "end": lambda: show_end(planned(), Followed(outcome(COMPLETED))),
    "failed": lambda: show_end(planned(), Followed(outcome(FAILED))),
    "stopped": lambda: show_end(planned(), Followed(outcome({"TrainingJobStatus": "Stopped"}))),
    "download": lambda: show_download(job("us-east-1"), fetched(outcome(COMPLETED), None)),
    "download-unpacked": lambda: show_download(job("local"), fetched(outcome(COMPLETED), "model")),
}


@pytest.mark.parametrize("colour", ["colour", "plain"])
@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_as_it_was(
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
