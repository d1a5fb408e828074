"""Jobs whose channels are read while they train."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog.faults import VARIABLE, Fault
from smdp_launch.localcloud.processes import children
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.isolation import needs_fuse
from tests.support.jobs.hosts import seen
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.waiting import wait_for

OBJECTS = {f"data/part/{number}": bytes([65 + number]) * 100_000 for number in range(4)}

READS = """
    import hashlib, json, os, pathlib, time
    root = pathlib.Path(os.environ.get("SMDP_ML_ROOT", "/opt/ml"))
    data = root / "input/data"
    found = {}
    for name in json.loads((root / "input/config/inputdataconfig.json").read_text()):
        if (data / name).is_dir():
            files = [one for one in sorted((data / name).rglob("*")) if one.is_file()]
            found[name] = {str(one.relative_to(data / name)): one.read_bytes()[:1].decode() for one in files}
            kind = [line.split()[2] for line in open("/proc/mounts") if line.split()[1] == str(data / name)]
            found[name + " is"] = kind[-1] if kind else "copied"
        else:
            found[name] = [hashlib.sha256((data / f"{name}_{epoch}").read_bytes()).hexdigest() for epoch in (0, 1)]
    status, wanted = root / "input/.smdp_channels.json", 400_000 * len([one for one in found if " " not in one])
    while sum(one["bytes"] for one in json.loads(status.read_text()).values()) < %d:
        time.sleep(0.05)
    found["status"] = json.loads(status.read_text())
    print("looks", json.dumps(found), flush=True)
"""


def channel(name: str, mode: str | None, distribution: str = "FullyReplicated") -> dict[str, Any]:
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{BUCKET}/data/",
        "S3DataDistributionType": distribution,
    }
    return {
        "ChannelName": name,
        "DataSource": {"S3DataSource": source},
        **({"InputMode": mode} if mode is not None else {}),
    }


@pytest.fixture(autouse=True)
def objects(request: pytest.FixtureRequest) -> None:
    for name in ("cloud", "either_cloud"):
        if name in request.fixturenames:
            put_objects(request.getfixturevalue(name))


def put_objects(cloud: Cloud) -> None:
    for key, body in OBJECTS.items():
        cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=body)


FILES = {"part/0": "A", "part/1": "B", "part/2": "C", "part/3": "D"}


@needs_fuse
def test_fastfile_is_mounted_and_file_is_copied_and_pipe_is_a_pipe(cloud: Cloud) -> None:
    import hashlib

    inputs = [channel("fast", "FastFile"), channel("file", None), channel("pipe", "Pipe")]
    job = cloud.run("modes", READS % 1_600_000, hosts=2, InputDataConfig=inputs)
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), cloud.log("modes"))
    digest = hashlib.sha256(b"".join(OBJECTS.values())).hexdigest()
    hosts = seen(cloud, "modes")
    assert sorted(hosts) == ["algo-1", "algo-2"]
    for found in hosts.values():
        assert (found["fast"], found["fast is"]) == (FILES, "fuse")
        assert (found["file"], found["file is"]) == (FILES, "copied")
        assert found["pipe"] == [digest, digest]
        status = found["status"]
        assert {name: (one["mode"], one["bytes"]) for name, one in status.items()} == {
            "fast": ("FastFile", 400_000),
            "file": ("File", 400_000),
            "pipe": ("Pipe", 800_000),
        }
        assert status["file"]["seconds"] >= 0


@needs_fuse
def test_each_host_reads_its_share_of_the_objects(cloud: Cloud) -> None:
    inputs = [channel("fast", "FastFile", "ShardedByS3Key")]
    job = cloud.run("shares", READS % 200_000, hosts=2, InputDataConfig=inputs)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    found = {host: one["fast"] for host, one in seen(cloud, "shares").items()}
    assert found == {"algo-1": {"part/0": "A", "part/2": "C"}, "algo-2": {"part/1": "B", "part/3": "D"}}


def test_fastfile_is_copied_where_it_cannot_be_mounted(open_cloud: Callable[[], Cloud]) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SMDP_LOCAL_ISOLATION", "tree")
        cloud = open_cloud()
    put_objects(cloud)
    inputs = [channel("fast", "FastFile"), channel("pipe", "Pipe")]
    job = cloud.run("copied", READS % 1_200_000, InputDataConfig=inputs)
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), cloud.log("copied"))
    (found,) = seen(cloud, "copied").values()
    assert (found["fast"], found["fast is"]) == (FILES, "copied")
    assert [one["mode"] for one in found["status"].values()] == ["File", "Pipe"]
    expected = "Copied before the start as in File mode, although the mode is FastFile: fast (SMDP_LOCAL_ISOLATION="
    assert [line for line in cloud.log("copied") if expected in line]


@needs_fuse
@pytest.mark.parametrize("mode", ["FastFile", "Pipe"])
def test_channel_without_objects_fails_before_the_start(cloud: Cloud, mode: str) -> None:
    empty = channel("empty", mode)
    empty["DataSource"]["S3DataSource"]["S3Uri"] = f"s3://{BUCKET}/nothing"
    job = cloud.run(f"empty-{mode}", "", InputDataConfig=[empty])
    assert "No S3 objects found under S3 URL" in job["FailureReason"]


@needs_fuse
def test_object_that_is_a_folder_too_fails_before_the_start(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket=BUCKET, Key="data/part", Body=b"x")
    job = cloud.run("both", "", InputDataConfig=[channel("fast", "FastFile")])
    cloud.s3.delete_object(Bucket=BUCKET, Key="data/part")
    assert "is both an object and the folder of another object" in job["FailureReason"]


STAYS = """
    import os, time
    opened = open(os.environ["SM_CHANNEL_FAST"] + "/part/0", "rb")
    print("reads", opened.read(1), flush=True)
    while True:
        open(os.environ["SM_CHANNEL_FAST"] + "/part/1", "rb").read()
        time.sleep(0.05)
"""


@needs_fuse
@pytest.mark.parametrize("victim", ["stopped", "entrypoint", "server", "monitor", "supervisor"])
def test_no_mount_and_no_process_is_left_when_one_is_killed(open_cloud: Callable[[], Cloud], victim: str) -> None:
    cloud = open_cloud()
    put_objects(cloud)
    cloud.start("ends", STAYS, InputDataConfig=[channel("fast", "FastFile")])
    wait_for(lambda: [one for one in cloud.log("ends") if "reads" in one], "the first read")
    folder = cloud.state_dir / "jobs/ends"
    supervisor = json.loads((folder / "supervisor.pid").read_text())["pid"]
    (monitor,) = children(supervisor)
    server, entrypoint = sorted(children(monitor))
    killed = {"entrypoint": entrypoint, "server": server, "monitor": monitor, "supervisor": supervisor}
    if victim == "stopped":
        cloud.sagemaker.stop_training_job(TrainingJobName="ends")
    else:
        os.kill(killed[victim], signal.SIGKILL)
    job = cloud.wait("ends")
    assert job["TrainingJobStatus"] == ("Stopped" if victim == "stopped" else "Failed")
    assert_nothing_runs(str(folder))
    assert str(folder) not in Path("/proc/mounts").read_text()


@needs_fuse
@pytest.mark.runs
def test_slow_input_reaches_every_channel_and_is_reported(cloud: Cloud) -> None:
    fault = Fault("slow-input", "algo-1", 0, rate=400_000, latency=0.05)
    inputs = [channel("fast", "FastFile"), channel("file", "File"), channel("pipe", "Pipe")]
    environment = {"SMDP_WORKERS_PER_HOST": "1", VARIABLE: fault.to_text()}
    job = cloud.run("slow", READS % 1_600_000, InputDataConfig=inputs, Environment=environment)
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), cloud.log("slow"))
    (found,) = seen(cloud, "slow").values()
    assert (found["fast is"], found["file is"]) == ("fuse", "fuse")
    # 1.6 MB, without the burst of a tenth of a second.
    seconds = (job["TrainingEndTime"] - job["TrainingStartTime"]).total_seconds()
    assert seconds >= (1_600_000 - 40_000) / 400_000
    events = [json.loads(line.partition("] ")[2]) for line in cloud.log("slow") if '"event": "fault"' in line]
    assert [one["what"] for one in events] == ["slowed", "read"]
    assert (events[0]["rate"], events[0]["latency"]) == (400_000, 0.05)
    assert events[0]["channels"] == ["fast", "file", "pipe"]
    read = {one["channel"]: (one["mode"], one["bytes"]) for one in events[1]["reads"]}
    assert read == {"fast": ("FastFile", 400_000), "file": ("File", 400_000), "pipe": ("Pipe", 800_000)}


@pytest.mark.parametrize("level", ["tree"])
def test_slow_input_is_refused_where_channels_cannot_be_mounted(open_cloud: Callable[[], Cloud], level: str) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SMDP_LOCAL_ISOLATION", level)
        cloud = open_cloud()
    put_objects(cloud)
    environment_of_job = {VARIABLE: Fault("slow-input", "algo-1", 0, rate=1e6).to_text()}
    job = cloud.run("refused", "", InputDataConfig=[channel("fast", "FastFile")], Environment=environment_of_job)
    assert job["FailureReason"].startswith("ClientError: input channels cannot be slowed on this machine")
