"""One object to one file: it is complete or does not appear, and continues after a broken connection."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from smdp_launch import EnvironmentProblem, Refused, ServiceProblem
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.jobs.transfer.fetch import fetch, publish
from smdp_launch.jobs.transfer.results import Result
from smdp_launch.request.names import S3Location

CONTENT = bytes(range(256)) * 4096


class BreakingServer(BaseHTTPRequestHandler):
    """S3 that closes its first ``cuts`` connections early: in the middle of the object, or before a further byte. It
    refuses the next ``expired`` requests."""

    ranges: list[str]
    cuts: int
    expired: int

    def do_GET(self) -> None:
        if type(self).expired:
            type(self).expired -= 1
            body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        type(self).ranges.append(self.headers.get("Range") or "")
        assert self.headers["If-Match"] == '"tag"'
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        if len(type(self).ranges) <= type(self).cuts:
            self.wfile.write(b"" if start else body[: len(body) // 2])
            return
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[BreakingServer], Clients]]:
    handler = type("Handler", (BreakingServer,), {"ranges": [], "cuts": 0, "expired": 0})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    clients = connect_endpoint(f"http://127.0.0.1:{http.server_port}", "us-east-1", "key", "secret")
    clients.retry_policy = RetryPolicy(first_gap=0.01)
    yield handler, clients
    http.shutdown()
    thread.join()
    http.server_close()


RESULT = Result(PurePosixPath("model.tar.gz"), S3Location("bucket", "model.tar.gz"), len(CONTENT), '"tag"')


def fetch_whole(clients: Clients, path: Path, progress: Callable[[int], None] = lambda _: None) -> None:
    publish(fetch(clients, RESULT, path, progress), path)


def test_complete_part_file_makes_no_request(server: tuple[type[BreakingServer], Clients], tmp_path: Path) -> None:
    """An interrupted download of several files does not read the complete files again."""
    handler, clients = server
    path = tmp_path / "model.tar.gz"
    fetch(clients, RESULT, path, lambda _: None)
    assert not path.exists()
    fetch_whole(clients, path)
    assert handler.ranges == [""]
    assert path.read_bytes() == CONTENT


def test_broken_connection_continues_at_the_same_byte(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path
) -> None:
    handler, clients = server
    handler.cuts = 2
    seen: list[int] = []
    fetch_whole(clients, tmp_path / "model.tar.gz", seen.append)
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT
    assert handler.ranges[0] == ""
    assert handler.ranges[1] == handler.ranges[2] != ""
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)
    assert [one.name for one in tmp_path.iterdir()] == ["model.tar.gz"]


def test_repeatedly_broken_connection_is_an_error_and_keeps_the_part_file(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path
) -> None:
    handler, clients = server
    handler.cuts = 1000
    path = tmp_path / "model.tar.gz"
    with pytest.raises(ServiceProblem, match=re.escape("s3://bucket/model.tar.gz cannot be downloaded")):
        fetch(clients, RESULT, path, lambda _: None)
    assert not path.exists()
    (part,) = tmp_path.iterdir()
    size = part.stat().st_size
    assert CONTENT.startswith(part.read_bytes())
    handler.cuts = 0
    fetch_whole(clients, path)
    assert handler.ranges[-1] == f"bytes={size}-"
    assert path.read_bytes() == CONTENT


def test_part_file_of_another_version_is_deleted(server: tuple[type[BreakingServer], Clients], tmp_path: Path) -> None:
    handler, clients = server
    (tmp_path / ".model.tar.gz.older.part").write_bytes(b"x" * 10)
    (tmp_path / ".model.tar.gz.tag.part").write_bytes(b"x" * (len(CONTENT) + 1))
    fetch_whole(clients, tmp_path / "model.tar.gz")
    assert handler.ranges == [""]
    assert [one.name for one in tmp_path.iterdir()] == ["model.tar.gz"]
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT


def test_second_download_of_the_same_file_is_refused(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path
) -> None:
    _, clients = server
    path = tmp_path / "model.tar.gz"

    def second(_: int) -> None:
        with pytest.raises(Refused, match="another process is downloading"):
            fetch(clients, RESULT, path, lambda _: None)

    fetch_whole(clients, path, second)
    assert path.read_bytes() == CONTENT


def test_expired_credentials_are_read_again(server: tuple[type[BreakingServer], Clients], tmp_path: Path) -> None:
    handler, clients = server
    handler.cuts = 1
    reconnected: list[Clients] = []

    def reconnect() -> Clients:
        reconnected.append(clients)
        return clients

    def expire(size: int) -> None:
        handler.expired += 0 < size < len(CONTENT) and not reconnected  # between two connections

    clients.reconnect = reconnect
    fetch_whole(clients, tmp_path / "model.tar.gz", expire)
    assert reconnected
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT


def test_credentials_that_stay_expired_are_an_environment_problem(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path
) -> None:
    handler, clients = server
    handler.expired = 1000
    with pytest.raises(EnvironmentProblem, match=r"model.tar.gz cannot be downloaded: .* renew your AWS credentials"):
        fetch_whole(clients, tmp_path / "model.tar.gz")
    assert handler.expired == 1000 - clients.retry_policy.credential_tries


def test_read_only_folder_gives_one_line_error(server: tuple[type[BreakingServer], Clients], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        fetch(server[1], RESULT, tmp_path / "file" / "model.tar.gz", lambda _: None)
