"""A saved plan is submitted byte for byte, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode, Refused
from smdp_launch.localcloud.client.connect import private
from smdp_launch.planning.saved import load, save
from tests.conftest import JOB, Command, write_job
from tests.support.jobs.plans import plan_of
from tests.support.services.cloud import BUCKET, Cloud, as_the_service

BATCH = "batch: {global: 2048, reference_size: 256, reference_learning_rate: 0.1, warmup_steps: 500}\n"


def saved(folder: Path, text: str = JOB) -> Path:
    path = folder / "plan.json"
    save(plan_of(write_job(folder, text)), path)
    return path


def test_loaded_plan_equals_the_saved_plan(tmp_path: Path) -> None:
    made = plan_of(write_job(tmp_path, JOB + BATCH))
    save(made, tmp_path / "plan.json")
    read = load(tmp_path / "plan.json")
    assert json.dumps(read.request) == json.dumps(made.request)
    assert (read.job, read.hash, read.ranks, read.script_arguments) == (
        made.job,
        made.hash,
        made.ranks,
        made.script_arguments,
    )
    assert (read.batch, read.billing, read.side_effects) == (made.batch, made.billing, made.side_effects)
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600


def test_a_plan_can_be_launched_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smdp_launch: Command, job_folder: Path
) -> None:
    assert smdp_launch("plan", "--out", "plan.json").returncode == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load(job_folder / "plan.json").source.files[0].name == "train.py"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "src" / "train.py").write_text("print(2)\n"), "train.py"),
        (lambda folder: (folder / "src" / "train.py").write_text("print('trainee')\n"), "the content or mode"),
        (lambda folder: (folder / "src" / "more.py").write_text(""), "more.py"),
        (lambda folder: (folder / "src" / "train.py").chmod(0o755), "the content or mode"),
        (lambda folder: (folder / "src").rename(folder / "moved"), "does not exist any more"),
    ],
    ids=["size", "content", "new", "mode", "gone"],
)
def test_plan_with_changed_source_is_refused(tmp_path: Path, change: Callable[[Path], Any], message: str) -> None:
    path = saved(tmp_path)
    change(tmp_path)
    with pytest.raises(Refused, match=message):
        load(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"InstanceCount": 2', '"InstanceCount": 20'),
        ('"S3OutputPath": "s3://bucket/output"', '"S3OutputPath": "s3://other/output"'),
        ('"plan": 2', '"plan": 3'),
        ('"TrainingJobName": "small', '"TrainingJobName": "large'),
        ('"sha256": "', '"sha256": "0'),
    ],
)
def test_a_changed_plan_is_refused(tmp_path: Path, before: str, after: str) -> None:
    path = saved(tmp_path)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises(Refused):
        load(path)


@pytest.mark.parametrize("text", ["{}", "[", '{"plan": 2}', '{"plan": 2, "request": {}, "spec": {}}', "{" * 100_000])
def test_file_that_is_not_a_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(Refused):
        load(tmp_path / "plan.json")


def test_plan_with_placeholders_is_not_saved(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB.replace("us-east-1\n", "xx-placeholder-1\n"))
    ran = smdp_launch("plan", "--out", "plan.json")
    assert ran.returncode == ExitCode.REFUSED
    assert not (job_folder / "plan.json").exists()


def test_a_saved_plan_takes_no_settings(smdp_launch: Command, job_folder: Path) -> None:
    assert smdp_launch("plan", "--out", "plan.json").returncode == 0
    assert smdp_launch("launch", "plan.json", "--local").returncode == ExitCode.USAGE
    assert smdp_launch("launch", "plan.json", "--set", "name=other").returncode == ExitCode.USAGE
    assert smdp_launch("launch", "plan.json").returncode == ExitCode.REFUSED  # there is no terminal to confirm on


@pytest.mark.runs
def test_service_gets_the_saved_request_and_changed_sources_are_refused(
    smdp_launch: Command, job_folder: Path, tmp_path: Path
) -> None:
    write_job(job_folder, JOB.replace("instance_count: 2", "instance_count: 1"))
    assert smdp_launch("plan", "--out", "plan.json").returncode == ExitCode.OK
    saved = json.loads((job_folder / "plan.json").read_text())["request"]
    with private(tmp_path / "cloud") as endpoint:
        cloud = Cloud(endpoint)
        cloud.s3.create_bucket(Bucket=BUCKET)
        cloud.s3.put_object(Bucket=BUCKET, Key="train/part-0", Body=b"0123456789")
        environment = as_the_service(endpoint, tmp_path)
        ran = smdp_launch("launch", "plan.json", "--yes", env=environment)
        assert ran.returncode == ExitCode.OK, ran.stderr
        received = tmp_path / "cloud" / "jobs" / saved["TrainingJobName"] / "request.json"
        assert json.dumps(json.loads(received.read_text()), sort_keys=True) == json.dumps(saved, sort_keys=True)
        (job_folder / "src" / "train.py").write_text("print('changed')\n")
        refused = smdp_launch("launch", "plan.json", "--yes", env=environment)
        assert refused.returncode == ExitCode.REFUSED
        assert "changed since" in refused.stderr
        jobs = cloud.sagemaker.list_training_jobs()["TrainingJobSummaries"]
    assert [one["TrainingJobName"] for one in jobs] == [saved["TrainingJobName"]]


def test_plan_json_has_batch_cost_and_origins(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB + BATCH)
    plan = json.loads(smdp_launch("plan", "--json", "--set", "compute.max_pending=3600").stdout)
    assert plan["batch"] == {
        "global_size": 2048,
        "per_worker": 128,
        "learning_rate": None,
        "advised": 0.8,
        "formula": "0.1 x 2048 / 256 = 0.8",
        "warmup_steps": 500,
    }
    assert plan["billing"]["instance_hours"] == pytest.approx(2 * 600 / 3600)
    assert plan["billing"]["usd"] is None
    places = {one["key"]: (one["layer"], one["place"]) for one in plan["origins"]}
    assert places["compute.max_pending"] == ("flag", "--set")
    assert places["compute.max_run"] == ("job file", "job.yaml:13:12")
    assert places["compute.volume_gb"] == ("built-in", None)
