"""Extreme job files, on which a parser or a rule could fail or take long."""

from __future__ import annotations

from collections.abc import Callable

from tests.conftest import JOB

MIB = 1 << 20


def _keys(name: str, count: int, value: str = "1") -> str:
    return "".join(f"{name}{number}: {value}\n" for number in range(count))


def _below(key: str, lines: str) -> str:
    return f"{JOB}{key}:\n" + "".join(f"  {line}\n" for line in lines.splitlines())


def _aliases() -> str:
    lists = (f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]" for n in range(20))
    return "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(lists)


#: Up to a megabyte each.
FILES: dict[str, Callable[[], str]] = {
    "aliases to aliases": _aliases,
    "an alias to itself": lambda: "environment: &a {A: *a}\n",
    "one anchor many times": lambda: JOB + "amp: &a bf16\n" * 1000,
    "nested lists": lambda: "a: " + "[" * 400_000,
    "nested mappings": lambda: "".join(f"{' ' * depth}a:\n" for depth in range(1400)),
    "a long number": lambda: f"{JOB}amp: {'9' * 900_000}\n",
    "a long name": lambda: JOB.replace("ml.p4d.24xlarge", f"ml.{'p' * 900_000}"),
    "a long key": lambda: f"{JOB}{'k' * 900_000}: 1\n",
    "terminal control characters": lambda: f'{JOB}amp: "' + r"\u202e\e[2J\a" * 60_000 + '"\n',
    "unknown keys": lambda: JOB + _keys("instance_typ", 4900),
    "more unknown keys": lambda: JOB + _keys("k", 70_000),
    "one key many times": lambda: JOB + "amp: bf16\n" * 80_000,
    "variables": lambda: f"{JOB}amp: {'${A}' * 200_000}\n",
    "different variables": lambda: JOB + "amp: " + "".join(f"${{A{n}}}" for n in range(100_000)),
    "broken variables": lambda: f"{JOB}amp: {'${' * 400_000}\n",
    "unset variables": lambda: _below("environment", _keys("E", 4900, "${NOT_SET}")),
    "hyperparameters": lambda: JOB.replace("epochs: 2", ", ".join(f"k{n}: {'x' * 150}" for n in range(4900))),
    "secrets": lambda: _below("environment", _keys("PASSWORD", 4900, "correct-horse-battery")),
    "channels": lambda: JOB.replace("channels:\n", "channels:\n" + _keys("  c", 1600, "{s3: 's3://b/x', mode: No}")),
    "metrics": lambda: _below("metrics", _keys("m", 4900, '"(a+)+$"')),
    "tags": lambda: _below("tags", _keys("aws:", 4900, "v")),
    "overlay": lambda: _below("overlay", _keys("Hyper", 1200, "[1, {a: 2}]")),
    "one comment": lambda: "#" * MIB,
    "one long text": lambda: f"script: {'x ' * (MIB // 2 - 10)}",
    "one long quote": lambda: f"script: '{'x' * (MIB - 20)}",
    "tabs": lambda: "\t" * MIB,
    "line ends": lambda: "\r\n" * (MIB // 2),
    "dashes": lambda: "- " * (MIB // 2),
    "question marks": lambda: "? " * (MIB // 2),
    "documents": lambda: "---\n" * (MIB // 4),
    "tags of YAML": lambda: "a: " + "!!int " * 1000 + "1\n",
    "anchors": lambda: "".join(f"k{n}: &a{n} x\n" for n in range(50_000)),
    "directives": lambda: "%YAML 1.1\n" * 1000 + "---\na: 1\n",
    "a block of text": lambda: "script: |\n" + "  line\n" * 140_000,
}
