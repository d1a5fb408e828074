"""The values of a first job file, before they become text."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED, Engine
from smdp_launch.draft.data import find_data, may_read_data
from smdp_launch.draft.entry import unreadable
from smdp_launch.draft.framework import Choice, choose_build, choose_engine, choose_framework
from smdp_launch.draft.hyperparameters import Hyperparameter, hyperparameters
from smdp_launch.draft.needed_versions import needs
from smdp_launch.draft.shell import Started, channels_of_settings, is_shell, started_by
from smdp_launch.jobfile.model.types import MAX_NAME
from smdp_launch.request.hyperparameters import changed_by_shell, script_arguments
from smdp_launch.source.commandline.arguments import CommandLine, parsing_modules
from smdp_launch.source.commandline.options import Option, Value, is_taken_for_an_option
from smdp_launch.source.ignore import IGNORE_FILE
from smdp_launch.source.requirements import REQUIREMENTS_FILE, read_requirements
from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.modules import command_line_of, is_complete, read_with_imports
from smdp_launch.source.script.program import Program
from smdp_launch.source.script.script import Script

#: The limit of CreateTrainingJob.
_MAX_CHANNELS = 20
#: Of the draft.
HOSTS = 2
_OF_SHELL = "the toolkit in AWS's images may pass it through a shell, which changes this value"
#: Options with the path of all data.
_DATA_PATH = re.compile(r"(train(ing)?[-_])?data(set)?[-_]?(path|dir|root|folder|directory)", re.IGNORECASE)
_SHELL_ENGINE = "engine: native, because AWS's images start {1} only with a .py file, not with {0}"
#: The oldest Python of the images for PyTorch 2.
_PYTHON = (3, 10)


@dataclass(frozen=True)
class Draft:
    """Plain values of a job file.

    Args:
        source: the source folder, relative to the job file.
        reads_channels: the script, or a file with its settings, names the channels.
        local: channel to its local data, relative to the job file.
        notes: sentences about the folder for the user.
    """

    name: str
    engine: Engine
    choice: Choice
    entry: str
    source: str
    hyperparameters: tuple[Hyperparameter, ...]
    channels: tuple[str, ...]
    reads_channels: bool
    local: Mapping[str, str]
    keeps_checkpoints: bool
    notes: tuple[str, ...]


def make_draft(tree: SourceTree, entry: str, job_file: Path, engine: Engine | None, name: str | None) -> Draft:
    """The draft for the script ``entry`` of ``tree``; the job file will be at ``job_file``.

    Args:
        engine: None for the one that fits the script and its requirements (``framework.choose_engine``).
    """
    file = tree.file(entry)
    is_script = file is not None and is_shell(file)
    started = started_by(file, tree) if file is not None and is_script else None
    scripts = read_with_imports(tree, started.name if started else entry) if started or not is_script else {}
    read = list(scripts.values())
    requirements = read_requirements(tree.folder / REQUIREMENTS_FILE)
    framework = choose_framework([one for script in read for one in script.frameworks], requirements)
    library = next((one.library for one in read if one.library), None)
    backends = [] if library else [each for one in read for each in one.training.backends]
    home = job_file.absolute().parent
    line = command_line_of(tree, scripts)
    parsing = parsing_modules({name: one.command_line for name, one in scripts.items()})
    declared = _options([scripts[name] for name in parsing], line)
    if started is not None:
        declared = [one for one in declared if started.gets_arguments and one.name not in started.options]
    fits = choose_engine(framework, requirements, backends, declared)
    is_for_shell = is_script and fits in TORCH_DISTRIBUTED  # which AWS's toolkit does not start from a shell script
    selected = engine or ("native" if is_for_shell else fits)
    named = list(dict.fromkeys(one for script in read for one in script.channels))
    channels = (named or channels_of_settings(tree, entry))[:_MAX_CHANNELS]
    reads_channels = bool(channels)
    data = find_data(channels or ["train"], [home, tree.folder.absolute()])
    program = Program(scripts)
    needed = list(needs(program, requirements, _PYTHON)) if framework == "pytorch" else []
    if not channels and (data or may_read_data(program, is_complete(tree, scripts))):
        channels = ["train"]
    return Draft(
        name=name or job_name(tree.folder.resolve().name),
        engine=selected,
        choice=choose_build(framework, selected, library, requirements, needed),
        entry=entry,
        source=relative(tree.folder, home),
        hyperparameters=tuple(
            _for_job(hyperparameters(declared, _refused(line)), program, selected, [] if reads_channels else channels)
        ),
        channels=tuple(channels),
        reads_channels=reads_channels,
        local={channel: relative(path, home) for channel, path in data.items()},
        keeps_checkpoints=any(one.keeps_checkpoints for one in read),
        notes=(
            *([_shell_note(entry, started)] if is_script else ()),
            *([_SHELL_ENGINE.format(entry, fits)] if is_for_shell and engine is None else ()),
            *(f"not analyzed: {one}" for one in unreadable(scripts)),
            *(_uploaded_twice(tree, data, read) if reads_channels else ()),
        ),
    )


def _shell_note(entry: str, started: Started | None) -> str:
    if started is None:
        return f"{entry} is a shell script: the Python code that it starts is not analyzed"
    rest = "" if started.gets_arguments else ', without "$@": init writes no hyperparameters'
    if started.launcher is not None:
        rest = f" with {started.launcher}, in each worker of the job: pass --entry {started.name} instead"
    return f"{entry} is a shell script that starts {started.name}{rest}"


def _for_job(
    passed: Iterable[Hyperparameter], program: Program, engine: Engine, channels: Sequence[str]
) -> Iterator[Hyperparameter]:
    """The hyperparameters, with the draft's number of hosts for Lightning, and the folder of the only channel for a
    path to data. Those that AWS's toolkit may change are not passed: the script has the default itself.

    Args:
        channels: those whose folders the script does not find by itself.
    """
    for one in passed:
        is_nodes = one.name == program.nodes_of_lightning and one.value == 1
        if is_nodes:
            yield replace(one, value=HOSTS)
        elif len(channels) == 1 and isinstance(one.value, str) and _DATA_PATH.fullmatch(one.name) and not one.unfit:
            yield replace(one, value=f"/opt/ml/input/data/{channels[0]}", help="the data of the channel")
        elif (
            one.unfit is None
            and engine in TORCH_DISTRIBUTED
            and changed_by_shell(script_arguments({"x": one.value})[1])
        ):
            yield replace(one, unfit=_OF_SHELL)
        else:
            yield one


def job_name(folder: str) -> str:
    """The folder's name as a job name: letters, digits and inner hyphens."""
    plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain)[:MAX_NAME].strip("-") or "training"


def relative(path: Path, home: Path) -> str:
    """``path`` relative to a job file in ``home``; absolute if there is no relative path, or a symbolic link makes it
    wrong."""
    try:
        name = os.path.relpath(path.absolute(), home)
    except ValueError:  # on another drive of Windows
        return path.resolve().as_posix()
    is_right = (home / name).exists() and (home / name).samefile(path)
    return Path(name).as_posix() if is_right else path.resolve().as_posix()


def _options(scripts: Sequence[Script], line: CommandLine | None) -> list[Option]:
    """Each option once, those of the entry first, then others that the command line requires, for example with absl."""
    options = {one.name: one for script in reversed(scripts) for one in reversed(script.options)}
    declared = list(options.values())[::-1]
    arguments = line.arguments if line is not None and line.is_one else ()
    required = [one for one in arguments if one.required and one.is_certain and not one.is_positional]
    more = (Option(one.name.lstrip("-"), one.line, required=True) for one in required)
    return [*declared, *(one for one in more if one.name not in options)]


def _refused(line: CommandLine | None) -> Callable[[str, Value], bool]:
    """A function that returns whether the script refuses a hyperparameter of a name with a value, as far as this is
    known.

    Examples are an option with one dash before a long name, an option of a module that parses the command line, and,
    for argparse, a value that begins with a dash.
    """

    def is_refused(name: str, value: Value) -> bool:
        word, text = script_arguments({name: value})
        is_argparse = line is None or line.style == "argparse"
        is_unknown = line is not None and line.is_closed and not line.find(word)
        return is_unknown or (is_argparse and is_taken_for_an_option(text))

    return is_refused


def _uploaded_twice(tree: SourceTree, data: Mapping[str, Path], scripts: Sequence[Script]) -> list[str]:
    """Notes about data that every host would get twice: with the source, and as a channel. No script names its
    folder."""
    text = "\n".join(line for one in scripts for line in one.lines)
    folder = tree.folder.resolve()
    inside = {path.resolve(): channel for channel, path in data.items() if folder in path.resolve().parents}
    names = {path.relative_to(folder).as_posix(): channel for path, channel in inside.items()}
    return [
        f"{name}/ is the data of channel {channel} and is also uploaded with the source; list it in {IGNORE_FILE}"
        for name, channel in names.items()
        if any(one.name.startswith(f"{name}/") for one in tree.files)
        and re.search(rf"[\"'/]{re.escape(name)}[\"'/]", text) is None
    ]
