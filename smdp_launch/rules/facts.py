"""What rules are given, and how one is written.

A rule is a function from ``Facts`` to diagnostics. It names the fields it reads; where one of them already has a
schema error the rule is left out, so every mistake is told once and none hides another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from smdp_launch.diagnostics import Diagnostic, Severity
from smdp_launch.jobfile.document import Document
from smdp_launch.jobfile.spec import JobSpec
from smdp_launch.source.scan import LocalData, SourceTree


@dataclass(frozen=True)
class Facts:
    """Plain values only: whoever made them has done the I/O.

    Args:
        spec: the fields that a rule needs are sound; others may be None.
        source: the scanned source folder; None if script.source has a schema error.
        local_data: channel name to what lies at its local path.
        data_flags: the names given by ``--data``, which have no place in the file.
        local: the job is about to run on this machine.
    """

    spec: JobSpec
    document: Document
    source: SourceTree | None = None
    local_data: Mapping[str, LocalData] = field(default_factory=dict)
    data_flags: frozenset[str] = frozenset()
    local: bool = False

    def problem(
        self,
        code: str,
        message: str,
        at: tuple[str, ...],
        help_: str = "",
        *,
        on_key: bool = False,
        severity: Severity = Severity.ERROR,
    ) -> Diagnostic:
        """A diagnostic at the field ``at``, or at the nearest parent that the file has."""
        entry = self.document.entry(at)
        written = self.document.written(at)
        span = entry.key if on_key or not written else entry.value
        text = at[-1] if on_key else entry.text if written else ""
        return Diagnostic(code, message, span, text, help_, severity)


@dataclass(frozen=True)
class Rule:
    """Calling it yields what is wrong."""

    needs: tuple[tuple[str, ...], ...]
    check: Callable[[Facts], Iterable[Diagnostic]]


def rule(*needs: str) -> Callable[[Callable[[Facts], Iterable[Diagnostic]]], Rule]:
    """Make a function a rule; ``needs`` are the fields it reads, such as ``"compute.instance_type"``."""

    def make(check: Callable[[Facts], Iterable[Diagnostic]]) -> Rule:
        return Rule(tuple(tuple(one.split(".")) for one in needs), check)

    return make
