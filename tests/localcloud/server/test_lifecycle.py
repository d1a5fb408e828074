"""A private server starts with its first client and ends with the last one; nothing else starts or ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.client.connect import LocalCloudError, private
from tests.support.services.cloud import BUCKET, Cloud, is_running
from tests.support.services.forked_servers import really_started
from tests.support.services.joined_processes import JOINS, end, joined
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def start() -> Iterator[None]:
    """The start is the subject."""
    with really_started():
        yield


def joins(state_dir: Path, seconds: float = 600) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", JOINS, str(state_dir), str(seconds)], stdout=subprocess.PIPE, text=True
    )


def test_the_client_is_cheap_to_import() -> None:
    check = (
        "import sys, smdp_launch.localcloud.client.connect; print({'botocore', 'moto', 'werkzeug'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


HEAVY = {"boto3", "moto", "werkzeug", "pydantic", "ruamel", "yaml"}


def test_supervisor_imports_neither_moto_nor_pydantic() -> None:
    check = f"import sys, smdp_launch.localcloud.runtime.supervisor; print({HEAVY} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


@pytest.mark.parametrize("has_account", [False, True])
def test_capacity_without_an_account_file_needs_no_pydantic(tmp_path: Path, has_account: bool) -> None:
    if has_account:
        (tmp_path / "account.yaml").write_text("quota: 5\n")
    preferences = [{"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}, {"InstanceType": "ml.p3.16xlarge"}]
    request = {"ResourceConfig": {"InstancePreferences": preferences}, "StoppingCondition": {}}
    folder = tmp_path / "jobs" / "one"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")
    check = f"""
import sys
from pathlib import Path
from smdp_launch.localcloud.capacity import acquire
from smdp_launch.localcloud.layout import JobFolder
folder = JobFolder(Path({str(folder)!r}))
acquire(folder, {request!r}, print)
print("pydantic" in sys.modules, folder.request.read_text())
"""
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    loaded, _, written = answer.stdout.partition(" ")
    assert loaded == str(has_account)
    resources = json.loads(written)["ResourceConfig"]
    assert (resources["SelectedInstanceType"], resources["SelectedInstanceCount"]) == ("ml.p4d.24xlarge", 2)


def test_the_server_ends_before_its_only_client_returns(state_dir: Path) -> None:
    with private(state_dir) as endpoint:
        assert is_running(endpoint.pid)
    assert not is_running(endpoint.pid)
    assert not (state_dir / "server.json").exists()
    port = urlsplit(endpoint.url).port or 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_two_clients_share_a_server_that_ends_after_the_last(state_dir: Path) -> None:
    with private(state_dir) as first:
        with private(state_dir) as second:
            assert second == first
        assert is_running(first.pid)
    assert not is_running(first.pid)


def test_leaving_does_not_wait_for_the_other_clients(state_dir: Path) -> None:
    other = None
    try:
        with private(state_dir) as endpoint:
            other = joins(state_dir)
            assert joined(other)[0] == endpoint.pid
        assert other.poll() is None
        assert is_running(endpoint.pid)
    finally:
        if other is not None:
            end(other)
    wait_for(lambda: not is_running(endpoint.pid), "the end of the server")


def test_each_server_has_new_credentials(state_dir: Path) -> None:
    with private(state_dir) as first:
        pass
    with private(state_dir) as second:
        assert second.secret_key != first.secret_key


def test_five_clients_at_once_start_one_server(state_dir: Path) -> None:
    clients = [joins(state_dir) for _ in range(5)]
    try:
        assert len({joined(client) for client in clients}) == 1
    finally:
        for client in clients:
            end(client)


def test_a_server_ends_when_its_client_is_killed(state_dir: Path) -> None:
    client = joins(state_dir)
    pid = joined(client)[0]
    end(client)
    wait_for(lambda: not is_running(pid), "the end of the server")


def test_ctrl_c_does_not_reach_the_server(state_dir: Path) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", JOINS, str(state_dir), "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with private(state_dir) as endpoint:
        assert joined(client)[0] == endpoint.pid
        os.killpg(client.pid, signal.SIGINT)
        client.communicate()
        assert is_running(endpoint.pid)


def test_a_running_job_keeps_the_server_without_clients(state_dir: Path) -> None:
    with private(state_dir) as endpoint:
        cloud = Cloud(endpoint)
        cloud.s3.create_bucket(Bucket=BUCKET)
        with pytest.raises(ClientError, match="ResourceNotFoundException"):
            cloud.logs.describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs")
        go = "os.environ['SM_OUTPUT_DIR'] + '/go'"
        cloud.start("alone", f"import os, time\nwhile not os.path.exists({go}):\n    time.sleep(0.05)\n")
        wait_for(lambda: cloud.describe("alone")["SecondaryStatus"] == "Training", "training")
    assert is_running(endpoint.pid)
    assert json.loads((state_dir / "jobs/alone/state.json").read_text())["status"] == "InProgress"
    (cloud.output("alone") / "go").touch()
    wait_for(lambda: not is_running(endpoint.pid), "the end of the server")
    assert json.loads((state_dir / "jobs/alone/state.json").read_text())["status"] == "Completed"


def test_error_says_why_a_server_did_not_start(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "packages/moto"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('moto is broken here')")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    with pytest.raises(LocalCloudError, match="moto is broken here"), private(state_dir):
        pass


def test_error_names_a_state_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalCloudError, match="file/state"), private(tmp_path / "file/state"):
        pass


def test_idle_connection_does_not_block_others(state_dir: Path) -> None:
    with private(state_dir) as endpoint, socket.socket() as silent:
        silent.connect(("127.0.0.1", urlsplit(endpoint.url).port or 0))
        silent.send(b"PUT /bucket/x HTTP/1.1\r\nHost:")
        assert Cloud(endpoint).s3.list_buckets()["Buckets"] == []
