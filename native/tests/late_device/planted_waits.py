"""Removes the waits of the torch adapter for a device one at a time: a job on the late device must fail each time.

    planted_waits.py [--only NAME]

The sources of the adapter are copied to native/build/planted_waits and edited there. Each edit takes effect only when
SMDP_PLANTED has its name, so all of them are compiled once. Prints for each the case that failed; exits with 1 if an
edit does not apply any more, or if its job passes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2]
ADAPTERS = NATIVE / "adapters"
FOLDER = NATIVE / "build" / "planted_waits"
sys.path[:0] = [str(NATIVE / "tests" / "support"), str(Path(__file__).parent)]

from waits import HELD_CASES, LOCAL_FIRST_CASES, WAITS, Wait  # noqa: E402


def all_cases() -> dict[str, str]:
    import device_cases
    import registered_memory_cases

    late = {**device_cases.CASES, **device_cases.HELD, **registered_memory_cases.CASES}
    return {**late, **LOCAL_FIRST_CASES, **HELD_CASES}


def edited(text: str, wait: Wait) -> str:
    """The text with the wait, unless SMDP_PLANTED has its name.

    Raises:
        ValueError: the edit does not apply at exactly one place.
    """
    right = wait.right.format()
    if text.count(right) != 1:
        raise ValueError(f"{wait.name}: {wait.file} has its text {text.count(right)} times")
    return text.replace(right, wait.wrong.format(planted=f'smdp_torch::planted("{wait.name}")'))


def write_sources() -> Path:
    sources = FOLDER / "source"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ADAPTERS, sources)
    for wait in WAITS:
        file = sources / "torch" / wait.file
        file.write_text(edited(file.read_text(encoding="utf-8"), wait), encoding="utf-8")
    first = sources / "torch" / "device_runtime.h"  # included by all of them
    text = first.read_text(encoding="utf-8")
    function = """#pragma once
#include <cstdlib>
#include <cstring>
namespace smdp_torch {
inline bool planted(const char* name) {
  static const char* const chosen = std::getenv("SMDP_PLANTED");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
}  // namespace smdp_torch
"""
    first.write_text(text.replace("#pragma once\n", function, 1), encoding="utf-8")
    return sources


def build(sources: Path) -> Path:
    """A folder for PYTHONPATH: the installed package with the edited adapter."""
    import smdp_engine
    from smdp_engine.adapters import compiler, files, frameworks

    package = FOLDER / "installed" / "smdp_engine"
    shutil.rmtree(package.parent, ignore_errors=True)
    shutil.copytree(Path(str(smdp_engine.__file__)).parent, package)
    installed = frameworks.installed("torch")
    found = compiler.find()
    adapter = files.fitting(installed) if installed else None
    if installed is None or found is None or adapter is None:
        sys.exit("this needs torch, smdp-engine with an adapter for it, and a compiler")
    command = compiler.command(
        [*found, "-O0"],
        installed,
        package / "_adapters" / adapter.name,
        sources=sources,
        engine_include=NATIVE / "include",
        engine_folder=package,
    )
    command = ["-O0" if part == "-O3" else part for part in command]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN/.."], check=True)
    return package.parent


def failed_cases(wait: Wait, installed: Path) -> list[str]:
    """The cases of the wait that some rank did not pass without it, and the end of the job likewise."""
    import late_job
    import ranks

    cases = {name: all_cases()[name] for name in wait.cases}
    path = os.pathsep.join([str(installed), late_job.path()])
    env = {**wait.env, "SMDP_PLANTED": wait.name, "PYTHONPATH": path}
    outcomes = ranks.start([2, 2], late_job.script(cases, wait.end), env=env).finish(timeout=280)
    found = [name for name in cases if any(f"passed {name}\n" not in outcome.out for outcome in outcomes)]
    if not found and any(outcome.code != 0 for outcome in outcomes):
        found = ["the end of the job"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="waits with this in their name")
    parser.add_argument("--built", action="store_true", help="use the adapter of the run before")
    options = parser.parse_args()
    installed = FOLDER / "installed" if options.built else build(write_sources())
    missed = []
    chosen = [wait for wait in WAITS if options.only in wait.name]
    for wait in chosen:
        found = failed_cases(wait, installed)
        print(f"{wait.name}\n    {'found by: ' + ', '.join(found) if found else 'NOT FOUND'}", flush=True)
        missed += [] if found else [wait.name]
    print(f"{len(chosen)} waits removed, {'each found' if not missed else 'NOT ALL FOUND'}")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
