"""As much of CBOR (RFC 8949) as the protocol rpc-v2-cbor uses: CloudWatch's clients speak it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

_DEEPEST = 64
_BREAK = object()
_FLOATS = {25: ("e", 2), 26: ("f", 4), 27: ("d", 8)}
_LENGTHS = {24: 1, 25: 2, 26: 4, 27: 8}


class Timestamp(float):
    """Seconds since 1970, told apart from other numbers where they are written."""


def encode(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[value]
    if isinstance(value, (int, float)):
        return _encoded_number(value)
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    if isinstance(value, Mapping):
        return _head(5, len(value)) + b"".join(encode(name) + encode(one) for name, one in value.items())
    return _head(4, len(value)) + b"".join(map(encode, value))


def _encoded_number(value: float) -> bytes:
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    tag = b"\xc1" if isinstance(value, Timestamp) else b""
    return tag + b"\xfb" + struct.pack(">d", value)


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    kind, size = next((kind, size) for kind, size in _LENGTHS.items() if number < 1 << 8 * size)
    return bytes([major << 5 | kind]) + number.to_bytes(size, "big")


def decode(data: bytes) -> Any:
    """Raises ValueError for what is not one whole item."""
    try:
        value, end = _item(data, 0, 0)
    except (IndexError, struct.error) as error:
        raise ValueError("the item ends before it should") from error
    if end != len(data) or value is _BREAK:
        raise ValueError("not one item")
    return value


def _item(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    major, info = data[at] >> 5, data[at] & 31
    at += 1
    if major == 7:
        return _simple(data, at, info)
    if info == 31:
        return _unbounded(data, at, major, depth)
    number, at = _number(data, at, info)
    if major in (2, 3):
        return _bytes(data, at, number, major)
    if major in (4, 5):
        found, at = _sequence(data, at, number * (major - 3), depth)
        return (found if major == 4 else _mapping(found)), at
    if major == 6:
        return _item(data, at, depth + 1)  # a tag says what the item is for, which its place says too
    return (number if major == 0 else -1 - number), at


def _number(data: bytes, at: int, info: int) -> tuple[int, int]:
    if info < 24:
        return info, at
    if info not in _LENGTHS:
        raise ValueError("a length that is none")
    size = _LENGTHS[info]
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "big"), at + size


def _bytes(data: bytes, at: int, size: int, major: int) -> tuple[Any, int]:
    if at + size > len(data):
        raise IndexError
    found = data[at : at + size]
    return (found if major == 2 else found.decode()), at + size


def _simple(data: bytes, at: int, info: int) -> tuple[Any, int]:
    if info in _FLOATS:
        form, size = _FLOATS[info]
        return struct.unpack(f">{form}", data[at : at + size])[0], at + size
    known = {20: False, 21: True, 22: None, 23: None, 31: _BREAK}
    if info not in known:
        raise ValueError("a simple value that is none")
    return known[info], at


def _sequence(data: bytes, at: int, count: int, depth: int) -> tuple[list[Any], int]:
    found = []
    for _ in range(count):
        value, at = _item(data, at, depth + 1)
        found.append(value)
    return found, at


def _unbounded(data: bytes, at: int, major: int, depth: int) -> tuple[Any, int]:
    found: list[Any] = []
    while True:
        value, at = _item(data, at, depth + 1)
        if value is _BREAK:
            break
        found.append(value)
    if major == 4:
        return found, at
    if major == 5:
        return _mapping(found), at
    if major == 2 and all(isinstance(one, bytes) for one in found):
        return b"".join(found), at
    if major == 3 and all(isinstance(one, str) for one in found):
        return "".join(found), at
    raise ValueError("no end may stand there")


def _mapping(flat: list[Any]) -> dict[Any, Any]:
    if len(flat) % 2 or not all(isinstance(name, str) for name in flat[::2]):
        raise ValueError("a map whose names are no text")
    return dict(zip(flat[::2], flat[1::2], strict=True))
