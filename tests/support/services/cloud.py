"""Real clients of a real server, and checks for processes and files that are left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
import textwrap
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

from smdp_launch.localcloud.client.connect import Endpoint
from tests.conftest import clean_environment
from tests.support.waiting import DEADLINE, wait_for

BUCKET = "bucket"
MODELS = Loader()  # read once for all clients
ENDED = ("Completed", "Failed", "Stopped")


def client_of(endpoint: Endpoint, service: str, **changes: Any) -> Any:
    session = botocore.session.Session()
    session.register_component("data_loader", MODELS)
    settings: dict[str, Any] = {
        "region_name": endpoint.region,
        "endpoint_url": endpoint.url,
        "aws_access_key_id": endpoint.access_key,
        "aws_secret_access_key": endpoint.secret_key,
        "config": Config(proxies={}, retries={"total_max_attempts": 1}),
    }
    return session.create_client(service, **{**settings, **changes})


def as_the_service(endpoint: Endpoint, home: Path) -> dict[str, str]:
    """An environment in which AWS tools and the launcher use the local cloud as if it were AWS."""
    return clean_environment(
        HOME=str(home),
        AWS_ENDPOINT_URL=endpoint.url,
        AWS_ACCESS_KEY_ID=endpoint.access_key,
        AWS_SECRET_ACCESS_KEY=endpoint.secret_key,
    )


def names_in(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def process_ids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def processes_with(mark: str) -> list[int]:
    """Processes whose command line or environment contains the text."""
    found = []
    for pid in process_ids():
        for source in ("cmdline", "environ"):
            try:
                if pid != os.getpid() and mark.encode() in Path(f"/proc/{pid}/{source}").read_bytes():
                    found.append(pid)
                    break
            except OSError:
                continue
    return found


class Cloud:
    """One local cloud, with the calls that the tests need."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.level = "namespaces"
        self.endpoint = endpoint
        self.state_dir = endpoint.state_dir
        self.s3 = client_of(endpoint, "s3")
        self.sagemaker = client_of(endpoint, "sagemaker")
        self.logs = client_of(endpoint, "logs")

    def put_script(self, script: str) -> str:
        source = textwrap.dedent(script).encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            entry = tarfile.TarInfo("train.py")
            entry.size = len(source)
            tar.addfile(entry, io.BytesIO(source))
        key = f"code/{abs(hash(script))}.tar.gz"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=archive.getvalue())
        return f"s3://{BUCKET}/{key}"

    def request(
        self, name: str, script: str = "", *, hosts: int = 1, workers: int = 1, **changes: Any
    ) -> dict[str, Any]:
        return {
            "TrainingJobName": name,
            "RoleArn": "arn:aws:iam::000000000000:role/training",
            "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
            "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "HyperParameters": {
                "sagemaker_program": json.dumps("train.py"),
                "sagemaker_submit_directory": json.dumps(self.put_script(script)),
            },
            "Environment": {"SMDP_WORKERS_PER_HOST": str(workers)},
            **changes,
        }

    def start(self, name: str, script: str, **changes: Any) -> str:
        self.sagemaker.create_training_job(**self.request(name, script, **changes))
        return name

    def describe(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
        return answer

    def wait(self, name: str, seconds: float = DEADLINE) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            answer = self.describe(name)
            return answer if answer["TrainingJobStatus"] in ENDED else None

        return wait_for(ended, f"the end of {name}", seconds)  # type: ignore[no-any-return]

    def run(self, name: str, script: str, **changes: Any) -> dict[str, Any]:
        return self.wait(self.start(name, script, **changes))

    def log(self, name: str) -> list[str]:
        """All log messages of a job so far, one stream after the other."""
        folder = self.state_dir / "jobs" / name / "logs"
        lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
        return [json.loads(line)["message"] for line in lines]

    def await_log(self, name: str, text: str) -> str:
        def line_with_text() -> str | None:
            return next((line for line in self.log(name) if text in line), None)

        return wait_for(line_with_text, f"{text!r} in the log of {name}")  # type: ignore[no-any-return]

    def output(self, name: str, host: str = "algo-1") -> Path:
        """The folder for output on a host of a running job, in which a test creates files that its script waits for."""
        return self.state_dir / "jobs" / name / "hosts" / host / "ml" / "output"

    def supervisor(self, name: str) -> int:
        record = json.loads((self.state_dir / "jobs" / name / "supervisor.pid").read_text())
        return int(record["pid"])

    def object(self, key: str) -> bytes:
        data: bytes = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return data

    def keys(self, prefix: str = "") -> list[str]:
        listing = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for entry in listing.get("Contents", [])]


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pid: int) -> None:
    """Send SIGKILL, and wait until the process has ended."""
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_running(pid), f"the end of process {pid}")
