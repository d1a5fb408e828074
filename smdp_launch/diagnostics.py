"""What is told about a job file: a code, a place, a reason and a fix. Plain data; nothing here prints.

Codes are grouped by subject: SMDP1xx YAML, 2xx schema, 3xx compute and framework, 4xx data and source, 5xx spot, batch
and AMP, 6xx request limits, 7xx secrets, 8xx account, 9xx running. A number is never used again for something else.
Each has a page in docs/errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from smdp_launch.notebook_view import NotebookView


class Severity(str, Enum):
    """A note states a fact that needs no action now; it is neither counted as a problem nor silenced."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_CODE = re.compile(r"SMDP[1-9]\d\d")
# Characters. What a file says is repeated to its writer, but not a megabyte of it.
_LONGEST_TEXT = 1000
_LONGEST_EXCERPT = 240


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a file. Lines and columns count from 1; ``end_column`` is the first column behind the place,
    on the same line."""

    file: str
    line: int
    column: int
    end_column: int
    #: The whole line, for the excerpt under the message.
    source: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to_json(self) -> dict[str, object]:
        """The place without the line's text."""
        return {"file": self.file, "line": self.line, "column": self.column, "end_column": self.end_column}

    def excerpt(self, longest: int = _LONGEST_EXCERPT) -> tuple[str, int]:
        """The line, or of one with more than ``longest`` characters the part around the place, with an ellipsis where
        it was cut; and the place's column in that."""
        if len(self.source) <= longest:
            return self.source, self.column
        start = max(0, self.column - 1 - longest // 3)
        end = start + longest
        head, tail = "…" if start else "", "…" if end < len(self.source) else ""
        return f"{head}{self.source[start:end]}{tail}", self.column - start + len(head)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file that fixes a diagnostic: the text from (``line``, ``column``) up to, without,
    (``end_line``, ``end_column``) becomes ``text``. Lines and columns count from 1, columns in characters."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Diagnostic(NotebookView):
    """One thing to know about a job.

    Args:
        code: such as SMDP301.
        message: one sentence on what is wrong.
        span: where; None for what has no place in a file, such as a flag.
        text: the offending text, as it was written.
        help: what to write instead.
        edits: a machine-applicable fix, to be applied as a whole; empty where the fix needs a decision.
        also: further places of which the same is true, in the order of the file.
    """

    code: str
    message: str
    span: Span | None = None
    text: str = ""
    help: str = ""
    severity: Severity = Severity.ERROR
    edits: tuple[Edit, ...] = ()
    also: tuple[Span, ...] = ()

    def __post_init__(self) -> None:
        if not _CODE.fullmatch(self.code):
            raise ValueError(f"{self.code} is no code")

    def to_json(self) -> dict[str, object]:
        """A dictionary as docs/schemas/diagnostic.schema.json describes it; ``also`` only where there is more than one
        place."""
        also = {"also": [one.to_json() for one in self.also]} if self.also else {}
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": shortened(self.message),
            "span": self.span.to_json() if self.span is not None else None,
            **also,
            "text": shortened(self.text),
            "help": shortened(self.help),
            "edits": [one.to_json() for one in self.edits],
        }


class Diagnostics(NotebookView, tuple[Diagnostic, ...]):
    """Several, in order; a notebook shows them as one card."""

    __slots__ = ()


def shortened(text: str) -> str:
    """At most 1,000 characters of ``text``. Only for telling it, at the very end: secrets are found in the whole."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def summed(diagnostics: Iterable[Diagnostic]) -> str:
    """How many problems there are, such as ``1 error, 2 warnings``; empty if there are none. A note is no problem."""
    kinds = Counter(one.severity for one in diagnostics)
    counts = [(kinds[kind], kind.value) for kind in (Severity.ERROR, Severity.WARNING)]
    return ", ".join(f"{amount} {name}{'s' if amount > 1 else ''}" for amount, name in counts if amount)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(one.severity is Severity.ERROR for one in diagnostics)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By place, those without a place last; the same finding twice is told once."""

    def place(one: Diagnostic) -> tuple[bool, str, int, int, str]:
        if one.span is None:
            return (True, "", 0, 0, one.code)
        return (False, one.span.file, one.span.line, one.span.column, one.code)

    return sorted(dict.fromkeys(diagnostics), key=place)


def closest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str | None:
    """The one known word that ``word`` is most likely a slip of, else None."""
    import difflib

    matches = difflib.get_close_matches(word.lower(), [one.lower() for one in known], n=1, cutoff=cutoff)
    return next((one for one in known if matches and one.lower() == matches[0]), None)
