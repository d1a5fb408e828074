"""Finds the last Python traceback in a worker's standard error, and the time at which it began."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

# torch.distributed (2.3 and later) puts "[rank3]: " before every line of an uncaught exception's traceback.
_RANK_PREFIX = re.compile(r"\[rank\d+\]: ")
_HEADER = re.compile(r"(?P<group>  \+ Exception Group )?Traceback \(most recent call last\):$")
# The traceback of a script with a syntax error has no header and starts with the place.
_SYNTAX_ERROR = re.compile(r'  File ".*", line \d+$')
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_MESSAGE_LINES = 40  # the most lines stored of one exception's message


@dataclass
class Traceback:
    """`began` is the time at which the first line of the first block of the chain was read, `error` the line
    `ExceptionName: message` of its last block, `followed_by` the number of lines of its stream after that line.

    `other_stream_lines` counts the lines of the worker's other stream that were read later. The order between two
    streams is uncertain: some of them may have been written before the traceback."""

    began: float
    error: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=400))
    followed_by: int = 0
    other_stream_lines: int = 0


class TracebackWatch:
    """Receives every line of a stream; `last` is the last traceback in it."""

    def __init__(self) -> None:
        self.last: Traceback | None = None
        self._in_frames = False
        self._chained = False
        self._margin = 0  # exception groups are indented by four columns

    def line(self, text: str, now: float) -> None:
        prefix = _RANK_PREFIX.match(text)
        text = text[prefix.end() :] if prefix else text
        header = _HEADER.match(text)
        if header or self._is_bare_syntax_error(text):
            self._open(now, margin=4 if header and header["group"] else 0)
        if self.last is None:
            return
        if self._in_frames:
            self._frame(self.last, text, is_header=bool(header))
        else:
            self._after(self.last, text)

    def _is_bare_syntax_error(self, text: str) -> bool:
        within_another = self.last is not None and self.last.followed_by <= _MESSAGE_LINES
        return not within_another and bool(_SYNTAX_ERROR.match(text))

    def _open(self, now: float, margin: int) -> None:
        if self.last is None or not self._chained:
            self.last = Traceback(began=now)
        self.last.followed_by = self.last.other_stream_lines = 0
        self._chained = False
        self._in_frames = True
        self._margin = margin

    def _frame(self, traceback: Traceback, text: str, is_header: bool) -> None:
        traceback.lines.append(text)
        inner = text[self._margin :]
        if inner and not inner[0].isspace() and not is_header:
            traceback.error = inner
            self._in_frames = False

    def _after(self, traceback: Traceback, text: str) -> None:
        traceback.followed_by += 1
        self._chained = self._chained or text in _CHAIN
        if traceback.followed_by <= _MESSAGE_LINES:
            traceback.lines.append(text)
