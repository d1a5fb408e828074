"""The messages of FUSE, byte by byte, and a server that gets messages which no kernel sends."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.localcloud.inputs import wire
from smdp_launch.localcloud.inputs.counters import Counter
from smdp_launch.localcloud.inputs.file_system import FileSystem
from smdp_launch.localcloud.inputs.throttle import Throttle
from smdp_launch.localcloud.inputs.trees import ROOT, Object, ObjectTree
from smdp_launch.localcloud.inputs.wire import Attributes, Malformed, Op, Request

TIMEOUT = 20  # seconds for an answer


def message(op: int, node: int = ROOT, body: bytes = b"", unique: int = 7) -> bytes:
    return struct.pack("=IIQQIIIHH", 40 + len(body), op, unique, node, 0, 0, 1, 0, 0) + body


class Kernel:
    """The kernel's end of the descriptor."""

    def __init__(self, folder: Path, throttle: Throttle | None = None) -> None:
        (folder / "one").write_bytes(b"abcdefgh")
        status = (folder / "one").stat()
        self.own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.own.settimeout(TIMEOUT)
        self.counter = Counter("FastFile")
        one = Object("sub/one", str(folder / "one"), status.st_size, status.st_mtime_ns)
        FileSystem(other.detach(), ObjectTree([one]), self.counter, throttle).start()

    def ask(self, op: int, node: int = ROOT, body: bytes = b"", unique: int = 7) -> tuple[int, bytes]:
        """The errno and the bytes of the answer to this request."""
        self.own.send(message(op, node, body, unique))
        return self.answer(unique)

    def answer(self, unique: int) -> tuple[int, bytes]:
        got = self.own.recv(1 << 21)
        length, error, found = struct.unpack_from("=IiQ", got)
        assert (length, found) == (len(got), unique)
        return -error, got[16:]


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    one = Kernel(tmp_path)
    yield one
    one.own.close()


def opened(kernel: Kernel) -> bytes:
    error, answer = kernel.ask(Op.LOOKUP, body=b"sub\0")
    (folder,) = struct.unpack_from("=Q", answer)
    _, answer = kernel.ask(Op.LOOKUP, folder, b"one\0")
    (node,) = struct.unpack_from("=Q", answer)
    error, answer = kernel.ask(Op.OPEN, node, struct.pack("=II", os.O_RDONLY, 0))
    assert error == 0
    return answer[:8]


def read_of(handle: bytes, offset: int, size: int) -> bytes:
    return handle + struct.pack("=QIIQII", offset, size, 0, 0, 0, 0)


def test_answers_have_the_bytes_of_the_kernels_header() -> None:
    assert wire.answer(0x0102, errno.ENOENT, 3) == struct.pack("=IiQ", 19, -2, 0x0102)
    assert len(wire.init_answer(45, 131072, wire.ASYNC_READ)) == 64
    assert wire.init_answer(45, 131072, wire.ASYNC_READ)[:16] == struct.pack("=IIII", 7, 31, 131072, 1)
    attributes = Attributes(inode=5, mode=0o100644, size=1000, modified=1_500_000_002)
    packed = attributes.pack()
    assert len(packed) == 88
    assert struct.unpack("=QQQQQQIIIIIIIIII", packed) == (
        5,
        1000,
        2,
        1,
        1,
        1,
        *[500_000_002] * 3,
        33188,
        1,
        0,
        0,
        0,
        4096,
        0,
    )
    assert len(wire.entry(attributes, 1)) == 128
    assert len(wire.attributes_answer(attributes, 1)) == 104
    assert len(wire.open_answer(1, 0)) == 16
    assert len(wire.statfs_answer(1, 1)) == 80
    assert wire.directory_entry(3, 1, 8, b"abc") == struct.pack("=QQII", 3, 1, 3, 8) + b"abc" + bytes(5)


def test_kernel_of_another_major_version_is_asked_for_version_7(kernel: Kernel) -> None:
    error, answer = kernel.ask(Op.INIT, body=struct.pack("=IIII", 8, 1, 65536, 0xFFFFFFFF))
    assert (error, struct.unpack_from("=II", answer)) == (0, (7, 31))


def test_kernel_that_is_too_old_is_refused(kernel: Kernel) -> None:
    assert kernel.ask(Op.INIT, body=struct.pack("=IIII", 7, 12, 65536, 0)) == (errno.EINVAL, b"")


def test_only_offered_capabilities_are_used(kernel: Kernel) -> None:
    _, answer = kernel.ask(Op.INIT, body=struct.pack("=IIII", 7, 31, 65536, wire.ASYNC_READ))
    assert struct.unpack_from("=IIII", answer) == (7, 31, 65536, wire.ASYNC_READ)


def test_file_is_read_and_counted(kernel: Kernel) -> None:
    handle = opened(kernel)
    assert kernel.ask(Op.READ, body=read_of(handle, 2, 4)) == (0, b"cdef")
    assert kernel.ask(Op.READ, body=read_of(handle, 6, 100)) == (0, b"gh")
    assert kernel.ask(Op.READ, body=read_of(handle, 8, 100)) == (0, b"")
    assert kernel.ask(Op.RELEASE, body=handle + bytes(16)) == (0, b"")
    assert kernel.ask(Op.READ, body=read_of(handle, 0, 1)) == (errno.EBADF, b"")
    counted = kernel.counter.to_json()
    assert (counted["mode"], counted["bytes"], counted["reads"]) == ("FastFile", 6, 3)


@pytest.mark.parametrize(
    ("op", "body", "error"),
    [
        (Op.WRITE, bytes(40), errno.EROFS),
        (Op.MKDIR, b"x\0", errno.EROFS),
        (Op.OPEN, struct.pack("=II", os.O_RDWR, 0), errno.EROFS),
        (Op.OPEN, struct.pack("=II", os.O_RDONLY, 0), errno.EISDIR),
        (Op.ACCESS, struct.pack("=II", os.W_OK, 0), errno.EROFS),
        (Op.LOOKUP, b"none\0", errno.ENOENT),
        (Op.LOOKUP, b"no end", errno.EINVAL),
        (Op.LOOKUP, b"a/b\0", errno.EINVAL),
        (Op.READ, b"short", errno.EINVAL),
        (Op.READ, struct.pack("=QQIIQII", 99, 0, 1, 0, 0, 0, 0), errno.EBADF),
        (Op.READ, struct.pack("=QQIIQII", 1, 1 << 63, 1, 0, 0, 0, 0), errno.EINVAL),
        (Op.READDIR, struct.pack("=QQIIQII", 99, 0, 1, 0, 0, 0, 0), errno.EBADF),
        (Op.READLINK, b"", errno.EINVAL),
        (22, b"", errno.ENOSYS),  # GETXATTR
        (9999, b"", errno.ENOSYS),
    ],
)
def test_refused_requests_get_their_error(kernel: Kernel, op: int, body: bytes, error: int) -> None:
    assert kernel.ask(op, body=body) == (error, b"")


def test_unknown_node_has_no_attributes(kernel: Kernel) -> None:
    assert kernel.ask(Op.GETATTR, 12345, bytes(16)) == (errno.ENOENT, b"")


@pytest.mark.parametrize("text", [b"", b"x" * 39, message(Op.LOOKUP)[:-1] + b"xx"])
def test_message_without_a_header_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        Request.parse(text)


def test_interrupted_reader_gets_its_answer_before_the_bytes_are_due(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, Throttle(rate=0, latency=3600))
    handle = opened(kernel)
    kernel.own.send(message(Op.READ, body=read_of(handle, 0, 8), unique=11))
    kernel.own.send(message(Op.INTERRUPT, body=struct.pack("=Q", 11), unique=12))
    assert kernel.answer(11) == (errno.EINTR, b"")
    assert kernel.counter.to_json()["bytes"] == 0
    kernel.own.close()


def test_requests_are_answered_while_many_readers_wait(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, Throttle(rate=0, latency=3600))
    for unique in range(100, 140):
        kernel.own.send(message(Op.READ, body=read_of(opened(kernel), 0, 8), unique=unique))
    assert kernel.ask(Op.LOOKUP, body=b"sub\0")[0] == 0
    kernel.own.close()


def test_server_survives_random_messages(kernel: Kernel) -> None:
    chance = random.Random(5)
    kernel.own.setblocking(False)
    for number in range(4000):
        body = chance.randbytes(chance.choice((0, 1, 8, 16, 40, 200)))
        if chance.random() < 0.2:
            text = body or b"x"
        else:
            op = chance.choice([*Op, chance.randrange(1 << 32)])
            text = message(op, chance.choice((0, 1, 2, 3, chance.randrange(1 << 64))), body, 1000 + number)
        try:
            kernel.own.send(text)
            while kernel.own.recv(1 << 21):
                pass
        except BlockingIOError:
            continue
    kernel.own.settimeout(TIMEOUT)
    kernel.own.send(message(Op.LOOKUP, body=b"sub\0", unique=5))
    while struct.unpack_from("=IiQ", got := kernel.own.recv(1 << 21))[2] != 5:
        pass
    assert struct.unpack_from("=IiQ", got)[1] == 0
