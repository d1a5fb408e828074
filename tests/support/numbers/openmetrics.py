"""A strict reader of OpenMetrics 1.0 text: the grammar, and the order of families and samples."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_TYPE = re.compile(rf"# TYPE ({_NAME}) (gauge|counter)")
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\\n\"]|\\\\|\\n|\\\")*)")
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
_SAMPLE = re.compile(rf"({_NAME})\{{((?:{_LABEL})(?:,{_LABEL})*)\}} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|[+-]Inf|NaN)")


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The value of each sample, by name and labels.

    Raises:
        AssertionError: the text is not valid.
    """
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-2:]
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    families: list[str] = []
    kind = ""
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            match = _TYPE.fullmatch(line)
            assert match is not None, line
            assert match[1] not in families, f"{match[1]} is interrupted by another family"
            families.append(match[1])
            kind = match[2]
        elif line.startswith("# HELP "):
            match = _HELP.fullmatch(line)
            assert match is not None, line
            assert match[1] == families[-1]
        else:
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == families[-1] + ("_total" if kind == "counter" else ""), line
            labels = re.findall(_LABEL, match[2])
            pairs = [one.partition("=") for one in labels]
            key = match[1], frozenset((name, _plain(value[1:-1])) for name, _, value in pairs)
            assert len(key[1]) == len(labels)
            assert key not in found, line
            assert kind != "counter" or float(match[3]) >= 0
            found[key] = float(match[3])
    return found


def value(text: str, name: str, **labels: str) -> float:
    """The one sample that has this name and these labels."""
    fitting = [
        one for (found, pairs), one in samples(text).items() if found == name and labels.items() <= dict(pairs).items()
    ]
    assert len(fitting) == 1, (name, labels, fitting)
    return fitting[0]


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)
