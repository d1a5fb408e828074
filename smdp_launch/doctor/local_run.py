"""Checks before a local run starts whether this machine can run the plan. Nothing is written, and no server started."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from smdp_launch.doctor import packages
from smdp_launch.doctor.fixes import Fault, fault_of, missing_framework
from smdp_launch.doctor.frameworks import probe
from smdp_launch.doctor.limits import open_files_fault
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.planning.plan import Plan
from smdp_launch.private_files import write_bytes
from smdp_launch.source.requirements import REQUIREMENTS_FILE, Requirements, read_requirements
from smdp_launch.source.scan import normal_name
from smdp_launch.source.script.modules import always_run, read_with_imports

_TORCH = frozenset({"torch", "torchvision", "pytorch_lightning", "lightning", "accelerate", "deepspeed"})
_TENSORFLOW = frozenset({"tensorflow", "keras"})
_FRAMEWORK_OF = {"module": "torch", "backend": "torch", "tensorflow": "tensorflow"}


class Needs(NamedTuple):
    """What the script of a local run imports in every run.

    Args:
        framework: torch or tensorflow; None if it imports neither, or if its requirements.txt installs it.
        engine: whether it imports the engine, or AWS's library, in whose place the engine is.
        adapter: the framework whose gradients the engine sums; None if it sums none.
    """

    framework: str | None = None
    engine: bool = False
    adapter: str | None = None


def require(plan: Plan) -> None:
    """Check whether this machine can run the plan.

    The import of a framework takes seconds. It is repeated only after the framework, the engine or Python changed.

    Raises:
        EnvironmentProblem: a package is missing or broken, or a limit is too low. The message has the command that
            fixes it.
    """
    needs = needs_of(plan)
    absent = packages.missing(engine=needs.engine)
    if absent:
        framework = needs.framework if needs.framework and not packages.is_installed(needs.framework) else None
        raise EnvironmentProblem(packages.missing_text(absent, framework))
    _require_writable(plan)
    fault = next(_faults(plan, needs), None)
    if fault is not None:
        raise EnvironmentProblem(fault.text)


def _require_writable(plan: Plan) -> None:
    """The state of a run is kept in the current folder."""
    folder = Path.cwd()
    if os.access(folder, os.W_OK | os.X_OK):
        return
    verb = "launch --local" if plan.local is None or plan.local.fault is None else f"rehearse {plan.local.fault.kind}"
    command = f'cd "$(mktemp -d)" && smdp-launch {verb} {shlex.quote(os.path.abspath(plan.job_file))}'  # noqa: PTH100
    raise EnvironmentProblem(f"{folder} is not writable, and local runs keep their state there; run: {command}")


def _faults(plan: Plan, needs: Needs) -> Iterator[Fault]:
    limit = open_files_fault(len(plan.ranks))
    if limit is not None:
        yield limit
    if needs.framework is not None:
        if not packages.is_installed(needs.framework):
            yield missing_framework(needs.framework)
            return
        broken = _framework_fault(needs)
        if broken is not None:
            yield broken


def needs_of(plan: Plan) -> Needs:
    """Containers have packages of their own, so their script needs nothing of this environment."""
    entry = plan.source.file(normal_name(plan.spec.script.entry))
    if entry is None or not entry.name.endswith(".py") or (plan.local is not None and plan.local.containers):
        return Needs()
    scripts = read_with_imports(plan.source, entry.name)
    names = always_run(scripts)
    modules = {one.partition(".")[0] for name in names for one in scripts[name].always_imported}
    library = next((scripts[name].library for name in names if scripts[name].library is not None), None)
    required = plan.source.file(REQUIREMENTS_FILE)
    installs = read_requirements(required.path) if required is not None else Requirements()
    if installs.includes:
        return Needs()
    framework = "torch" if modules & _TORCH else "tensorflow" if modules & _TENSORFLOW else None
    framework = framework or (_FRAMEWORK_OF[library] if library is not None else None)
    # AWS's own library is a package of that name, too.
    engine = "smdp_engine" in modules or (library is not None and not packages.is_installed("smdistributed"))
    adapter = _FRAMEWORK_OF[library] if library is not None and packages.is_installed("smdp_engine") else None
    if framework is not None and installs.package(framework, f"{framework}-cpu") is not None:
        return Needs(None, engine and installs.package(packages.ENGINE) is None, None)
    return Needs(framework, engine, adapter)


def _framework_fault(needs: Needs) -> Fault | None:
    """Import the framework, and with it the engine's adapter, unless that succeeded before."""
    framework = needs.framework or ""
    steps = [framework, *(["engine", f"{needs.adapter} adapter"] if needs.adapter == framework else [])]
    cache, key = _cache_file(), _state_of(steps)
    if cache is not None and key in _succeeded(cache):
        return None
    fault = fault_of(probe(steps))
    if fault is None and cache is not None:
        _save(cache, key)
    return fault


_MOST_ENTRIES = 50


def _state_of(steps: list[str]) -> str:
    """A text that changes when Python, the framework or the engine is replaced."""
    parts = [sys.executable, *steps]
    for module in (steps[0], "smdp_engine"):
        for folder in packages.folders_of(module):
            for name in ("__init__.py", "version.py", "lib", "."):
                with suppress(OSError):
                    parts.append(f"{folder}/{name} {(folder / name).stat().st_mtime_ns}")
    return " ".join([*parts, os.environ.get("LD_LIBRARY_PATH", ""), os.environ.get("PYTHONPATH", "")])


def _cache_file() -> Path | None:
    from platformdirs import user_cache_path

    try:
        return user_cache_path("smdp-launch") / "imports.json"
    except (OSError, RuntimeError):
        return None


def _succeeded(cache: Path) -> list[str]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []


def _save(cache: Path, key: str) -> None:
    with suppress(OSError):  # a cache: without it, the next launch imports the framework again
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(cache, json.dumps([*_succeeded(cache), key][-_MOST_ENTRIES:]).encode())
