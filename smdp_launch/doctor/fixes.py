"""What is wrong with a framework, the engine or its adapter, in a sentence, and the command that fixes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from smdp_launch.doctor.frameworks import Step, title
from smdp_launch.doctor.installer import checkout, install, install_engine

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
        return Fault(name, f"{_installed(framework, results)}: {error}", _fit(framework, failed))
    if name == "engine":
        return Fault(name, f"smdp-engine is installed but cannot be loaded: {error}", install_engine_again())
    return Fault(name, f"two processes cannot sum with the engine: {error}", None)


def _installed(framework: str, results: Mapping[str, Step]) -> str:
    step = results.get(framework)
    version = f" {step.values['version']}" if step is not None and "version" in step.values else ""
    return f"smdp-engine does not fit {title(framework)}{version}"


def _reinstall(framework: str) -> str:
    return install("--force-reinstall", _DISTRIBUTIONS[framework])


def install_engine_again() -> str:
    if checkout() is not None:
        return install_engine()
    return install_engine().replace(" install ", " install --force-reinstall --no-deps ", 1)


def _fit(framework: str, failed: Step) -> str:
    """In a checkout the engine is built for the framework; elsewhere, the framework that the engine fits is
    installed."""
    versions = [str(one).partition("+")[0] for one in failed.values.get("fits", [])]
    if checkout() is None and versions:
        return install(f"{_DISTRIBUTIONS[framework]}=={versions[0]}")
    return install_engine_again()


def library_missing(error: str) -> str | None:
    """The shared library of the system that an import did not find."""
    found = _LIBRARY_MISSING.search(error)
    return found[1] if found else None
