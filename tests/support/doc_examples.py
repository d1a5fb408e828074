"""The code blocks of a page of the documentation, and a shell that runs them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.conftest import LAUNCHER, ROOT, clean_environment


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{LAUNCHER.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=clean_environment(PATH=path),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
