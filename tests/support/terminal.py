"""Runs the command on a pseudo-terminal of a given width."""

from __future__ import annotations

from pathlib import Path

import pexpect

from tests.conftest import LAUNCHER, clean_environment


def on_a_terminal(folder: Path, arguments: list[str], columns: int = 80, **environment: str) -> str:
    """Return everything that the command prints on the terminal, with newlines as line ends."""
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
