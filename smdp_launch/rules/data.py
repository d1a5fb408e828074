"""SMDP401-408: the source folder, and data on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from smdp_launch.diagnostics import Diagnostic, closest
from smdp_launch.rules.facts import Facts, rule
from smdp_launch.source.scan import normal_name

_ENTRY = ("script", "entry")
_SOURCE = ("script", "source")


@rule("script.source")
def source_folder(facts: Facts) -> Iterator[Diagnostic]:
    tree = facts.source
    if tree is None:
        return
    if not tree.exists:
        what = "is no folder" if tree.folder.exists() else "does not exist"
        help_ = "give the folder that holds the script, relative to the job file"
        yield facts.problem("SMDP401", f"the source folder {tree.folder} {what}", _SOURCE, help_)
    for name, reason in tree.unreadable[:5]:
        message = f"{name} in the source folder cannot be packed: {reason}"
        yield facts.problem("SMDP408", message, _SOURCE, "make it readable, or move it out of the folder")


@rule("script.entry", "script.source")
def entry_point(facts: Facts) -> Iterator[Diagnostic]:
    tree, entry = facts.source, facts.spec.script.entry
    path = PurePosixPath(entry)
    if path.is_absolute() or ".." in path.parts:
        message = f"the entry point {entry} lies outside the source folder"
        help_ = "give its path within `script.source`, such as train.py"
        yield facts.problem("SMDP403", message, _ENTRY, help_)
    elif tree is not None and tree.exists and tree.file(normal_name(entry)) is None:
        match = closest(normal_name(entry), [one.name for one in tree.files])
        help_ = f"did you mean {match}?" if match else "give the script's path within `script.source`"
        yield facts.problem("SMDP402", f"there is no {entry} in {tree.folder}", _ENTRY, help_)


@rule("channels", "local.channels")
def local_channels(facts: Facts) -> Iterator[Diagnostic]:
    known = list(facts.spec.channels)
    for name in facts.spec.local.channels:
        if name not in known:
            match = closest(name, known)
            help_ = f'did you mean "{match}"?' if match else f"the job has {', '.join(known)}"
            at = ("local", "channels", name)
            yield facts.problem("SMDP406", f'the job has no channel "{name}"', at, help_, on_key=True)
    for name in sorted(facts.data_flags - set(known)):
        message = f'--data {name}=…: the job has no channel "{name}"'
        yield Diagnostic("SMDP406", message, text=name, help=f"the job has {', '.join(known)}")


@rule("channels", "local.channels")
def local_data(facts: Facts) -> Iterator[Diagnostic]:
    for name, data in facts.local_data.items():
        code, problem = "SMDP405", data.problem
        if not data.exists:
            code, problem = "SMDP404", "it does not exist"
        if problem is None:
            continue
        message = f"local data of channel {name}, {data.path}: {problem}"
        help_ = "give a readable folder or file with the channel's data"
        if name in facts.data_flags:
            yield Diagnostic(code, message, text=f"--data {name}={data.path}", help=help_)
        else:
            yield facts.problem(code, message, ("local", "channels", name), help_)


@rule("channels", "local.channels")
def channels_have_local_data(facts: Facts) -> Iterator[Diagnostic]:
    if not facts.local:
        return
    for name in facts.spec.channels:
        if name not in facts.local_data:
            message = f"a local run needs data for channel {name}, and none is named"
            help_ = f"add `local: {{channels: {{{name}: FOLDER}}}}`, or give --data {name}=FOLDER"
            yield facts.problem("SMDP407", message, ("channels", name), help_, on_key=True)
