"""An announced local cloud runs without clients and jobs until it is ended, also after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.client import shared
from smdp_launch.localcloud.client.connect import private
from smdp_launch.localcloud.client.variables import variables
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.services.cloud import BUCKET, Cloud, is_running, kill
from tests.support.waiting import wait_for

SLEEPS = "import time\nprint('asleep', flush=True)\ntime.sleep(600)\n"
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS


@pytest.fixture
def announced(state_dir: Path) -> Iterator[Cloud]:
    cloud = Cloud(shared.up(state_dir))
    cloud.s3.create_bucket(Bucket=BUCKET)
    yield cloud
    shared.down(state_dir, grace=0)
    assert_nothing_runs(cloud.endpoint.secret_key)


def test_announced_server_outlives_its_last_client(announced: Cloud) -> None:
    with private(announced.state_dir) as endpoint:
        assert endpoint == announced.endpoint
    assert is_running(endpoint.pid)
    assert shared.status(announced.state_dir).announced


def test_running_server_can_be_announced(state_dir: Path) -> None:
    with private(state_dir) as endpoint:
        assert shared.up(state_dir) == endpoint
    assert is_running(endpoint.pid)
    assert shared.down(state_dir) == ()
    assert not is_running(endpoint.pid)


def test_up_writes_the_defaults_of_the_sagemaker_sdk_and_creates_their_bucket(announced: Cloud) -> None:
    file = announced.state_dir / "sagemaker" / "config.yaml"
    defaults = json.loads(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    modules = defaults["SageMaker"]["PythonSDK"]["Modules"]
    assert modules["TelemetryOptOut"] is True
    assert defaults["SageMaker"]["TrainingJob"]["RoleArn"] == "arn:aws:iam::000000000000:role/training"
    bucket = modules["Session"]["DefaultS3Bucket"]
    assert bucket == "sagemaker-us-east-1-000000000000"
    announced.s3.put_object(Bucket=bucket, Key="kept", Body=b"1")
    assert variables(announced.endpoint, {})["SAGEMAKER_USER_CONFIG_OVERRIDE"] == str(file)
    shared.up(announced.state_dir)
    assert announced.s3.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"1"


def test_down_ends_running_jobs_as_stopped(announced: Cloud) -> None:
    announced.start("asleep", SLEEPS)
    announced.await_log("asleep", "asleep")
    assert shared.status(announced.state_dir).running == ("asleep",)
    assert shared.down(announced.state_dir) == ("asleep",)
    assert not is_running(announced.endpoint.pid)
    state = json.loads((announced.state_dir / "jobs/asleep/state.json").read_text())
    assert state["status"] == "Stopped"
    assert shared.status(announced.state_dir) == shared.CloudStatus(announced.state_dir, None, False, (), 1)


@pytest.mark.runs
def test_script_that_ignores_sigterm_is_killed_after_the_grace(announced: Cloud) -> None:
    announced.start("stubborn", STUBBORN)
    announced.await_log("stubborn", "asleep")
    announced.sagemaker.stop_training_job(TrainingJobName="stubborn")  # with 120 s
    assert shared.down(announced.state_dir, grace=0.5) == ("stubborn",)
    assert json.loads((announced.state_dir / "jobs/stubborn/state.json").read_text())["status"] == "Stopped"


def test_no_job_can_be_created_during_shutdown(announced: Cloud) -> None:
    announced.start("stubborn", STUBBORN)
    announced.await_log("stubborn", "asleep")
    with ThreadPoolExecutor(1) as other:
        shutdown = other.submit(shared.down, announced.state_dir, grace=3)
        wait_for((announced.state_dir / "jobs/stubborn/stop.json").exists, "the start of the end")
        with pytest.raises(ClientError, match="going down"):
            announced.start("late", SLEEPS)
        assert shutdown.result() == ("stubborn",)
    assert not (announced.state_dir / "jobs/late").exists()


@pytest.mark.runs
def test_two_commands_can_end_the_server_at_once(announced: Cloud) -> None:
    announced.start("asleep", SLEEPS)
    announced.await_log("asleep", "asleep")
    with ThreadPoolExecutor(2) as both:
        ended = list(both.map(shared.down, [announced.state_dir] * 2))
    assert sorted(ended) == [(), ("asleep",)]


def test_killed_server_is_reported_and_restarts_at_its_address(announced: Cloud) -> None:
    kill(announced.endpoint.pid)
    status = shared.status(announced.state_dir)
    assert (status.endpoint, status.announced) == (None, True)
    again = shared.up(announced.state_dir)
    assert (again.url, again.secret_key) == (announced.endpoint.url, announced.endpoint.secret_key)


def test_announcement_ends_when_the_machine_restarts(announced: Cloud) -> None:
    (announced.state_dir / "announced.json").write_text('{"boot": "another"}')
    wait_for(lambda: not is_running(announced.endpoint.pid), "the end of the server")


def test_down_without_server_succeeds(state_dir: Path) -> None:
    assert shared.down(state_dir) == ()
    assert not state_dir.exists()
