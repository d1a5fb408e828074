"""``${NAME}`` in values of a job file. They are replaced in parsed YAML, so no variable can change its structure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from smdp_launch.diagnostics import closest

# "$${" is an escaped "${". A reference ends at the first "}".
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[^}]*)(?P<end>\}?)")
_MAX_PROBLEMS = 20  # of one text
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Problem(NamedTuple):
    code: str
    message: str
    text: str
    help: str


class Substituted(NamedTuple):
    """``whole``: whether the text is one reference and nothing else."""

    text: str
    whole: bool
    problems: tuple[Problem, ...]


def substitute(text: str, variables: Mapping[str, str]) -> Substituted:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in ``text``; leave what cannot be replaced as it is."""
    problems: dict[str, Problem] = {}  # by reference, so that each is reported once

    def replacement(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "${"
        name, has_default, default = match["name"].partition(":-")
        if match[0] in problems or len(problems) == _MAX_PROBLEMS:
            return match[0]
        if not match["end"] or not _NAME.fullmatch(name):
            help_ = "write ${NAME} or ${NAME:-default}; $${ is an escaped ${"
            problems[match[0]] = Problem("SMDP107", f"{match[0]} does not name a variable", match[0], help_)
        elif name in variables:
            return variables[name]
        elif has_default:
            return default
        else:
            problems[match[0]] = _unset(name, match[0], variables)
        return match[0]

    result = _REFERENCE.sub(replacement, text)
    match = _REFERENCE.fullmatch(text)
    return Substituted(result, match is not None and match["name"] is not None, tuple(problems.values()))


def _unset(name: str, text: str, variables: Mapping[str, str]) -> Problem:
    near = closest(name, list(variables), cutoff=0.8)
    hint = f"did you mean ${{{near}}}? Otherwise " if near else ""
    return Problem(
        "SMDP106",
        f"the environment variable {name} is not set",
        text,
        f"{hint}set it, or give a default: ${{{name}:-VALUE}}",
    )
