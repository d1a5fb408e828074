"""What YAML 1.2 says where the parser says otherwise: which plain scalars are not text, and where a tab may stand."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scanner import Scanner
from ruamel.yaml.tag import Tag

#: What YAML's own tags begin with.
TAG = "tag:yaml.org,2002:"

# The core schema (https://yaml.org/spec/1.2.2/#1032-tag-resolution). What else a plain scalar may be is text: 1_000,
# 0b11, 1:30, on, no and dates too, which YAML 1.1 read as something else.
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
    """What the plain scalar ``text`` is: ``null``, ``bool``, ``int``, ``float`` or ``str``."""
    return next((kind for kind, form in _CORE if form.fullmatch(text)), "str")


class CoreSchema(VersionedResolver):
    """Gives plain scalars the type that the core schema gives them."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0]:
            return Tag(suffix=f"{TAG}{kind_of(value)}")
        return super().resolve(kind, value, implicit)


class TabScanner(Scanner):
    """Takes a tab for a blank wherever it does not indent: behind a colon, within and behind a value, before a comment,
    and on a line that holds nothing else."""

    def scan_to_next_token(self) -> Any:
        super().scan_to_next_token()
        while self._passes_tabs():
            super().scan_to_next_token()

    def _passes_tabs(self) -> bool:
        blanks = self._blanks()
        if "\t" not in blanks:
            return False
        # A block's key may begin here, so a tab would be its indentation.
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
