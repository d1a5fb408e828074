"""The benchmarks' hosts have separate /tmp folders, in which a checkout below /tmp is visible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[2] / "benchmarks" / "lab.py"
USE = """\
import os
import subprocess
from lab import Lab
with Lab(2, None) as lab:
    for host in range(2):
        command = [*lab.enter(host), "sh", "-c", f"ls /tmp; cat {os.getcwd()}/native/benchmarks/kept"]
        inside = subprocess.run(command, capture_output=True, text=True)
        print(inside.stdout.split(), inside.stderr)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of this kind need root")
def test_checkout_below_tmp_is_visible_on_every_host() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, tempfile.NamedTemporaryFile(dir="/tmp") as other:
        benchmarks = Path(folder) / "native" / "benchmarks"
        benchmarks.mkdir(parents=True)
        shutil.copy(LAB, benchmarks)
        (benchmarks / "kept").write_text("kept\n")
        env = {**os.environ, "PYTHONPATH": str(benchmarks)}
        ran = subprocess.run(
            [sys.executable, "-c", USE], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert ran.stderr == ""
        # If the interpreter is below /tmp too, its folder is visible too.
        below = {Path(path).parts[2] for path in (folder, sys.prefix, sys.base_prefix) if path.startswith("/tmp/")}
        assert ran.stdout == f"{[*sorted(below), 'kept']} \n" * 2
        assert Path(other.name).exists()
