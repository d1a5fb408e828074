"""Values and comments as a job file writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

# Text that no YAML, old or new, reads as anything but text, in a list or mapping of one line too.
_PLAIN = re.compile(r"[A-Za-z]([A-Za-z0-9_./:@=+-]*[A-Za-z0-9_/-])?")
_OTHERWISE = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def written(value: object) -> str:
    """``value`` in one line of YAML that gives the same value and type to every reader.

    ``${`` is escaped: in a job file it begins the name of a variable.

    Raises:
        TypeError, ValueError: it is no JSON value.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key(name)}: {written(one)}" for name, one in value.items()) + "}"
    if isinstance(value, str):
        return _text(value.replace("${", "$${"))
    if isinstance(value, Sequence):
        return "[" + ", ".join(written(one) for one in value) + "]"
    return _number(value) if isinstance(value, float) else json.dumps(value)


def key(name: str) -> str:
    """A mapping's key; variables mean nothing there."""
    return _text(name)


def comment(text: str, width: int = 100) -> str:
    """``text`` on one line, without what a terminal or YAML could take for something else."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def quoted(value: str) -> str:
    """``value`` between double quotes."""
    return '"' + "".join(_ESCAPES.get(char) or _escaped(char) for char in value) + '"'


def _number(value: float) -> str:
    # YAML 1.1 takes 1e-05 for text and 1.0e-05 for a number.
    mantissa, exponent, power = json.dumps(value, allow_nan=False).partition("e")
    return f"{mantissa}.0{exponent}{power}" if exponent and "." not in mantissa else mantissa + exponent + power


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _OTHERWISE:
        return value
    return quoted(value)


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
