"""Checks of Python and its packages: ours, the compiler, the frameworks, the engine and its adapters."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from smdp_launch.doctor import packages
from smdp_launch.doctor.environment import this_environment
from smdp_launch.doctor.fixes import Fault, fault_of, library_missing
from smdp_launch.doctor.frameworks import Step, probe, title
from smdp_launch.doctor.installer import LAUNCHER, install, version
from smdp_launch.doctor.results import CheckResult

_PIECES = ("botocore", "moto", "numpy")  # packages whose versions a bug report should have
_NAMES = {"sum": "engine sum"}
_COMPILERS = ("c++", "g++", "clang++")


def python() -> Iterator[CheckResult]:
    here = this_environment()
    kind = {"pipx": "pipx", "conda": "conda", "uv": "uv"}.get(here.tool, "venv" if here.is_virtual else "no venv")
    found = f"{platform.python_implementation()} {platform.python_version()} ({kind}), {sys.executable}"
    yield CheckResult("python", "ok", found)


def our_packages() -> Iterator[CheckResult]:
    found = [f"{LAUNCHER} {version(LAUNCHER) or 'without metadata'}"]
    found += [f"{name} {version(name) or 'not installed'}" for name in (packages.ENTRYPOINT, packages.ENGINE)]
    found += [f"{name} {one}" for name in _PIECES if (one := version(name)) is not None]
    absent = packages.missing(engine=True)
    different = list(packages.disagreeing())
    if absent:
        text = f"{', '.join(found)}; missing: {', '.join(absent)}"
        fix = f"install what local runs need{packages.folder_hint(absent)}"
        yield CheckResult("packages", "error", text, fix, packages.install_missing(absent))
    elif different:
        text = f"{', '.join(found)}; these versions do not fit together"
        fix = f"install the same versions{packages.folder_hint()}"
        yield CheckResult("packages", "error", text, fix, packages.install_agreeing())
    else:
        yield CheckResult("packages", "ok", ", ".join(found))


def frameworks() -> Iterator[CheckResult]:
    """Torch, TensorFlow, the engine and what connects them. A consequence of an error is not checked."""
    installed = [one for one in ("torch", "tensorflow") if packages.is_installed(one)]
    has_engine = packages.is_installed("smdp_engine")
    if not installed:
        text = "neither torch nor TensorFlow is installed; a job's script needs one of them"
        yield CheckResult("torch", "error", text, "install the framework of your script", install("torch"))
    for framework in installed:
        steps = [framework, *(["engine", f"{framework} adapter"] if has_engine else [])]
        if has_engine and framework == "torch":
            steps.append("sum")
        results = probe(steps)
        yield from _of_framework(framework, steps, results)
    if not has_engine:
        yield CheckResult("engine", "not checked", "because smdp-engine is not installed")
    elif not installed:
        yield from _of_framework("", ["engine"], probe(["engine"]))


def _of_framework(framework: str, steps: list[str], results: Mapping[str, Step]) -> Iterator[CheckResult]:
    fault = fault_of(results)
    for step in steps:
        if fault is not None and step == fault.name:
            yield CheckResult(_NAMES.get(step, step), "error", fault.reason, _fix(fault), fault.command)
        else:
            cause = title(fault.name if fault is not None else framework)
            yield _of_step(step, results.get(step), cause, results)
    if fault is not None and fault.name not in steps:
        yield CheckResult(framework or "engine", "error", fault.reason, _fix(fault), fault.command)


def _of_step(step: str, result: Step | None, cause: str, results: Mapping[str, Step]) -> CheckResult:
    """A step that did not fail.

    Args:
        result: None if the step was omitted.
        cause: the step because of which it was omitted.
    """
    name = _NAMES.get(step, step)
    if result is None:
        return CheckResult(name, "not checked", f"because {cause} does not work")
    if "omitted" in result.values:
        return CheckResult(name, "not checked", "because the adapter is not built yet")
    if "builds" in result.values:
        fits = ", ".join(result.values["fits"]) or "no version"
        text = f"the installed smdp-engine has adapters for {fits}; the first run builds one with the compiler"
        return CheckResult(name, "warning", text, "build it now", result.values["builds"])
    return CheckResult(name, "ok", _found(step, result, results))


def _fix(fault: Fault) -> str | None:
    library = library_missing(fault.reason)
    if library is not None:
        return f"install the system package that has {library}, or install the package again"
    if fault.command is None:
        return None
    return "install versions that fit together" if fault.name.endswith("adapter") else "install it again"


def _found(step: str, result: Step, results: Mapping[str, Step]) -> str:
    values = result.values
    if step in ("torch", "tensorflow"):
        cuda, hip = values.get("cuda"), values.get("hip")
        build = f"built for CUDA {cuda}" if cuda else f"built for ROCm {hip}" if hip else "built for CPUs"
        gpus = f", {values['gpus']} GPUs" if "gpus" in values and (cuda or hip) else ""
        return f"{title(step)} {values['version']}, {build}{gpus}"
    if step == "engine":
        return f"smdp-engine {values['build']}"
    if step == "sum":
        return "two processes sum through shared memory, and over the network of two hosts"
    framework = step.partition(" ")[0]
    return f"fits {title(framework)} {results[framework].values['version']}"


def compiler() -> Iterator[CheckResult]:
    """A compiler is needed only to build the engine from its sources, so its absence is no error."""
    path = next((found for one in _COMPILERS if (found := shutil.which(one)) is not None), None)
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    text = "none (needed only to build the engine from its sources)" if path is None else _version_of(path)
    yield CheckResult("compiler", "ok", f"{text}; Python headers: {'found' if headers else 'none'}")


def _version_of(path: str) -> str:
    try:
        ran = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return f"{path} does not run"
    return next(iter(ran.stdout.splitlines()), path)
