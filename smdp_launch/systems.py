"""What differs between Linux, macOS and Windows, each once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Windows' own; a Python of WSL or Cygwin is not on Windows in this sense.
IS_WINDOWS = os.name == "nt"
IS_LINUX: bool = sys.platform.startswith("linux")


def usable_processors() -> int:
    """The number of processors that this process may use; where the system does not limit it, all of them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def command_line(words: Sequence[str]) -> str:
    """The words as a person types them into a shell of this system."""
    if IS_WINDOWS:
        import subprocess

        return subprocess.list2cmdline(words)
    import shlex

    return shlex.join(words)


def linux_refusal(what: str) -> str | None:
    """Why this system cannot run local jobs, and what to do; None on Linux.

    Args:
        what: the subject of the sentence, such as "a local run".
    """
    if IS_LINUX:
        return None
    elsewhere = "all commands for jobs on AWS work here"
    if IS_WINDOWS:
        return (
            f"{what} needs Linux: install WSL with `wsl --install`, open it with `wsl`, and install and run "
            f"smdp-launch there, or use a Linux host; {elsewhere}"
        )
    return (
        f"{what} needs Linux: run smdp-launch in a Linux container "
        '(`docker run -it -v "$PWD":/job -w /job python:3.12 bash`, then install it there), or on a Linux host; '
        f"{elsewhere}"
    )
