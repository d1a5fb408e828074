"""The Python environment of this process, and the tool that made it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import site
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

#: ``uvx`` and ``pipx run`` make an environment for one command, ``uv run`` another one for ``--with``.
Tool = Literal["pipx", "pipx run", "conda", "uv", "uv tool", "uvx", "uv run", "uv project", "pip"]
_ENTRY = re.compile(
    r'\{ name = "(?P<name>[^"]+)"(?:, extras = \[(?P<extras>[^\]]*)\])?(?:, specifier = "(?P<wanted>[^"]*)")?'
)


class Recorded(NamedTuple):
    """What a tool has written about its environment.

    Args:
        packages: the packages that the user asked for beside the launcher.
        find_links: the folders that it looked for packages in.
    """

    packages: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """A Python environment.

    Args:
        is_virtual: whether it has packages of its own, as venv and uv make it.
        has_pip: whether this Python can import pip.
        in_user_site: whether smdp-launch is installed in the user's own folder of packages (`pip install --user`).
        is_managed: whether pip refuses to change it, because the system's package manager owns it (PEP 668).
        variables: the environment variables of the process.
        version: of Python, such as 3.12, which uv gets again where it makes the environment.
        arguments: of smdp-launch, which a tool that makes an environment for one command needs again.
    """

    executable: Path
    prefix: Path
    is_virtual: bool
    has_pip: bool
    in_user_site: bool = False
    is_managed: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def tool(self) -> Tool:
        """The tool that made the environment, or that can install packages into it."""
        if (self.prefix / "pipx_metadata.json").is_file():
            return "pipx" if self.prefix.parent.name == "venvs" else "pipx run"
        if (self.prefix / "conda-meta").is_dir():
            return "conda"
        return self._tool_of_uv if self._is_of_uv else "pip"

    @property
    def _is_of_uv(self) -> bool:
        return (self.prefix / "uv-receipt.toml").is_file() or "uv" in self._config

    @property
    def _tool_of_uv(self) -> Tool:
        if (self.prefix / "uv-receipt.toml").is_file():
            return "uv tool"
        if (self.prefix.parent.parent / "CACHEDIR.TAG").is_file():
            return "uv run" if "extends-environment" in self._config else "uvx"
        if self.prefix.name == ".venv" and (self.prefix.parent / "uv.lock").is_file():
            return "uv project"
        return "pip" if self.has_pip else "uv"

    @property
    def _config(self) -> set[str]:
        """The keys of the environment's configuration."""
        lines = _text(self.prefix / "pyvenv.cfg").splitlines()
        return {line.partition("=")[0].strip() for line in lines}

    @property
    def recorded(self) -> Recorded:
        """What pipx or uv has recorded; nothing for other tools."""
        if self.tool in ("pipx", "pipx run"):
            return _of_pipx(_text(self.prefix / "pipx_metadata.json"))
        return _of_uv(_text(self.prefix / "uv-receipt.toml")) if self.tool == "uv tool" else Recorded()

    def program(self, name: str) -> str:
        """The program's name if the shell finds it, else its path where uv names it."""
        found = shutil.which(name, path=self.variables.get("PATH"))
        return name if found is not None or name != "uv" else self.variables.get("UV", name)

    def is_first_on_path(self, program: str) -> bool:
        found = shutil.which(program, path=self.variables.get("PATH"))
        return found is not None and Path(found).parent == self.executable.parent


def this_environment() -> Environment:
    executable = Path(sys.executable or "python3")
    is_virtual = sys.prefix != sys.base_prefix
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    return Environment(
        executable,
        Path(sys.prefix),
        is_virtual,
        importlib.util.find_spec("pip") is not None,
        in_user_site=not is_virtual and Path(site.getusersitepackages()) in Path(__file__).parents,
        is_managed=not is_virtual and marker.is_file(),
        variables=os.environ,
        version=f"{sys.version_info[0]}.{sys.version_info[1]}",
        arguments=tuple(sys.argv[1:]) if Path(sys.argv[0]).stem == "smdp-launch" else (),
    )


def path_of(link: str) -> Path | None:
    """The folder that ``--find-links`` names, by its path or as a file URL; None for another URL."""
    url = urlsplit(link)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return Path(link) if "://" not in link else None


def _of_pipx(text: str) -> Recorded:
    try:
        metadata = json.loads(text)
        arguments = [str(one) for one in metadata["main_package"]["pip_args"]]
        injected = tuple(str(one["package_or_url"]) for one in metadata["injected_packages"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return Recorded()
    links = [after for option, after in pairwise(arguments) if option in ("--find-links", "-f")]
    links += [one.partition("=")[2] for one in arguments if one.startswith("--find-links=")]
    return Recorded(injected, tuple(links))


def _of_uv(text: str) -> Recorded:
    """Read without a TOML parser, which Python 3.10 does not have."""
    listed = re.search(r"^requirements = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    entries = list(_ENTRY.finditer(listed[1])) if listed else []
    links = re.search(r"^find-links = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    # The first entry is the launcher.
    return Recorded(tuple(map(_requirement, entries[1:])), tuple(re.findall(r'"([^"]+)"', links[1])) if links else ())


def _requirement(entry: re.Match[str]) -> str:
    extras = ",".join(re.findall(r"[\w-]+", entry["extras"] or ""))
    return f"{entry['name']}{f'[{extras}]' if extras else ''}{entry['wanted'] or ''}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
