"""Python environments with some of the packages of this one: virtual environments whose packages are links."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT, clean_environment

LAUNCHER, ENTRYPOINT, ENGINE, TORCH = "smdp-launch", "smdp-entrypoint", "smdp-engine", "torch"
#: The packages of the extra `local`, without the engine.
LOCAL = (LAUNCHER, ENTRYPOINT, "cbor2", "crcmod-plus", "moto[s3,server]")
#: Our own packages, whose Python code is the checkout's.
_SOURCES = {LAUNCHER: ROOT, ENTRYPOINT: ROOT / "containers" / "entrypoint"}
_MODULES = {LAUNCHER: "smdp_launch", ENTRYPOINT: "smdp_entrypoint"}


class Environment:
    """A virtual environment without pip.

    Args:
        distributions: the names of those to install, with what they require; with extras as in ``moto[s3]``.
    """

    def __init__(self, folder: Path, *distributions: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.folder = folder
        self.packages = next((folder / "lib").glob("python3*")) / "site-packages"
        for name in sorted(_closure(distributions)):
            self._link(name)
        self.command(LAUNCHER, "import sys; from smdp_launch.cli import main; sys.exit(main())")

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def command(self, name: str, code: str) -> None:
        """A program in the environment."""
        program = self.folder / "bin" / name
        program.write_text(f"#!{self.python}\n{code}\n")
        program.chmod(0o755)

    def package(self, name: str, code: str) -> None:
        """A package with this code, in place of the installed one."""
        folder = self.packages / name
        if folder.is_symlink():
            folder.unlink()
        folder.mkdir()
        (folder / "__init__.py").write_text(code)

    def change_file(self, name: str, text: str) -> None:
        """Another text of a file in a linked package, such as ``torch/version.py``."""
        top, _, inner = name.partition("/")
        folder = self.packages / top
        target = folder.resolve()
        folder.unlink()
        folder.mkdir()
        for one in target.iterdir():
            if one.name not in (inner, "__pycache__"):
                (folder / one.name).symlink_to(one)
        (folder / inner).write_text(text)

    def run(
        self, *arguments: str, cwd: Path, within: Iterable[str] = (), timeout: float = 200, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the launcher of this environment.

        Args:
            within: a program and its arguments that run the command, such as ``setpriv``.
        """
        variables = clean_environment(**environment)
        variables.pop("PYTHONPATH", None)
        return subprocess.run(
            [*within, str(self.folder / "bin" / LAUNCHER), *arguments],
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _link(self, name: str) -> None:
        found = importlib.metadata.distribution(name)
        metadata = Path(str(found.locate_file(""))) / _metadata_folder(found)
        if name in _SOURCES:
            (self.packages / _MODULES[name]).symlink_to(_SOURCES[name] / _MODULES[name])
            # As from a wheel: without the address of the checkout.
            (self.packages / metadata.name).mkdir()
            (self.packages / metadata.name / "METADATA").symlink_to(metadata / "METADATA")
            return
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            source, link = Path(str(found.locate_file(top))), self.packages / top
            if not link.is_symlink():
                link.symlink_to(source)


def _metadata_folder(found: importlib.metadata.Distribution) -> str:
    return next(file.parts[0] for file in found.files or () if file.parts[0].endswith(".dist-info"))


def _closure(distributions: Iterable[str]) -> set[str]:
    """The distributions and all that they require here."""
    waiting, done, names = [Requirement(one) for one in distributions], set[tuple[str, frozenset[str]]](), set[str]()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        key = (name, frozenset(one.extras))
        if key not in done:
            done.add(key)
            names.add(name)
            waiting += _required(one)
    return names


def _required(wanted: Requirement) -> Iterator[Requirement]:
    for text in importlib.metadata.requires(wanted.name) or ():
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (wanted.extras or {""})):
            try:
                importlib.metadata.distribution(one.name)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform
            yield one
