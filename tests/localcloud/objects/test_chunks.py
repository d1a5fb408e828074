"""The decoder of bodies in chunks returns the encoded bytes, and refuses every other body."""

from __future__ import annotations

import hashlib
import hmac
import io
import tracemalloc
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.chunks import BLOCK, Bounded, Chain, Dechunked, Decoder
from tests.support.services.chunked import unsigned_chunks

SCOPE = "20130524/us-east-1/s3/aws4_request"
TRAILER = "x-amz-checksum-crc32c"


def chain(seed: str) -> Chain:
    """A chain with the key and time in the examples of the S3 API reference."""
    key = b"AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    for part in SCOPE.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return Chain(key, "20130524T000000Z", SCOPE, seed)


def decoded(body: bytes, length: int, announced: list[str] | None = None, signed: Chain | None = None) -> bytes:
    return b"".join(Decoder(io.BytesIO(body), length, signed, announced))


def refusal(body: bytes, length: int, announced: list[str] | None = None, signed: Chain | None = None) -> str:
    with pytest.raises(ServiceError) as caught:
        decoded(body, length, announced, signed)
    return caught.value.code


def signed_body(signatures: list[str], trailers: str = "") -> bytes:
    """65 KiB of `a` in two chunks, as in the API reference."""
    chunks = [b"a" * 65536, b"a" * 1024]
    parts = [
        b"%x;chunk-signature=%s\r\n%s\r\n" % (len(chunk), signature.encode(), chunk)
        for chunk, signature in zip(chunks, signatures, strict=False)
    ]
    return b"".join(parts) + f"0;chunk-signature={signatures[2]}\r\n{trailers}\r\n".encode()


PLAIN_SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
PLAIN = [
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
]
TRAILING_SEED = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
TRAILING = [
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
]
TRAILER_SIGNATURE = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"


def test_the_signed_chunks_of_the_api_reference_are_accepted() -> None:
    assert decoded(signed_body(PLAIN), 66560, signed=chain(PLAIN_SEED)) == b"a" * 66560


def test_the_signed_trailer_of_the_api_reference_is_accepted() -> None:
    trailers = f"{TRAILER}:sOO8/Q==\r\nx-amz-trailer-signature:{TRAILER_SIGNATURE}\r\n"
    decoder = Decoder(io.BytesIO(signed_body(TRAILING, trailers)), 66560, chain(TRAILING_SEED), [TRAILER])
    assert b"".join(decoder) == b"a" * 66560
    assert decoder.trailers == {TRAILER: "sOO8/Q=="}


@pytest.mark.parametrize("position", range(3))
def test_a_wrong_signature_of_any_chunk_is_refused(position: int) -> None:
    signatures = list(PLAIN)
    signatures[position] = "0" * 64
    assert refusal(signed_body(signatures), 66560, signed=chain(PLAIN_SEED)) == "SignatureDoesNotMatch"


def test_changed_bytes_of_a_signed_chunk_are_refused() -> None:
    body = signed_body(PLAIN).replace(b"aaa\r\n0;", b"aab\r\n0;")
    assert refusal(body, 66560, signed=chain(PLAIN_SEED)) == "SignatureDoesNotMatch"


@pytest.mark.parametrize("value", ["sOO8/A==", "sOO8/Q=="])
def test_a_wrong_trailer_or_signature_of_it_is_refused(value: str) -> None:
    signature = TRAILER_SIGNATURE if value == "sOO8/A==" else "0" * 64
    body = signed_body(TRAILING, f"{TRAILER}:{value}\r\nx-amz-trailer-signature:{signature}\r\n")
    assert refusal(body, 66560, [TRAILER], chain(TRAILING_SEED)) == "SignatureDoesNotMatch"


def test_a_trailer_without_its_signature_is_refused() -> None:
    body = signed_body(TRAILING, f"{TRAILER}:sOO8/Q==\r\n")
    assert refusal(body, 66560, [TRAILER], chain(TRAILING_SEED)) == "MalformedTrailerError"


MALFORMED = [
    (b"", "IncompleteBody"),
    (b"5\r\nhello", "IncompleteBody"),
    (b"5\r\nhello\r\n", "IncompleteBody"),
    (b"5\r\nhello\r\n0\r\n", "IncompleteBody"),
    (b"5\nhello\n0\n\n", "IncompleteBody"),
    (b"x\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
    (b"-5\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
    (b"0x5\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
    (b"4\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
    (b"6\r\nhello!\r\n0\r\n\r\n", "IncompleteBody"),
    (b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
    (b"5;chunk-signature=%s\r\nhello\r\n0\r\n\r\n" % (b"0" * 64), "IncompleteBody"),
    (b"5\r\nhello\r\n0\r\n\r\nmore", "IncompleteBody"),
    (b"5" + b" " * 5000 + b"\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
    (b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "InvalidChunkSizeError"),
    (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:x\r\n\r\n", "MalformedTrailerError"),
]


@pytest.mark.parametrize(("body", "code"), MALFORMED)
def test_a_malformed_body_is_refused(body: bytes, code: str) -> None:
    assert refusal(body, 5) == code


@pytest.mark.parametrize(
    "trailers",
    [b"", b"x\r\n", b"x-amz-checksum-sha1:a\r\n", b"x-amz-checksum-crc32c:a\r\nx-amz-checksum-crc32c:a\r\n",
     b"x-amz-checksum-crc32c:a\r\nx-amz-meta-other:a\r\n", b"x-amz-checksum-crc32c: a b\r\n"],
)  # fmt: skip
def test_trailers_other_than_announced_are_refused(trailers: bytes) -> None:
    assert refusal(b"5\r\nhello\r\n0\r\n" + trailers + b"\r\n", 5, [TRAILER]) == "MalformedTrailerError"


def test_a_body_shorter_than_announced_is_refused() -> None:
    assert refusal(b"5\r\nhello\r\n0\r\n\r\n", 6) == "IncompleteBody"


pieces = st.lists(st.builds(lambda seed, size: seed * size, st.binary(min_size=3, max_size=3), st.integers(2731, 3000)))


@given(pieces, st.binary(min_size=1, max_size=20), st.booleans())
def test_encoded_chunks_are_decoded(large: list[bytes], last: bytes, uses_transfer_coding: bool) -> None:
    chunks = [*large, last]
    body = unsigned_chunks(chunks, {TRAILER: "AAAAAA=="})
    stream: IO[bytes] = io.BytesIO(body)
    if uses_transfer_coding:
        coded = b"".join(
            b"%X;x=1\r\n%s\r\n" % (len(body[at : at + 777]), body[at : at + 777]) for at in range(0, len(body), 777)
        )
        stream = io.BufferedReader(Dechunked(io.BytesIO(coded + b"0\r\nX: y\r\n\r\n")))
    decoder = Decoder(stream, sum(map(len, chunks)), None, [TRAILER])
    assert b"".join(decoder) == b"".join(chunks)
    assert decoder.trailers == {TRAILER: "AAAAAA=="}


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_decoded_whole_or_refused(body: bytes, length: int) -> None:
    for stream in (io.BytesIO(body), io.BufferedReader(Dechunked(io.BytesIO(body)))):
        try:
            found = b"".join(Decoder(stream, length, None, []))
        except ServiceError as error:
            assert error.status in (400, 403)
        else:
            assert len(found) == length


def signed_chunks(data: list[bytes], key: Chain) -> bytes:
    body = b""
    for one in data:
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{key.timestamp}\n{SCOPE}\n{key.previous}\n{hashlib.sha256().hexdigest()}\n"
        key.previous = hmac.new(key.key, (text + hashlib.sha256(one).hexdigest()).encode(), hashlib.sha256).hexdigest()
        body += b"%x;chunk-signature=%s\r\n%s\r\n" % (len(one), key.previous.encode(), one)
    return body


DATA = [b"b" * 8192, b"c" * 900, b""]
SIGNED_BODY = signed_chunks(DATA, chain("0" * 64))


@given(st.integers(0, len(SIGNED_BODY) - 1), st.sampled_from(["change", "cut", "insert"]), st.integers(1, 255))
def test_a_change_anywhere_in_a_signed_body_never_gives_other_bytes(place: int, kind: str, difference: int) -> None:
    before, byte, after = SIGNED_BODY[:place], SIGNED_BODY[place], SIGNED_BODY[place + 1 :]
    changed = {
        "change": before + bytes([byte ^ difference]) + after,
        "cut": before,
        "insert": before + bytes([difference, byte]) + after,
    }[kind]
    try:
        found = decoded(changed, 9092, signed=chain("0" * 64))
    except ServiceError as error:
        assert error.status in (400, 403)
    else:  # a size may have capitals and leading zeros
        assert found == b"".join(DATA)
        assert kind != "cut"


@pytest.mark.parametrize("end", [b"", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r\n", b"zz\r\n", b"5\r\nhellohello\r\n"])
def test_a_truncated_or_malformed_transfer_coding_is_refused(end: bytes) -> None:
    with pytest.raises(ServiceError, match="IncompleteBody"):
        io.BufferedReader(Dechunked(io.BytesIO(end))).read()


def test_bounded_stream_is_read_only_to_its_length() -> None:
    stream = io.BytesIO(b"12345next")
    assert io.BufferedReader(Bounded(stream, 5)).read() == b"12345"
    assert stream.read() == b"next"


class OneChunk(io.RawIOBase):
    """A body of one chunk of zeros, created while it is read."""

    def __init__(self, size: int) -> None:
        self._parts: list[bytes | int] = [b"%x\r\n" % size, size, b"\r\n0\r\n\r\n"]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._parts:
            return 0
        part = self._parts.pop(0)
        data, rest = _cut(part, len(buffer))
        if rest:
            self._parts.insert(0, rest)
        buffer[: len(data)] = data
        return len(data)


def _cut(part: bytes | int, size: int) -> tuple[bytes, bytes | int]:
    if isinstance(part, int):
        return bytes(min(part, size)), max(0, part - size)
    return part[:size], part[size:]


def test_memory_does_not_grow_with_a_chunk() -> None:
    size = 256 * 1024 * 1024
    decoder = Decoder(io.BufferedReader(OneChunk(size)), size, None, [])
    tracemalloc.start()
    try:
        assert sum(map(len, decoder)) == size
        assert tracemalloc.get_traced_memory()[1] < 8 * BLOCK
    finally:
        tracemalloc.stop()
