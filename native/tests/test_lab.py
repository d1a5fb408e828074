"""The benchmarks' hosts have a /tmp of their own; a checkout that lies below /tmp is there all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[1] / "benchmarks" / "lab.py"
USE = """\
import os
import sys
sys.path.insert(0, "native/benchmarks")
import subprocess
from lab import Lab
with Lab(2, None) as lab:
    for host in range(2):
        command = [*lab.enter(host), "sh", "-c", f"ls /tmp; cat {os.getcwd()}/native/benchmarks/kept"]
        inside = subprocess.run(command, capture_output=True, text=True)
        print(inside.stdout.split(), inside.stderr)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of this kind need root")
def test_a_checkout_below_tmp_is_found_on_every_host() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, tempfile.NamedTemporaryFile(dir="/tmp") as other:
        benchmarks = Path(folder) / "native" / "benchmarks"
        benchmarks.mkdir(parents=True)
        shutil.copy(LAB, benchmarks)
        (benchmarks / "kept").write_text("kept\n")
        ran = subprocess.run([sys.executable, "-c", USE], cwd=folder, capture_output=True, text=True, check=False)
        assert ran.stderr == ""
        # Where the interpreter lies below /tmp, too, its folder is there beside the checkout's.
        below = {Path(one).parts[2] for one in (folder, sys.prefix, sys.base_prefix) if one.startswith("/tmp/")}
        assert ran.stdout == f"{[*sorted(below), 'kept']} \n" * 2
        assert Path(other.name).exists()
