"""Scripts that report numbers to trackers, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional, Sequence

#: Fifty steps, an event of the script's own, and a result.
SCRIPT = """\
from smdp_engine import progress
for step in range(1, 51):
    progress.step(step, 50, loss=1.0 / step if step != 3 else float("nan"), phase="text")
progress.emit("validation", accuracy=0.5)
progress.emit("result", accuracy=0.75)
"""


def run(
    folder: Path, script: str = SCRIPT, packages: Sequence[Path] = (), python: Optional[Path] = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run the script as rank 0.

    Args:
        packages: folders that are searched for packages first.
    """
    (folder / "train.py").write_text(script)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("SMDP_", "WANDB_", "MLFLOW_"))
    }
    paths = [*map(str, packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(paths), "HOME": str(folder), **variables}
    return subprocess.run(
        [python or sys.executable, "train.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def tracker_lines(ran: "subprocess.CompletedProcess[str]") -> "list[str]":
    """The lines about tracking on standard error."""
    return [one for one in ran.stderr.splitlines() if one.startswith("smdp: tracking: ")]


def engine_package() -> Path:
    """The folder that contains the package of this environment."""
    import smdp_engine

    return Path(smdp_engine.__file__).parents[1]
