"""The source folder: whether it is there, can travel, and holds the script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from smdp_launch.diagnostics import Severity, Span, closest
from smdp_launch.jobfile.yaml.text import written
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.source.ignore import IGNORE_FILE
from smdp_launch.source.scan import MAX_FILES, SourceTree, normal_name

_ENTRY = ("script", "entry")
_SOURCE = ("script", "source")
_SHOWN = 5


@rule("SMDP401", "script.source")
def source_folder(facts: Facts) -> Iterator[Finding]:
    tree = facts.source
    if tree is not None and not tree.exists:
        what = "is no folder" if tree.folder.exists() else "does not exist"
        help_, meant = "give the folder that holds the script, relative to the job file", None
        if facts.spec.script.source.startswith("s3:"):
            help_ = "give the folder on this machine; a launch packs it and uploads it"
        elif tree.folder.is_file():
            given = PurePosixPath(facts.spec.script.source)
            help_ = f"give the folder that holds it: {given.parent}"
            is_entry = facts.has("script.entry") and normal_name(facts.spec.script.entry) == given.name
            meant = written(str(given.parent)) if is_entry else None
        yield Finding(_SOURCE, f"the source folder {facts.spec.script.source} {what}", help_, replacement=meant)


@rule("SMDP408", "script.source")
def packable_source(facts: Facts) -> Iterator[Finding]:
    for name, reason in facts.source.unreadable[:_SHOWN] if facts.source is not None else ():
        message = f"{name} in the source folder cannot be packed: {reason}"
        yield Finding(_SOURCE, message, f"make it readable, move it out of the folder, or name it in {IGNORE_FILE}")


@rule("SMDP403", "script.entry")
def entry_within_source(facts: Facts) -> Iterator[Finding]:
    entry = facts.spec.script.entry
    if _leads_outside(entry):
        message = f"the entry point {entry} lies outside the source folder"
        name, tree = PurePosixPath(entry).name, facts.source
        is_there = facts.has("script.source") and tree is not None and tree.file(name) is not None
        help_ = f"give its path within `script.source`, such as {name}"
        yield Finding(_ENTRY, message, help_, replacement=written(name) if is_there else None)


@rule("SMDP402", "script.entry", "script.source")
def entry_point(facts: Facts) -> Iterator[Finding]:
    tree, entry = facts.source, facts.spec.script.entry
    if tree is None or not (tree.exists and tree.complete) or _leads_outside(entry):
        return
    name = normal_name(entry)
    # A file that cannot be read is told as that.
    if tree.file(name) is not None or any(one == name for one, _ in tree.unreadable):
        return
    if tree.ignored.holds(name):
        message = f"{IGNORE_FILE} leaves the entry point {entry} out of the source folder"
        yield Finding(_ENTRY, message, f"add the line !{name} to it")
        return
    match = closest(name, [one.name for one in tree.files])
    help_ = f"did you mean {match}?" if match else "give the script's path within `script.source`"
    found = written(match) if match else None
    yield Finding(_ENTRY, f"there is no {entry} in {tree.folder}", help_, replacement=found)


def _leads_outside(entry: str) -> bool:
    path = PurePosixPath(entry)
    return path.is_absolute() or ".." in path.parts


@rule("SMDP409", "script.source", "script.source_limit_mb")
def source_size(facts: Facts) -> Iterator[Finding]:
    tree = facts.source
    if tree is None or not tree.exists or not tree.too_large:
        return
    help_ = f"name what the script does not need in {IGNORE_FILE}"
    if not tree.complete:
        message = f"the source folder {tree.folder} holds more than {MAX_FILES} files"
        yield Finding(_SOURCE, message, f"{help_}, or give the folder of the script alone")
        return
    largest = ", ".join(f"{one.name} ({_megabytes(one.size)} MB)" for one in tree.largest(3))
    limit = facts.spec.script.source_limit_mb
    message = f"the source folder has {_megabytes(tree.size)} MB, {limit} MB at most; the largest: {largest}"
    yield Finding(_SOURCE, message, f"{help_}, or raise `script.source_limit_mb`")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"


@rule("SMDP410", "script.source")
def ignore_file(facts: Facts) -> Iterator[Finding]:
    tree = facts.source
    for one in tree.ignore_problems if tree is not None else ():
        place = _ignore_line(tree, one.line, one.text) if tree is not None else None
        where = f"line {one.line} of {IGNORE_FILE}" if one.line else IGNORE_FILE
        help_ = "write a pattern as in .gitignore, such as data/ or *.ckpt"
        yield Finding((), f"{where} leaves nothing out: {one.reason}", help_, text=one.text, place=place)


def _ignore_line(tree: SourceTree, line: int, text: str) -> Span:
    return Span(str(tree.folder / IGNORE_FILE), max(1, line), 1, len(text) + 1, text)


@rule("SMDP703", "script.source", severity=Severity.WARNING)
def secret_files(facts: Facts) -> Iterator[Finding]:
    for one in facts.source.suspicious[:_SHOWN] if facts.source is not None else ():
        message = f"{one.name} in the source folder seems to hold {one.what}, and would travel to every host"
        yield Finding(_SOURCE, message, f"add the line {one.name} to {IGNORE_FILE}")
