"""What a transform job sends to its hosts: the records of each format, the size of requests, and how many at a time."""

from __future__ import annotations

import http.server
import itertools
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.localcloud.runtime.serving.records import RecordError, Split, payloads
from smdp_launch.localcloud.runtime.serving.routing import post
from tests.support.services.serving import Serving
from tests.support.services.transforms import leaves_nothing, outputs, put, run

__all__ = ["leaves_nothing"]  # a fixture

_MIB = 1 << 20
_MAGIC = b"\x0a\x23\xd7\xce"
#: Answers a body of numbers of four bytes with their sum, in text.
SUMS = """
import struct

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    return str(sum(struct.unpack(f"<{len(body) // 4}I", body))), accept
"""
LENGTHS = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    return str(len(body)), accept
"""


def tfrecord(content: bytes) -> bytes:
    """The checksums are not read."""
    return struct.pack("<Q", len(content)) + b"\0\0\0\0" + content + b"\0\0\0\0"


def recordio(content: bytes) -> bytes:
    """As MXNet writes it: a record is divided where it contains the magic number at a multiple of four bytes."""
    parts, start = [], 0
    for place in range(0, len(content) - 3, 4):
        if content[place : place + 4] == _MAGIC:
            parts.append(content[start:place])
            start = place + 4
    parts.append(content[start:])
    kinds = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    heads = [_MAGIC + struct.pack("<I", kind << 29 | len(part)) for kind, part in zip(kinds, parts, strict=True)]
    return b"".join(head + part + b"\0" * (-len(part) % 4) for head, part in zip(heads, parts, strict=True))


FORMATS = {"TFRecord": tfrecord, "RecordIO": recordio, "Line": lambda content: content + b"\n"}


def split_of(folder: Path, content: bytes, by: str, *, join: bool, most: int = 0) -> list[bytes]:
    path = folder / "object"
    path.write_bytes(content)
    return list(payloads(path, Split(by, join, most, gzipped=False)))


_PIECES = st.sampled_from([_MAGIC, b"\0", b"abc", b"12345678"])


@pytest.mark.parametrize("by", ["TFRecord", "RecordIO"])
@given(pieces=st.lists(st.lists(_PIECES, max_size=4).map(b"".join), max_size=5), most=st.sampled_from([0, 64, 200]))
def test_binary_records_are_sent_bare_alone_and_whole_together(
    by: str, pieces: list[bytes], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("records")
    framed = [FORMATS[by](one) for one in pieces]
    assert split_of(folder, b"".join(framed), by, join=False, most=most) == pieces
    if most and max(map(len, framed), default=0) > most:
        return
    together = split_of(folder, b"".join(framed), by, join=True, most=most)
    assert b"".join(together) == b"".join(framed)
    assert not most or all(len(one) <= most for one in together)
    for one, following in itertools.pairwise(together):
        first = next(record for record in framed if following.startswith(record))
        assert len(one) + len(first) > most


@pytest.mark.parametrize(
    ("by", "content", "reason"),
    [
        ("RecordIO", b"text of a file", "does not start with the magic number"),
        ("RecordIO", recordio(b"12345678")[:-1], "7 of 8 bytes exist"),
        ("RecordIO", recordio(b"1234" + _MAGIC + b"5678")[:12], "the last record has no end"),
        ("TFRecord", b"12345", "a record has no length"),
        ("TFRecord", tfrecord(b"12345678")[:-2], "10 of 12 bytes exist"),
        ("TFRecord", b"\xff" * 12, "0 of 18446744073709551619 bytes exist"),
    ],
)
def test_damaged_records_are_reported(tmp_path: Path, by: str, content: bytes, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        split_of(tmp_path, content, by, join=False)


class _Recorder(http.server.BaseHTTPRequestHandler):
    requests: list[dict[str, str]]

    def do_POST(self) -> None:
        self.requests.append(dict(self.headers.items()))
        body = bytearray()
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        else:
            body += self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""


@pytest.fixture
def container() -> Iterator[tuple[dict[str, Any], list[dict[str, str]]]]:
    """A server that answers with the request's body, and the headers that it received."""
    handler = type("Handler", (_Recorder,), {"requests": []})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield {"address": "127.0.0.1", "port": server.server_port, "token": "t"}, handler.requests
        server.shutdown()
        thread.join()


def test_request_without_a_limit_is_sent_in_chunks(container: tuple[dict[str, Any], list[dict[str, str]]]) -> None:
    host, received = container
    body = bytes(range(256)) * 1024
    for chunked in (True, False):
        assert post(host, body, {"Content-Type": "a/b"}, 30, _MIB, chunked=chunked).body == body
    in_chunks, whole = received
    assert in_chunks["Transfer-Encoding"] == "chunked" and "Content-Length" not in in_chunks
    assert whole["Content-Length"] == str(len(body)) and "Transfer-Encoding" not in whole


def test_object_above_the_default_limit_needs_another(serving: Serving) -> None:
    model = serving.create_model("lengths", LENGTHS)
    put(serving, "large/a.bin", b"x" * (7 * _MIB))
    kind = {"ContentType": "application/octet-stream"}
    by_default = run(serving, "large-6", model, "large/", TransformInput=kind)
    assert "a record has 7340032 bytes, more than MaxPayloadInMB allows" in by_default["FailureReason"]
    for most in (7, 0):
        name = f"large-{most}"
        described = run(serving, name, model, "large/", TransformInput=kind, MaxPayloadInMB=most)
        assert described["TransformJobStatus"] == "Completed", described.get("FailureReason")
        assert described["MaxPayloadInMB"] == most
        assert outputs(serving, name) == {"a.bin.out": b"7340032"}


@pytest.mark.parametrize("by", ["TFRecord", pytest.param("RecordIO", marks=pytest.mark.runs)])
def test_binary_records_reach_the_model_without_their_frames(serving: Serving, by: str) -> None:
    name = f"sums-{by}"
    model = serving.create_model(name, SUMS)
    put(serving, f"{name}/a", b"".join(FORMATS[by](struct.pack("<3I", one, one, one)) for one in (1, 2, 3)))
    described = run(
        serving,
        name,
        model,
        f"{name}/",
        BatchStrategy="SingleRecord",
        TransformInput={"SplitType": by, "ContentType": "application/octet-stream"},
        TransformOutput={"AssembleWith": "Line"},
    )
    assert described["TransformJobStatus"] == "Completed", described.get("FailureReason")
    assert outputs(serving, name) == {"a.out": b"3\n6\n9\n"}


def test_as_many_requests_are_in_progress_as_requested(serving: Serving) -> None:
    """Each request waits until three are in progress: with fewer, none would ever be answered."""
    meeting = serving.cloud.state_dir / "meeting"
    meeting.mkdir()
    script = f"""
        import os, time

        def model_fn(model_dir):
            return None

        def transform_fn(model, body, content_type, accept):
            open(os.path.join({str(meeting)!r}, body.strip()), "w").close()
            while len(os.listdir({str(meeting)!r})) < 3:
                time.sleep(0.01)
            return body, accept
        """
    model = serving.create_model("meets", script, SAGEMAKER_MODEL_SERVER_WORKERS="3")
    put(serving, "meets/a.csv", b"1\n2\n3\n")
    described = run(
        serving,
        "meets",
        model,
        "meets/",
        BatchStrategy="SingleRecord",
        MaxConcurrentTransforms=3,
        TransformInput={"SplitType": "Line"},
    )
    assert described["TransformJobStatus"] == "Completed", described.get("FailureReason")
    assert outputs(serving, "meets") == {"a.csv.out": b"123"}
