"""The server accepts only requests that are signed with its credentials and not changed afterwards."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from botocore.exceptions import ClientError

from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind, reason
from tests.support.services.cloud import BUCKET, Cloud, client_of
from tests.support.services.raw_requests import STOP, TARGET, Wire, unchanged

__all__ = ["unchanged"]


@pytest.fixture
def wire(shared_cloud: Cloud) -> Wire:
    return Wire(shared_cloud)


@pytest.fixture
def json_wire(wire: Wire) -> Wire:
    wire.method, wire.path, wire.body, wire.headers = "POST", "/", STOP, dict(TARGET)
    return wire


def test_a_signed_request_passes(wire: Wire) -> None:
    assert wire.sign().send()[0] == 200
    assert wire.cloud.object("object") == b"content"
    wire.cloud.s3.delete_object(Bucket=BUCKET, Key="object")


def test_a_signed_json_request_passes(json_wire: Wire) -> None:
    status, body = json_wire.sign().send()
    assert (status, json.loads(body)["message"]) == (400, "Requested resource not found.")


def _change_method(wire: Wire) -> None:
    wire.method = "DELETE"


def _change_path(wire: Wire) -> None:
    wire.path += "2"


def _change_query(wire: Wire) -> None:
    wire.path += "?uploads="


def _change_body(wire: Wire) -> None:
    wire.body = b"CONTENT"


def _change_declared_hash(wire: Wire) -> None:
    wire.body = b"CONTENT"
    wire.headers["X-Amz-Content-SHA256"] = hashlib.sha256(wire.body).hexdigest()


def _unsign_body(wire: Wire) -> None:
    wire.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"


def _add_steering_header(wire: Wire) -> None:
    wire.headers["x-amz-copy-source"] = "/bucket/other"


def _add_content_type(wire: Wire) -> None:
    wire.headers["Content-Type"] = "text/html"


def _other_host(wire: Wire) -> None:
    wire.headers["Host"] = wire.netloc.replace("127.0.0.1", "attacker.example")


def _localhost(wire: Wire) -> None:
    wire.headers["Host"] = wire.netloc.replace("127.0.0.1", "localhost")


def _origin(wire: Wire) -> None:
    wire.headers["Origin"] = "http://attacker.example"


def _fetch_metadata(wire: Wire) -> None:
    wire.headers["Sec-Fetch-Site"] = "cross-site"


def _no_authorization(wire: Wire) -> None:
    del wire.headers["Authorization"]


def _basic_authorization(wire: Wire) -> None:
    wire.headers["Authorization"] = "Basic YTpi"


def _other_service(wire: Wire) -> None:
    wire.headers["Authorization"] = wire.headers["Authorization"].replace("/s3/", "/logs/")


def _zero_signature(wire: Wire) -> None:
    head, _, _ = wire.headers["Authorization"].rpartition("=")
    wire.headers["Authorization"] = f"{head}={'0' * 64}"


CHANGES = [
    _change_method, _change_path, _change_query, _change_body, _change_declared_hash, _unsign_body,
    _add_steering_header, _add_content_type, _other_host, _localhost, _origin, _fetch_metadata, _no_authorization,
    _basic_authorization, _other_service, _zero_signature,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_request_changed_after_signing_is_refused_without_effect(
    wire: Wire, change: Callable[[Wire], None], unchanged: None
) -> None:
    change(wire.sign())
    status, body = wire.send()
    assert 400 <= status < 500
    assert b"Traceback" not in body


def test_a_json_body_changed_after_signing_is_refused(json_wire: Wire, unchanged: None) -> None:
    json_wire.sign().body = STOP.replace(b"unknown", b"another")
    status, body = json_wire.send()
    assert (status, json.loads(body)["__type"]) == (403, "SignatureDoesNotMatch")


def test_a_json_target_changed_after_signing_is_refused(json_wire: Wire, unchanged: None) -> None:
    json_wire.sign().headers["X-Amz-Target"] = "SageMaker.CreateTrainingJob"
    assert json_wire.send()[0] == 403


@pytest.mark.parametrize("age", [timedelta(minutes=16), timedelta(minutes=-16), timedelta(days=365)])
def test_request_signed_at_another_time_is_refused(wire: Wire, age: timedelta, unchanged: None) -> None:
    status, body = wire.sign(now=datetime.now(timezone.utc) - age).send()
    assert (status, b"RequestTimeTooSkewed" in body) == (403, True)


def test_a_wrong_secret_is_refused(shared_cloud: Cloud, unchanged: None) -> None:
    client = client_of(shared_cloud.endpoint, "s3", aws_secret_access_key="guessed")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client.put_object(Bucket=BUCKET, Key="object", Body=b"x" * 100_000)


#: The service and a call of it, and the code and status for an unknown access key and for a wrong clock.
SIGNED_CALLS = [
    ("s3", "list_buckets", ("InvalidAccessKeyId", 403), ("RequestTimeTooSkewed", 403)),
    ("sts", "get_caller_identity", ("InvalidClientTokenId", 403), ("SignatureDoesNotMatch", 403)),
    ("sagemaker", "list_training_jobs", ("UnrecognizedClientException", 400), ("InvalidSignatureException", 400)),
    ("logs", "describe_log_groups", ("UnrecognizedClientException", 400), ("InvalidSignatureException", 400)),
    ("ecr", "describe_repositories", ("UnrecognizedClientException", 400), ("InvalidSignatureException", 400)),
]


@pytest.mark.parametrize(("service", "call", "expected", "_"), SIGNED_CALLS)
def test_an_unknown_access_key_is_refused(
    shared_cloud: Cloud, service: str, call: str, expected: tuple[str, int], _: tuple[str, int], unchanged: None
) -> None:
    client = client_of(shared_cloud.endpoint, service, aws_access_key_id="AKIAUNKNOWN")
    with pytest.raises(ClientError) as refused:
        getattr(client, call)()
    assert code_and_status(refused.value) == expected
    assert error_kind(refused.value) is ErrorKind.CREDENTIALS


@pytest.mark.parametrize(("service", "call", "_", "expected"), SIGNED_CALLS)
@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (-16, r"Signature expired: \w{16} is now earlier than"),
        (16, r"Signature not yet current: \w{16} is still later"),
    ],
)
def test_call_by_a_wrong_clock_is_refused_as_by_aws(
    shared_cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    call: str,
    _: tuple[str, int],
    expected: tuple[str, int],
    minutes: int,
    text: str,
) -> None:
    client = client_of(shared_cloud.endpoint, service)
    signed_at = datetime.now(timezone.utc) + timedelta(minutes=minutes)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: signed_at.replace(tzinfo=None))
    with pytest.raises(ClientError) as refused:
        getattr(client, call)()
    assert code_and_status(refused.value) == expected
    assert service == "s3" or re.match(text, refused.value.response["Error"]["Message"])
    assert error_kind(refused.value) is ErrorKind.TEMPORARY  # until the clock is set
    assert "the clock of this machine is wrong: set it" in reason(refused.value)


def code_and_status(error: ClientError) -> tuple[str, int]:
    return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]


def test_error_for_unknown_service_lists_known_services(shared_cloud: Cloud) -> None:
    with pytest.raises(
        ClientError,
        match="has ec2, ecr, elasticfilesystem, fsx, iam, logs, monitoring, s3, sagemaker, servicequotas, sts,",
    ):
        client_of(shared_cloud.endpoint, "sqs").list_queues()


def test_error_for_unknown_action_names_it(shared_cloud: Cloud) -> None:
    with pytest.raises(ClientError, match="does not have sagemaker 'ListPipelines'"):
        shared_cloud.sagemaker.list_pipelines()


def test_json_body_above_the_limit_is_refused(json_wire: Wire) -> None:
    json_wire.body = json.dumps({"TrainingJobName": "x" * (4 * 1024 * 1024)}).encode()
    status, _ = json_wire.sign().send()
    assert status == 413


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\xfe", b'{"TrainingJobName": 1}', b'{"a":' * 100_000])
def test_malformed_json_body_is_refused_without_traceback(json_wire: Wire, body: bytes) -> None:
    json_wire.body = body
    status, answer = json_wire.sign().send()
    assert (status, b"Traceback" in answer) == (400, False)


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "1_0", "\u0661"])
def test_invalid_content_length_is_refused(wire: Wire, length: str, unchanged: None) -> None:
    wire.sign()
    wire.headers["Content-Length"] = length.encode().decode("latin-1")
    assert wire.send()[0] == 400


def test_credentials_file_is_private_to_the_user(shared_cloud: Cloud) -> None:
    assert (shared_cloud.state_dir / "server.json").stat().st_mode & 0o777 == 0o600
    assert shared_cloud.state_dir.stat().st_mode & 0o777 == 0o700
    assert (shared_cloud.state_dir / ".gitignore").read_text() == "*\n"
