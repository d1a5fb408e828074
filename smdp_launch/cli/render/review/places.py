"""What all formats of code review share: one entry for each diagnostic, with a place in a file of the repository."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.checking.job import CheckedJob
from smdp_launch.diagnostics import Diagnostic, Span, shortened


@dataclass(frozen=True, slots=True)
class Entry:
    """A diagnostic and its place. A diagnostic without one stands at the first line of its job file.

    Args:
        fingerprint: 64 hexadecimal digits. They depend on the code, the file and the offending text, but not on the
            line, so a review tool recognises the entry after an edit above it.
    """

    diagnostic: Diagnostic
    span: Span
    fingerprint: str

    @property
    def text(self) -> str:
        """The message, and on a line of its own what to write instead."""
        message, help_ = shortened(self.diagnostic.message), shortened(self.diagnostic.help)
        return f"{message}\nhelp: {help_}" if help_ else message


def entries(jobs: Iterable[CheckedJob]) -> list[Entry]:
    """The entries of all job files. Job files that share a script share its entries, which are listed once."""
    seen: Counter[tuple[str, ...]] = Counter()
    unique = dict.fromkeys((one, one.span or _first_line(job)) for job in jobs for one in job.diagnostics)
    result = []
    for one, span in unique:
        identity = (one.code, relative(span.file), one.text or one.message)
        seen[identity] += 1
        digest = hashlib.sha256("\0".join((*identity, str(seen[identity]))).encode("utf-8", "surrogateescape"))
        result.append(Entry(one, span, digest.hexdigest()))
    return result


def relative(file: str) -> str:
    """The path with ``/`` from the current folder, as tools expect it that run in the root of a repository; the
    absolute path of a file elsewhere."""
    path = Path(file)
    if path.is_absolute():
        try:
            path = path.relative_to(Path.cwd())
        except ValueError:
            return path.as_posix()
    return path.as_posix()


def codes(found: Sequence[Entry]) -> list[str]:
    return sorted({one.diagnostic.code for one in found})


def _first_line(job: CheckedJob) -> Span:
    return Span(str(job.path), 1, 1, 1)
