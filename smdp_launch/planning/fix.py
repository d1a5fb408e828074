"""Apply the edits of a job's diagnostics to its files, in rounds, because a fix can reveal another diagnostic.

The rounds work on texts in memory, so that the user sees one diff of everything. Only ``write`` changes files.
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
from smdp_launch.checking.redact import redact_text
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.disk import why
from smdp_launch.edits import apply_edits, split_lines, without_conflicts
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.jobfile.yaml.parser import MAX_BYTES
from smdp_launch.sizing.need import MeasuredInput
from smdp_launch.systems import IS_WINDOWS

#: A round removes at most every second one of neighbouring entries.
_MAX_ROUNDS = 20
#: Diagnostics that are tried one by one if their edits do not work together. The user has to fix the rest.
_MAX_ALONE = 40
_BOM = "\ufeff"


@dataclass(frozen=True)
class ChangedFile:
    """One file, with its text before and after, both without the byte order mark, which stays in the file."""

    name: str
    before: str
    after: str
    document_before: Document
    document_after: Document
    has_mark: bool = False

    @property
    def diff(self) -> list[str]:
        """The lines of ``diff -u``, without secrets."""
        before, after = (
            split_lines(redact_text(document, self.name, text).removesuffix("\n"))
            for document, text in ((self.document_before, self.before), (self.document_after, self.after))
        )
        return list(unified_diff(before, after, self.name, self.name, lineterm=""))

    def encoded(self, text: str) -> bytes:
        return f"{_BOM if self.has_mark else ''}{text}".encode()


@dataclass(frozen=True)
class FixResult:
    """The result of applying all edits in memory.

    Args:
        before, after: the job with its current files, and with the changed ones.
        applied: the fixed diagnostics, each with its place in the round that fixed it.
        files: the files to write; empty if nothing can be fixed.
    """

    before: CheckedJob
    after: CheckedJob
    applied: tuple[Diagnostic, ...] = ()
    files: tuple[ChangedFile, ...] = ()


@dataclass
class _Texts:
    """The texts of the job's files before the first round and after the latest one."""

    before: dict[str, str] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)
    marks: dict[str, bool] = field(default_factory=dict)

    def read(self, name: str) -> None:
        """Read the file. If it is not UTF-8 or too large, the check of the job reports that."""
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


def fix_job(
    path: Path,
    *,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    measured: MeasuredInput | None = None,
) -> FixResult:
    """Apply all edits of the diagnostics to the job file at ``path`` and the project's defaults, in memory.

    Args:
        measured: what an earlier run of the job read.
    """
    texts, applied = _Texts(), list[Diagnostic]()

    def check() -> CheckedJob:
        contents = texts.contents()
        return check_job(path, settings=settings, environ=environ, contents=contents, measured=measured)

    texts.read(str(path))
    before = check()
    for name in {edit.file for one in before.diagnostics for edit in one.edits} - set(texts.now):
        texts.read(name)
        before = check()  # again, with the text that will be changed
    after, seen = before, {tuple(texts.now.values())}
    for _ in range(_MAX_ROUNDS):
        selected = without_conflicts(after.diagnostics, texts.now)
        previous, errors = dict(texts.now), _yaml_errors(after)
        texts.now = previous | _applied(selected, previous)
        if not selected or tuple(texts.now.values()) in seen:
            texts.now = previous
            break
        result = check()
        if _yaml_errors(result) > errors:
            # Two edits can be correct alone and wrong together: two misspelt keys may mean the same key.
            compatible = list[Diagnostic]()
            for one in selected[:_MAX_ALONE]:
                texts.now = previous | _applied([*compatible, one], previous)
                compatible += [one] if _yaml_errors(check()) <= errors else []
            selected, texts.now = compatible, previous | _applied(compatible, previous)
            if not compatible:
                break
            result = check()
        seen.add(tuple(texts.now.values()))
        applied += selected
        after = result
    return FixResult(before, after, tuple(applied), texts.changed(before.loaded.document, after.loaded.document))


def _applied(diagnostics: Sequence[Diagnostic], texts: Mapping[str, str]) -> dict[str, str]:
    """The new texts of the files that the edits of ``diagnostics`` change."""
    edits = [edit for one in diagnostics for edit in one.edits]
    names = {edit.file for edit in edits}
    return {name: apply_edits(texts[name], [one for one in edits if one.file == name]) for name in names}


def _yaml_errors(job: CheckedJob) -> int:
    """The number of YAML errors, duplicate keys included."""
    return sum(one.code.startswith("SMDP1") for one in job.diagnostics)


def write(fixed: FixResult) -> None:
    """Write the files, each atomically.

    Raises:
        Refused: a file has changed since it was read.
        EnvironmentProblem: a file cannot be written.
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
        raise Refused(f"{one.name} has changed since it was read and was not written; run the command again")


def check_writable(fixed: FixResult) -> None:
    """Check the permissions: writing a file replaces it, so it would succeed for a write-protected file too.

    Raises:
        EnvironmentProblem: a file to be changed is write-protected, or another user's.
    """
    for one in fixed.files:
        try:
            mode = Path(one.name).stat().st_mode
        except OSError as error:
            raise EnvironmentProblem(f"{one.name} cannot be written: {error.strerror}") from error
        command = "attrib -r" if IS_WINDOWS else "chmod u+w"
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise EnvironmentProblem(f"{one.name} is write-protected and was not changed; run `{command}` on it first")
        if not os.access(one.name, os.W_OK):
            raise EnvironmentProblem(f"{one.name} was not changed: you do not have permission to write it")


def _replace(path: Path, content: bytes) -> None:
    """Replace the file at ``path`` with a new one that has the same owner and permissions."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        old = path.stat()
        if not IS_WINDOWS:
            with contextlib.suppress(PermissionError):
                os.chown(name, old.st_uid, old.st_gid)
        Path(name).chmod(old.st_mode & 0o7777)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
