"""What is wrong with a framework, the engine or its adapter, in a sentence, and the command that fixes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from smdp_launch.doctor.frameworks import Step, title
from smdp_launch.doctor.installer import (
    Options,
    build_engine,
    checkout,
    engine_sources,
    install,
    install_engine,
    version,
)

_DISTRIBUTIONS = {"torch": "torch", "tensorflow": "tensorflow"}
_LIBRARY_MISSING = re.compile(r"(\S+\.so[.\d]*): cannot open shared object file")


class Fault(NamedTuple):
    """Args:
    name: of the step of the probe that failed, or of the package that is missing.
    reason: without the fix.
    command: None if no command is known to fix it.
    """

    name: str
    reason: str
    command: str | None

    @property
    def text(self) -> str:
        return self.reason if self.command is None else f"{self.reason}; to fix this, run: {self.command}"


def missing_framework(framework: str) -> Fault:
    reason = f"the script imports {title(framework)}, which is not installed in this environment"
    return Fault(framework, reason, install(_DISTRIBUTIONS[framework]))


def fault_of(results: Mapping[str, Step]) -> Fault | None:
    """The first step that failed, as a fault; None if none did."""
    failed = next((one for one in results.values() if one.error is not None), None)
    if failed is None:
        return None
    name, error = failed.name, failed.error or ""
    if name in _DISTRIBUTIONS:
        return Fault(name, f"{title(name)} is installed but cannot be imported: {error}", _reinstall(name))
    if name.endswith("adapter"):
        framework = name.partition(" ")[0]
        return Fault(name, _misfit(framework, results, failed), _fit(framework, results, failed))
    if name == "engine":
        reason = f"smdp-engine is installed but cannot be loaded: {error}"
        return Fault(name, reason, install_engine(is_again=True))
    return Fault(name, f"two processes cannot sum with the engine: {error}", None)


def _misfit(framework: str, results: Mapping[str, Step], failed: Step) -> str:
    version = results[framework].values.get("version", "") if framework in results else ""
    installed = f"{title(framework)} {version}".strip()
    fits = ", ".join(map(str, failed.values.get("fits", [])))
    if fits:
        return f"the installed smdp-engine fits {title(framework)} {fits}, and {installed} is installed"
    reason = (failed.error or "").removeprefix("ImportError: ").rstrip(".")
    return f"the installed smdp-engine does not fit {installed}: {reason}"


def _reinstall(framework: str) -> str:
    """The same version, so that the engine fits it."""
    installed = version(_DISTRIBUTIONS[framework])
    package = _DISTRIBUTIONS[framework] + (f"=={_public(installed)}" if installed is not None else "")
    return install(package, options=Options(is_again=True))


def _fit(framework: str, results: Mapping[str, Step], failed: Step) -> str:
    """Install the framework that the engine fits. In a checkout, or if another build of the same version is installed,
    build the engine for the framework."""
    found = _public(results[framework].values.get("version", "")) if framework in results else ""
    versions = [one for one in map(_public, failed.values.get("fits", [])) if one != found]
    if checkout() is None and versions:
        return install(f"{_DISTRIBUTIONS[framework]}=={versions[-1]}")
    if failed.values.get("command"):  # the engine knows how to build an adapter alone
        return str(failed.values["command"])
    sources = engine_sources()
    return build_engine(sources) if sources is not None else install_engine(is_again=True)


def _public(version: object) -> str:
    """The version without its local part, such as 2.0.1 for 2.0.1+cu118."""
    return str(version).partition("+")[0]


def library_missing(error: str) -> str | None:
    """The shared library of the system that an import did not find."""
    found = _LIBRARY_MISSING.search(error)
    return found[1] if found else None
