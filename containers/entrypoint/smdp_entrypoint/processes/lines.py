"""Assembles the bytes that a process writes, in chunks of any size, into lines of text."""

from __future__ import annotations

import codecs

# A line longer than this many characters is passed on in pieces, so that memory use is bounded.
LONGEST_LINE = 64 * 1024


class LineAssembler:
    """Collects chunks of one stream. Bytes that are not UTF-8 become U+FFFD. Text after a carriage return overwrites
    the text before it, as in a terminal; a carriage return before a newline is part of the line's end. A line with
    other carriage returns is a progress bar."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._longest = longest
        self._rest = ""
        self._continued = False  # a piece of the current line has been returned
        self._is_bar = False  # the current line has a carriage return
        self._shown = ""  # the last state of the current line that `bar` has returned

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that this chunk completes."""
        *complete, rest = (self._rest + self._decoder.decode(chunk)).split("\n")
        lines = [piece for line in complete for piece in self._finish(line)]
        self._is_bar = self._is_bar or "\r" in rest
        self._rest = _overwritten(rest)
        while len(self._rest) > self._longest:
            lines.append(self._rest[: self._longest])
            self._rest = self._rest[self._longest :]
            self._continued = True
        return lines

    def bar(self) -> str | None:
        """The visible text of an unfinished progress bar, if it has changed since the last call."""
        visible = self._rest.rstrip("\r")
        if not self._is_bar or self._continued or visible in ("", self._shown):
            return None
        self._shown = visible
        return visible

    def close(self) -> list[str]:
        """The last line if it has no newline."""
        rest = self._rest + self._decoder.decode(b"", final=True)
        self._rest = ""
        return self._finish(rest) if rest.strip("\r") else []

    def _finish(self, line: str) -> list[str]:
        visible = _overwritten(line).rstrip("\r")
        nothing_new = not visible if self._continued else visible == self._shown != ""
        self._continued = self._is_bar = False
        self._shown = ""
        if nothing_new:
            return []
        return [visible[at : at + self._longest] for at in range(0, len(visible) or 1, self._longest)]


def _overwritten(line: str) -> str:
    """`line` without the text that a carriage return hides; one at the end stays, since more text may follow."""
    body = line.rstrip("\r")
    visible = body.rpartition("\r")[2]
    return visible + "\r" if len(body) < len(line) else visible
