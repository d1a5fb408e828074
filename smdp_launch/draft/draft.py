"""What a first job file will say, before it is text."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.draft.data import find_data
from smdp_launch.draft.framework import Choice, Engine, choose_build, choose_engine, choose_framework
from smdp_launch.draft.hyperparameters import Hyperparameter, hyperparameters
from smdp_launch.jobfile.model.types import MAX_NAME
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.source.ignore import IGNORE_FILE
from smdp_launch.source.requirements import REQUIREMENTS_FILE, read_requirements
from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.commandline import CommandLine
from smdp_launch.source.script.modules import command_line_of, read_with_imports
from smdp_launch.source.script.options import Option
from smdp_launch.source.script.script import Script

#: CreateTrainingJob takes no more.
_MAX_CHANNELS = 20


@dataclass(frozen=True)
class Draft:
    """Plain values of a job file.

    Args:
        source: the source folder, relative to the job file.
        local: channel to its data on this machine, relative to the job file.
        notes: what the person should know about the folder, a sentence each.
    """

    name: str
    engine: Engine
    choice: Choice
    entry: str
    source: str
    hyperparameters: tuple[Hyperparameter, ...]
    channels: tuple[str, ...]
    local: Mapping[str, str]
    keeps_checkpoints: bool
    notes: tuple[str, ...]


def make_draft(tree: SourceTree, entry: str, job_file: Path, engine: Engine | None, name: str | None) -> Draft:
    """The draft for the script ``entry`` of ``tree``, to be written to ``job_file``.

    Args:
        engine: None for the native one, unless the requirements pin a version that only AWS's library has.
    """
    scripts = read_with_imports(tree, entry)
    read = list(scripts.values())
    requirements = read_requirements(tree.folder / REQUIREMENTS_FILE)
    framework = choose_framework([one for script in read for one in script.frameworks], requirements)
    chosen = engine or choose_engine(framework, requirements)
    library = next((one.library for one in read if one.library), None)
    channels = list(dict.fromkeys(one for script in read for one in script.channels))[:_MAX_CHANNELS] or ["train"]
    home = job_file.absolute().parent
    line = command_line_of(tree, scripts)
    data = find_data(channels, [home, tree.folder.absolute()])
    return Draft(
        name=name or job_name(tree.folder.resolve().name),
        engine=chosen,
        choice=choose_build(framework, chosen, library, requirements),
        entry=entry,
        source=relative(tree.folder, home),
        hyperparameters=tuple(hyperparameters(_options(read, line), _refused(line))),
        channels=tuple(channels),
        local={channel: relative(path, home) for channel, path in data.items()},
        keeps_checkpoints=any(one.keeps_checkpoints for one in read),
        notes=(*_unread(scripts), *_travelling(tree, data)),
    )


def job_name(folder: str) -> str:
    """The folder's name as far as a job may have it: letters, digits and inner hyphens."""
    plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain)[:MAX_NAME].strip("-") or "training"


def relative(path: Path, home: Path) -> str:
    """``path`` as a job file in ``home`` names it; in full where ``..`` would lead astray, behind a link."""
    name = os.path.relpath(path.absolute(), home)
    return Path(name).as_posix() if (home / name).exists() and (home / name).samefile(path) else str(path.resolve())


def _options(scripts: Sequence[Script], line: CommandLine | None) -> list[Option]:
    """Each name once; the entry's own come first. Then what the command line requires beside them, as of absl."""
    found = {one.name: one for script in reversed(scripts) for one in reversed(script.options)}
    declared = list(found.values())[::-1]
    arguments = line.arguments if line is not None and line.is_one else ()
    required = [one for one in arguments if one.required and one.is_certain and not one.is_positional]
    more = (Option(one.name.lstrip("-"), one.line, required=True) for one in required)
    return [*declared, *(one for one in more if one.name not in found)]


def _refused(line: CommandLine | None) -> Callable[[str], bool]:
    """Whether the script refuses a hyperparameter of a name, as far as its command line can be read.

    An option with one dash before a long name is one, and one of a module that reads a command line of its own.
    """
    if line is None or not line.is_closed:
        return lambda name: False
    return lambda name: not line.find(script_arguments({name: ""})[0])


def _unread(scripts: Mapping[str, Script]) -> list[str]:
    return [
        f"{name}{f', line {one.problem.line}' if one.problem.line else ''}, was not understood: {one.problem.reason}"
        for name, one in scripts.items()
        if one.problem is not None
    ]


def _travelling(tree: SourceTree, data: Mapping[str, Path]) -> list[str]:
    """Data that would go to every host twice: with the source, and as a channel."""
    folder = tree.folder.resolve()
    inside = {path.resolve(): channel for channel, path in data.items() if folder in path.resolve().parents}
    names = {path.relative_to(folder).as_posix(): channel for path, channel in inside.items()}
    return [
        f"{name}/ is channel {channel}'s data and travels with the source, too, unless {IGNORE_FILE} names it"
        for name, channel in names.items()
        if any(one.name.startswith(f"{name}/") for one in tree.files)
    ]
