"""The folder of wheels that our packages came from: the package index may not have them, and pip does not record it."""

from __future__ import annotations

import configparser
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from smdp_launch.doctor.environment import Environment, path_of

_MOST_FOLDERS = 500  # of each place that is searched


class Links(NamedTuple):
    """Where the installing tool finds our packages.

    Args:
        folder: the folder that the command has to name; None if the tool looks there already, or if it is unknown.
        is_known: whether the packages were found.
    """

    folder: Path | None
    is_known: bool


def links(environment: Environment, version: str | None, origin: Path | None) -> Links:
    """Where the wheels of this version are.

    Args:
        origin: the file or folder that the launcher was installed from, if that is recorded.
    """
    if any(has_wheels(one, version) for one in _configured(environment)):
        return Links(None, True)
    recorded = [one for link in environment.recorded.find_links if (one := path_of(link)) is not None]
    certain = [*([origin.parent] if origin is not None and origin.suffix == ".whl" else []), *recorded]
    found = next((one for one in certain if one.is_absolute() and has_wheels(one, version)), None)
    if found is None:
        found = next((one for one in _near(environment) if _is_ours(one) and has_wheels(one, version)), None)
    return Links(found, found is not None)


def has_wheels(folder: Path, version: str | None) -> bool:
    """Whether the folder has the wheels of our packages in this version; of any if it is None."""
    wanted = re.escape(version) if version is not None else "[^-]+"
    try:
        names = [one.name for one in os.scandir(folder)]
    except OSError:
        return False
    ours = ("smdp_engine", "smdp_entrypoint")
    return all(any(re.fullmatch(rf"{one}-{wanted}-.+\.whl", name) for name in names) for one in ours)


def _configured(environment: Environment) -> Iterator[Path]:
    """The folders in which the tool looks without an option."""
    name = "UV_FIND_LINKS" if environment.tool.startswith("uv") else "PIP_FIND_LINKS"
    texts = [environment.variables.get(name, "").replace(",", " ")]
    if name == "PIP_FIND_LINKS" and not texts[0]:
        texts = [text for file in _pip_files(environment) for text in _find_links_of(file)]
    for link in " ".join(texts).split():
        folder = path_of(link)
        if folder is not None:
            yield folder


def _pip_files(environment: Environment) -> Iterator[Path]:
    """The configuration files of pip; a folder in any of them is used unless a later one names another."""
    named = environment.variables.get("PIP_CONFIG_FILE")
    if named is not None:
        yield Path(named)
        if named == os.devnull:
            return
    yield environment.prefix / "pip.conf"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where there is no home
    config = environment.variables.get("XDG_CONFIG_HOME") or home / ".config"
    if sys.platform == "darwin":
        yield home / "Library" / "Application Support" / "pip" / "pip.conf"
    yield Path(config) / "pip" / "pip.conf"
    yield home / ".pip" / "pip.conf"
    yield Path("/etc/pip.conf")


def _find_links_of(file: Path) -> Iterator[str]:
    parser = configparser.RawConfigParser()
    with suppress(OSError, UnicodeDecodeError, configparser.Error):
        parser.read(file, encoding="utf-8")
        for section in ("install", "global"):
            found = parser.get(section, "find-links", fallback="")
            if found.strip():
                yield found


def _near(environment: Environment) -> Iterator[Path]:
    """The current folder and its parents, the home folder and the root, and folders in them."""
    here = Path(environment.variables.get("PWD") or ".").absolute()
    with suppress(OSError):
        here = Path.cwd()
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where there is no home
    for place, depth in ((here, 2), (here.parent, 1), (home, 2), (Path(here.anchor), 1)):
        yield from _folders(place, depth)


def _folders(top: Path, depth: int) -> Iterator[Path]:
    """The folder and those in it, the nearest first. Hidden ones and links are left out."""
    level, seen = [top], 0
    for remaining in range(depth, -1, -1):
        below: list[Path] = []
        for folder in level:
            yield folder
            seen += 1
            if seen == _MOST_FOLDERS:
                return
            if remaining:
                below += _inside(folder)
        level = below


def _inside(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [one.name for one in entries if one.name[0] != "." and one.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names)]


def _is_ours(folder: Path) -> bool:
    """Whether no other user could have put a wheel there."""
    if os.name != "posix":
        return True
    try:
        state = folder.stat()
    except OSError:
        return False
    return state.st_uid in (os.geteuid(), 0) and not state.st_mode & stat.S_IWOTH
