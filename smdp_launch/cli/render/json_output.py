from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping

import click


def json_text(value: object, *, indent: int | None = 2, allow_nan: bool = True) -> str:
    """The value as JSON for standard output: in ASCII where that is not UTF-8, the encoding of JSON files."""
    return json.dumps(value, indent=indent, ensure_ascii=not _prints_utf8(), allow_nan=allow_nan)


def print_document(document: Mapping[str, object]) -> None:
    """Print the result of a command as indented JSON."""
    click.echo(json_text(document))


def _prints_utf8() -> bool:
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "ascii").name == "utf-8"
