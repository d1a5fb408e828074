"""The encoding of hyperparameters: every value as JSON, as in the SageMaker SDK's framework estimators.

The containers decode JSON and keep the raw text if that fails, so a value keeps the type that it has in the job file.
``script_arguments`` gives the command line that the script gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

_QUOTED = re.compile(r"'[^']+'|\"[^\"$`\\]+\"")
_SHELL = re.compile(r"[\s|&;<>()$`\\\"'*?]|^[#~]")


def encode(values: Mapping[str, JsonValue]) -> dict[str, str]:
    return {name: encode_value(value) for name, value in sorted(values.items())}


def encode_value(value: JsonValue) -> str:
    # JSON escapes newlines, which the request's pattern for values forbids.
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def script_arguments(values: Mapping[str, JsonValue]) -> list[str]:
    """The command line of the script, as AWS's toolkit renders it: sorted names, ``--name value``, ``-n value`` for
    one letter, mappings as ``k=v,k2=v2``, nothing for null, and everything else, also in a mapping, as Python's
    ``str()``."""
    arguments: list[str] = []
    for name, value in sorted(values.items()):
        arguments += [f"-{name}" if len(name) == 1 else f"--{name}", _argument(value)]
    return arguments


def changed_by_shell(text: str) -> bool:
    """Whether a shell changes an argument that it gets without quotes: it is empty, or has blanks or characters with a
    meaning. A text in quotes of its own is meant for a shell."""
    if _QUOTED.fullmatch(text):
        return False
    return not text or _SHELL.search(text) is not None


def _argument(value: JsonValue) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in sorted(value.items()))
    return "" if value is None else str(value)
