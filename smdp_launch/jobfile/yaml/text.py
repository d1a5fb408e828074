"""Values and comments as YAML text for a job file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

# Text that YAML 1.1 and 1.2 read as text, also between brackets.
_PLAIN = re.compile(r"[A-Za-z]([A-Za-z0-9_./:@=+-]*[A-Za-z0-9_/-])?")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def to_yaml(value: object) -> str:
    """``value`` as one line of YAML that every reader reads as the same value and type.

    ``${`` is escaped: in a job file it starts a reference to a variable.

    Raises:
        TypeError, ValueError: it is not a JSON value.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key(name)}: {to_yaml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, str):
        return _text(value.replace("${", "$${"))
    if isinstance(value, Sequence):
        return "[" + ", ".join(to_yaml(one) for one in value) + "]"
    return _number(value) if isinstance(value, float) else json.dumps(value)


def key(name: str) -> str:
    """A mapping's key as YAML. Keys contain no references to variables, so ``${`` is not escaped."""
    return _text(name)


def comment(text: str, width: int = 100) -> str:
    """``text`` on one line of at most ``width`` characters, without control characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def quoted(value: str) -> str:
    """``value`` in double quotes."""
    return '"' + "".join(_ESCAPES.get(char) or _escaped(char) for char in value) + '"'


def _number(value: float) -> str:
    # YAML 1.1 reads 1e-05 as text and 1.0e-05 as a number.
    mantissa, exponent, power = json.dumps(value, allow_nan=False).partition("e")
    return f"{mantissa}.0{exponent}{power}" if exponent and "." not in mantissa else mantissa + exponent + power


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return quoted(value)


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
