"""Rules of YAML 1.2 that differ from the parser's: which plain scalars are not text, and where a tab is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scanner import Scanner
from ruamel.yaml.tag import Tag

#: The prefix of YAML's own tags.
TAG = "tag:yaml.org,2002:"

# The core schema (https://yaml.org/spec/1.2.2/#1032-tag-resolution). Every other plain scalar is text. This includes
# 1_000, 0b11, 1:30, on, no and dates, which YAML 1.1 reads as other types.
_CORE = (
    ("null", re.compile(r"null|Null|NULL|~|")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("int", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    (
        "float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN"),
    ),
)
_LINE_END = "\0\r\n\x85\u2028\u2029"


def kind_of(text: str) -> str:
    """The kind of the plain scalar ``text``: ``null``, ``bool``, ``int``, ``float`` or ``str``."""
    return next((kind for kind, form in _CORE if form.fullmatch(text)), "str")


class CoreSchema(VersionedResolver):
    """Gives plain scalars their type in the core schema."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0]:
            return Tag(suffix=f"{TAG}{kind_of(value)}")
        return super().resolve(kind, value, implicit)


class TabScanner(Scanner):
    """Accepts a tab as a space if it is not indentation.

    That is after a colon, in and after a value, before a comment, and on a line with nothing else."""

    def scan_to_next_token(self) -> Any:
        super().scan_to_next_token()
        while self._passes_tabs():
            super().scan_to_next_token()

    def _passes_tabs(self) -> bool:
        blanks = self._blanks()
        if "\t" not in blanks:
            return False
        # The key of a block can start here, so a tab would be its indentation.
        if self.allow_simple_key and self.reader.peek(len(blanks)) not in f"{_LINE_END}#":
            return False
        self.reader.forward(len(blanks))
        return True

    def scan_plain_spaces(self, indent: Any, start_mark: Any) -> Any:
        blanks = self._blanks()
        if "\t" not in blanks:
            return super().scan_plain_spaces(indent, start_mark)
        self.reader.forward(len(blanks))
        if self.reader.peek() in _LINE_END:
            return super().scan_plain_spaces(indent, start_mark)
        return [blanks]

    def _blanks(self) -> str:
        length = 0
        while self.reader.peek(length) in " \t":
            length += 1
        return str(self.reader.prefix(length))


def _integer(text: str) -> int:
    # In YAML 1.2, 022 is twenty-two, and 0o22 is octal.
    base = {"0x": 16, "0o": 8}.get(text[:2], 10)
    return int(text[2:] if base != 10 else text, base)


def _float(text: str) -> float:
    # Python writes infinity and NaN without the dot.
    return float(text.replace(".", "") if text.lower().endswith(("inf", "nan")) else text)


#: From the text of a plain scalar to its value, by its kind.
READERS: Mapping[str, Callable[[str], object]] = {
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": _integer,
    "float": _float,
}
