"""Runs the command on a pseudo-terminal of a given width."""

from __future__ import annotations

import re
import subprocess
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


def last_lines(ran: subprocess.CompletedProcess[str]) -> str:
    """The last line of each output stream."""
    return "".join(text.splitlines(keepends=True)[-1] for text in (ran.stdout, ran.stderr) if text)


#: Ignores SIGTERM, and exits when the file exists.
STAYS = """\
import signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: None)
print("stays", flush=True)
while not Path("/opt/ml/output/leave").exists():
    time.sleep(0.1)
"""


def stable(text: str) -> str:
    """Replace names, hashes and times by constants of the same width, and make escape sequences readable."""
    text = re.sub(r"small-\d{14}-[0-9a-f]{4}", "small-20261121000000-0000", text)
    return re.sub(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", "0" * 64, text).replace("\x1b", "^[").replace("\r", "")


def completed(folder: Path, *words: str) -> dict[str, str]:
    """The completions of the last word, with their help."""
    environment = clean_environment(
        _SMDP_LAUNCH_COMPLETE="zsh_complete",
        COMP_WORDS=" ".join(["smdp-launch", *words]),
        COMP_CWORD=str(len(words)),
    )
    ran = subprocess.run([LAUNCHER], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    kinds, values, helps = lines[::3], lines[1::3], lines[2::3]
    return {value: help_ for kind, value, help_ in zip(kinds, values, helps, strict=True) if kind == "plain"}
