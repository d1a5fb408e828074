"""Inspection of an image in an untrusted registry: real HTTP on loopback, with wrong and hostile answers."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from smdp_launch.errors import ServiceProblem
from smdp_launch.image import inspection
from smdp_launch.image.inspection import Inspection, inspect
from smdp_launch.image.registry import CONFIG_LIMIT, MANIFEST_LIMIT
from smdp_launch.image.tools import Login
from smdp_launch.image.verdict import judge
from tests.support.services.registry import MANIFEST, Page, Reply, Server, digest, encoded, server

__all__ = ["server"]

INDEX = "application/vnd.oci.image.index.v1+json"
AMD64 = {"os": "linux", "architecture": "amd64"}


@pytest.fixture
def other() -> Iterator[Server]:
    opened = Server()
    yield opened
    opened.close()


def refusal(uri: str, login: Login | None = None) -> str:
    with pytest.raises(ServiceProblem) as caught:
        inspect(uri, login)
    message = str(caught.value)
    assert message.startswith(uri)
    assert message.replace("\n", "").isprintable()
    return message


def test_inspect_reads_image_contents(server: Server) -> None:
    found = inspect(server.put_image())
    assert (found.platform, found.size, found.layers) == ("linux/amd64", 123, 2)
    assert found.cuda is not None
    assert (found.cuda.value, found.cuda.source) == ("11.8", "variable CUDA_VERSION")
    assert found.framework is not None
    assert found.framework.value == "pytorch 2.0.1"
    assert found.command == ["train"]
    assert judge(found).says == "fits"


def test_variables_that_may_be_secret_are_omitted(server: Server) -> None:
    found = inspect(server.put_image())
    assert found.environment == {"PATH": "/usr/bin", "CUDA_VERSION": "11.8.0", "PYTORCH_VERSION": "2.0.1"}
    assert "hush" not in repr(found)


def test_tag_has_lowest_precedence(server: Server) -> None:
    found = inspect(server.put_image({}, tag="2.0.1-gpu-py310-cu121"))
    assert found.cuda is not None
    assert (found.cuda.value, found.cuda.source) == ("12.1", "the tag")
    assert judge(found).says == "refused"
    assert judge(inspect(server.put_image({}))).says == "unknown"


def test_index_gives_image_for_sagemaker_platform(server: Server) -> None:
    server.put_image(tag="amd")
    manifest = server.pages["/v2/image/manifests/amd"](None)[2]  # type: ignore[arg-type, index]
    server.put(f"/v2/image/manifests/{digest(manifest)}", manifest)
    entries = [
        {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": digest(manifest), "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    server.put("/v2/image/manifests/1", encoded({"manifests": entries}), INDEX)
    assert inspect(f"{server.host}/image:1").digest == digest(manifest)
    server.put("/v2/image/manifests/1", encoded({"manifests": entries[:1]}), INDEX)
    assert "linux/amd64" in refusal(f"{server.host}/image:1")


def guarded(server: Server, challenge: str, wanted: str) -> None:
    """Make every page of the server require a login."""
    for path, page in list(server.pages.items()):

        def answer(request: BaseHTTPRequestHandler, page: Page = page) -> Reply | None:
            if request.headers.get("Authorization") == wanted:
                return page(request)
            return 401, {"WWW-Authenticate": challenge}, b""

        server.pages[path] = answer


def test_basic_login_is_sent_after_challenge(server: Server) -> None:
    uri = server.put_image()
    word = f"Basic {base64.b64encode(b'me:word').decode()}"
    guarded(server, 'Basic realm="here"', word)
    assert inspect(uri, Login(server.host, "me", "word")).layers == 2
    assert "--user" in refusal(uri)
    assert "has no permission to read" in refusal(uri, Login(server.host, "me", "wrong"))


def test_token_is_requested_from_named_service(server: Server, other: Server) -> None:
    uri = server.put_image()
    challenge = f'Bearer realm="http://{other.host}/token",service="s",scope="repository:image:pull"'
    guarded(server, challenge, "Bearer abc")
    other.put("/token", encoded({"token": "abc"}), "application/json")
    assert inspect(uri).layers == 2
    path, login = other.asked[0]
    assert path == "/token?scope=repository%3Aimage%3Apull&service=s"
    assert login == ""


@pytest.mark.parametrize(
    "realm", ["http://registry.example/token", "ftp://127.0.0.1/token", "file:///etc/passwd", "", "//x", "http://[::1"]
)
def test_token_service_without_tls_is_refused(server: Server, realm: str) -> None:
    uri = server.put_image()
    guarded(server, f'Bearer realm="{realm}"', "Bearer abc")
    message = refusal(uri, Login(server.host, "me", "word"))
    assert "an unsafe token service" in message


@pytest.mark.parametrize("token", [{}, {"token": 5}, {"token": "a\r\nX-Evil: 1"}, [], {"token": "\N{SNOWMAN}"}])
def test_invalid_token_is_refused(server: Server, token: object) -> None:
    uri = server.put_image()
    guarded(server, f'Bearer realm="http://{server.host}/token"', "Bearer abc")
    server.put("/token", encoded(token))
    assert "token" in refusal(uri)


def test_login_is_not_sent_to_redirect_target(server: Server, other: Server) -> None:
    uri = server.put_image()
    (path,) = [path for path in server.pages if "/blobs/" in path]
    other.pages[path] = server.pages[path]
    server.pages[path] = lambda _: (307, {"Location": f"http://{other.host}{path}"}, b"")
    word = f"Basic {base64.b64encode(b'me:word').decode()}"
    guarded(server, "Basic", word)
    assert inspect(uri, Login(server.host, "me", "word")).layers == 2
    assert other.asked == [(path, "")]


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://registry.example/x", "gopher://x/"]
)
def test_unsafe_redirect_is_not_followed(server: Server, target: str) -> None:
    uri = server.put_image()
    (path,) = [path for path in server.pages if "/blobs/" in path]
    server.pages[path] = lambda _: (302, {"Location": target}, b"")
    refusal(uri)


def test_redirect_loop_ends(server: Server) -> None:
    server.pages["/v2/image/manifests/1"] = lambda _: (302, {"Location": "/v2/image/manifests/1"}, b"")
    refusal(f"{server.host}/image:1")
    assert len(server.asked) < 20


def test_content_with_wrong_digest_is_refused(server: Server) -> None:
    uri = server.put_image()
    (path,) = [path for path in server.pages if "/blobs/" in path]
    server.put(path, encoded({"config": {"Env": ["CUDA_VERSION=11.8"]}}))
    assert "another digest" in refusal(uri)


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"{", b"[]", b"null", b"5", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000,
        encoded({}), encoded({"schemaVersion": 1}), encoded({"schemaVersion": True}), encoded({"schemaVersion": 2}),
        encoded({"schemaVersion": 2, "config": []}), encoded({"schemaVersion": 2, "config": {"digest": 5}}),
        encoded({"schemaVersion": 2, "config": {"digest": "sha256:../../../etc/passwd"}}),
        encoded({"schemaVersion": 2, "config": {"digest": "sha256:" + "0" * 64}}),
        encoded({"schemaVersion": 2, "config": {"digest": "\x1b[2J"}}),
    ],
)  # fmt: skip
def test_malformed_manifest_gives_one_line_error(server: Server, manifest: bytes) -> None:
    server.put("/v2/image/manifests/1", manifest)
    assert len(refusal(f"{server.host}/image:1").splitlines()) == 1


@pytest.mark.parametrize(
    "index",
    [{}, {"manifests": {}}, {"manifests": [5, None, []]}, {"manifests": [{"platform": AMD64, "digest": "x"}]}],
)  # fmt: skip
def test_malformed_index_gives_one_line_error(server: Server, index: object) -> None:
    server.put("/v2/image/manifests/1", encoded(index), INDEX)
    assert len(refusal(f"{server.host}/image:1").splitlines()) == 1


def test_nested_index_is_refused(server: Server) -> None:
    inner = encoded({"manifests": []})
    server.put(f"/v2/image/manifests/{digest(inner)}", inner, INDEX)
    entry = {"digest": digest(inner), "platform": {"os": "linux", "architecture": "amd64"}}
    server.put("/v2/image/manifests/1", encoded({"manifests": [entry]}), INDEX)
    assert "contains another index" in refusal(f"{server.host}/image:1")


@pytest.mark.parametrize(
    "config",
    [
        b"{}", encoded({"config": None}), encoded({"config": {"Env": 5, "Labels": [], "Cmd": "x"}}),
        encoded({"config": {"Env": [None, "CUDA_VERSION", "=", "CUDA_VERSION=" + "9" * 100_000]}}),
        encoded({"config": {"Labels": {"smdp.cuda": {"a": 1}, "x": 5}}}),
        encoded({"config": {"Env": ["CUDA_VERSION=11.8.0; rm -rf /"]}}),
        encoded({"config": {"Labels": {str(number): "x" * 10_000 for number in range(700)}}}),
    ],
)  # fmt: skip
def test_malformed_config_is_read_partially(server: Server, config: bytes) -> None:
    found = inspect(server.put_image(config))
    assert found.cuda is None
    assert len(found.labels) <= 256
    assert all(len(value) <= 4096 for value in found.labels.values())


def test_control_characters_are_replaced(server: Server) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    config = {"os": evil, "created": evil, "config": {"Labels": {evil: evil}, "Cmd": [evil], "Env": [f"PATH={evil}"]}}
    assert texts(inspect(server.put_image(config))).isprintable()


def texts(found: Inspection) -> str:
    shown = [found.platform, found.created, *found.command, *found.environment.values()]
    return "".join([*shown, *found.labels, *found.labels.values()])


@pytest.mark.parametrize(("path", "limit"), [("manifests", MANIFEST_LIMIT), ("blobs", CONFIG_LIMIT)])
def test_unbounded_answer_is_cut_off(server: Server, path: str, limit: int) -> None:
    uri = server.put_image()
    sent = 0

    def endless(request: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        request.send_response(200)
        request.send_header("Content-Type", MANIFEST)
        request.end_headers()
        try:
            while sent < 40 * limit:
                sent += request.wfile.write(b"[" * 65536)
        except OSError:
            pass

    (page,) = [one for one in server.pages if f"/{path}/" in one]
    server.pages[page] = endless
    assert "larger than" in refusal(uri)
    assert sent < 10 * limit


def test_slow_registry_times_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "DEADLINE", 1.0)
    ended = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n")
        try:
            for number in range(600):
                request.wfile.write(f"X-{number}: x\r\n".encode())
                request.wfile.flush()
                if ended.wait(0.1):
                    return
        except OSError:
            pass

    server.pages["/v2/image/manifests/1"] = drip
    message = refusal(f"{server.host}/image:1")
    ended.set()
    assert "did not answer within 1 s" in message


def test_unreachable_registry_is_reported(server: Server) -> None:
    uri = server.put_image()
    server.close()
    assert "cannot be reached" in refusal(uri)


@pytest.mark.parametrize("uri", ["", "a b", "REG/Name:1", "x" * 5000, "name:tag:tag", "../../etc", "a\x1b[2J:1"])
def test_invalid_image_uri_is_reported(uri: str) -> None:
    with pytest.raises(ServiceProblem) as caught:
        inspect(uri)
    assert "is not the URI of an image" in str(caught.value)
    assert str(caught.value).isprintable()
