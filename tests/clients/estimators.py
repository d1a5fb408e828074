"""What the tests of the SageMaker SDK's estimators share: a session whose requests are read from botocore."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdp_launch import Plan, build_estimator, build_inputs


class Answer:
    """The parts of an HTTP response that botocore reads."""

    def __init__(self) -> None:
        self.status_code = 200
        self.headers: dict[str, str] = {}


class Caught:
    """The requests that ``session`` would have sent."""

    def __init__(self, session: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self.uploads: dict[str, bytes] = {}
        self.headers: dict[str, str] = {}  # of the last upload
        session.sagemaker_client.meta.events.register("before-call.sagemaker.CreateTrainingJob", self.create)
        session.boto_session.events.register("before-call.s3.PutObject", self.put)

    def create(self, params: dict[str, Any], **_: object) -> tuple[Answer, dict[str, Any]]:
        self.requests.append(json.loads(params["body"]))
        return Answer(), {"TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/x"}

    def put(self, params: dict[str, Any], **_: object) -> tuple[Answer, dict[str, Any]]:
        self.uploads[params["url_path"]] = params["body"].read()
        self.headers = {key: str(value) for key, value in params["headers"].items()}
        return Answer(), {}


def trained(plan: Plan, **options: Any) -> tuple[Any, Caught]:
    estimator = build_estimator(plan, **options)
    caught = Caught(estimator.sagemaker_session)
    estimator.fit(build_inputs(plan), wait=False)
    return estimator, caught


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[object]]:
    """No network and no settings of the user; yields the addresses of the attempted connections."""
    wanted: list[object] = []

    def refuse(_: socket.socket, address: object) -> None:
        wanted.append(address)
        raise OSError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in [one for one in os.environ if one.startswith(("AWS_", "SAGEMAKER_", "SMDP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "unknown"))
    monkeypatch.chdir(tmp_path)
    yield wanted
    assert wanted == []


@pytest.fixture(scope="module")
def caught(session: Any) -> Caught:
    """One for the session: of the handlers that answer a call, boto3 asks the first."""
    return Caught(session)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source folder of the generated jobs."""
    made = tmp_path_factory.mktemp("generated")
    for script in (made / "src" / "train.py", made / "src" / "lib" / "train.py"):
        script.parent.mkdir(exist_ok=True)
        script.write_text("print('trained')\n")
    return made


@pytest.fixture(scope="module")
def session() -> Any:
    """One session for all generated jobs: each new one loads 15 MB of service descriptions."""
    import boto3
    from sagemaker.session import Session

    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "example"}
    return Session(boto_session=boto3.Session(region_name="us-east-1", **keys))
