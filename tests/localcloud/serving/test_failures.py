"""Endpoints whose model cannot be served, and hosts that fail while they serve."""

from __future__ import annotations

import io
import os
import signal
import socket
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from smdp_launch.localcloud.runtime import port_lease
from tests.support.services.cloud import BUCKET, kill, processes_with
from tests.support.services.serving import ROLE, Serving, archive, container, kill_container, never_answers
from tests.support.waiting import wait_for

PING = "The primary container for production variant AllTraffic did not pass the ping health check."
DIES = """
import os, signal

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    if data == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    return os.uname().nodename
"""


def failed(serving: Serving, name: str) -> str:
    """The reason of an endpoint that must fail. Nothing of its hosts is left."""
    described = serving.wait(name)
    assert described["EndpointStatus"] == "Failed"
    folder = serving.cloud.state_dir / "endpoints" / name
    wait_for(lambda: not (folder / "hosts").exists() and not (folder / "models").exists(), "the removal of the hosts")
    wait_for(lambda: not processes_with(str(folder)), "the end of the endpoint's processes")
    return str(described["FailureReason"])


def hostile(name: str = "file", kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    """An archive with one entry that must be refused."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        tar.addfile(entry)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("x = 1", "inference.py defines no model_fn(model_dir), and /opt/ml/model has no single TorchScript file"),
        pytest.param(
            "import no_such_module",
            "inference.py cannot be imported: ModuleNotFoundError: No module named",
            marks=pytest.mark.runs,
        ),
    ],
    ids=["no-model-fn", "import"],
)
def test_script_that_cannot_serve_fails_the_endpoint_with_the_reason(
    serving: Serving, script: str, reason: str, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    serving.start(name, script)
    found = failed(serving, name)
    assert found.startswith(
        f"{PING} Please check CloudWatch logs for this endpoint. The container exited with code 1: "
    )
    assert reason in found
    assert "(started 3 times)" in found
    assert any(reason in line for line in serving.log(name))


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"no archive", "it is not a whole tar file: "),
        pytest.param(
            archive({"code/inference.py": "x" * 5000})[:-40], "it is not a whole tar file: ", marks=pytest.mark.runs
        ),
        (hostile("../outside"), "'../outside' leads out of the model's folder"),
        pytest.param(hostile("/outside"), "'/outside' leads out of the model's folder", marks=pytest.mark.runs),
        (hostile("link", tarfile.SYMTYPE, "/etc/passwd"), "'link' is a link; pack the file that it points to"),
        pytest.param(
            hostile("link", tarfile.LNKTYPE, "/etc/passwd"),
            "'link' is a link; pack the file that it points to",
            marks=pytest.mark.runs,
        ),
        pytest.param(hostile("device", tarfile.CHRTYPE), "'device' is not a file or folder", marks=pytest.mark.runs),
    ],
    ids=["garbage", "truncated", "parent", "absolute", "symlink", "hardlink", "device"],
)
def test_archive_that_is_damaged_or_hostile_fails_the_endpoint(
    serving: Serving, packed: bytes, reason: str, request: pytest.FixtureRequest
) -> None:
    name = f"archive-{request.node.callspec.id}"
    serving.create_config(name, serving.create_model(name, packed=packed))
    serving.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    uri = f"s3://{BUCKET}/models/{name}/model.tar.gz"
    found = failed(serving, name)
    assert found.startswith(f'Failed to extract model data archive for container "container_1" from URL "{uri}".')
    assert reason in found


def test_model_that_was_removed_fails_the_endpoint(serving: Serving) -> None:
    serving.create_config("removed", serving.create_model("removed"))
    serving.cloud.s3.delete_object(Bucket=BUCKET, Key="models/removed/model.tar.gz")
    serving.sagemaker.create_endpoint(EndpointName="removed", EndpointConfigName="removed")
    found = failed(serving, "removed")
    assert found.startswith(
        'Failed to download model data for container "container_1" from URL: "s3://bucket/models/re'
    )
    assert "NoSuchKey" in found


def test_role_that_may_not_read_the_model_fails_the_endpoint(serving: Serving) -> None:
    account = serving.cloud.state_dir / "account.yaml"
    account.write_text('roles: {serving: {denied: ["s3:GetObject"]}}\n')
    try:
        serving.start("denied")
        found = failed(serving, "denied")
    finally:
        account.unlink()
    assert "AccessDenied" in found
    assert f"assumed-role/{ROLE.rpartition('/')[2]}/SageMaker is not authorized to perform: s3:GetObject" in found


@pytest.mark.runs
def test_start_that_takes_too_long_fails_the_endpoint(serving: Serving) -> None:
    serving.start("overdue", "import time\ntime.sleep(600)\n", SMDP_LOCAL_STARTUP_TIMEOUT_S="2")
    assert failed(serving, "overdue").endswith("The container did not answer its health check within 2 s.")


@pytest.mark.runs
def test_failed_endpoint_refuses_an_update_and_can_be_deleted(serving: Serving) -> None:
    serving.start("refusing", "x = 1")
    failed(serving, "refusing")
    with pytest.raises(serving.sagemaker.exceptions.ClientError, match="Cannot update in-progress endpoint"):
        serving.sagemaker.update_endpoint(EndpointName="refusing", EndpointConfigName="refusing")
    assert serving.error("refusing")["Error"]["Message"].endswith("not found.")
    serving.delete("refusing")


def test_killed_container_is_started_again_and_others_answer_meanwhile(serving: Serving) -> None:
    serving.deploy("killed", DIES, hosts=2)
    first, second = serving.hosts("killed")
    kill_container(first)
    assert [serving.ask("killed", "nothing") for _ in range(4)] == [second["instance"]] * 4
    serving.await_log("killed", "The container exited with code 137; it is started again in 0.5 s")
    serving.await_hosts("killed", 2)
    wait_for(lambda: serving.ask("killed", "nothing") == first["instance"], "the restarted host to answer")
    serving.delete("killed")


@pytest.mark.runs
def test_request_in_a_killed_container_is_a_model_error(serving: Serving) -> None:
    started = serving.cloud.state_dir / "started"
    serving.deploy("during", never_answers(started))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(serving.error, "during")
        wait_for(started.exists, "the request to begin")
        kill(container(serving.hosts("during")[0]["address"]))
        response = answer.result()
    assert response["Error"]["Code"] == "ModelError"
    assert response["OriginalStatusCode"] == 0
    assert "ended the connection without a valid answer" in response["OriginalMessage"]
    serving.delete("during")


@pytest.mark.runs
def test_killed_worker_costs_its_request_only(serving: Serving) -> None:
    serving.deploy("worker", DIES)
    response = serving.error("worker", "worker")
    assert response["OriginalStatusCode"] == 500
    assert "killed by SIGKILL" in response["OriginalMessage"]
    assert serving.ask("worker", "nothing") == serving.hosts("worker")[0]["instance"]
    serving.delete("worker")


def test_endpoint_without_healthy_host_is_unavailable_until_it_is_back(serving: Serving) -> None:
    started, go = (serving.cloud.state_dir / name for name in ("single-started", "single-go"))
    script = f"""
        import os, time
        def model_fn(d):
            while os.path.exists({str(started)!r}) and not os.path.exists({str(go)!r}):
                time.sleep(0.01)
            open({str(started)!r}, "w").close()
        def predict_fn(data, model):
            return "back"
        """
    serving.deploy("single", script)
    kill_container(serving.hosts("single")[0])
    response = serving.error("single")
    assert response["Error"]["Code"] == "ServiceUnavailable"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert serving.describe("single")["EndpointStatus"] == "InService"
    serving.await_hosts("single", 0)
    go.touch()
    serving.await_hosts("single", 1)
    assert serving.ask("single") == "back"
    serving.delete("single")


@pytest.mark.runs
def test_container_that_hangs_is_started_again(serving: Serving) -> None:
    serving.deploy("hanging")
    os.kill(container(serving.hosts("hanging")[0]["address"]), signal.SIGSTOP)
    serving.await_log("hanging", "does not answer its health check; it is started again")
    serving.await_hosts("hanging", 1)
    assert serving.ask("hanging")["is"] == [2, 4]
    serving.delete("hanging")


@pytest.mark.runs
def test_killed_supervisor_fails_the_endpoint_and_leaves_no_host(serving: Serving) -> None:
    serving.deploy("supervised")
    kill(serving.supervisor("supervised"))
    assert "the endpoint's supervisor died" in wait_for(
        lambda: serving.describe("supervised").get("FailureReason"), "the endpoint's failure"
    )
    assert serving.describe("supervised")["EndpointStatus"] == "Failed"
    wait_for(lambda: not processes_with(str(serving.cloud.state_dir / "endpoints/supervised")), "the hosts' end")
    serving.delete("supervised")


@pytest.mark.runs
def test_other_program_on_port_8080_moves_the_container(serving: Serving) -> None:
    network = port_lease.take("endpoint/moved/")  # what the endpoint takes once it is free again
    address = network.address(1)
    network.release()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((address, 8080))
        taken.listen()
        serving.deploy("moved")
        (host,) = serving.hosts("moved")
        assert host["address"] == address
        assert host["port"] != 8080
        assert serving.ask("moved")["is"] == [2, 4]
    serving.delete("moved")
