"""The download against a real HTTP server in a thread, and the signature against botocore's."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator
from unittest import mock

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from botocore.loaders import Loader
from entrypoint_support.loopback import serving

from smdp_entrypoint.contract.errors import SourceError
from smdp_entrypoint.fetch.credentials import find_credentials
from smdp_entrypoint.fetch.s3 import Download, S3Object, object_url
from smdp_entrypoint.fetch.sigv4 import Credentials, Request, signed

if TYPE_CHECKING:
    from entrypoint_support.host import Host

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers.items())))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        headers.setdefault("Content_Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answers: list[Answer] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as server:
        yield server


def ok(body: bytes) -> Answer:
    return lambda handler: handler.reply(200, body)


def error(status: int, code: str = "", message: str = "", **headers: str) -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return lambda handler: handler.reply(status, body, **headers)


def truncated(body: bytes) -> Answer:
    def answer(handler: Handler) -> None:
        handler.reply(200, body, Content_Length=str(len(body) + 100))
        handler.close_connection = True

    return answer


def download(server: Server, messages: list[str], uri: str = "s3://bucket/some/key.tar.gz") -> bytes:
    download = Download(S3Object.parse(uri), {**KEYS, "AWS_ENDPOINT_URL": server.url}, messages.append)
    download.first_pause = 0.01
    target = io.BytesIO(b"left over from before")
    assert download.to(target) == len(target.getvalue())
    return target.getvalue()


def region_of(request: tuple[str, dict[str, str]]) -> str:
    return request[1]["authorization"].split("/")[2]


@pytest.mark.parametrize("token", [None, "a/token+with=signs"])
@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [
        ("s3://bucket/plain.tar.gz", ""),
        ("s3://bucket/with space/ünï+code=&~(1).tar.gz", ""),
        ("s3://dotted.bucket/a//b", ""),
        ("s3://bucket/key", "http://127.0.0.1:5000"),
    ],
)
def test_signature_equals_botocores(uri: str, endpoint: str, token: str | None) -> None:
    now = datetime(2026, 11, 21, 1, 2, 3, tzinfo=timezone.utc)
    url = object_url(S3Object.parse(uri), "eu-west-1", {"AWS_ENDPOINT_URL": endpoint})
    host, _, path = url.partition("://")[2].partition("/")
    ours = signed(Request("GET", host, "/" + path), "eu-west-1", Credentials("AKID", "secret", token), now)

    request = AWSRequest("GET", url)
    with mock.patch("botocore.auth.get_current_datetime", return_value=now.replace(tzinfo=None)):
        S3SigV4Auth(BotoCredentials("AKID", "secret", token), "s3", "eu-west-1").add_auth(request)
    theirs = {name.lower(): value for name, value in request.headers.items()}
    assert ours["authorization"] == theirs["authorization"]
    assert {name: ours[name] for name in theirs} == theirs


@pytest.mark.parametrize(
    ("bucket", "region", "url"),
    [
        ("bucket", "eu-west-1", "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/c"),
        ("bucket", "cn-north-1", "https://bucket.s3.cn-north-1.amazonaws.com.cn/a%20b/c"),
        ("dotted.bucket", "eu-west-1", "https://s3.eu-west-1.amazonaws.com/dotted.bucket/a%20b/c"),
    ],
)
def test_default_endpoint_is_the_regions(bucket: str, region: str, url: str) -> None:
    assert object_url(S3Object(bucket, "a b/c"), region, {}) == url


def test_every_region_has_the_domain_of_its_partition() -> None:
    partitions = Loader().load_data("partitions")["partitions"]
    regions = [
        (name, one["outputs"]["dnsSuffix"]) for one in partitions for name in one["regions"] if "global" not in name
    ]
    assert len(regions) > 40
    for region, suffix in regions:
        assert object_url(S3Object("bucket", "key"), region, {}) == f"https://bucket.s3.{region}.{suffix}/key"


def test_s3_endpoint_precedes_the_general_one() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://general", "AWS_ENDPOINT_URL_S3": "http://special/base/"}
    assert object_url(S3Object("b", "k"), "eu-west-1", environ) == "http://special/base/b/k"


@pytest.mark.parametrize("uri", ["s3://", "s3://bucket", "s3://bucket/", "s3:///key", "http://bucket/key"])
def test_uri_without_object_is_refused(uri: str) -> None:
    with pytest.raises(SourceError, match=r"s3://bucket/key"):
        S3Object.parse(uri)


def test_object_overwrites_the_target_from_its_beginning(server: Server, messages: list[str]) -> None:
    body = bytes(range(256)) * 9000
    server.answers = [ok(body)]
    assert download(server, messages) == body
    assert server.requests[0][0] == "/bucket/some/key.tar.gz"


def test_overload_and_truncated_body_are_retried(server: Server, messages: list[str]) -> None:
    server.answers = [error(503, "SlowDown"), error(500), truncated(b"half"), ok(b"whole")]
    assert download(server, messages) == b"whole"
    assert len(messages) == 3
    assert "SlowDown" in messages[0]
    assert "ended after 4 of 104 bytes" in messages[2]


def test_number_of_retries_is_limited(server: Server, messages: list[str]) -> None:
    server.answers = [error(503, "SlowDown")]
    with pytest.raises(SourceError, match="could not be downloaded in 5 attempts: HTTP 503 SlowDown"):
        download(server, messages)
    assert len(server.requests) == 5


def test_refusal_is_not_retried_and_names_the_permission(server: Server, messages: list[str]) -> None:
    server.answers = [error(403, "AccessDenied", "no way")]
    with pytest.raises(SourceError, match=r"HTTP 403 AccessDenied: no way\. The job's role needs s3:GetObject"):
        download(server, messages)
    assert len(server.requests) == 1


def test_a_missing_object_is_named(server: Server, messages: list[str]) -> None:
    server.answers = [error(404, "NoSuchKey")]
    with pytest.raises(SourceError, match=r"s3://bucket/some/key\.tar\.gz .*NoSuchKey.*sagemaker_submit_directory"):
        download(server, messages)


@pytest.mark.parametrize(
    "answer",
    [
        error(301, "PermanentRedirect", x_amz_bucket_region="ap-south-1"),
        error(400, "AuthorizationHeaderMalformed", "</Message><Region>ap-south-1</Region><Message>"),
        error(307, "TemporaryRedirect", Location="https://bucket.s3.ap-south-1.amazonaws.com/some/key"),
    ],
    ids=["header", "body", "location"],
)
def test_another_region_is_followed_once(server: Server, messages: list[str], answer: Answer) -> None:
    server.answers = [answer, ok(b"there")]
    assert download(server, messages) == b"there"
    assert [region_of(request) for request in server.requests] == ["eu-west-1", "ap-south-1"]


def test_repeated_region_redirect_is_refused(server: Server, messages: list[str]) -> None:
    server.answers = [
        error(301, "PermanentRedirect", x_amz_bucket_region="ap-south-1"),
        error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1"),
    ]
    with pytest.raises(SourceError, match="S3 redirects again from region ap-south-1"):
        download(server, messages)


def test_a_redirect_to_a_foreign_host_is_not_followed(server: Server, messages: list[str]) -> None:
    server.answers = [error(307, "TemporaryRedirect", Location="http://evil.example/key")]
    with pytest.raises(SourceError, match="HTTP 307"):
        download(server, messages)
    assert len(server.requests) == 1


def test_environment_credentials_come_first() -> None:
    credentials = find_credentials({**KEYS, "AWS_SESSION_TOKEN": "t", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "ftp://x"})
    assert (credentials.access_key, credentials.secret_key, credentials.token) == ("AKIDEXAMPLE", "secret", "t")
    assert "secret" not in repr(credentials)


def test_container_credentials_are_requested_with_the_token(server: Server) -> None:
    answer = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T", "Expiration": "2030-01-01T00:00:00Z"}
    server.answers = [error(500), ok(json.dumps(answer).encode())]
    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url + "/role?x=1",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "password",
    }
    assert find_credentials(environ) == Credentials("A", "S", "T")
    path, headers = server.requests[1]
    assert (path, headers["Authorization"]) == ("/role?x=1", "password")


@pytest.mark.parametrize("url", ["http://10.0.0.1/role", "http://example.com/role", "ftp://127.0.0.1/", "nonsense"])
def test_credentials_are_not_requested_over_plain_http(url: str) -> None:
    with pytest.raises(SourceError, match="must be https or a loopback address"):
        find_credentials({"AWS_CONTAINER_CREDENTIALS_FULL_URI": url})


def test_relative_uri_requests_the_platforms_service(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t", "Expiration": "x"}).encode()
    server.answers = [lambda handler: handler.reply(200, body)]
    monkeypatch.setattr("smdp_entrypoint.fetch.credentials._CONTAINER_SERVICE", server.url)
    environ = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/1?x=2"}
    assert find_credentials(environ) == Credentials("a", "s", "t")
    assert [path for path, _ in server.requests] == ["/v2/credentials/1?x=2"]


def test_token_file_precedes_the_token_variable(server: Server, tmp_path: Path) -> None:
    body = json.dumps({"AccessKeyId": "a", "SecretAccessKey": "s"}).encode()
    server.answers = [lambda handler: handler.reply(200, body)]
    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "old",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
    }
    with pytest.raises(SourceError, match="TOKEN_FILE"):
        find_credentials(environ)
    (tmp_path / "token").write_text("new\n")
    find_credentials(environ)
    assert server.requests[0][1]["Authorization"] == "new"


def test_missing_credentials_error_names_the_variables() -> None:
    with pytest.raises(SourceError, match="AWS_ACCESS_KEY_ID"):
        find_credentials({})


def test_a_job_fetches_its_source_and_runs_it(server: Server, host: Host, tmp_path: Path) -> None:
    archive = io.BytesIO()
    script = b"import helper; print('says', helper.WORD)"
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in {"train.py": script, "helper.py": b"WORD = 'hello'"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    server.answers = [ok(archive.getvalue())]
    host.job(sagemaker_submit_directory="s3://bucket/job/source/sourcedir.tar.gz")
    assert host.run(AWS_ENDPOINT_URL=server.url, **KEYS) == 0
    assert host.of_rank(0) == ["says hello"]
    assert "unpacked 2 file(s) from s3://bucket/job/source/sourcedir.tar.gz" in host.text


def test_a_job_whose_source_is_refused_fails_with_the_reason_and_no_traceback(server: Server, host: Host) -> None:
    server.answers = [error(403, "AccessDenied", "no way")]
    host.job(sagemaker_submit_directory="s3://bucket/sourcedir.tar.gz")
    assert host.run(AWS_ENDPOINT_URL=server.url, **KEYS) == 1
    assert host.failure.startswith("s3://bucket/sourcedir.tar.gz cannot be downloaded: HTTP 403 AccessDenied: no way.")
    assert host.failure.endswith("(on algo-1)")
    assert "Traceback" not in host.text


def test_a_stop_signal_during_the_download_ends_it(server: Server, host: Host) -> None:
    requested, release = threading.Event(), threading.Event()

    def stall(handler: Handler) -> None:
        requested.set()
        release.wait(120)

    server.answers = [stall]
    host.job(sagemaker_submit_directory="s3://bucket/sourcedir.tar.gz").start(AWS_ENDPOINT_URL=server.url, **KEYS)
    assert requested.wait(120)
    host.signal()
    assert host.wait() == 143
    release.set()
    assert "SIGTERM received before any worker started" in host.text
    assert host.failure == ""
