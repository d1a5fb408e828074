"""``${NAME}`` in a job file's values. Replaced after YAML was read, so no variable can change the file's structure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from smdp_launch.diagnostics import closest

# "$${" is an escaped "${". A reference ends at the first "}".
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[^}]*)(?P<end>\}?)")
_MOST_TOLD = 20  # mistakes in one text
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Problem(NamedTuple):
    code: str
    message: str
    text: str
    help: str


class Substituted(NamedTuple):
    """``whole``: the text was one reference and nothing else."""

    text: str
    whole: bool
    problems: tuple[Problem, ...]


def substitute(text: str, variables: Mapping[str, str]) -> Substituted:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in ``text``; what cannot be replaced stays as it is."""
    problems: dict[str, Problem] = {}  # by the reference: the same one is told once

    def replacement(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "${"
        name, has_default, default = match["name"].partition(":-")
        if match[0] in problems or len(problems) == _MOST_TOLD:
            return match[0]
        if not match["end"] or not _NAME.fullmatch(name):
            help_ = "write ${NAME} or ${NAME:-default}; $${ stands for ${ itself"
            problems[match[0]] = Problem("SMDP107", f"{match[0]} names no variable", match[0], help_)
        elif name in variables:
            return variables[name]
        elif has_default:
            return default
        else:
            problems[match[0]] = _unset(name, match[0], variables)
        return match[0]

    made = _REFERENCE.sub(replacement, text)
    match = _REFERENCE.fullmatch(text)
    return Substituted(made, match is not None and match["name"] is not None, tuple(problems.values()))


def _unset(name: str, text: str, variables: Mapping[str, str]) -> Problem:
    near = closest(name, list(variables), cutoff=0.8)
    hint = f"did you mean ${{{near}}}? Else " if near else ""
    return Problem(
        "SMDP106",
        f"the environment variable {name} is not set",
        text,
        f"{hint}set it, or give a default: ${{{name}:-VALUE}}",
    )
