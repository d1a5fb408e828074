"""The command that installs packages into the Python environment of this process."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shlex
import shutil
import site
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

Tool = Literal["pipx", "conda", "uv", "pip"]
LAUNCHER = "smdp-launch"


@dataclass(frozen=True)
class Environment:
    """A Python environment.

    Args:
        is_virtual: whether it has packages of its own, as venv and uv make it.
        has_pip: whether this Python can import pip.
        in_user_site: whether smdp-launch is installed in the user's own folder of packages (`pip install --user`).
        is_managed: whether pip refuses to change it, because the system's package manager owns it (PEP 668).
        variables: the environment variables of the process.
    """

    executable: Path
    prefix: Path
    is_virtual: bool
    has_pip: bool
    in_user_site: bool = False
    is_managed: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def tool(self) -> Tool:
        """The tool that made the environment, or that can install packages into it."""
        if (self.prefix / "pipx_metadata.json").is_file():
            return "pipx"
        if (self.prefix / "conda-meta").is_dir():
            return "conda"
        return "uv" if self._is_of_uv and not self.has_pip else "pip"

    def install(self, *packages: str) -> str:
        """The command that installs the packages, such as ``pip install 'smdp-launch[local]'``."""
        return f"{self._installer} {shlex.join(packages)}"

    @property
    def _is_of_uv(self) -> bool:
        if (self.prefix / "uv-receipt.toml").is_file():
            return True
        try:
            lines = (self.prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return False
        return any(line.partition("=")[0].strip() == "uv" for line in lines)

    @property
    def _installer(self) -> str:
        tool = self.tool
        if tool == "pipx":
            return f"pipx runpip {shlex.quote(self.prefix.name)} install"
        if tool == "uv":
            is_active = self.variables.get("VIRTUAL_ENV") == str(self.prefix)
            return "uv pip install" if is_active else f"uv pip install --python {shlex.quote(str(self.executable))}"
        if self.has_pip:
            return f"{self._pip} install{self._options}"
        first = f"conda install --yes --prefix {shlex.quote(str(self.prefix))} pip" if tool == "conda" else None
        return f"{first or f'{self._python} -m ensurepip'} && {self._python} -m pip install{self._options}"

    @property
    def _options(self) -> str:
        if self.is_virtual or self.tool == "conda":
            return ""
        return f"{' --user' if self.in_user_site else ''}{' --break-system-packages' if self.is_managed else ''}"

    @property
    def _pip(self) -> str:
        return "pip" if self._is_first_on_path("pip") else f"{self._python} -m pip"

    @property
    def _python(self) -> str:
        name = next((one for one in ("python", "python3") if self._is_first_on_path(one)), None)
        return name or shlex.quote(str(self.executable))

    def _is_first_on_path(self, program: str) -> bool:
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
    )


def install(*packages: str) -> str:
    """The command that installs the packages into this environment."""
    return this_environment().install(*packages)


def install_local(*more: str) -> str:
    """The command that installs all that local runs need, the extra ``local``, and ``more`` packages.

    In a checkout, our own packages are the checkout's, without the engine, which is built after the framework.
    """
    sources = checkout()
    if sources is None:
        return install(*find_links(), f"{LAUNCHER}[local]{_same_version()}", *more)
    return install(f"{sources}[local-cloud]", str(sources / "containers" / "entrypoint"), *more)


def install_engine() -> str:
    """The command that installs the engine; in a checkout, the command that builds it for the installed framework."""
    sources = checkout()
    return (
        build_engine(sources / "native")
        if sources is not None
        else install(*find_links(), f"smdp-engine{_same_version()}")
    )


def build_engine(sources: Path) -> str:
    """The command that builds the engine from its sources for the installed framework, and installs it. It needs a C++
    compiler and Python's headers."""
    # The build finds torch with its own module for extensions, which in old versions needs pkg_resources.
    tools = install("scikit-build-core>=0.10,<2", "cmake>=3.20,<4", "ninja>=1.11", "setuptools<81")
    return f"{tools} && {install('--force-reinstall', '--no-deps', '--no-build-isolation', str(sources))}"


def engine_sources() -> Path | None:
    """The engine's sources, in the checkout or in the installed package of the launcher."""
    inside = Path(__file__).resolve().parents[1] / "_image" / "native"
    sources = checkout()
    return sources / "native" if sources is not None else inside if inside.is_dir() else None


def version(distribution: str) -> str | None:
    """None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _same_version() -> str:
    launcher = version(LAUNCHER)
    return f"=={launcher}" if launcher is not None else ""


def find_links() -> list[str]:
    """The option that names the folder of wheels, if smdp-launch was installed from a wheel in it: the package index
    may not have our other packages."""
    origin = _origin()
    is_wheel = origin is not None and origin.suffix == ".whl" and any(origin.parent.glob("smdp_engine-*.whl"))
    return ["--find-links", str(origin.parent)] if origin is not None and is_wheel else []


def checkout() -> Path | None:
    """The folder that smdp-launch was installed from, if it still has the sources of all packages."""
    folder = _origin()
    if folder is None or not (folder / "native" / "pyproject.toml").is_file():
        return None
    return folder if (folder / "containers" / "entrypoint" / "pyproject.toml").is_file() else None


def _origin() -> Path | None:
    """The folder or file that smdp-launch was installed from; None if pip found it in an index or with --find-links."""
    try:
        record = importlib.metadata.distribution(LAUNCHER).read_text("direct_url.json")
        url = urlsplit(json.loads(record or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    return Path(unquote(url.path)) if url.scheme == "file" else None
