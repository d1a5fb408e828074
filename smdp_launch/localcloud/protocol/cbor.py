"""CBOR (RFC 8949) as the protocol rpc-v2-cbor uses it, which CloudWatch's clients send."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import cbor2

_DEEPEST = 64


class Timestamp(float):
    """Seconds since 1970; encoded with tag 1."""


class _Untagged(dict[int, Callable[[Any, bool], Any]]):
    """Decodes each tagged item as its content: the service's model, not a client's tag, decides a value's type."""

    def __missing__(self, tag: int) -> Callable[[Any, bool], Any]:
        return lambda content, _immutable: content


def encode(value: Any) -> bytes:
    return cbor2.dumps(value, encoders={Timestamp: lambda encoder, time: encoder.encode_semantic(1, float(time))})


def decode(data: bytes) -> Any:
    """Raises ValueError unless `data` is one item with at most 64 levels, whose maps have text as names."""
    stream = BytesIO(data)
    try:
        value = cbor2.CBORDecoder(stream, max_depth=_DEEPEST, semantic_decoders=_Untagged()).decode()
    except cbor2.CBORDecodeError as error:
        raise ValueError(str(error)) from error
    if stream.read(1):
        raise ValueError("bytes follow the item")
    return _plain(value)


def _plain(value: Any) -> Any:
    """The value without CBOR's own types. Raises ValueError for one that JSON has no form for, except bytes."""
    if value is cbor2.undefined:
        return None
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("the names in a map must be text")
        return {name: _plain(one) for name, one in value.items()}
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    raise ValueError(f"a {type(value).__name__} is not supported")
