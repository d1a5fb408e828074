"""Compiles libraries for LD_PRELOAD in a test's processes."""

import subprocess
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
COMPILERS = {".c": ["cc"], ".cc": ["c++", "-std=c++20"]}


def built(source: str, folder: Path) -> Path:
    """Compile ``source``, a path in native/tests, and return the library."""
    path = TESTS / source
    library = (folder / path.name).with_suffix(".so")
    command = [*COMPILERS[path.suffix], "-O1", "-shared", "-fPIC", str(path), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    return library


def built_fault_injector(folder: Path) -> Path:
    return built("support/fault_injection/injector.cc", folder)
