"""The data of a script: whether it may read any from a channel, and local data for the channels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from smdp_launch.source.commandline.arguments import Argument
from smdp_launch.source.scan import scan_data
from smdp_launch.source.script.program import Program
from smdp_launch.source.script.script import Script

_FOLDERS = ("data", "dataset", "datasets")

#: Options with a text that is no path to data: those that have one of these whole words, perhaps with ``s`` or ``dir``.
_NO_DATA = re.compile(
    r"(?!.*data)(.*[-_])?(out(put)?|model|checkpoint|ckpt|log(ging)?|saved?|cache|result|resume|backend|device"
    r"|optim(izer)?|hosts)s?(dir)?([-_].*)?",
    re.IGNORECASE,
)
#: Folders that are no data when an option has one as its default.
_NO_DATA_DEFAULT = re.compile(r"(/opt/ml|/tmp)(/|$)")
#: Variables that name no data: those of the process launchers, and of the toolkit for the hosts and the results.
_NO_DATA_VARIABLES = re.compile(
    r"(LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|(NCCL|CUDA|TORCH|OMP|OMPI|MKL|SMDP|TF)_.*"
    r"|SM_(MODEL_DIR|OUTPUT_.*|NUM_.*|HOST.*|CURRENT_.*|NETWORK_.*|LOG_LEVEL|FRAMEWORK_.*|RESOURCE_CONFIG)"
)
_NO_DATA_PATHS = re.compile(r"/opt/ml/(model|output|checkpoints|code)\b")
#: Uses of the environment whose variable is known.
_KNOWN_USE = re.compile(
    r"""\bin\s+os\.environ\b(?!\s*[\[.])|import\s+environ\b"""
    r"""|(\benviron\s*(\[|\.get\(|\.setdefault\()|\bgetenv\()\s*['"]\w*['"]\s*[\]),]"""
)
#: Code that may take a path from elsewhere: the whole environment or command line, a file with settings, the toolkit,
#: a parser of another package, or parts of a path.
_ELSEWHERE = re.compile(
    r"""\b(environ|getenv|argv|yaml|toml|tomllib|configparser|sagemaker_training|sagemaker_containers)\b"""
    r"""|\bjson\.loads?\b|\w(ArgumentParser|CLI)\b|['"]/?opt/?['"]|input/data"""
)


def may_read_data(program: Program, is_complete: bool) -> bool:
    """Whether the program may read data from a path that the job sets: True unless its files show all that it takes
    from its arguments and its environment.

    Args:
        is_complete: ``program`` has all files that the entry point imports.
    """
    scripts = program.scripts.values()
    defined = frozenset[str]().union(*(one.command_line.defined for one in scripts))
    is_known = is_complete and program.is_understood
    return not is_known or any(_may_read_data(one, defined) for one in scripts)


def _may_read_data(script: Script, defined: frozenset[str]) -> bool:
    line = script.command_line
    if line.is_unknown or line.is_open or not line.borrowed <= defined:
        return True
    names = (one.name for one in script.environment if not _NO_DATA_VARIABLES.fullmatch(one.name))
    paths = (one.name for one in script.literal_paths if not _NO_DATA_PATHS.match(one.name))
    texts = (one.default for one in script.options if isinstance(one.default, str))
    is_elsewhere = any(one.startswith("/") and not _NO_DATA_DEFAULT.match(one) for one in texts)
    if is_elsewhere or any(names) or any(paths) or any(map(_may_be_data, line.arguments)):
        return True
    return _ELSEWHERE.search(_KNOWN_USE.sub("", "\n".join(script.lines))) is not None


def _may_be_data(one: Argument) -> bool:
    is_text = one.takes != "flag" and one.choices is None and one.reads not in ("int", "float", "truthy")
    return is_text and not _NO_DATA.fullmatch(one.name)


def find_data(channels: Sequence[str], folders: Sequence[Path]) -> dict[str, Path]:
    """A folder for each channel that has one, such as ``data/train`` or ``train``, below one of ``folders``."""
    found: dict[str, Path] = {}
    for channel in channels:
        for path in _places(channel, folders, alone=len(channels) == 1):
            if _is_data(path):
                found[channel] = path
                break
    return found


def _places(channel: str, folders: Sequence[Path], alone: bool) -> Iterator[Path]:
    for folder in dict.fromkeys(folders):
        yield from (folder / one / channel for one in _FOLDERS)
        yield folder / channel
        if alone:
            yield from (folder / one for one in _FOLDERS)


def _is_data(path: Path) -> bool:
    try:
        # A folder called train can be a Python package.
        if not path.is_dir() or any(one.suffix == ".py" for one in path.iterdir()):
            return False
        return scan_data(path).problem is None
    except OSError:
        return False
