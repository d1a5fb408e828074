"""The source folder: whether it exists, can be uploaded, and contains the script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from smdp_launch.diagnostics import Severity, Span, closest
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.ignore import IGNORE_FILE
from smdp_launch.source.scan import MAX_FILES, SourceTree, normal_name

_ENTRY = ("script", "entry")
_SOURCE = ("script", "source")
_SHOWN = 5


@rule("SMDP401", "script.source")
def source_folder(facts: Facts) -> Iterator[Problem]:
    tree = facts.source
    if tree is not None and not tree.exists:
        what = "is not a folder" if tree.folder.exists() else "does not exist"
        help_, meant = "write the folder that contains the script, relative to the job file", None
        if facts.spec.script.source.startswith("s3:"):
            help_ = "write a local folder; the launch packs and uploads it"
        elif "\\" in facts.spec.script.source and Path(tree.folder.as_posix().replace("\\", "/")).is_dir():
            meant = to_yaml(facts.spec.script.source.replace("\\", "/"))
            help_ = f"write forward slashes, which every system reads: {meant}"
        elif tree.folder.is_file():
            source = PurePosixPath(facts.spec.script.source)
            help_ = f"write the folder that contains it: {source.parent}"
            is_entry = facts.has("script.entry") and normal_name(facts.spec.script.entry) == source.name
            meant = to_yaml(str(source.parent)) if is_entry else None
        elif not tree.folder.exists() and (near := _similar_folder(tree.folder)) is not None:
            folder = str(PurePosixPath(facts.spec.script.source).with_name(near.name))
            help_ = f"did you mean {folder}?"
            has_entry = facts.has("script.entry") and (near / facts.spec.script.entry).is_file()
            meant = to_yaml(folder) if has_entry else None
        yield Problem(_SOURCE, f"the source folder {facts.spec.script.source} {what}", help_, replacement=meant)


def _similar_folder(folder: Path) -> Path | None:
    """The folder beside ``folder`` whose name is similar; None if there is none, or ``folder`` has no name."""
    try:
        names = [one.name for one in folder.parent.iterdir() if one.is_dir()]
    except OSError:
        return None
    match = closest(folder.name, names) if folder.name not in {"", ".."} else None
    return folder.parent / match if match is not None else None


@rule("SMDP408", "script.source")
def packable_source(facts: Facts) -> Iterator[Problem]:
    for name, reason in facts.source.unreadable[:_SHOWN] if facts.source is not None else ():
        message = f"{name} in the source folder cannot be packed: {reason}"
        yield Problem(_SOURCE, message, f"make it readable, move it out of the folder, or list it in {IGNORE_FILE}")


@rule("SMDP403", "script.entry")
def entry_within_source(facts: Facts) -> Iterator[Problem]:
    entry = facts.spec.script.entry
    if _leads_outside(entry):
        message = f"the entry point {entry} is outside the source folder"
        name, tree = PurePosixPath(entry).name, facts.source
        exists = facts.has("script.source") and tree is not None and tree.file(name) is not None
        help_ = f"write its path within `script.source`, such as {name}"
        yield Problem(_ENTRY, message, help_, replacement=to_yaml(name) if exists else None)


@rule("SMDP402", "script.entry", "script.source")
def entry_point(facts: Facts) -> Iterator[Problem]:
    tree, entry = facts.source, facts.spec.script.entry
    if tree is None or not (tree.exists and tree.complete) or _leads_outside(entry):
        return
    name = normal_name(entry)
    # Another rule reports files that cannot be read.
    if tree.file(name) is not None or any(one == name for one, _ in tree.unreadable):
        return
    if tree.ignored.includes(name):
        message = f"{IGNORE_FILE} excludes the entry point {entry}"
        yield Problem(_ENTRY, message, f"add the line !{name} to {IGNORE_FILE}")
        return
    match = closest(name, [one.name for one in tree.files])
    help_ = f"did you mean {match}?" if match else "write the script's path within `script.source`"
    replacement = to_yaml(match) if match else None
    yield Problem(_ENTRY, f"there is no {entry} in {tree.folder}", help_, replacement=replacement)


def _leads_outside(entry: str) -> bool:
    path = PurePosixPath(entry)
    return path.is_absolute() or ".." in path.parts


@rule("SMDP409", "script.source", "script.source_limit_mb")
def source_size(facts: Facts) -> Iterator[Problem]:
    tree = facts.source
    if tree is None or not tree.exists or not tree.too_large:
        return
    help_ = f"list what the script does not need in {IGNORE_FILE}"
    if not tree.complete:
        message = f"the source folder {tree.folder} contains more than {MAX_FILES} files"
        yield Problem(_SOURCE, message, f"{help_}, or choose a folder that contains only the script")
        return
    largest = ", ".join(f"{one.name} ({_megabytes(one.size)} MB)" for one in tree.largest(3))
    limit = facts.spec.script.source_limit_mb
    message = f"the source folder has {_megabytes(tree.size)} MB; the limit is {limit} MB; largest files: {largest}"
    yield Problem(_SOURCE, message, f"{help_}, or raise `script.source_limit_mb`")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"


@rule("SMDP410", "script.source")
def ignore_file(facts: Facts) -> Iterator[Problem]:
    tree = facts.source
    for one in tree.ignore_problems if tree is not None else ():
        place = _ignore_line(tree, one.line, one.text) if tree is not None else None
        where = f"line {one.line} of {IGNORE_FILE}" if one.line else IGNORE_FILE
        help_ = "write a pattern as in .gitignore, such as data/ or *.ckpt"
        yield Problem((), f"{where} excludes nothing: {one.reason}", help_, text=one.text, place=place)


def _ignore_line(tree: SourceTree, line: int, text: str) -> Span:
    return Span(str(tree.folder / IGNORE_FILE), max(1, line), 1, len(text) + 1, text)


@rule("SMDP703", "script.source", severity=Severity.WARNING)
def secret_files(facts: Facts) -> Iterator[Problem]:
    for one in facts.source.suspicious[:_SHOWN] if facts.source is not None else ():
        message = f"{one.name} in the source folder seems to contain {one.what}, and would be uploaded to every host"
        help_ = f"add the line {one.name} to {IGNORE_FILE}"
        if one.for_pip:
            help_ = "let pip install from CodeArtifact (variable CA_REPOSITORY_ARN), or put a wheel into the folder"
        yield Problem(_SOURCE, message, help_)
