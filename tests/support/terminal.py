"""The command on a terminal of its own, of a size that the test chooses."""

from __future__ import annotations

from pathlib import Path

import pexpect

from tests.conftest import LAUNCHER, clean_environment


def on_a_terminal(folder: Path, arguments: list[str], columns: int = 80, **environment: str) -> str:
    """All that it shows, as the terminal gets it, with lines that end in a newline alone."""
    ran = pexpect.spawn(
        str(LAUNCHER),
        arguments,
        cwd=folder,
        env=clean_environment(TERM="xterm-256color", **environment),
        dimensions=(50, columns),
        encoding="utf-8",
        timeout=120,
    )
    ran.expect(pexpect.EOF)
    ran.close()
    return str(ran.before).replace("\r\n", "\n")
