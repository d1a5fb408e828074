"""Applies the edits of what is wrong with a job to its files: round after round, since one fix may uncover the next.

Nothing is written until ``write``. The rounds run on texts in memory, so that a person sees one diff of the whole.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

from smdp_launch.checking.job import CheckedJob, check_job
from smdp_launch.checking.redact import hidden_text
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.disk import why
from smdp_launch.edits import apply_edits, split_lines, without_conflicts
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobfile.yaml.document import MAX_BYTES, Document

#: Of entries beside each other that all have to go, every second one goes in a round.
_MOST_ROUNDS = 20
#: Diagnostics that are tried one by one where their edits do not go together; the rest is left to a person.
_MOST_ALONE = 40
_BOM = "\ufeff"


@dataclass(frozen=True)
class ChangedFile:
    """One file, with its text before and after. A byte order mark stays and is part of neither."""

    name: str
    before: str
    after: str
    document_before: Document
    document_after: Document
    has_mark: bool = False

    @property
    def diff(self) -> list[str]:
        """As of ``diff -u``, without secrets."""
        before, after = (
            split_lines(hidden_text(document, self.name, text).removesuffix("\n"))
            for document, text in ((self.document_before, self.before), (self.document_after, self.after))
        )
        return list(unified_diff(before, after, self.name, self.name, lineterm=""))

    def encoded(self, text: str) -> bytes:
        return f"{_BOM if self.has_mark else ''}{text}".encode()


@dataclass(frozen=True)
class Fixed:
    """What can be fixed.

    Args:
        before, after: the job as it is, and as it will be.
        applied: the diagnostics that were fixed; their places are those of the round in which they were.
        files: what has to be written; empty if nothing can be fixed.
    """

    before: CheckedJob
    after: CheckedJob
    applied: tuple[Diagnostic, ...] = ()
    files: tuple[ChangedFile, ...] = ()


@dataclass
class _Texts:
    """The files of the job as they were read first, and as they are after the rounds so far."""

    before: dict[str, str] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)
    marks: dict[str, bool] = field(default_factory=dict)

    def read(self, name: str) -> None:
        """Read the file; one that is no text, or too much of it, is left to the check of the job, which says so."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            with Path(name).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                return
            text = raw.decode("utf-8")
            self.marks[name] = text.startswith(_BOM)
            self.before[name] = self.now[name] = text.removeprefix(_BOM)

    def contents(self) -> dict[str, bytes]:
        return {name: f"{_BOM if self.marks[name] else ''}{text}".encode() for name, text in self.now.items()}

    def changed(self, before: Document, after: Document) -> tuple[ChangedFile, ...]:
        return tuple(
            ChangedFile(name, text, self.now[name], before, after, self.marks[name])
            for name, text in self.before.items()
            if text != self.now[name]
        )


def fix_job(path: Path, *, settings: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Fixed:
    """The job file at ``path``, and the project's defaults, with every edit applied that their diagnostics have."""
    texts, applied = _Texts(), list[Diagnostic]()

    def check() -> CheckedJob:
        return check_job(path, settings=settings, environ=environ, contents=texts.contents())

    texts.read(str(path))
    before = check()
    for name in {edit.file for one in before.diagnostics for edit in one.edits} - set(texts.now):
        texts.read(name)
        before = check()  # of the text that will be changed, whatever the file held a moment ago
    after, seen = before, {tuple(texts.now.values())}
    for _ in range(_MOST_ROUNDS):
        chosen = without_conflicts(after.diagnostics, texts.now)
        previous, broken = dict(texts.now), _broken(after)
        texts.now = previous | _applied(chosen, previous)
        if not chosen or tuple(texts.now.values()) in seen:
            texts.now = previous
            break
        result = check()
        if _broken(result) > broken:
            # Two that are right alone need not be right together: two misspelt keys may mean the same one.
            kept = list[Diagnostic]()
            for one in chosen[:_MOST_ALONE]:
                texts.now = previous | _applied([*kept, one], previous)
                kept += [one] if _broken(check()) <= broken else []
            chosen, texts.now = kept, previous | _applied(kept, previous)
            if not kept:
                break
            result = check()
        seen.add(tuple(texts.now.values()))
        applied += chosen
        after = result
    return Fixed(before, after, tuple(applied), texts.changed(before.loaded.document, after.loaded.document))


def _applied(chosen: Sequence[Diagnostic], texts: Mapping[str, str]) -> dict[str, str]:
    """The files that the edits of ``chosen`` change, as they are afterwards."""
    edits = [edit for one in chosen for edit in one.edits]
    names = {edit.file for edit in edits}
    return {name: apply_edits(texts[name], [one for one in edits if one.file == name]) for name in names}


def _broken(job: CheckedJob) -> int:
    """How much is wrong with the YAML itself, keys that stand twice included."""
    return sum(one.code.startswith("SMDP1") for one in job.diagnostics)


def write(fixed: Fixed) -> None:
    """Write the files, each as a whole or not at all.

    Raises:
        Refused: a file is not what it was when it was read.
        EnvironmentProblem: one cannot be written.
    """
    for one in fixed.files:
        _check_unchanged(one)
    check_writable(fixed)
    for one in fixed.files:
        try:
            _replace(Path(one.name).resolve(), one.encoded(one.after))
        except OSError as error:
            raise EnvironmentProblem(f"{one.name} cannot be written: {why(error, Path(one.name))}") from error


def _check_unchanged(one: ChangedFile) -> None:
    try:
        now = Path(one.name).read_bytes()
    except OSError:
        now = b""
    if now != one.encoded(one.before):
        raise Refused(f"{one.name} changed meanwhile and was left as it is; run the command again")


def check_writable(fixed: Fixed) -> None:
    """A new file could replace one that is write-protected on purpose.

    Raises:
        EnvironmentProblem: a file to be changed is write-protected, or another user's.
    """
    for one in fixed.files:
        try:
            mode = Path(one.name).stat().st_mode
        except OSError as error:
            raise EnvironmentProblem(f"{one.name} cannot be written: {error.strerror}") from error
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise EnvironmentProblem(
                f"{one.name} is write-protected and was left as it is; run `chmod u+w` on it first"
            )
        if not os.access(one.name, os.W_OK):
            raise EnvironmentProblem(f"{one.name} cannot be written by you and was left as it is")


def _replace(path: Path, content: bytes) -> None:
    """A new file in place of the one at ``path``, with its permissions."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        old = path.stat()
        with contextlib.suppress(PermissionError):
            os.chown(name, old.st_uid, old.st_gid)
        Path(name).chmod(old.st_mode & 0o7777)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
