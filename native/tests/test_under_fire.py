"""Jobs under fire (under_fire.py): a slice with every state and layout here, the whole campaign in the tier `soak`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fire.faults import LAYOUTS, STATES

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="compiles the strike, which needs a compiler"),
]

PROGRAM = Path(__file__).with_name("under_fire.py")
# The stated times are for a machine that does nothing else; here ten times as long is allowed.
BUSY = ["--patience", "10"]


def _fire(*arguments: str, limit_s: float) -> str:
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=limit_s, check=False
    )
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0
    return ended.stdout


def test_every_survivor_names_the_victim_and_leaves_nothing() -> None:
    told = _fire("--faults", "42", *BUSY, limit_s=280)
    for state in STATES:
        assert f"| {state} |" in told, state
    for layout in LAYOUTS:
        assert f"| {layout} |" in told, layout


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_thousand_faults(tmp_path: Path) -> None:
    out = tmp_path / "verdicts"
    for first in range(0, 2000, 200):
        _fire("--faults", "200", "--first", str(first), "--seed", "20261121", "--out", str(out), limit_s=900)
    told = _fire("--table", str(out), limit_s=60)
    for state in STATES:
        counts = [int(line.split("|")[3]) for line in told.splitlines() if line.startswith(f"| {state} |")]
        assert sum(counts) >= 100, state
