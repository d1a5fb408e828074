"""The packages that local runs need beside the launcher's own: which are missing, and which do not fit together."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from smdp_launch.doctor.installer import (
    LAUNCHER,
    checkout,
    install,
    install_engine,
    install_local,
    install_ours,
    known_links,
    version,
)
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.units import listed

ENTRYPOINT, ENGINE = "smdp-entrypoint", "smdp-engine"


class Package(NamedTuple):
    """A distribution, and the modules that show whether it is installed with its extras."""

    distribution: str
    modules: tuple[str, ...]


#: The packages of the extra ``local``, without the engine. A test compares them with pyproject.toml.
LOCAL_CLOUD = (
    Package("cbor2", ("cbor2",)),
    Package("crcmod-plus", ("crcmod",)),
    Package("moto", ("moto", "flask", "flask_cors", "werkzeug", "py_partiql_parser")),
    Package(ENTRYPOINT, ("smdp_entrypoint",)),
)
_ENGINE = Package(ENGINE, ("smdp_engine",))


def is_installed(module: str) -> bool:
    """Whether the top-level module can be found. It is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def folders_of(module: str) -> list[Path]:
    """The folders of an installed top-level package; empty if there are none."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return []
    return [Path(one) for one in spec.submodule_search_locations or ()] if spec is not None else []


def missing(*, engine: bool) -> list[str]:
    """The distributions that are missing.

    Args:
        engine: whether the engine is needed.
    """
    wanted = (*LOCAL_CLOUD, _ENGINE) if engine else LOCAL_CLOUD
    return [one.distribution for one in wanted if not all(map(is_installed, one.modules))]


def install_missing(absent: Collection[str], framework: str | None = None) -> str:
    """The command that installs ``absent``, which is not empty, and the framework's package."""
    more = [framework] if framework is not None else []
    is_engine_alone = all(one == ENGINE for one in absent)
    if checkout() is None:
        return install_engine() if is_engine_alone and not more else install_local(*more)
    first = [] if is_engine_alone and not more else [install(*more) if is_engine_alone else install_local(*more)]
    # The engine is built for the framework, which is installed before it.
    return " && ".join([*first, *([install_engine()] if ENGINE in absent else [])])


def engine_missing() -> str | None:
    """The command that installs the engine; None if it is installed."""
    return None if is_installed("smdp_engine") else install_engine()


def require_local_cloud() -> None:
    """Raises:
    EnvironmentProblem: a package that the local cloud needs is missing.
    """
    absent = missing(engine=False)
    if absent:
        raise EnvironmentProblem(missing_text(absent))


def missing_text(absent: Sequence[str], framework: str | None = None) -> str:
    """One sentence with the command that installs what is missing.

    Args:
        framework: the package of the script's framework, if it is missing too.
    """
    names = [*absent, *([framework] if framework is not None else [])]
    verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return (
        f"local runs need {listed(names)}, which {verb} not installed in this environment; to install "
        f"{them}{folder_hint(absent)}, run: {install_missing(absent, framework)}"
    )


def folder_hint(absent: Collection[str] = (ENGINE,)) -> str:
    """What to add to the command where the packages of ours among ``absent`` were not found: neither pip nor uv
    records the folder of wheels that packages came from, and the package index may not have ours."""
    if checkout() is not None or known_links().is_known or not {ENTRYPOINT, ENGINE} & set(absent):
        return ""
    return " (add --find-links FOLDER if smdp-launch came from a folder of wheels)"


def disagreeing() -> Iterator[str]:
    """The packages of ours that have another version than the launcher, with that version."""
    wanted = version(LAUNCHER)
    for name in (ENTRYPOINT, ENGINE):
        found = version(name)
        if None not in (found, wanted) and found != wanted:
            yield f"{name} {found}"


def install_agreeing() -> str:
    """The command that installs the launcher's version of the other packages."""
    wanted = version(LAUNCHER)
    return install_ours(*(f"{name}=={wanted}" for name in (ENTRYPOINT, ENGINE) if version(name) is not None))
