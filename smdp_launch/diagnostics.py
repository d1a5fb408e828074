"""Diagnostics of a job file: each has a code, a place, a reason and a fix. Plain data; nothing here prints.

Codes are grouped by subject: SMDP1xx YAML, 2xx schema, 3xx compute and framework, 4xx data and source, 5xx spot, batch
and AMP, 6xx request limits, 7xx secrets and stored checkpoints, 8xx account, 9xx running. A number never gets another
meaning. Each code has a page in docs/errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from smdp_launch.notebook_view import NotebookView
from smdp_launch.plain_text import without_controls


class Severity(str, Enum):
    """A note states a fact that needs no action now. It does not count as a problem and cannot be silenced."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_CODE = re.compile(r"SMDP[1-9]\d\d")
# Characters of a file's text that a diagnostic repeats.
_MAX_TEXT = 1000
_MAX_EXCERPT = 240


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a file. Lines and columns count from 1; ``end_column`` is the first column after the place, on the
    same line."""

    file: str
    line: int
    column: int
    end_column: int
    #: The whole line, for the excerpt below the message.
    source: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to_json(self) -> dict[str, object]:
        """The place, without the text of its line."""
        return {"file": self.file, "line": self.line, "column": self.column, "end_column": self.end_column}

    def excerpt(self, longest: int = _MAX_EXCERPT) -> tuple[str, int]:
        """The line and the place's column in it. Of a line with more than ``longest`` characters, only the part around
        the place, with an ellipsis where it is cut."""
        if len(self.source) <= longest:
            return self.source, self.column
        start = max(0, self.column - 1 - longest // 3)
        end = start + longest
        head, tail = "…" if start else "", "…" if end < len(self.source) else ""
        return f"{head}{self.source[start:end]}{tail}", self.column - start + len(head)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file that fixes a diagnostic: ``text`` replaces the text from (``line``, ``column``) up to, but not
    including, (``end_line``, ``end_column``). Lines and columns count from 1, columns in characters."""

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
    """One error, warning or note about a job.

    Args:
        code: such as SMDP301.
        message: one sentence on what is wrong.
        span: the place; None if it is not in a file.
        text: the text at the place, as the file has it.
        help: what to write instead.
        edits: a fix that a program can apply, all of them together; empty if the fix needs a decision.
        also: further places with the same problem, in the order of the file.
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
            raise ValueError(f"{self.code} is not a code")

    def in_one_line(self) -> str:
        """Such as ``error[SMDP301] job.yaml:8:18: there is no ...; help: write ml.p3dn.24xlarge``."""
        place = f" {self.span}" if self.span is not None else ""
        help_ = f"; help: {shortened(self.help)}" if self.help else ""
        return without_controls(f"{self.severity.value}[{self.code}]{place}: {shortened(self.message)}{help_}")

    def to_json(self) -> dict[str, object]:
        """A dictionary as docs/schemas/diagnostic.schema.json describes it; ``also`` only if there is more than one
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
    """Diagnostics in order; a notebook shows them as one card."""

    __slots__ = ()


def shortened(text: str) -> str:
    """At most 1,000 characters of ``text``. Only for output: the search for secrets needs the whole text."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def count_problems(diagnostics: Iterable[Diagnostic]) -> str:
    """The number of problems, such as ``1 error, 2 warnings``; empty if there are none. Notes do not count."""
    kinds = Counter(one.severity for one in diagnostics)
    counts = [(kinds[kind], kind.value) for kind in (Severity.ERROR, Severity.WARNING)]
    return ", ".join(f"{amount} {name}{'s' if amount > 1 else ''}" for amount, name in counts if amount)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(one.severity is Severity.ERROR for one in diagnostics)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics by place, those without a place last, and without duplicates."""

    def place(one: Diagnostic) -> tuple[bool, str, int, int, str]:
        if one.span is None:
            return (True, "", 0, 0, one.code)
        return (False, one.span.file, one.span.line, one.span.column, one.code)

    return sorted(dict.fromkeys(diagnostics), key=place)


def closest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that ``word`` is most likely meant to be; None if no known word is similar."""
    import difflib

    matches = difflib.get_close_matches(word.lower(), [one.lower() for one in known], n=1, cutoff=cutoff)
    return next((one for one in known if matches and one.lower() == matches[0]), None)
