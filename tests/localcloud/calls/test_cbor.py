"""CBOR as the examples of RFC 8949 have it, and refusals of what is none."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.localcloud.protocol.cbor import Timestamp, decode, encode

#: Appendix A of the RFC, as far as the protocol uses it.
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
]


@pytest.mark.parametrize(("text", "value"), EXAMPLES)
def test_it_is_read(text: str, value: Any) -> None:
    assert decode(bytes.fromhex(text)) == value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_is_written_reads_the_same(value: Any) -> None:
    assert decode(encode(value)) == value


def test_a_time_is_marked_as_one() -> None:
    assert encode(Timestamp(1.5)).hex() == "c1fb3ff8000000000000"
    assert encode(1.5).hex() == "fb3ff8000000000000"


@given(st.binary(max_size=40))
def test_anything_else_is_refused_and_nothing_breaks(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return


NO_ITEMS = ["", "ff", "18", "62c3", "8201", "a101", "a10101", "0000", "1c", "82" * 100, "9f" * 100]


@pytest.mark.parametrize("text", NO_ITEMS)
def test_what_is_no_item_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(bytes.fromhex(text))
