"""Libraries that go before the C library of a test's processes."""

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILERS = {".c": ["cc"], ".cc": ["c++", "-std=c++20"]}


def built(source: str, folder: Path) -> Path:
    """The library that ``source``, beside this file, makes; for LD_PRELOAD."""
    path = HERE / source
    library = (folder / path.name).with_suffix(".so")
    command = [*COMPILERS[path.suffix], "-O1", "-shared", "-fPIC", str(path), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    return library
