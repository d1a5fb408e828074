"""Jobs that really run: their inputs, their artifacts, and how they end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from smdp_launch.localcloud.client.connect import private
from tests.support.jobs.archives import members
from tests.support.services.cloud import BUCKET, Cloud, client_of
from tests.support.waiting import wait_for

TRAINS = """
    import json, os, pathlib
    rank = os.environ["RANK"]
    model = pathlib.Path(os.environ["SM_MODEL_DIR"])
    (model / f"part-{rank}").write_text(rank)
    pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"note-{rank}").write_text("n")
    data = pathlib.Path(os.environ["SM_CHANNEL_TRAINING"])
    names = sorted(str(path.relative_to(data)) for path in data.rglob("*") if path.is_file())
    print("files", json.dumps(names), flush=True)
"""
WAITS = """
    import pathlib, signal, sys, time, os
    def save(*_):
        pathlib.Path(os.environ["SM_MODEL_DIR"], "saved").write_text("on SIGTERM")
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("waiting", os.getpid(), flush=True)
    while True:
        time.sleep(0.1)
"""
WAITS_FOR_GO = """
    import os, time
    print("waiting", flush=True)
    while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
        time.sleep(0.05)
"""
NOTES = "print('done')"


def channel(name: str, uri: str, distribution: str = "FullyReplicated") -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": distribution}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def statuses(answer: dict[str, Any]) -> list[str]:
    return [transition["Status"] for transition in answer["SecondaryStatusTransitions"]]


@pytest.mark.parametrize("both_clouds", ["namespaces", "tree"], indirect=True, scope="module")
def test_job_trains_on_two_hosts_and_uploads_model_and_output(either_cloud: Cloud) -> None:
    for key in ("data/a.txt", "data/deep/b.txt", "data/deep/"):
        either_cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    job = either_cloud.run(
        "two", TRAINS, hosts=2, workers=2, InputDataConfig=[channel("training", f"s3://{BUCKET}/data")]
    )
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Completed", job.get("FailureReason")
    assert statuses(job) == ["Pending", "Downloading", "Training", "Uploading", "Completed"]
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/out/two/output/model.tar.gz"
    assert members(either_cloud.object("out/two/output/model.tar.gz")) == [f"part-{rank}" for rank in range(4)]
    assert members(either_cloud.object("out/two/output/output.tar.gz")) == [f"note-{rank}" for rank in range(4)]
    assert sum('files ["a.txt", "deep/b.txt"]' in line for line in either_cloud.log("two")) == 4
    warnings = [line for line in either_cloud.log("two") if "No Linux namespaces" in line and "SM_*" in line]
    assert len(warnings) == (1 if either_cloud.level == "tree" else 0)


@pytest.mark.runs
def test_describe_returns_the_request_and_times(cloud: Cloud) -> None:
    request = cloud.request("described", NOTES, Tags=[{"Key": "plan", "Value": "1"}])
    created = cloud.sagemaker.create_training_job(**request)
    job = cloud.wait("described")
    del request["Tags"]
    assert request.items() <= {**job, "OutputDataConfig": request["OutputDataConfig"]}.items()
    assert job["TrainingJobArn"] == created["TrainingJobArn"]
    assert job["CreationTime"] <= job["TrainingStartTime"] <= job["TrainingEndTime"] <= job["LastModifiedTime"]
    assert job["BillableTimeInSeconds"] == job["TrainingTimeInSeconds"] >= 1
    assert job["ModelArtifacts"] == {"S3ModelArtifacts": f"s3://{BUCKET}/out/described/output/model.tar.gz"}
    assert cloud.keys("out/described/") == []  # as on AWS, where a job without a model has the address too
    tags = cloud.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "plan", "Value": "1"}]


@pytest.mark.runs
def test_lists_filter_sort_and_page(cloud: Cloud) -> None:
    for name in ("list-b", "list-a", "unlisted"):
        cloud.run(name, NOTES)
    listed = cloud.sagemaker.list_training_jobs(NameContains="LIST-", StatusEquals="Completed")
    assert [job["TrainingJobName"] for job in listed["TrainingJobSummaries"]] == ["list-b", "list-a"]
    pages = cloud.sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains="list-", SortBy="Name", SortOrder="Descending", MaxResults=1
    )
    names = [[job["TrainingJobName"] for job in page["TrainingJobSummaries"]] for page in pages]
    assert names == [["list-b"], ["list-a"]]


def test_a_script_error_is_the_failure_reason(either_cloud: Cloud) -> None:
    script = """
        import os, pathlib, time
        pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "seen").write_text("s")
        pathlib.Path(os.environ["SM_MODEL_DIR"], "half").write_text("m")
        if os.environ["RANK"] == "1":
            raise ValueError("bad batch")
        time.sleep(600)
    """
    job = either_cloud.run("error", script, hosts=2)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Failed", "Failed")
    assert job["FailureReason"].startswith("AlgorithmError: ValueError: bad batch (rank 1 on algo-2, exit code 1)")
    assert job["FailureReason"].endswith(", exit code: 1")
    assert len(job["FailureReason"]) <= 1024
    assert either_cloud.keys("out/error/") == ["out/error/output/output.tar.gz"]


def test_a_stop_lets_the_script_save(either_cloud: Cloud) -> None:
    either_cloud.start("stopped", WAITS, hosts=2)
    either_cloud.await_log("stopped", "waiting")
    either_cloud.sagemaker.stop_training_job(TrainingJobName="stopped")
    assert either_cloud.describe("stopped")["TrainingJobStatus"] in ("Stopping", "Stopped")
    job = either_cloud.wait("stopped")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert statuses(job)[-3:] == ["Stopping", "Uploading", "Stopped"]
    assert members(either_cloud.object("out/stopped/output/model.tar.gz")) == ["saved"]
    with pytest.raises(ClientError, match="in status Stopped"):
        either_cloud.sagemaker.stop_training_job(TrainingJobName="stopped")


def test_a_stop_right_after_the_start_is_not_lost(cloud: Cloud) -> None:
    cloud.start("early", WAITS)
    cloud.sagemaker.stop_training_job(TrainingJobName="early")
    assert cloud.wait("early")["TrainingJobStatus"] == "Stopped"


def test_a_job_may_be_stopped_twice(cloud: Cloud) -> None:
    cloud.start("twice", WAITS)
    wait_for((cloud.state_dir / "jobs" / "twice" / "supervisor.pid").exists, "the supervisor")
    supervisor = cloud.supervisor("twice")
    os.kill(supervisor, signal.SIGSTOP)  # otherwise the job might end before the second call
    try:
        cloud.sagemaker.stop_training_job(TrainingJobName="twice")
        cloud.sagemaker.stop_training_job(TrainingJobName="twice")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert cloud.wait("twice")["TrainingJobStatus"] == "Stopped"


def test_the_maximum_runtime_stops_a_job(cloud: Cloud) -> None:
    """Try longer limits until the script starts within the limit: a busy machine needs seconds for the start."""
    for seconds in (2, 4, 8, 16, 32):
        name = f"long-{seconds}"
        job = cloud.run(name, WAITS, StoppingCondition={"MaxRuntimeInSeconds": seconds})
        assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
        if any("waiting" in line for line in cloud.log(name)):
            break
    assert members(cloud.object(f"out/{name}/output/model.tar.gz")) == ["saved"]


#: A sitecustomize for the server's processes: sets the supervisor's wall clock a day forward once the file exists.
DAY_LATER = """
import os, pathlib, time
if b"smdp_launch.localcloud.runtime.supervisor" in pathlib.Path("/proc/self/cmdline").read_bytes():
    time.time = lambda now=time.time: now() + (86400 if os.path.exists({path!r}) else 0)
"""


def test_maximum_runtime_ignores_changes_of_the_wall_clock(
    open_cloud: Callable[[], Cloud], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_forward = tmp_path / "set-forward"
    (site := tmp_path / "site").mkdir()
    (site / "sitecustomize.py").write_text(DAY_LATER.format(path=str(set_forward)))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    cloud = open_cloud()
    limits = {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200}
    cloud.start("clock", WAITS_FOR_GO, StoppingCondition=limits, EnableManagedSpotTraining=True)
    cloud.await_log("clock", "waiting")
    set_forward.touch()
    time.sleep(1)  # about twenty ticks of the supervisor
    (cloud.output("clock") / "go").touch()
    job = cloud.wait("clock")
    assert job["TrainingJobStatus"] == "Completed"
    assert job["TrainingTimeInSeconds"] > 80_000  # reported times are those of the wall clock


def test_a_channel_without_objects_fails_the_job(cloud: Cloud) -> None:
    job = cloud.run("empty", NOTES, InputDataConfig=[channel("training", f"s3://{BUCKET}/nothing")])
    assert job["FailureReason"].startswith("ClientError: Data download failed:No S3 objects found under S3 URL")
    assert statuses(job) == ["Pending", "Downloading", "Failed"]


def test_a_missing_output_bucket_fails_the_job_before_it_trains(cloud: Cloud) -> None:
    job = cloud.run("lost", NOTES, OutputDataConfig={"S3OutputPath": "s3://no-such-bucket/out"})
    assert job["FailureReason"].startswith("ClientError: NoSuchBucket")
    assert "Training" not in statuses(job)


@pytest.mark.runs
def test_shards_go_to_different_hosts(cloud: Cloud) -> None:
    for name in "abc":
        cloud.s3.put_object(Bucket=BUCKET, Key=f"data/{name}", Body=b"x")
    cloud.run(
        "shards", TRAINS, hosts=2, InputDataConfig=[channel("training", f"s3://{BUCKET}/data/", "ShardedByS3Key")]
    )
    found = [line.partition("files ")[2] for line in cloud.log("shards") if "files " in line]
    assert sorted(found) == ['["a", "c"]', '["b"]']


CHECKPOINTS = """
    import os, pathlib, time
    folder = pathlib.Path(os.environ["SMDP_CHECKPOINT_DIR"])
    print("found", sorted(path.name for path in folder.iterdir()), flush=True)
    (folder / "step-1").write_text("1")
    if os.environ.get("MODE") == "wait":
        (folder / "growing").write_text("x")  # before the change that the test waits for
    (folder / "old").unlink(missing_ok=True)
    while os.environ.get("MODE") == "wait":
        time.sleep(0.1)
        with (folder / "growing").open("a") as file:
            file.write("x")
"""


def test_checkpoints_are_copied_while_the_job_runs_and_restored_into_the_next(either_cloud: Cloud) -> None:
    either_cloud.s3.put_object(Bucket=BUCKET, Key="ckpt/old", Body=b"o")
    either_cloud.s3.put_object(Bucket=BUCKET, Key="ckpt-other/x", Body=b"o")
    config = {"S3Uri": f"s3://{BUCKET}/ckpt"}
    either_cloud.start("first", CHECKPOINTS, CheckpointConfig=config, Environment={"MODE": "wait"})
    wait_for(
        lambda: {"ckpt/step-1"} <= set(either_cloud.keys("ckpt/")) and "ckpt/old" not in either_cloud.keys("ckpt/"),
        "the copy",
    )
    assert either_cloud.describe("first")["TrainingJobStatus"] == "InProgress"
    either_cloud.sagemaker.stop_training_job(TrainingJobName="first")
    either_cloud.wait("first")
    assert either_cloud.keys("ckpt/") == ["ckpt/growing", "ckpt/step-1"]
    job = either_cloud.run("second", CHECKPOINTS, hosts=2, CheckpointConfig=config)
    assert job["TrainingJobStatus"] == "Completed"
    assert sum("found ['growing', 'step-1']" in line for line in either_cloud.log("second")) == 2
    assert either_cloud.object("ckpt-other/x") == b"o"


@pytest.mark.runs
def test_two_jobs_at_once_have_addresses_of_their_own(cloud: Cloud) -> None:
    script = """
        import os, socket, time
        own = socket.gethostbyname("algo-1")
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", int(os.environ["MASTER_PORT"])))
        server.listen()
        print("address", own, os.environ["MASTER_PORT"], flush=True)
        while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
            time.sleep(0.05)
    """
    for name in ("one", "other"):
        cloud.start(name, script)
    for name in ("one", "other"):
        cloud.await_log(name, "address ")
    for name in ("one", "other"):
        (cloud.output(name) / "go").touch()
    assert [cloud.wait(name).get("FailureReason") for name in ("one", "other")] == [None, None]
    lines = [
        line.split("address ")[1].split() for name in ("one", "other") for line in cloud.log(name) if "address" in line
    ]
    assert len({address for address, _ in lines}) == len({port for _, port in lines}) == 2


@pytest.mark.runs
def test_a_name_in_use_is_refused(cloud: Cloud) -> None:
    cloud.run("once", NOTES)
    with pytest.raises(ClientError, match="ResourceInUse"):
        cloud.start("once", NOTES)


def test_an_unknown_job_is_not_found(cloud: Cloud) -> None:
    for name in ("unknown", "none-2"):
        with pytest.raises(ClientError, match=r"ValidationException.*Requested resource not found"):
            cloud.describe(name)


def test_boto3_in_a_script_uses_the_local_cloud(cloud: Cloud) -> None:
    script = f"""
        import boto3
        boto3.client("s3").put_object(Bucket="{BUCKET}", Key="from/script", Body=b"hello")
    """
    job = cloud.run("calls", script)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert cloud.object("from/script") == b"hello"


@pytest.mark.runs
def test_environment_of_the_user_does_not_reach_a_job(
    state_dir: Path, open_cloud: Callable[[], Cloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as users:
        for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE", "HTTP_PROXY", "MY_SECRET", "MOTO_ACCOUNT_ID"):
            users.setenv(name, "of-the-user")
        server = private(state_dir)
        server.__enter__()
    cloud = open_cloud()
    script = 'import os; print("has", sorted(name for name in os.environ if "SECRET" in name or "PROXY" in name))'
    cloud.run("clean", script)
    assert any("has ['AWS_SECRET_ACCESS_KEY']" in line for line in cloud.log("clean"))
    server.__exit__(None, None, None)


def test_log_stream_is_read_page_by_page(cloud: Cloud) -> None:
    group = "/aws/sagemaker/TrainingJobs"
    cloud.run("logs", "for n in range(25): print('line', n)", hosts=2)
    streams = cloud.logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="logs/")["logStreams"]
    assert [name["logStreamName"].rpartition("-")[0] for name in streams] == ["logs/algo-1", "logs/algo-2"]
    messages: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = cloud.logs.get_log_events(
            logGroupName=group, logStreamName=streams[0]["logStreamName"], startFromHead=True, limit=7, **token
        )
        messages += [event["message"] for event in page["events"]]
        if page["nextForwardToken"] == token.get("nextToken"):
            break
        token = {"nextToken": page["nextForwardToken"]}
    assert [line for line in messages if "line" in line] == [f"[algo-1:0] line {number}" for number in range(25)]
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        cloud.logs.get_log_events(logGroupName=group, logStreamName="logs/none")


@pytest.mark.runs
def test_uncompressed_model_is_uploaded_as_plain_objects(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket=BUCKET, Key="data/a.txt", Body=b"x")
    output = {"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    job = cloud.run(
        "plain", TRAINS, OutputDataConfig=output, InputDataConfig=[channel("training", f"s3://{BUCKET}/data")]
    )
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/out/plain/output/model/"
    assert cloud.object("out/plain/output/model/part-0") == b"0"


def _change(request: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(request))
    *parents, last = path.split(".")
    place = changed
    for parent in parents:
        place = place.setdefault(parent, {})
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value
    return changed


PREFIX = {"S3DataType": "S3Prefix", "S3Uri": "s3://b"}
EFS = {
    "FileSystemDataSource": {
        "FileSystemId": "fs-12345678",
        "FileSystemAccessMode": "ro",
        "FileSystemType": "EFS",
        "DirectoryPath": "/",
    }
}
REFUSED = [
    ("RoleArn", None, "1 validation error detected: Value null at 'roleArn' failed to satisfy constraint: Member must"),
    ("StoppingCondition", None, "Value null at 'stoppingCondition' failed to satisfy constraint: Member must not"),
    ("ResourceConfig.InstanceCount", 0, "Value '0' at 'resourceConfig.instanceCount' failed to satisfy constraint"),
    ("TrainingJobName", "under_score", "regular expression pattern"),
    ("TrainingJobName", "../up", "regular expression pattern"),
    ("OutputDataConfig.S3OutputPath", "/tmp/out", "Member must satisfy regular expression pattern"),
    ("CheckpointConfig", {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/../../etc"}, "LocalPath"),
    ("CheckpointConfig", {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/model"}, "overlaps"),
    ("InputDataConfig", [{"ChannelName": "..", "DataSource": {"S3DataSource": PREFIX}}], "channel name"),
    ("InputDataConfig", [{"ChannelName": "fs", "DataSource": EFS}], "has no local folder"),
    ("InputDataConfig", [{"ChannelName": "two", "DataSource": EFS | {"S3DataSource": PREFIX}}], "one data source"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_a_request_that_cannot_run_is_refused(shared_cloud: Cloud, path: str, value: object, message: str) -> None:
    request = _change(shared_cloud.request("refused"), path, value)
    unchecked = client_of(shared_cloud.endpoint, "sagemaker", config=Config(parameter_validation=False, proxies={}))
    with pytest.raises(ClientError, match=message) as caught:
        unchecked.create_training_job(**request)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert shared_cloud.sagemaker.list_training_jobs(NameContains="refused")["TrainingJobSummaries"] == []
