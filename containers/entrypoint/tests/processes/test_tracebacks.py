from __future__ import annotations

from smdp_entrypoint.processes.tracebacks import Traceback, TracebackWatch

SIMPLE = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ValueError: bad thing
"""
CHAINED = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 5, in <module>
RuntimeError: no x
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 3, in <module>
  |     raise ExceptionGroup("several", [ValueError(1)])
  | ExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +------------------------------------
"""
SYNTAX = """\
  File "train.py", line 1
    x = = 1
        ^
SyntaxError: invalid syntax
"""


def watched(text: str, start: float = 1.0) -> Traceback:
    """The last traceback in `text`, whose lines are read at intervals of one second."""
    watch = TracebackWatch()
    for number, line in enumerate(text.splitlines()):
        watch.line(line, start + number)
    assert watch.last is not None
    return watch.last


def test_a_traceback_begins_at_its_first_line() -> None:
    found = watched("warming up\n" + SIMPLE)
    assert (found.began, found.error) == (2.0, "ValueError: bad thing")
    assert list(found.lines) == SIMPLE.splitlines()


def test_chain_begins_with_its_first_block_and_is_reported_by_its_last() -> None:
    found = watched(CHAINED)
    assert (found.began, found.error) == (1.0, "RuntimeError: no x")


def test_the_last_of_several_tracebacks_counts() -> None:
    found = watched(SIMPLE + "that was handled\n" + SIMPLE.replace("bad", "worse"))
    assert (found.began, found.error) == (6.0, "ValueError: worse thing")


def test_message_of_several_lines_is_reported_by_its_first() -> None:
    found = watched(SIMPLE + "and more\n  about it\n")
    assert found.error == "ValueError: bad thing"
    assert list(found.lines)[-1] == "  about it"


def test_rank_prefix_of_torch_is_removed() -> None:
    text = "\n".join(f"[rank12]: {line}" for line in SIMPLE.splitlines())
    assert watched(text).error == "ValueError: bad thing"


def test_exception_group_is_reported() -> None:
    assert watched(GROUP).error == "ExceptionGroup: several (1 sub-exception)"


def test_syntax_error_is_reported() -> None:
    assert watched(SYNTAX).error == "SyntaxError: invalid syntax"


def test_indented_traceback_is_ignored() -> None:
    watch = TracebackWatch()
    for line in SIMPLE.splitlines():
        watch.line("  " + line, 1.0)
    assert watch.last is None
