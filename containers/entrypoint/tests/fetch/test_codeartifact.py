"""CA_REPOSITORY_ARN: requests as botocore sends them, and pip installing from a server that requires the token."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator
from unittest import mock

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from entrypoint_support.loopback import serving
from entrypoint_support.wheels import make_wheel

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.fetch.codeartifact import Repository, index_url
from smdp_entrypoint.fetch.sigv4 import Credentials, Request, signed

if TYPE_CHECKING:
    from entrypoint_support.host import Host

ARN = "arn:aws:codeartifact:eu-west-1:123456789012:repository/my-domain/my.repo"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "a/b+c="}
TOKEN = "to/ken="


class Service(ThreadingHTTPServer):
    """CodeArtifact's two calls, and the repository itself, which requires the token."""

    daemon_threads = True

    def __init__(self, packages: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.packages = packages
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[int, Any]] = {
            "/v1/authorization-token": (200, {"authorizationToken": TOKEN}),
            "/v1/repository/endpoint": (200, {"repositoryEndpoint": f"{self.url}/pypi/my.repo/"}),
        }
        self.busy = 0


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, self.path))
        if path in self.server.answers and self.server.busy:
            self.server.busy -= 1
            self.reply(503, b"")
        elif path in self.server.answers:
            status, answer = self.server.answers[path]
            self.reply(status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        elif self.headers.get("Authorization") != f"Basic {base64.b64encode(f'aws:{TOKEN}'.encode()).decode()}":
            self.reply(401, b"")
        elif path == "/pypi/my.repo/simple/smdp-demo/":
            names = [wheel.name for wheel in self.server.packages.glob("*.whl")]
            self.reply(200, "".join(f'<a href="/files/{name}">{name}</a>' for name in names).encode())
        else:
            self.reply(200, (self.server.packages / Path(path).name).read_bytes())

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    packages = tmp_path / "packages"
    packages.mkdir()
    with serving(Service(packages)) as service:
        yield service


def sent_by_botocore(call: Callable[[Any], object], now: datetime) -> Any:
    """The request that botocore's own client sends."""
    client = botocore.session.Session().create_client(
        "codeartifact", "eu-west-1", aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"], aws_session_token=KEYS["AWS_SESSION_TOKEN"],
    )  # fmt: skip
    sent: list[Any] = []

    def note(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, {}, mock.Mock(stream=lambda: iter([b"{}"])))

    client.meta.events.register("before-send.codeartifact", note)
    with mock.patch("botocore.auth.get_current_datetime", return_value=now.replace(tzinfo=None)):
        call(client)
    return sent[0]


@pytest.mark.parametrize("call", ["get_authorization_token", "get_repository_endpoint"])
def test_requests_and_signatures_equal_botocores(service: Service, call: str) -> None:
    parameters = {"domain": "my-domain", "domainOwner": "123456789012"}
    if call == "get_repository_endpoint":
        parameters.update(repository="my.repo", format="pypi")
    now = datetime(2026, 11, 21, 1, 2, 3, tzinfo=timezone.utc)
    theirs = sent_by_botocore(lambda client: getattr(client, call)(**parameters), now)
    host, _, rest = theirs.url.partition("://")[2].partition("/")
    path, _, query = f"/{rest}".partition("?")
    index_url(ARN, {**KEYS, "AWS_ENDPOINT_URL": service.url})
    method, sent = next(request for request in service.requests if request[1].startswith(path))
    assert (method, sent.partition("?")[0]) == (theirs.method, path)
    sent_query = sent.partition("?")[2]
    assert sorted(sent_query.split("&")) == sorted(query.split("&"))
    assert Repository.parse(ARN).region == "eu-west-1"
    credentials = Credentials(KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"], KEYS["AWS_SESSION_TOKEN"])
    ours = signed(Request(method, host, path, sent_query, "codeartifact"), "eu-west-1", credentials, now)
    assert host == "codeartifact.eu-west-1.amazonaws.com"
    assert ours["authorization"] == theirs.headers["Authorization"].decode()


def test_requirements_come_from_the_repository_and_the_token_is_in_no_log(
    host: Host, service: Service, tmp_path: Path
) -> None:
    make_wheel(service.packages)
    service.busy = 1
    host.job("import sys; sys.path.append(sys.argv[2]); import smdp_demo; print(smdp_demo.WORD)", site=str(tmp_path))
    host.code("requirements.txt", "smdp-demo==1.0")
    environ = {"CA_REPOSITORY_ARN": ARN, "AWS_ENDPOINT_URL_CODEARTIFACT": service.url, **KEYS}
    assert host.run(**environ, PIP_TARGET=str(tmp_path), PIP_NO_CACHE_DIR="1", PIP_CONFIG_FILE="/dev/null") == 0
    assert host.of_rank(0) == ["installed"]
    assert f"[algo-1] installing with pip: -r requirements.txt from {ARN}" in host.lines
    assert TOKEN not in host.text
    assert "to%2Fken" not in host.text


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        ("/v1/authorization-token", (403, {"message": "not authorized"}), "HTTP 403: "),
        ("/v1/authorization-token", (200, b"["), "the response has no authorizationToken"),
        ("/v1/repository/endpoint", (200, {"repositoryEndpoint": 3}), "the response has no repositoryEndpoint"),
        ("/v1/repository/endpoint", (404, b"gone"), "with HTTP 404: gone"),
    ],
)
def test_refusal_fails_the_job_with_its_message(
    host: Host, service: Service, path: str, answer: tuple[int, Any], message: str
) -> None:
    service.answers[path] = answer
    host.job("print('never')")
    host.code("requirements.txt", "smdp-demo==1.0")
    assert host.run(CA_REPOSITORY_ARN=ARN, AWS_ENDPOINT_URL=service.url, **KEYS) == 1
    assert host.failure.startswith("CodeArtifact answered ")
    assert message in host.failure
    assert TOKEN not in host.text + host.failure


@pytest.mark.parametrize("arn", ["x", ARN + "/more", ARN.replace("my-domain", "a b"), ARN.replace("1234", "12x4")])
def test_invalid_repository_arn_is_refused(arn: str) -> None:
    with pytest.raises(ProgramError, match="is not the ARN of a CodeArtifact repository"):
        index_url(arn, KEYS)
