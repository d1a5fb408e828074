"""What is told about a job file: a code, a place, a reason and a fix. Plain data; nothing here prints.

Codes are grouped by subject: SMDP1xx YAML, 2xx schema, 3xx compute and framework, 4xx data and source,
8xx account. Each has a section in docs/errors.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    ERROR = "error"
    WARNING = "warning"


#: Every code with its title. Numbers are never used again for something else.
CODES: dict[str, str] = {
    "SMDP101": "the job file cannot be read",
    "SMDP102": "not valid YAML",
    "SMDP103": "a key stands twice",
    "SMDP104": "not one mapping",
    "SMDP105": "too large",
    "SMDP201": "unknown key",
    "SMDP202": "missing key",
    "SMDP203": "wrong type",
    "SMDP204": "value not allowed",
    "SMDP205": "unknown schema version",
    "SMDP206": "text that YAML reads as a number",
    "SMDP301": "instance type not supported",
    "SMDP302": "framework version not supported",
    "SMDP303": "framework build without CUDA 11",
    "SMDP304": "Python does not match the framework's build",
    "SMDP305": "no image",
    "SMDP306": "the framework's image does not hold the library",
    "SMDP401": "no source folder",
    "SMDP402": "no entry point",
    "SMDP403": "entry point outside the source folder",
    "SMDP404": "local data missing",
    "SMDP405": "local data cannot be used",
    "SMDP406": "no such channel",
    "SMDP407": "channel without local data",
    "SMDP408": "source folder cannot be packed",
    "SMDP801": "placeholder",
}


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


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to know about a job.

    Args:
        code: a key of ``CODES``.
        message: one sentence on what is wrong.
        span: where; None for what has no place in a file, such as a flag.
        text: the offending text, as it was written.
        help: what to write instead.
    """

    code: str
    message: str
    span: Span | None = None
    text: str = ""
    help: str = ""
    severity: Severity = Severity.ERROR

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code} is not a registered code")

    def to_json(self) -> dict[str, object]:
        place: dict[str, object] | None = None
        if self.span is not None:
            place = {
                "file": self.span.file,
                "line": self.span.line,
                "column": self.span.column,
                "end_column": self.span.end_column,
            }
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "span": place,
            "text": self.text,
            "help": self.help,
        }


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
    matches = difflib.get_close_matches(word.lower(), [one.lower() for one in known], n=1, cutoff=cutoff)
    return next((one for one in known if matches and one.lower() == matches[0]), None)
