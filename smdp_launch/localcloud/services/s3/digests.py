"""Digests of objects: Content-MD5, the checksums of `x-amz-checksum-*`, and the entity tag, in one pass over the bytes.

CRC-32C and CRC-64/NVME come from crcmod, which is imported on first use.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from smdp_launch.localcloud.errors import ServiceError

_HEADER = re.compile(r"HTTP_X_AMZ_CHECKSUM_([A-Z0-9]+)")
_OTHER_HEADERS = {"ALGORITHM", "MODE", "TYPE"}
_SIZES = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32, "SHA512": 64, "MD5": 16}  # bytes
#: From the catalogue of parametrised CRC algorithms (CRC-32/ISCSI, CRC-64/NVME), with the term of the highest order.
_POLYNOMIALS = {"CRC32C": 0x11EDC6F41, "CRC64NVME": 0x1AD93D23594C93659}
_CRCS = ("CRC32", *_POLYNOMIALS)
FULL, COMPOSITE = "FULL_OBJECT", "COMPOSITE"


class Hasher(Protocol):
    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...


class _Crc:
    def __init__(self, function: Callable[[bytes, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


@dataclass(frozen=True)
class Checksum:
    """A checksum as S3 stores it: `value` is Base64, followed by `-` and the number of parts if it is composite."""

    algorithm: str
    value: str
    kind: str = FULL

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(f"x-amz-checksum-{self.algorithm.lower()}", self.value), ("x-amz-checksum-type", self.kind)]


@dataclass(frozen=True)
class Claims:
    """The digests that a request states for its body; None for one that it does not state."""

    md5: bytes | None
    checksum: Checksum | None

    def verify(self, blocks: Iterable[bytes]) -> str:
        """Raises ServiceError for another body; returns the body's hexadecimal MD5, which is the entity tag."""
        tag: Hasher = hashlib.md5(usedforsecurity=False)
        hashers = [tag] if self.checksum is None else [tag, hasher(self.checksum.algorithm)]
        for block in blocks:
            for one in hashers:
                one.update(block)
        if self.md5 is not None and tag.digest() != self.md5:
            raise ServiceError("BadDigest", "The Content-MD5 you specified did not match what we received.")
        if self.checksum is not None:
            verify(self.checksum, hashers[1])
        return tag.digest().hex()


def hasher(algorithm: str) -> Hasher:
    """Raises ServiceError for an algorithm that is not supported."""
    if algorithm in _CRCS:
        return _Crc(zlib.crc32 if algorithm == "CRC32" else _crc_function(algorithm), _SIZES[algorithm])
    if algorithm not in _SIZES:
        known = ", ".join(_SIZES)
        raise ServiceError("NotImplemented", f"The checksum {algorithm} is not supported; use one of {known}.", 501)
    return hashlib.new(algorithm.lower(), usedforsecurity=False)


@lru_cache(maxsize=len(_POLYNOMIALS))
def _crc_function(algorithm: str) -> Callable[[bytes, int], int]:
    import crcmod

    polynomial, final = _POLYNOMIALS[algorithm], (1 << 8 * _SIZES[algorithm]) - 1
    function: Callable[[bytes, int], int] = crcmod.mkCrcFun(polynomial, initCrc=0, rev=True, xorOut=final)
    return function


def encoded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def verify(checksum: Checksum, computed: Hasher) -> None:
    if encoded(computed.digest()) != checksum.value:
        message = f"The {checksum.algorithm} you specified did not match the calculated checksum."
        raise ServiceError("BadDigest", message)


def read_claims(environ: Mapping[str, Any], trailers: Mapping[str, str], *, of_body: bool) -> Claims:
    """Read the claims from the headers and, for a body in chunks, the trailers. Raises ServiceError for malformed ones.

    Args:
        of_body: whether the checksums are those of the body.
    """
    return Claims(_md5(environ.get("HTTP_CONTENT_MD5")), _checksum(environ, trailers) if of_body else None)


def _md5(header: str | None) -> bytes | None:
    if header is None:
        return None
    digest = _decoded(header)
    if digest is None or len(digest) != _SIZES["MD5"]:
        raise ServiceError("InvalidDigest", "The Content-MD5 you specified is not valid.", 400, {"Content-MD5": header})
    return digest


def _checksum(environ: Mapping[str, Any], trailers: Mapping[str, str]) -> Checksum | None:
    found = checksum_headers(environ) | {
        name.removeprefix("x-amz-checksum-").upper(): value
        for name, value in trailers.items()
        if name.startswith("x-amz-checksum-")
    }
    named = environ.get("HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM", "").upper()
    if len(found) > 1:
        raise _invalid("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
    if named and not found:
        raise _invalid(
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers "
            "were found."
        )
    for algorithm, value in found.items():
        if named and named != algorithm:
            raise _invalid("Value for x-amz-sdk-checksum-algorithm header is invalid.")
        return checked(algorithm, value)
    return None


def remove_checksum_headers(environ: dict[str, Any]) -> None:
    """Remove all headers about checksums of an object or a part."""
    for algorithm in (*checksum_headers(environ), "MODE"):
        environ.pop(f"HTTP_X_AMZ_CHECKSUM_{algorithm}", None)
    environ.pop("HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM", None)


def checksum_headers(environ: Mapping[str, Any]) -> dict[str, str]:
    """The values of the headers with a checksum, by algorithm."""
    matches = ((_HEADER.fullmatch(name), value) for name, value in environ.items())
    return {match[1]: value for match, value in matches if match is not None and match[1] not in _OTHER_HEADERS}


def checked(algorithm: str, value: str) -> Checksum:
    hasher(algorithm)
    digest = _decoded(value)
    if digest is None or len(digest) != _SIZES[algorithm]:
        raise _invalid(f"Value for x-amz-checksum-{algorithm.lower()} header is invalid.")
    return Checksum(algorithm, value)


def check_kind(algorithm: str, kind: str) -> str:
    """The type of an upload's checksum; for an empty `kind` the algorithm's default. Raises ServiceError."""
    if not kind:
        return FULL if algorithm == "CRC64NVME" else COMPOSITE
    if kind not in (FULL, COMPOSITE):
        raise _invalid("Value for x-amz-checksum-type header is invalid.")
    if (kind == FULL) != (algorithm == "CRC64NVME") and (kind == COMPOSITE or algorithm not in _CRCS):
        raise _invalid(f"The {kind} checksum type cannot be used with the {algorithm.lower()} checksum algorithm.")
    return kind


def of_parts(algorithm: str, digests: Iterable[str]) -> Checksum:
    """The composite checksum: the checksum of the parts' checksums."""
    parts = [base64.b64decode(one) for one in digests]
    return Checksum(algorithm, f"{of_blocks(algorithm, parts).value}-{len(parts)}", COMPOSITE)


def of_blocks(algorithm: str, blocks: Iterable[bytes]) -> Checksum:
    whole = hasher(algorithm)
    for block in blocks:
        whole.update(block)
    return Checksum(algorithm, encoded(whole.digest()))


def _decoded(value: str) -> bytes | None:
    try:
        return base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


def _invalid(message: str) -> ServiceError:
    return ServiceError("InvalidRequest", message)
