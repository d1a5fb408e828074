"""`local_cloud()`: AWS clients in a block, a function or a test use a local cloud, and AWS again afterwards."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

import smdp_launch
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.localcloud.client import shared
from smdp_launch.localcloud.client.connect import private
from smdp_launch.testing import LocalCloud, local_cloud
from smdp_launch.testing import cloud as module
from tests.conftest import ROOT, write_job
from tests.support.services.cloud import is_running, names_in, processes_with
from tests.support.waiting import wait_for

pytest_plugins = ["pytester"]


def variables() -> dict[str, str]:
    return dict(os.environ)


def test_block_sets_the_environment_and_restores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "unknown")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another account")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    before = variables()
    with local_cloud() as cloud:
        assert boto3.client("sts").meta.endpoint_url == cloud.url
        boto3.client("s3").create_bucket(Bucket="mine")
        boto3.resource("s3").Object("mine", "a/b").put(Body=b"x")
        assert (cloud.state / "s3" / "mine" / "a" / "b").read_bytes() == b"x"
    assert variables() == before


def test_block_ends_running_jobs_and_removes_all_files() -> None:
    before = names_in("/tmp")
    with local_cloud() as cloud:
        start(cloud, "asleep", "import time\ntime.sleep(600)\n")
        wait_for(lambda: processes_with(str(cloud.state / "jobs")), "the job's start")
    assert processes_with(str(cloud.state)) == []
    assert [one for one in names_in("/tmp") - before if one.startswith("smdp-local-")] == []


def test_an_error_in_the_block_cleans_up_too() -> None:
    with pytest.raises(ZeroDivisionError), local_cloud() as cloud:
        _ = 1 / 0
    assert not cloud.state.exists()
    assert "AWS_ENDPOINT_URL" not in os.environ


def test_default_session_of_boto3_is_replaced_only_in_the_block() -> None:
    boto3.setup_default_session(aws_access_key_id="OUTSIDE", aws_secret_access_key="x", region_name="eu-west-1")
    outside = boto3.DEFAULT_SESSION
    try:
        with local_cloud() as cloud:
            assert boto3.client("s3").list_buckets()["Buckets"] == []
            assert boto3.DEFAULT_SESSION.region_name == cloud.region
        assert boto3.DEFAULT_SESSION is outside
    finally:
        boto3.DEFAULT_SESSION = None


@pytest.mark.runs
def test_named_folder_keeps_its_buckets_between_blocks(tmp_path: Path) -> None:
    with local_cloud(tmp_path / "kept"):
        boto3.client("s3").create_bucket(Bucket="mine")
    with local_cloud():
        assert boto3.client("s3").list_buckets()["Buckets"] == []
    with local_cloud(tmp_path / "kept"):
        assert [one["Name"] for one in boto3.client("s3").list_buckets()["Buckets"]] == ["mine"]


def test_block_on_announced_folder_is_refused(tmp_path: Path) -> None:
    used = shared.up(tmp_path / "used")
    try:
        with pytest.raises(EnvironmentProblem, match="is in use"), local_cloud(tmp_path / "used"):
            pytest.fail("it took the other's cloud")
        assert shared.status(tmp_path / "used").endpoint == used
        os.kill(used.pid, 9)
        wait_for(lambda: not is_running(used.pid), "the end of the server")
        with pytest.raises(EnvironmentProblem, match="is in use"), local_cloud(tmp_path / "used"):
            pytest.fail("it took the other's cloud")
        assert shared.status(tmp_path / "used").announced
    finally:
        shared.down(tmp_path / "used", grace=0)


def test_block_on_folder_in_use_is_refused(tmp_path: Path) -> None:
    with private(tmp_path / "used") as used:
        with pytest.raises(EnvironmentProblem, match="is in use"), local_cloud(tmp_path / "used"):
            pytest.fail("it took the other's cloud")
        assert is_running(used.pid)


def test_local_cloud_decorates_a_function() -> None:
    @local_cloud()
    def within() -> str:
        return os.environ["AWS_ENDPOINT_URL"]

    assert within() != within()


def test_job_runs_with_boto3_only() -> None:
    with local_cloud() as cloud:
        start(cloud, "trains", "import os\nopen(os.environ['SM_MODEL_DIR'] + '/m', 'w').write('x')\n")
        sagemaker = boto3.client("sagemaker")
        waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
        waiter.wait(TrainingJobName="trains", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        model = sagemaker.describe_training_job(TrainingJobName="trains")["ModelArtifacts"]["S3ModelArtifacts"]
        bucket, _, key = model.removeprefix("s3://").partition("/")
        assert boto3.client("s3").head_object(Bucket=bucket, Key=key)["ContentLength"] > 0
        with pytest.raises(ClientError, match="Requested resource not found"):
            sagemaker.describe_training_job(TrainingJobName="another")


@pytest.mark.runs
def test_local_launch_uses_the_cloud_of_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    with local_cloud() as cloud:
        job = smdp_launch.launch(smdp_launch.plan("job.yaml", local=True, hosts=1, workers_per_host=1))
        assert job.wait(timeout=60).status == "Completed"
        assert [one.name for one in (cloud.state / "jobs").iterdir()] == [job.name]
        assert smdp_launch.attach().status() == "Completed"
    assert not (tmp_path / ".smdp" / "local").exists()


@pytest.mark.runs
def test_pytest_fixture_is_installed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import boto3

        def test_mine(local_cloud):
            boto3.client("s3").create_bucket(Bucket="mine")
            assert (local_cloud.state / "s3" / "mine").is_dir()
        """
    )
    ran = pytester.runpytest_subprocess()
    ran.assert_outcomes(passed=1)


def failures(code: str) -> str:
    output: list[str] = []
    test = doctest.DocTestParser().get_doctest(code, {"local_cloud": local_cloud}, "example", None, 0)
    assert test.examples
    doctest.DocTestRunner().run(test, out=output.append)
    return "".join(output)


def test_examples_in_guide_and_docstring_run() -> None:
    guide = (ROOT / "docs" / "how-to" / "local-cloud.md").read_text()
    assert failures("".join(re.findall(r"^```python\n(>>> .*?)^```", guide, re.MULTILINE | re.DOTALL))) == ""
    assert failures(module.local_cloud.__doc__ or "") == ""


def test_import_needs_neither_pytest_nor_boto3() -> None:
    check = "import sys, smdp_launch.testing; print({'pytest', 'boto3', 'botocore'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_block_cleans_up_after_a_killed_server() -> None:
    with local_cloud() as cloud:
        (pid,) = [one for one in processes_with(str(cloud.state)) if b"localcloud.server\0" in command_line(one)]
        os.kill(pid, 9)
        wait_for(lambda: not is_running(pid), "the end of the server")
    assert not cloud.state.exists()


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def start(cloud: LocalCloud, name: str, script: str) -> None:
    """Start a job with boto3 only."""
    import io
    import json
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("train.py")
        entry.size = len(script)
        tar.addfile(entry, io.BytesIO(script.encode()))
    s3: Any = boto3.client("s3")
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="source.tar.gz", Body=packed.getvalue())
    boto3.client("sagemaker").create_training_job(
        TrainingJobName=name,
        RoleArn=cloud.role,
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        ResourceConfig={"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
        OutputDataConfig={"S3OutputPath": "s3://bucket/out"},
        HyperParameters={
            "sagemaker_program": json.dumps("train.py"),
            "sagemaker_submit_directory": json.dumps("s3://bucket/source.tar.gz"),
        },
        Environment={"SMDP_WORKERS_PER_HOST": "1"},
    )
