from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smdp_entrypoint.processes.lines import LONGEST_LINE, LineAssembler

CHUNKS = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"\n", b"\r\n", b"\xe4\xb8", b"\xad", b"a\rb"]), max_size=20
)


def assembled(chunks: list[bytes], longest: int = LONGEST_LINE) -> list[str]:
    assembler = LineAssembler(longest)
    return [line for chunk in chunks for line in assembler.feed(chunk)] + assembler.close()


@given(CHUNKS)
def test_lines_do_not_depend_on_how_bytes_are_cut(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in whole.decode("utf-8", "replace").split("\n")]
    last_has_text = bool(whole.decode("utf-8", "replace").rpartition("\n")[2].strip("\r"))
    assert assembled(chunks) == (lines if last_has_text else lines[:-1])


@given(CHUNKS, st.integers(1, 9))
def test_pieces_of_long_lines_join_to_the_line(chunks: list[bytes], longest: int) -> None:
    chunks = [chunk.replace(b"\r", b"") for chunk in chunks]
    pieces = assembled(chunks, longest)
    assert all(len(piece) <= longest for piece in pieces)
    assert "".join(pieces) == b"".join(chunks).decode("utf-8", "replace").replace("\n", "")


def test_a_line_of_one_mebibyte_comes_in_sixteen_pieces() -> None:
    lines = assembled([b"x" * 1000] * 1048 + [b"x" * 576 + b"\nnext\n"])
    assert lines == ["x" * LONGEST_LINE] * 16 + ["next"]


def test_a_progress_bar_shows_its_last_state() -> None:
    assert assembled([b"\r 10%", b"\r 50%\r", b"100%\r", b"\n", b"done\r\n"]) == ["100%", "done"]


def test_a_progress_bar_does_not_grow() -> None:
    assembler = LineAssembler()
    for step in range(1000):
        assert assembler.feed(b"\r%03d" % step + b"=" * 500) == []
    assert assembler.close() == ["999" + "=" * 500]


def test_last_line_without_newline_is_passed_on() -> None:
    assert assembled([b"one\ntwo"]) == ["one", "two"]


def test_unfinished_progress_bar_is_returned_once_for_each_state() -> None:
    assembler = LineAssembler()
    assert assembler.feed(b"start\n") == ["start"]
    assert assembler.bar() is None
    assert assembler.feed(b"\r 10%") == []
    assert assembler.bar() == " 10%"
    assert assembler.bar() is None
    assert assembler.feed(b"\r 20%\r") == []
    assert assembler.bar() == " 20%"
    assert assembler.feed(b"100%\nnext\r\n") == ["100%", "next"]
    assert assembler.bar() is None


def test_state_of_a_progress_bar_that_was_returned_is_not_repeated_at_its_end() -> None:
    assembler = LineAssembler()
    for end in (b"\n", b"\r\n"):
        assembler.feed(b" 10%\r100%")
        assert assembler.bar() == "100%"
        assert assembler.feed(end) == []
    assembler.feed(b" 10%\r100%")
    assert assembler.bar() == "100%"
    assert assembler.close() == []


def test_line_without_a_carriage_return_is_only_returned_when_complete() -> None:
    assembler = LineAssembler()
    assert assembler.feed(b"loss=0.1") == []
    assert assembler.bar() is None
    assert assembler.feed(b"234\n") == ["loss=0.1234"]
