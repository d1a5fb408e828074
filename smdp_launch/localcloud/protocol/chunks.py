"""Decode bodies in chunks: `aws-chunked`, and HTTP's chunked transfer coding, which clients add for unknown lengths.

An `aws-chunked` body has a signature for each chunk, a checksum after the last one, or both.

    chunk    = size in hexadecimal [";chunk-signature=" signature] CRLF bytes CRLF
    body     = chunk... , a chunk of size 0 without bytes, trailer... CRLF
    trailer  = name ":" value CRLF, the last one `x-amz-trailer-signature` where chunks are signed

Each signature covers the one before it; the first covers that of the request. Memory is bounded whatever size a chunk
announces: lines are short, and bytes are passed on in blocks.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from smdp_launch.localcloud.errors import ServiceError

BLOCK = 1024 * 1024
_SMALLEST = 8192  # bytes of a chunk that is not the last: the service's limit
_LONGEST_LINE = 1024
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})(?:;chunk-signature=([0-9a-f]{64}))?\r\n")
_TRANSFER_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_TRAILER = re.compile(rb"([a-z0-9-]+)[ \t]*:[ \t]*([!-~]*)[ \t]*\r\n")
_SIGNATURE = "x-amz-trailer-signature"
_EMPTY = hashlib.sha256().hexdigest()


@dataclass
class Chain:
    """Checks the signatures of chunks, each of which covers the previous one."""

    key: bytes
    timestamp: str
    scope: str
    previous: str

    def check_chunk(self, digest: str, signature: str) -> None:
        self._check("AWS4-HMAC-SHA256-PAYLOAD", f"{_EMPTY}\n{digest}", signature)

    def check_trailers(self, text: str, signature: str) -> None:
        self._check("AWS4-HMAC-SHA256-TRAILER", hashlib.sha256(text.encode()).hexdigest(), signature)

    def _check(self, kind: str, hashed: str, signature: str) -> None:
        text = f"{kind}\n{self.timestamp}\n{self.scope}\n{self.previous}\n{hashed}"
        expected = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, signature):
            raise ServiceError(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided.",
                403,
                {"StringToSign": text, "SignatureProvided": signature},
            )
        self.previous = signature


class Decoder:
    """Iterates over the decoded bytes of an `aws-chunked` body; `trailers` are complete afterwards.

    Args:
        length: required bytes of the decoded body.
        chain: None where chunks are not signed.
        announced: names of the trailers; None for a form of body without trailers.
    """

    def __init__(self, stream: IO[bytes], length: int, chain: Chain | None, announced: Sequence[str] | None) -> None:
        self.trailers: dict[str, str] = {}
        self._stream = stream
        self._remaining = length
        self._chain = chain
        self._announced = announced

    def __iter__(self) -> Iterator[bytes]:
        number, previous = 1, _SMALLEST
        while True:
            size, signature = self._head()
            if size and previous < _SMALLEST:
                raise _too_small(number, previous)
            digest = hashlib.sha256()
            for block in self._bytes(size):
                digest.update(block)
                yield block
            if self._chain is not None:
                self._chain.check_chunk(digest.hexdigest(), signature)
            if not size:
                break
            number, previous = number + 1, size
        self._end()

    def _head(self) -> tuple[int, str]:
        match = _CHUNK.fullmatch(_line(self._stream))
        if match is None or (match[2] is None) != (self._chain is None):
            raise _incomplete("The body is not in chunks of the announced form.")
        size = int(match[1], 16)
        if size > self._remaining:
            raise _incomplete("The body has more bytes than x-amz-decoded-content-length.")
        return size, (match[2] or b"").decode()

    def _bytes(self, size: int) -> Iterator[bytes]:
        self._remaining -= size
        remaining = size
        while remaining:
            block = self._stream.read(min(BLOCK, remaining))
            if not block:
                raise _incomplete("The connection ended before the body did.")
            remaining -= len(block)
            yield block
        if size and self._stream.read(2) != b"\r\n":
            raise _incomplete("A chunk does not end where its size says.")

    def _end(self) -> None:
        if self._remaining:
            raise _incomplete("The body has fewer bytes than x-amz-decoded-content-length.")
        while (line := _line(self._stream)) != b"\r\n":
            match = _TRAILER.fullmatch(line)
            name = match[1].decode() if match else ""
            if (
                match is None
                or name in self.trailers
                or self._announced is None
                or len(self.trailers) > len(self._announced)
            ):
                raise _trailing()
            self.trailers[name] = match[2].decode()
        if self._stream.read(1):
            raise _incomplete("Bytes follow the last chunk.")
        if self._announced is not None:
            self._check_trailers(self._announced)

    def _check_trailers(self, announced: Sequence[str]) -> None:
        signature = self.trailers.pop(_SIGNATURE, None)
        if sorted(self.trailers) != sorted(announced) or (signature is None) != (self._chain is None):
            raise _trailing()
        if self._chain is not None and signature is not None:
            text = "".join(f"{name}:{value}\n" for name, value in sorted(self.trailers.items()))
            self._chain.check_trailers(text, signature)


class Bounded(io.RawIOBase):
    """The next `length` bytes of a stream."""

    def __init__(self, stream: IO[bytes], length: int) -> None:
        self._stream = stream
        self._remaining = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(min(len(buffer), self._remaining, BLOCK)) if self._remaining else b""
        if self._remaining and not data:
            raise _incomplete("The connection ended before the body did.")
        self._remaining -= len(data)
        buffer[: len(data)] = data
        return len(data)


class Dechunked(io.RawIOBase):
    """A stream without its chunked transfer coding (RFC 9112, 7.1); trailer fields are dropped."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._remaining = 0
        self._is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._remaining and not self._is_over:
            self._begin()
        if self._is_over:
            return 0
        data = self._stream.read(min(len(buffer), self._remaining, BLOCK))
        if not data:
            raise _incomplete("The connection ended before the body did.")
        self._remaining -= len(data)
        if not self._remaining and self._stream.read(2) != b"\r\n":
            raise _incomplete("A chunk of the transfer coding does not end where its size says.")
        buffer[: len(data)] = data
        return len(data)

    def _begin(self) -> None:
        match = _TRANSFER_CHUNK.fullmatch(_line(self._stream))
        if match is None:
            raise _incomplete("The transfer coding of the body is malformed.")
        self._remaining = int(match[1], 16)
        self._is_over = not self._remaining
        fields = 0
        while self._is_over and _line(self._stream) != b"\r\n":
            fields += 1
            if fields > 100:
                raise _incomplete("The transfer coding of the body has too many trailer fields.")


def _line(stream: IO[bytes]) -> bytes:
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise _incomplete("The body ends within a line, or a line is too long.")
    return line


def _incomplete(message: str) -> ServiceError:
    return ServiceError("IncompleteBody", message)


def _trailing() -> ServiceError:
    return ServiceError(
        "MalformedTrailerError",
        "The request contained trailing data that was not well-formed or did not conform to our published schema.",
    )


def _too_small(number: int, size: int) -> ServiceError:
    return ServiceError(
        "InvalidChunkSizeError",
        f"Only the last chunk is allowed to have a size less than {_SMALLEST} bytes",
        403,
        {"Chunk": str(number), "BadChunkSize": str(size)},
    )
