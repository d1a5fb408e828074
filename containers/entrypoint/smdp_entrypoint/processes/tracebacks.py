"""Finds the last Python traceback in a worker's standard error, and when it began."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

# torch.distributed (2.3 and later) puts "[rank3]: " before every line of an uncaught exception's traceback.
_RANK_PREFIX = re.compile(r"\[rank\d+\]: ")
_HEADER = re.compile(r"(?P<group>  \+ Exception Group )?Traceback \(most recent call last\):$")
# A script that does not parse has no header, its report starts with the place.
_SYNTAX_ERROR = re.compile(r'  File ".*", line \d+$')
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_MESSAGE_LINES = 40  # of one exception's message that are kept


@dataclass
class Traceback:
    """`began` is the time at which the first line of the first block of the chain was read, `error` the line
    `ExceptionName: message` of its last block, `followed_by` the number of lines of its stream after that one.

    `spoken` counts lines of the worker's other stream since; the order between two streams is not sure, so it says
    something of a worker that goes on, and nothing of one that has ended."""

    began: float
    error: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=400))
    followed_by: int = 0
    spoken: int = 0


class TracebackWatch:
    """Fed with every line of a stream; `last` is the last traceback seen on it."""

    def __init__(self) -> None:
        self.last: Traceback | None = None
        self._in_frames = False
        self._chained = False
        self._margin = 0  # exception groups are drawn with a margin of four columns

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
        self.last.followed_by = self.last.spoken = 0
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
