"""CBOR: the examples of RFC 8949 are decoded, malformed and hostile input is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.localcloud.protocol.cbor import Timestamp, decode, encode

#: From Appendix A of the RFC: the forms that the protocol uses, and tags that it ignores.
EXAMPLES: list[tuple[str, Any]] = [
    ("00", 0),
    ("17", 23),
    ("1818", 24),
    ("1903e8", 1000),
    ("1a000f4240", 1000000),
    ("1bffffffffffffffff", 18446744073709551615),
    ("20", -1),
    ("3903e7", -1000),
    ("f93c00", 1.0),
    ("fa47c35000", 100000.0),
    ("fb3ff199999999999a", 1.1),
    ("f97c00", math.inf),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("c11a514b67b0", 1363896240),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("6449455446", "IETF"),
    ("62c3bc", "ü"),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("7f657374726561646d696e67ff", "streaming"),
    ("f7", None),
    ("d74401020304", b"\x01\x02\x03\x04"),
    ("c249010000000000000000", b"\x01\x00\x00\x00\x00\x00\x00\x00\x00"),
    ("d81c81d81d00", [0]),
    ("d823612a", "*"),
]


@pytest.mark.parametrize(("text", "value"), EXAMPLES)
def test_example_of_the_rfc_is_decoded(text: str, value: Any) -> None:
    assert decode(bytes.fromhex(text)) == value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_encoded_value_decodes_to_itself(value: Any) -> None:
    assert decode(encode(value)) == value


def test_timestamp_is_encoded_with_tag_1() -> None:
    assert encode(Timestamp(1.5)).hex() == "c1fb3ff8000000000000"
    assert encode(1.5).hex() == "fb3ff8000000000000"


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_raise_value_error(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return


MALFORMED = [
    *("", "ff", "18", "62c3", "8201", "a101", "a10101", "a1416100", "0000", "1c", "f0", "82" * 100, "9f" * 100),
    *("c1" * 100 + "00", "9b00000000ffffffff", "bb7fffffffffffffff", "7b7fffffffffffffff00", "7f7f6161ffff"),
]


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_item_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(bytes.fromhex(text))
