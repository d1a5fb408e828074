"""Resume: a new job continues from the checkpoints of the old one; the history records the cost."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import boto3
import pytest

from smdp_launch import Refused, attach, launch, plan
from smdp_launch.errors import EnvironmentProblem, ExitCode
from smdp_launch.jobs.records import history
from smdp_launch.jobs.records.history import (
    STATE_FOLDER,
    ends,
    find_launch,
    launches,
    record_end,
    record_launch,
    record_resumption,
    state_folder,
)
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.jobs.resume import RESUMES_TAG
from smdp_launch.jobs.status import list_jobs
from smdp_launch.localcloud.client.connect import Endpoint, private
from smdp_launch.request.build import PLAN_TAG
from tests.conftest import JOB, Command, write_job
from tests.support.jobs.service import await_end, name_of, service, service_cloud
from tests.support.jobs.stopped import CHECKPOINT, COUNTS, HERE, stopped_job
from tests.support.json_documents import the_document

__all__ = ["service", "service_cloud"]

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)


@pytest.fixture
def here(job_folder: Path) -> Iterator[Path]:
    with private(state_folder(job_folder) / "local"):  # otherwise each command starts one
        yield job_folder


def test_resumed_job_continues_from_checkpoints(here: Path, smdp_launch: Command) -> None:
    old = stopped_job(here, smdp_launch)
    status = smdp_launch("status")
    assert status.stderr == "next: smdp-launch resume\n"
    assert re.search(r"1 file \(0 B\), the newest step-0, .+ old\n", status.stdout)
    kept = the_document(smdp_launch("status", "--json"), "status")["checkpoints_kept"]
    assert (kept["files"], kept["bytes"], kept["name"], kept["problem"]) == (1, 0, "step-0", None)
    shown = smdp_launch("resume", "--dry-run")
    assert shown.returncode == ExitCode.OK
    assert f"  from {old}, which stopped\n" in shown.stdout
    assert f"checkpoints  s3://bucket/checkpoints/{old}\n             1 file, the newest of " in shown.stdout
    ran = smdp_launch("resume")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "| found ['step-0']" in ran.stdout
    new = name_of(here)
    assert new != old
    assert new.rsplit("-", 2)[0] == old.rsplit("-", 2)[0] == "small"
    lines = [json.loads(line) for line in (here / STATE_FOLDER / "history.jsonl").read_text().splitlines()]
    assert [line["state"] for line in lines if "job_file" in line] == [f"{STATE_FOLDER}/local"] * 2
    requests = [
        json.loads((here / STATE_FOLDER / "local" / "jobs" / one / "request.json").read_text()) for one in (old, new)
    ]
    tags = [{tag["Key"]: tag["Value"] for tag in one.pop("Tags")} for one in requests]
    assert tags[1][RESUMES_TAG] == old
    assert tags[0][PLAN_TAG] != tags[1][PLAN_TAG]
    assert json.loads(requests[1]["HyperParameters"]["sagemaker_job_name"]) == new
    for one in requests:
        del one["TrainingJobName"], one["HyperParameters"]["sagemaker_job_name"]
    given, taken = requests
    assert given == {name: taken[name] for name in given}
    assert {name for name in taken if name not in given and taken[name]} == set()
    again = smdp_launch("resume")
    assert (again.returncode, again.stdout) == (ExitCode.REFUSED, "")
    assert "has completed" in again.stderr


def test_resumed_job_has_the_fields_of_the_old_request_and_at_most_50_tags(here: Path, smdp_launch: Command) -> None:
    tags = "".join(f"  key-{number}: x\n" for number in range(49))
    text = CHECKPOINT.replace("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge]\n")
    text += f"overlay: {{SessionChainingConfig: {{EnableSessionTagChaining: true}}}}\ntags:\n{tags}"
    old = stopped_job(here, smdp_launch, text)
    ran = smdp_launch("resume")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    given, taken = (
        json.loads((here / STATE_FOLDER / "local" / "jobs" / one / "request.json").read_text())
        for one in (old, name_of(here))
    )
    for one in ("ResourceConfig", "SessionChainingConfig", "Environment"):
        assert taken[one] == given[one]
    assert taken["SessionChainingConfig"] == {"EnableSessionTagChaining": True}
    keys = [one["Key"] for one in taken["Tags"]]
    assert sorted(keys) == sorted([*(f"key-{number}" for number in range(49)), PLAN_TAG])


@pytest.mark.runs
def test_job_that_cannot_be_resumed_is_refused_with_the_reason(here: Path, smdp_launch: Command) -> None:
    write_job(here, JOB, "import time\ntime.sleep(300)\n")
    assert smdp_launch(*HERE).returncode == ExitCode.OK
    ran = smdp_launch("resume")
    assert (ran.returncode, ran.stdout) == (ExitCode.REFUSED, "")
    assert "cannot be resumed, because its job file had no `checkpoint`" in ran.stderr
    smdp_launch("stop")
    write_job(here, CHECKPOINT, COUNTS)
    assert smdp_launch(*HERE).returncode == ExitCode.OK
    ran = smdp_launch("resume")
    assert ran.returncode == ExitCode.REFUSED
    assert "still runs" in ran.stderr
    smdp_launch("stop")
    assert smdp_launch("follow", "--quiet").returncode == ExitCode.JOB_STOPPED


@pytest.mark.runs
def test_from_python_too(here: Path, smdp_launch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    old = attach(stopped_job(here, smdp_launch))
    new = old.resume()
    assert new.wait(timeout=60).exit_code is ExitCode.OK
    assert [one.text for one in new.logs(rank=0)] == ["found ['step-0']"]
    with pytest.raises(Refused, match="has completed"):
        new.resume()


def test_resume_on_aws_asks_before_it_costs_money(
    smdp_launch: Command, job_folder: Path, service_cloud: Endpoint, service: dict[str, str]
) -> None:
    write_job(job_folder, CHECKPOINT, "raise ValueError\n")
    assert smdp_launch("launch", "--yes", "--detach", env=service).returncode == ExitCode.OK
    old = name_of(job_folder)
    await_end(service_cloud, old)
    ran = smdp_launch("resume", "--yes", env=service)
    assert (ran.returncode, ran.stdout) == (ExitCode.REFUSED, "")
    assert f"saved no checkpoint at s3://bucket/checkpoints/{old}, so it cannot be resumed" in ran.stderr
    none = dict.fromkeys(("bytes", "name", "newest", "age_seconds", "problem"))
    assert the_document(smdp_launch("status", "--json", env=service), "status")["checkpoints_kept"] == {
        "files": 0,
        **none,
    }
    put_object(service, f"checkpoints/{old}/step-0")
    ran = smdp_launch("resume", env=service)
    assert ran.returncode == ExitCode.REFUSED
    assert "add --yes" in ran.stderr
    assert name_of(job_folder) == old
    ran = smdp_launch("resume", "--yes", "--detach", env=service)
    assert (ran.returncode, ran.stderr) == (ExitCode.OK, "next: smdp-launch follow\n")
    new = name_of(job_folder)
    ran = smdp_launch("resume", old, "--yes", "--detach", env=service)
    assert ran.returncode == ExitCode.REFUSED
    assert re.search(
        rf"{old} was resumed as {new} \(\w+\): run smdp-launch (follow|resume) {new}$", ran.stderr, re.MULTILINE
    )
    await_end(service_cloud, new)
    listed = the_document(smdp_launch("list", "--json", env=service), "list")["jobs"]
    assert [one["training_job_status"] for one in listed] == ["Failed", "Failed"]


def put_object(service: dict[str, str], key: str) -> None:
    s3 = boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url=service["AWS_ENDPOINT_URL"],
        aws_access_key_id=service["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=service["AWS_SECRET_ACCESS_KEY"],
    )
    s3.put_object(Bucket="bucket", Key=key, Body=b"1")


def test_entry_after_incomplete_line_has_its_own_line(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    (state_folder() / "history.jsonl").write_text('{"job": "torn-1", "whe')
    record_launch("one-1", "us-east-1", "job.yaml", "0" * 64, NOW)
    assert [one.job for one in launches()] == ["one-1"]


def test_locked_history_is_an_error_after_a_timeout(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    monkeypatch.setattr(history, "_LOCK_WAIT", 0.1)
    with (state_folder() / "history.jsonl").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EnvironmentProblem, match="end it"):
            record_launch("one-1", "us-east-1", "job.yaml", "0" * 64, NOW)
    record_launch("one-1", "us-east-1", "job.yaml", "0" * 64, NOW)
    assert [one.job for one in launches()] == ["one-1"]


def test_job_with_two_entries_is_listed_once_with_the_second(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens when a resume is killed before its job is created, and then repeated."""
    monkeypatch.chdir(job_folder)
    record_launch("old-1", "us-east-1", "job.yaml", "0" * 64, NOW, hosts=1, price=3.6)
    for _ in range(2):
        record_resumption("new-1", "old-1", "us-east-1", "1" * 64, NOW, 1)
        record_launch("between", "us-east-1", "job.yaml", "0" * 64, NOW)
    record_resumption("new-1", "old-1", "us-east-1", "2" * 64, NOW, 1)
    ended = outcome({"TrainingJobStatus": "Completed", "BillableTimeInSeconds": 1000})
    for one in ("old-1", "new-1", "between"):
        record_end(one, ended, NOW)
    assert [one.plan_hash[0] for one in launches()] == ["0", "0", "2"]
    assert [(one.job, one.usd) for one in list_jobs.jobs_of_folder(20)] == [
        ("new-1", 1.0),
        ("between", None),
        ("old-1", 1.0),
    ]
    assert [one.job for one in list_jobs.jobs_of_folder(2)] == ["new-1", "between"]


def test_end_of_job_is_recorded_once_with_its_cost(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    record_launch("one-1", "us-east-1", "job.yaml", "0" * 64, NOW, hosts=2, price=32.77, most_usd=131.08)
    ended = outcome({"TrainingJobStatus": "Completed", "BillableTimeInSeconds": 1800})
    for _ in range(2):
        record_end("one-1", ended, NOW)
    record_end("of-another-folder", ended, NOW)
    assert list(ends()) == ["one-1"]
    assert ends()["one-1"].usd == pytest.approx(32.77)
    launched = find_launch()
    assert launched is not None
    assert (launched.job, launched.most_usd) == ("one-1", 131.08)
    assert len((job_folder / STATE_FOLDER / "history.jsonl").read_text().splitlines()) == 2


def test_list_shows_cost_and_maximum_cost(
    smdp_launch: Command, job_folder: Path, service_cloud: Endpoint, service: dict[str, str]
) -> None:
    prices = "date: 2026-11-01\nsource: ours\nprices: {us-east-1: {ml.p4d.24xlarge: 3600.0}}\n"
    (job_folder / "prices.yaml").write_text(prices)
    text = JOB.replace("instance_count: 2", "instance_count: 1") + "budget: {prices: prices.yaml}\n"
    write_job(job_folder, text, "print(1)\n")
    assert smdp_launch("launch", "--yes", "--detach", env=service).returncode == ExitCode.OK
    await_end(service_cloud, name_of(job_folder))
    (listed,) = the_document(smdp_launch("list", "--json", env=service), "list")["jobs"]
    assert listed["usd"] == listed["billable_seconds"] >= 1  # a dollar a second
    assert listed["most_usd"] == 600
    listing = smdp_launch("list", env=service).stdout
    assert re.search(rf" 1 +{listed['usd']:.2f}\n", listing), listing


def test_long_history_is_read_only_a_few_times(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    ended = outcome({"TrainingJobStatus": "Completed"})
    for number in range(20):
        record_launch(f"one-{number}", "us-east-1", "job.yaml", "0" * 64, NOW)
        record_end(f"one-{number}", ended, NOW)
    reads = []
    monkeypatch.setattr(list_jobs, "ends", lambda: reads.append(1) or ends())
    assert [one.job for one in list_jobs.jobs_of_folder(20)] == [f"one-{number}" for number in reversed(range(20))]
    assert len(reads) == 2


RETRIED = """\
import os
print(f"number {os.environ.get('SMDP_RETRY', '0')}", flush=True)
if int(os.environ.get("SMDP_RETRY", "0")) < int(os.environ["FAILURES"]):
    raise RuntimeError(os.environ["ERROR"])
"""


@pytest.mark.parametrize(
    ("failures", "error", "status", "names"),
    [
        (1, "CUDA error: uncorrectable ECC error encountered", "Completed", 2),
        pytest.param(9, "CUDA error: uncorrectable ECC error", "Failed", 3, marks=pytest.mark.runs),
        pytest.param(9, "an error of the script", "Failed", 1, marks=pytest.mark.runs),
    ],
)
def test_wait_resumes_a_job_as_its_file_says(
    here: Path, monkeypatch: pytest.MonkeyPatch, failures: int, error: str, status: str, names: int
) -> None:
    monkeypatch.chdir(here)
    sections = f"""
checkpoint: {{s3: "s3://bucket/checkpoints"}}
retries: {{on: [hardware], at_most: 2}}
environment: {{FAILURES: "{failures}", ERROR: "{error}"}}
"""
    write_job(here, JOB + sections, RETRIED)
    job = launch(plan("job.yaml", local=True, hosts=1, workers_per_host=1))
    first = job.name
    assert job.wait(timeout=900).status == status
    assert [*job.earlier, job.name][0] == first
    assert [one.job for one in launches()] == [*job.earlier, job.name]
    assert len(launches()) == names
    assert [line.text for line in job.logs(grep="^number")] == [f"number {names - 1}"]
    old = attach(first)  # it ended before, and is not resumed again
    assert old.wait(timeout=900).status == ("Failed" if names > 1 else status)
    assert (old.name, old.earlier, len(launches())) == (first, [], names)
