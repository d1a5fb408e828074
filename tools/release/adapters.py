"""Builds the adapters of a release: for each framework's version, from its wheel, without installing it."""

import hashlib
import itertools
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from machines import Machine

# What is unpacked of a framework's wheel: headers, what is linked, and what names its version.
_PARTS = {
    "torch": r"torch/(include/.*|version\.py|lib/lib(c10|torch|torch_cpu|torch_python)\.so)",
    "tensorflow": r"tensorflow/(include/.*|libtensorflow_framework\.so\.2)|[^/]+\.dist-info/METADATA",
}
# Of which Python a wheel is taken matters only where one is missing.
_PYTHONS = ("3.11", "3.10", "3.12", "3.13")


class Toolchain(NamedTuple):
    """Commands and flags that link with the C library of the sysroot."""

    compiler: list[str]
    link: list[str]


def toolchain(sysroot: Path, machine: Machine) -> Toolchain:
    """The C++ library is that of gcc 10, as shared by the frameworks and loaded from the system."""
    root, triple = sysroot / "root", machine.triple
    return Toolchain(
        [
            machine.program("g++"),
            f"--sysroot={root}",
            "-nostdinc++",
            *("-isystem", f"{root}/usr/include/c++/10"),
            *("-isystem", f"{root}/usr/include/{triple}/c++/10"),
        ],
        [
            f"-B{root}/usr/lib/{triple}",
            *(f"-L{root}/{folder}" for folder in (f"usr/lib/gcc/{triple}/10", f"usr/lib/{triple}")),
            f"-L{root}/lib/{triple}",
            *("-Wl,-rpath,$ORIGIN/..", "-Wl,--build-id=sha1", "-Wl,-s"),
        ],
    )


class Builder:
    """Builds adapters from the sources ``native`` into ``target``; what else it needs or makes lies in ``work``."""

    def __init__(self, native: Path, work: Path, target: Path, machine: Machine) -> None:
        self._native, self._work, self._target, self._machine = native, work, target, machine
        sys.path.insert(0, str(native / "python"))
        from smdp_engine.adapters import compiler, files, frameworks

        self._compiler, self._files, self._frameworks = compiler, files, frameworks
        self._tools = toolchain(work / "sysroot", machine)
        self._stub = self._make_stub()

    def build(self, framework: str, version: str, pythons: Sequence[str]) -> list[Path]:
        """The adapters for one version: one, or one for each Python that the version has wheels for."""
        folder = self._unpacked(framework, version)
        found = self._frameworks.installed(framework, folder)
        if found is None or found.version.split("+")[0] != version:
            sys.exit(f"the wheel of {framework} {version} holds {found}")
        found = replace(found, version=version)  # one file for the builds with CUDA and without
        if not found.needs_python:
            return [self._compile(found, None)]
        built = []
        for python in pythons:
            include = python_include(python)
            if include is None:
                sys.exit(f"the adapter of torch {version} needs the headers of Python {python}, which are not here")
            built.append(self._compile(replace(found, python="cp" + python.replace(".", "")), include))
        return built

    def _unpacked(self, framework: str, version: str) -> Path:
        folder = self._work / "frameworks" / f"{framework}-{version}"
        if not (folder / ".ready").exists():
            wheel = self._download(framework, version)
            wanted = re.compile(_PARTS[framework])
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if wanted.fullmatch(name)])
            wheel.unlink()
            (folder / ".ready").touch()
        return folder / framework

    def _download(self, framework: str, version: str) -> Path:
        target = self._work / "downloads"
        names = self._machine.tensorflows if framework == "tensorflow" else (framework,)
        foreign = [] if self._machine.is_this else [f"--platform={one}" for one in self._machine.platforms_of_wheels]
        print(f"release: fetch {framework} {version} for {self._machine.name}", flush=True)
        for name, python in itertools.product(names, _PYTHONS):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--only-binary=:all:", f"--python-version={python}", *foreign, f"--dest={target}"]
            last = subprocess.run(
                [*command, f"{name}=={version}"],
                env={**os.environ, "PIP_CONSTRAINT": os.devnull},  # those of this machine are for what it installs
                capture_output=True,
                text=True,
                check=False,
                timeout=1800,
            )
            if last.returncode == 0:
                found = target.glob(f"{name.replace('-', '_')}-{version}*.whl")
                return max(found, key=lambda path: path.stat().st_mtime)
        sys.exit(f"pip finds no wheel of {' or '.join(names)} {version}:\n{last.stderr}")

    def _compile(self, found: Any, python: Path | None) -> Path:
        name = self._files.name_of(found)
        target: Path = self._target / name
        command = [
            *self._compiler.command(
                [*self._tools.compiler, *self._without_paths(found, python)],
                found,
                target,
                sources=self._native / "adapters",
                engine_include=self._native / "include",
                engine_folder=self._stub,
                python_include=str(python),
            ),
            *self._tools.link,
        ]
        mark = target.with_suffix(".made-from")
        state = self._state(found.framework, command)
        if target.exists() and mark.exists() and mark.read_text(encoding="ascii") == state:
            return target
        print(f"release: compile {name}", flush=True)
        subprocess.run(command, check=True, timeout=1800)
        mark.write_text(state, encoding="ascii")
        return target

    def _without_paths(self, found: Any, python: Path | None) -> list[str]:
        maps = [(self._native, "native"), (found.folder, found.framework), (python, "python"), (self._work, "work")]
        after = [f"-idirafter{python.parent}"] if python else []  # Debian's Python has a part of its headers elsewhere
        return [*after, *(f"-ffile-prefix-map={folder}={name}" for folder, name in maps if folder)]

    def _state(self, framework: str, command: list[str]) -> str:
        whole = hashlib.sha256("\0".join(command).encode())
        folders = ("include/smdp", "adapters/common", f"adapters/{framework}")
        for path in sorted(path for folder in folders for path in (self._native / folder).iterdir()):
            whole.update(path.read_bytes())
        return whole.hexdigest()

    def _make_stub(self) -> Path:
        """A library with the engine's name: an adapter only records that it needs it."""
        folder = self._work / "stub"
        folder.mkdir(exist_ok=True)
        library = folder / "libsmdp_engine.so"
        if not library.exists():
            empty = [
                self._machine.program("gcc"),
                "-shared",
                "-nostdlib",
                "-Wl,-soname,libsmdp_engine.so",
                "-x",
                "c",
                os.devnull,
                "-o",
            ]
            subprocess.run([*empty, str(library)], check=True, timeout=60)
        return folder


def python_include(version: str) -> Path | None:
    """The headers of a Python such as 3.10, of the system or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    of_pyenv = [one / "include" for one in sorted(pyenv.glob(f"{version}.*"))]
    places = [one / f"python{version}" for one in (*of_pyenv, Path("/usr/local/include"), Path("/usr/include"))]
    return next((one for one in places if (one / "Python.h").exists()), None)
