"""One object to one file: it is complete or does not appear, and continues after a broken connection."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from smdp_launch import EnvironmentProblem, Refused, ServiceProblem
from smdp_launch.errors import Interrupted
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from smdp_launch.jobs.service.retry_policy import RetryPolicy, Waiting
from smdp_launch.jobs.transfer import fetch as fetching
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
    tag = '"tag"'

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
        assert self.headers["If-Match"] == type(self).tag
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
    clients.retry_policy = RetryPolicy(first_gap=0.01, total=0.1)
    path = tmp_path / "model.tar.gz"
    with pytest.raises(ServiceProblem, match=re.escape("s3://bucket/model.tar.gz cannot be downloaded")) as refused:
        fetch(clients, RESULT, path, lambda _: None)
    assert not path.exists()
    (part,) = tmp_path.glob(".*.part")
    size = part.stat().st_size
    assert str(refused.value).endswith(f"; run the command again: it continues at byte {size}")
    assert CONTENT.startswith(part.read_bytes())
    handler.cuts = 0
    fetch_whole(clients, path)
    assert handler.ranges[-1] == f"bytes={size}-"
    assert path.read_bytes() == CONTENT


def test_connections_that_break_without_a_byte_are_retried_after_a_pause(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path
) -> None:
    """As with a proxy that loses its upstream: it answers the head, and then closes the connection."""
    handler, clients = server
    handler.cuts = 9
    clients.retry_policy = RetryPolicy(first_gap=0.001)
    waits: list[Waiting] = []
    clients.on_waiting = waits.append
    fetch_whole(clients, tmp_path / "model.tar.gz")
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT
    assert len(handler.ranges) == 10
    assert len(waits) == 9
    assert {one.what for one in waits} == {"s3://bucket/model.tar.gz cannot be downloaded"}
    assert all(one.again_in > 0 for one in waits)
    assert len({one.since for one in waits}) == 1  # one outage


def test_wait_for_a_connection_can_be_interrupted(server: tuple[type[BreakingServer], Clients], tmp_path: Path) -> None:
    handler, clients = server
    handler.cuts = 1000
    clients.retry_policy = RetryPolicy(first_gap=600, longest_gap=600, total=10_000)
    clients.on_waiting = lambda _: clients.interrupted.set()
    with pytest.raises(Interrupted, match="cannot be downloaded: interrupted after"):
        fetch(clients, RESULT, tmp_path / "model.tar.gz", lambda _: None)


def test_unreachable_service_names_the_byte_at_which_the_download_continues(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path
) -> None:
    (tmp_path / ".model.tar.gz.tag.part").write_bytes(CONTENT[:100])
    (tmp_path / ".model.tar.gz.tag.synced").write_text("100")
    clients = connect_endpoint("http://127.0.0.1:1", "us-east-1", "key", "secret")
    clients.retry_policy = RetryPolicy(first_gap=0.01, total=0.0)
    with pytest.raises(ServiceProblem, match=r"; run the command again: it continues at byte 100$"):
        fetch(clients, RESULT, tmp_path / "model.tar.gz", lambda _: None)


def test_zeros_of_a_power_failure_are_downloaded_again(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may have saved the size of the file, but not its last bytes."""
    handler, clients = server
    monkeypatch.setattr(fetching, "_BLOCK", 1 << 16)
    monkeypatch.setattr(fetching, "_SYNC", 1 << 18)
    synced = (1 << 18) * 2
    part = tmp_path / ".model.tar.gz.tag.part"
    part.write_bytes(CONTENT[:synced].ljust(synced + 200_000, b"\0"))
    fetch_whole(clients, tmp_path / "model.tar.gz")
    assert handler.ranges == [f"bytes={synced}-"]
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("record", "continues_at"), [("300000", 300_000), ("600000", 0), ("", 0), ("\0\0\0", 0), ("-5", 0)]
)
def test_download_continues_at_the_byte_that_was_recorded_after_a_sync(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path, record: str, continues_at: int
) -> None:
    """The bytes after it may be those of a later download that was killed."""
    handler, clients = server
    (tmp_path / ".model.tar.gz.tag.part").write_bytes(CONTENT[:300_000].ljust(500_000, b"\0"))
    (tmp_path / ".model.tar.gz.tag.synced").write_text(record)
    fetch_whole(clients, tmp_path / "model.tar.gz")
    assert handler.ranges == [f"bytes={continues_at}-" if continues_at else ""]
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT
    assert [one.name for one in tmp_path.iterdir()] == ["model.tar.gz"]


def test_record_of_discarded_bytes_does_not_count_for_others(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path
) -> None:
    record = tmp_path / ".model.tar.gz.tag.synced"
    (tmp_path / ".model.tar.gz.tag.part").write_bytes(b"x" * (len(CONTENT) + 1))
    record.write_text(str(len(CONTENT)))
    records: list[bool] = []
    fetch(server[1], RESULT, tmp_path / "model.tar.gz", lambda _: records.append(record.exists()))
    assert not any(records)
    assert record.read_text() == str(len(CONTENT))


def test_bytes_are_on_disk_before_many_more_are_written(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(fetching, "_BLOCK", 1 << 16)
    monkeypatch.setattr(fetching, "_SYNC", 1 << 18)
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    fetch(server[1], RESULT, tmp_path / "model.tar.gz", lambda _: None)
    assert [size >> 18 for size in synced] == [1, 2, 3, 4, 4, 4]
    assert all(size % (1 << 18) < 1 << 16 for size in synced)


@pytest.mark.parametrize("length", [180, 181, 255])
def test_file_with_the_longest_name_is_downloaded(
    server: tuple[type[BreakingServer], Clients], tmp_path: Path, length: int
) -> None:
    handler, clients = server
    path = tmp_path / ("é" * 40).ljust(length - 40, "a")
    assert len(os.fsencode(path.name)) == length
    tag = f'"{"0123456789abcdef" * 8}-12"'
    older, result = replace(RESULT, etag='"older"', size=10), replace(RESULT, etag=tag)
    handler.tag = older.etag
    fetch(clients, older, path, lambda _: None)
    handler.tag = result.etag
    part = fetch(clients, result, path, lambda _: None)
    assert list(tmp_path.glob(".*.part")) == [part]  # that of the other version is deleted
    assert len(list(tmp_path.glob(".*.synced"))) == 1
    publish(part, path)
    assert path.read_bytes() == CONTENT


def test_part_file_of_another_version_is_deleted(server: tuple[type[BreakingServer], Clients], tmp_path: Path) -> None:
    handler, clients = server
    (tmp_path / ".model.tar.gz.older.part").write_bytes(b"x" * 10)
    (tmp_path / ".model.tar.gz.older.synced").write_text("10")
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
