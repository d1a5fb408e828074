"""Builds a torch device that delays all its operations, for the installed torch."""

import fcntl
import sys
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).resolve().with_name("late_device.cc")


def built(folder: Path) -> Path:
    """The extension module in ``folder``, rebuilt when its source has changed; by one process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _built(folder)


def _built(folder: Path) -> Path:
    import subprocess

    import torch
    from torch.utils import cpp_extension

    module = folder / f"late_device{sysconfig.get_config_var('EXT_SUFFIX')}"
    if module.exists() and module.stat().st_mtime > SOURCE.stat().st_mtime:
        return module
    includes = [f"-isystem{path}" for path in [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]]
    unfinished = module.with_suffix(".part")
    command = ["c++", "-std=c++20", "-O0", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *includes]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", str(SOURCE), "-o", str(unfinished)]
    command += [f"-L{cpp_extension.TORCH_LIB_PATH}", "-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python"]
    subprocess.run(command, check=True, timeout=600)
    unfinished.rename(module)
    return module


if __name__ == "__main__":
    built(Path(sys.argv[1]))
