"""The source folder, the channels, and data on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from smdp_launch.diagnostics import closest
from smdp_launch.rules.facts import Facts, Finding, rule
from smdp_launch.source.scan import LocalData, normal_name

_ENTRY = ("script", "entry")
_SOURCE = ("script", "source")


@rule("SMDP401", "script.source")
def source_folder(facts: Facts) -> Iterator[Finding]:
    tree = facts.source
    if tree is not None and not tree.exists:
        what = "is no folder" if tree.folder.exists() else "does not exist"
        help_ = "give the folder that holds the script, relative to the job file"
        yield Finding(_SOURCE, f"the source folder {tree.folder} {what}", help_)


@rule("SMDP408", "script.source")
def packable_source(facts: Facts) -> Iterator[Finding]:
    for name, reason in facts.source.unreadable[:5] if facts.source is not None else ():
        message = f"{name} in the source folder cannot be packed: {reason}"
        yield Finding(_SOURCE, message, "make it readable, or move it out of the folder")


@rule("SMDP403", "script.entry")
def entry_within_source(facts: Facts) -> Iterator[Finding]:
    entry = facts.spec.script.entry
    if _leads_outside(entry):
        message = f"the entry point {entry} lies outside the source folder"
        yield Finding(_ENTRY, message, "give its path within `script.source`, such as train.py")


@rule("SMDP402", "script.entry", "script.source")
def entry_point(facts: Facts) -> Iterator[Finding]:
    tree, entry = facts.source, facts.spec.script.entry
    if tree is None or not tree.exists or _leads_outside(entry) or tree.file(normal_name(entry)) is not None:
        return
    match = closest(normal_name(entry), [one.name for one in tree.files])
    help_ = f"did you mean {match}?" if match else "give the script's path within `script.source`"
    yield Finding(_ENTRY, f"there is no {entry} in {tree.folder}", help_)


def _leads_outside(entry: str) -> bool:
    path = PurePosixPath(entry)
    return path.is_absolute() or ".." in path.parts


@rule("SMDP406", "channels", "local.channels")
def local_channels(facts: Facts) -> Iterator[Finding]:
    known = list(facts.spec.channels)
    for name in facts.spec.local.channels:
        if name not in known:
            match = closest(name, known)
            help_ = f'did you mean "{match}"?' if match else f"the job has {', '.join(known)}"
            yield Finding(("local", "channels", name), f'the job has no channel "{name}"', help_, on_key=True)
    for name in sorted(facts.data_flags - set(known)):
        message = f'--data {name}=…: the job has no channel "{name}"'
        yield Finding((), message, f"the job has {', '.join(known)}", text=name)


@rule("SMDP404", "channels", "local.channels")
def local_data_is_there(facts: Facts) -> Iterator[Finding]:
    for name, data in facts.local_data.items():
        if not data.exists:
            yield _local_data(facts, name, data, "it does not exist")


@rule("SMDP405", "channels", "local.channels")
def local_data_can_be_read(facts: Facts) -> Iterator[Finding]:
    for name, data in facts.local_data.items():
        if data.exists and data.problem is not None:
            yield _local_data(facts, name, data, data.problem)


def _local_data(facts: Facts, channel: str, data: LocalData, problem: str) -> Finding:
    message = f"local data of channel {channel}, {data.path}: {problem}"
    help_ = "give a readable folder or file with the channel's data"
    if channel in facts.data_flags:
        return Finding((), message, help_, text=f"--data {channel}={data.path}")
    return Finding(("local", "channels", channel), message, help_)


@rule("SMDP407", "channels", "local.channels")
def channels_have_local_data(facts: Facts) -> Iterator[Finding]:
    for name in facts.spec.channels if facts.local else ():
        if name not in facts.local_data:
            message = f"a local run needs data for channel {name}, and none is named"
            help_ = f"add `local: {{channels: {{{name}: FOLDER}}}}`, or give --data {name}=FOLDER"
            yield Finding(("channels", name), message, help_, on_key=True)
