"""Models and endpoints of a local cloud, with the calls that the tests need."""

from __future__ import annotations

import io
import json
import socket
import tarfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from tests.support.services.cloud import BUCKET, Cloud, client_of, kill, processes_with
from tests.support.waiting import wait_for

ROLE = "arn:aws:iam::000000000000:role/serving"
DOUBLES = """
import json, os

def model_fn(model_dir):
    with open(os.path.join(model_dir, "factor")) as file:
        return float(file.read())

def predict_fn(data, model):
    return {"is": [model * one for one in data], "by": os.uname().nodename}
"""


def never_answers(started: Path) -> str:
    """A script whose requests create the file ``started`` and then wait."""
    return f"""
        import time
        def model_fn(d): return None
        def predict_fn(data, model):
            open({str(started)!r}, "w").close()
            time.sleep(600)
        """


def archive(files: Mapping[str, str | bytes]) -> bytes:
    """A tar.gz of the files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def container(address: str) -> int:
    """The process of `serve` on the host with this address."""
    found = [
        pid
        for pid in processes_with(f"SMDP_SERVE_ADDRESS={address}")
        if b"smdp_entrypoint\0serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(found) == 1, found
    return found[0]


def kill_container(host: Mapping[str, Any]) -> None:
    """Kill `serve` on the host, and wait until its port is closed: its other threads end after its first one."""
    kill(container(host["address"]))

    def refuses() -> bool:
        with socket.socket() as trial:
            return trial.connect_ex((host["address"], host["port"])) != 0

    wait_for(refuses, f"the end of the container at {host['address']}")


class Serving:
    """The serving side of one local cloud. Resources of a test have the test's own names."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.sagemaker = cloud.sagemaker
        self.runtime = client_of(cloud.endpoint, "sagemaker-runtime")
        self.logs = cloud.logs

    def put_model(self, name: str, script: str = DOUBLES, packed: bytes | None = None, **files: str) -> str:
        """Upload model.tar.gz with the script and a factor of 2; its address."""
        content = {"code/inference.py": textwrap.dedent(script), "factor": "2", **files}
        key = f"models/{name}/model.tar.gz"
        self.cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=archive(content) if packed is None else packed)
        return f"s3://{BUCKET}/{key}"

    def create_model(self, name: str, script: str = DOUBLES, packed: bytes | None = None, **environment: str) -> str:
        container = {
            "Image": "image",
            "ModelDataUrl": self.put_model(name, script, packed),
            "Environment": {"SAGEMAKER_MODEL_SERVER_WORKERS": "1", **environment},
        }
        self.sagemaker.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
        return name

    def create_config(self, name: str, model: str, hosts: int = 1, **options: Any) -> str:
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": model,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": hosts,
            **options,
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        return name

    def start(self, name: str, script: str = DOUBLES, *, hosts: int = 1, **environment: str) -> str:
        """Create a model, a configuration and an endpoint of this name, without waiting for it."""
        self.create_config(name, self.create_model(name, script, **environment), hosts)
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return name

    def deploy(self, name: str, script: str = DOUBLES, *, hosts: int = 1, **environment: str) -> str:
        """As `start`, and wait until the endpoint is in service."""
        self.start(name, script, hosts=hosts, **environment)
        described = self.wait(name)
        assert described["EndpointStatus"] == "InService", described.get("FailureReason")
        return name

    def describe(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
        return answer

    def wait(self, name: str) -> dict[str, Any]:
        """The endpoint's description once it is in service or has failed."""

        def settled() -> dict[str, Any] | None:
            answer = self.describe(name)
            return answer if answer["EndpointStatus"] in ("InService", "Failed") else None

        return wait_for(settled, f"endpoint {name} to be in service")  # type: ignore[no-any-return]

    def await_hosts(self, name: str, count: int) -> None:
        """Wait until this number of hosts of the first variant answers requests."""
        wait_for(
            lambda: self.describe(name)["ProductionVariants"][0]["CurrentInstanceCount"] == count,
            f"{count} host(s) of {name}",
        )

    def invoke(self, name: str, body: object = (1, 2), **options: Any) -> dict[str, Any]:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = {"EndpointName": name, "Body": sent, "ContentType": "application/json", **options}
        answer: dict[str, Any] = self.runtime.invoke_endpoint(**request)
        return answer

    def ask(self, name: str, body: object = (1, 2), **options: Any) -> Any:
        """The answer's body, which is JSON."""
        return json.loads(self.invoke(name, body, **options)["Body"].read())

    def error(self, name: str, body: object = (1, 2), **options: Any) -> dict[str, Any]:
        """The error response to a request that must fail."""
        try:
            self.invoke(name, body, **options)
        except ClientError as error:
            return error.response  # type: ignore[return-value]
        raise AssertionError(f"endpoint {name} has answered")

    def hosts(self, name: str) -> list[dict[str, Any]]:
        """The records of the hosts that answer requests."""
        state = json.loads((self.cloud.state_dir / "endpoints" / name / "state.json").read_text())
        return [host for variant in state["variants"] for host in variant["hosts"]]

    def log(self, name: str) -> list[str]:
        """All log messages of an endpoint, read with the calls of CloudWatch Logs; none before the first one."""
        try:
            events = self.logs.filter_log_events(logGroupName=f"/aws/sagemaker/Endpoints/{name}")["events"]
        except self.logs.exceptions.ResourceNotFoundException:
            return []
        return [one["message"] for one in events]

    def await_log(self, name: str, text: str) -> str:
        def line_with_text() -> str | None:
            return next((line for line in self.log(name) if text in line), None)

        return wait_for(line_with_text, f"{text!r} in the log of {name}")  # type: ignore[no-any-return]

    def delete(self, name: str) -> None:
        """Delete the endpoint and wait until nothing of it is left."""
        self.sagemaker.delete_endpoint(EndpointName=name)
        self.await_removal(name)

    def await_removal(self, name: str) -> None:
        wait_for(lambda: not (self.cloud.state_dir / "endpoints" / name).exists(), f"the removal of {name}")

    def supervisor(self, name: str) -> int:
        record = json.loads((self.cloud.state_dir / "endpoints" / name / "supervisor.pid").read_text())
        return int(record["pid"])
