"""Jobs with injected faults (inject_faults.py): 42 faults in every state and layout; 2,000 in the tier `soak`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fault_injection.faults import LAYOUTS, STATES

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="compiles the fault injector, which needs a compiler"),
]

PROGRAM = Path(__file__).parents[1] / "support" / "inject_faults.py"
# The time limits are for an idle machine; the tests allow ten times as long.
BUSY = ["--time-factor", "10"]


def _inject(*arguments: str, limit_s: float) -> str:
    completed = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=limit_s, check=False
    )
    print(completed.stdout, completed.stderr)
    assert completed.returncode == 0
    return completed.stdout


@pytest.mark.runs
def test_every_survivor_names_the_victim_and_leaks_nothing() -> None:
    output = _inject("--faults", "42", *BUSY, limit_s=280)
    for state in STATES:
        assert f"| {state} |" in output, state
    for layout in LAYOUTS:
        assert f"| {layout} |" in output, layout


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_survivors_of_two_thousand_faults_name_the_victim(tmp_path: Path) -> None:
    out = tmp_path / "verdicts"
    for first in range(0, 2000, 200):
        _inject("--faults", "200", "--first", str(first), "--seed", "20261121", "--out", str(out), limit_s=900)
    output = _inject("--table", str(out), limit_s=60)
    for state in STATES:
        counts = [int(line.split("|")[3]) for line in output.splitlines() if line.startswith(f"| {state} |")]
        assert sum(counts) >= 100, state
