"""The result of one check of the environment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["ok", "warning", "error", "not checked"]
_RANK: dict[Verdict, int] = {"error": 0, "warning": 1, "not checked": 2, "ok": 3}


@dataclass(frozen=True)
class CheckResult:
    """Args:
    name: of the check, such as ``torch``; stable.
    found: the value, or what is wrong.
    fix: what to do; None where nothing is wrong.
    command: the command that does it; None where there is no single command.
    """

    name: str
    verdict: Verdict
    found: str
    fix: str | None = None
    command: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "check": self.name,
            "verdict": self.verdict,
            "found": self.found,
            "fix": self.fix,
            "command": self.command,
        }


def in_order(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Errors, then warnings, then the rest. Each part stays in the order of the checks, in which a cause comes before
    its consequences."""
    return sorted(results, key=lambda one: _RANK[one.verdict])
