"""Which adapter a framework gets: that of the package, else one of the cache, else one that is built now."""

import contextlib
import importlib.util
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Optional, TypeVar

from . import cache, compiler, files
from .frameworks import Installed, installed

_TITLES = {"torch": "torch", "tensorflow": "TensorFlow"}
_FIRST = {"torch": (2, 0), "tensorflow": (2, 3)}
Loaded = TypeVar("Loaded")


class AdapterMissing(ImportError):
    """No adapter fits the framework and none can be built; the message has the command that helps."""


@dataclass(frozen=True)
class Verdict:
    """What the engine has for a framework.

    ``state`` is one of: ``shipped`` (this package has the adapter), ``cached`` (built here before), ``buildable`` (the
    first use builds it), ``missing`` (none fits, none can be built), ``absent`` (the framework is not installed).
    ``sentence`` says it to a person; ``command`` changes it, where something does.
    """

    framework: str
    state: str
    sentence: str
    installed: Optional[Installed] = None
    file: Optional[Path] = None
    command: Optional[str] = None


def check(framework: str) -> Verdict:
    """What ``load`` would do for ``torch`` or ``tensorflow``; imports no framework and builds nothing."""
    title = _TITLES[framework]
    found = installed(framework)
    if found is None:
        return Verdict(framework, "absent", f"{title} is not installed for {sys.executable}.")
    file = files.fitting(found)
    if file:
        return Verdict(framework, "shipped", f"smdp-engine has an adapter for {found}.", found, file)
    file = cache.stored(found)
    build = _build_command(framework)
    if file:
        return Verdict(framework, "cached", f"smdp-engine's adapter for {found} was built here.", found, file)
    lacks = f"smdp-engine has no adapter for {_described(found)}: this installation has {_listed(framework)}."
    lacking = _lacking(found)
    if lacking:
        return Verdict(framework, "missing", f"{lacks} None can be built, since {lacking}.", found)
    if compiler.find() is None:
        command = f"{compiler.how_to_install()} && {build}"
        sentence = f"{lacks} None can be built, since no C++ compiler is on PATH. Install one: {command}."
        return Verdict(framework, "missing", sentence + _other_version(found), found, command=command)
    return Verdict(framework, "buildable", f"{lacks} The first use builds it, or: {build}", found, command=build)


def load(framework: str, opener: Callable[[Path], Loaded]) -> Loaded:
    """What ``opener`` returns for the adapter that fits. ImportError or OSError from it: the file cannot be loaded.

    Raises:
        AdapterMissing: no adapter fits and none can be built, or the one that fits cannot be loaded.
    """
    verdict = check(framework)
    if verdict.file is None or verdict.installed is None:
        return _open_built(verdict, opener)
    try:
        return opener(verdict.file)
    except (ImportError, OSError) as error:
        if verdict.state != "cached":
            raise AdapterMissing(
                f"smdp-engine's adapter for {verdict.installed} cannot be loaded ({error}). Install it again (add "
                "--find-links FOLDER if it came from a folder of wheels): "
                f"{_install_command()} --force-reinstall --no-deps smdp-engine"
            ) from error
        cache.discard(verdict.file)
        return _open_built(check(framework), opener)


def build(framework: str) -> Path:
    """Build the adapter into the cache, whether or not this package has one that fits; return its file.

    Raises:
        AdapterMissing: the framework or a compiler is missing, or the build failed.
    """
    found = installed(framework)
    command = compiler.find()
    if found is None or command is None or _lacking(found):
        raise AdapterMissing(_cannot_build(framework, found))
    return _built(found, command)


def _cannot_build(framework: str, found: Optional[Installed]) -> str:
    if found is None:
        return f"{_TITLES[framework]} is not installed for {sys.executable}."
    lacking = _lacking(found)
    if lacking:
        return f"No adapter for {_described(found)} can be built, since {lacking}."
    return f"No C++ compiler is on PATH. Install one: {compiler.how_to_install()} && {_build_command(framework)}"


def _open_built(verdict: Verdict, opener: Callable[[Path], Loaded]) -> Loaded:
    command = compiler.find()
    if verdict.state != "buildable" or verdict.installed is None or command is None:
        raise AdapterMissing(verdict.sentence)
    path = _built(verdict.installed, command)
    try:
        return opener(path)
    except (ImportError, OSError) as error:
        cache.discard(path)
        raise AdapterMissing(
            f"The adapter for {verdict.installed} that {command[0]} built cannot be loaded ({error}). Set CXX to "
            f"another compiler and build again: CXX=COMPILER {verdict.command}"
        ) from error


def _built(found: Installed, command: List[str]) -> Path:
    try:
        return cache.build(found, command)
    except cache.BuildFailed as error:
        raise AdapterMissing(
            f"smdp-engine has no adapter for {_described(found)}, and {error}.{_other_version(found)}"
        ) from error
    except cache.CacheUnusable as error:
        fix = f"Forbid that: {error.fix}, or name another folder" if error.fix else "Name a folder of yours"
        raise AdapterMissing(
            f"smdp-engine cannot keep its adapter for {found} ({error}). {fix}: export SMDP_ADAPTER_CACHE=FOLDER"
        ) from error


def _lacking(found: Installed) -> Optional[str]:
    title, first = _TITLES[found.framework], _FIRST[found.framework]
    if tuple(int(part) for part in found.minor.split(".")) < first:
        return f"the engine needs {title} {first[0]}.{first[1]} or later"
    if not cache.SOURCES.is_dir():
        return f"{cache.SOURCES} is missing"
    if not (found.folder / "include").is_dir():
        return f"{found.folder} has no headers"
    return None


def _described(found: Installed) -> str:
    abi = "new" if found.cxx11_abi else "old"
    python = f" on Python {found.python[2]}.{found.python[3:]}" if found.needs_python else ""
    return f"{found}{python} ({abi} C++ ABI)"


def _listed(framework: str) -> str:
    """Such as: 2.0 (Python 3.8, 3.10), 2.14."""
    pythons: Dict[str, List[str]] = {}
    for one in files.shipped():
        if one.framework == framework:
            of_version = pythons.setdefault(one.version, [])
            of_version += [f"{one.python[2]}.{one.python[3:]}"] if one.python else []
    names = [f"{version} (Python {', '.join(of)})" if of else version for version, of in pythons.items()]
    return ", ".join(names) or "none"


def _other_version(found: Installed) -> str:
    fits = [one for one in files.shipped() if one.framework == found.framework and one.python in (None, found.python)]
    if not fits:
        return ""
    package = "tensorflow-cpu" if found.framework == "tensorflow" else "torch"
    return f" Or install a version that it has: {_install_command()} '{package}=={fits[-1].version}.*'"


def _build_command(framework: str) -> str:
    return f"{shlex.quote(sys.executable)} -m smdp_engine.adapters build {framework}"


def _install_command() -> str:
    """The command that installs packages into this environment: uv makes environments without pip."""
    python = shlex.quote(sys.executable)
    if importlib.util.find_spec("pip") is not None:
        return f"{python} -m pip install"
    with contextlib.suppress(OSError):
        lines = Path(sys.prefix, "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
        if any(line.partition("=")[0].strip() == "uv" for line in lines):
            return f"uv pip install --python {python}"
    return f"{python} -m ensurepip && {python} -m pip install"
