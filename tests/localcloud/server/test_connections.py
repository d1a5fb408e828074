"""Clients with incomplete requests neither occupy threads nor delay other clients."""

from __future__ import annotations

import hashlib
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from smdp_launch.localcloud.client.connect import private, running
from smdp_launch.localcloud.layout import StateFolder
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.joined_processes import JOINS, end, joined
from tests.support.services.raw_requests import Wire

HALF_A_HEAD = b"PUT /bucket/x HTTP/1.1\r\nHost:"
HALF_A_BODY = b"POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\n{"
REFUSED_BODY = b"PUT /bucket/x HTTP/1.1\r\nHost: %s\r\nContent-Length: 10000000\r\n\r\n{"


def threads(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Threads:")).split()[1])


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8192:
        pytest.skip(f"a process may have only {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def address(cloud: Cloud) -> tuple[str, int]:
    parts = urlsplit(cloud.endpoint.url)
    return "127.0.0.1", parts.port or 0


@contextmanager
def clients(cloud: Cloud, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connections that send this and then wait."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(address(cloud), timeout=60))
            client.sendall(sent)
            opened.append(client)
        yield opened


def with_host(request: bytes, cloud: Cloud) -> bytes:
    return request.replace(b"%s", urlsplit(cloud.endpoint.url).netloc.encode())


@pytest.mark.parametrize("sent", [HALF_A_HEAD, HALF_A_BODY, REFUSED_BODY], ids=["head", "body", "refused-body"])
def test_thousands_of_incomplete_requests_occupy_no_threads(cloud: Cloud, many_descriptors: None, sent: bytes) -> None:
    before = threads(cloud.endpoint.pid)
    with clients(cloud, 3000, with_host(sent, cloud)):
        cloud.s3.put_object(Bucket=BUCKET, Key="signed", Body=b"content")
        assert cloud.object("signed") == b"content"
        assert cloud.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
        assert running(StateFolder(cloud.state_dir)) == cloud.endpoint
        assert threads(cloud.endpoint.pid) == before
    cloud.s3.delete_object(Bucket=BUCKET, Key="signed")


def test_oldest_connection_is_closed_at_the_limit(cloud: Cloud, many_descriptors: None) -> None:
    with clients(cloud, 3000, HALF_A_HEAD) as opened:
        assert opened[0].recv(1) == b""
        opened[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            opened[-1].recv(1)


def test_server_with_few_descriptors_answers(state_dir: Path) -> None:
    limited = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", sys.executable, "-c", JOINS, str(state_dir), "600"]
    starter = subprocess.Popen(limited, stdout=subprocess.PIPE, text=True)
    try:
        pid = joined(starter)[0]
        with private(state_dir) as endpoint:
            assert endpoint.pid == pid
            cloud = Cloud(endpoint)
            with clients(cloud, 300, HALF_A_HEAD):
                cloud.s3.create_bucket(Bucket=BUCKET)
                cloud.s3.put_object(Bucket=BUCKET, Key="signed", Body=b"content")
                assert cloud.object("signed") == b"content"
    finally:
        end(starter)


def test_request_sent_byte_by_byte_is_answered(shared_cloud: Cloud) -> None:
    wire = Wire(shared_cloud).sign()
    headers = {"Content-Length": str(len(wire.body)), **wire.headers}
    head = f"PUT {wire.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(address(shared_cloud), timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head.encode() + b"\r\n" + wire.body:
            client.sendall(bytes([byte]))
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 200 ")
    assert shared_cloud.object("object") == b"content"
    shared_cloud.s3.delete_object(Bucket=BUCKET, Key="object")


@pytest.mark.parametrize("size", [0, 1, 60_000, 66_000, 5_000_000])
def test_body_of_any_size_is_stored_whole(cloud: Cloud, size: int) -> None:
    body = hashlib.sha256(str(size).encode()).digest() * (size // 32 + 1)
    cloud.s3.put_object(Bucket=BUCKET, Key="sized", Body=body[:size])
    assert cloud.object("sized") == body[:size]
    cloud.s3.delete_object(Bucket=BUCKET, Key="sized")


def test_incomplete_body_is_refused(shared_cloud: Cloud) -> None:
    wire = Wire(shared_cloud).sign()
    headers = {"Content-Length": str(len(wire.body)), **wire.headers}
    head = f"PUT {wire.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(address(shared_cloud), timeout=60) as client:
        client.sendall(head.encode() + b"\r\n" + wire.body[:3])
        client.shutdown(socket.SHUT_WR)
        assert b"IncompleteBody" in client.makefile("rb").read()


def test_endless_head_is_refused(shared_cloud: Cloud) -> None:
    with socket.create_connection(address(shared_cloud), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 65_536)
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 431 ")
