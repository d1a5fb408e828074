from __future__ import annotations

import json
from collections.abc import Mapping

import click


def print_document(document: Mapping[str, object]) -> None:
    """Print the result of a command as indented JSON."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
