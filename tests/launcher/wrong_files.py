"""Job files with mistakes, and what is told about each: golden/wrong/NAME/{job.yaml, expected.txt, expected.json}.

python -m tests.launcher.wrong_files     # write what is told now; read the difference before it is committed
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from smdp_launch.cli.render.diagnostics import told
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.plan.prepare import check_job

WRONG = Path(__file__).parent / "golden" / "wrong"


def folders() -> list[Path]:
    return sorted(one.parent for one in WRONG.glob("*/job.yaml"))


def diagnostics() -> list[Diagnostic]:
    """What is told about ``job.yaml`` in the current folder, with an empty environment."""
    return list(check_job(Path("job.yaml"), environ={}).diagnostics)


def as_text(found: list[Diagnostic]) -> str:
    return f"{told(found).plain}\n"


def as_json(found: list[Diagnostic]) -> str:
    return json.dumps([one.to_json() for one in found], indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    # Nobody's own defaults say anything about these files.
    with tempfile.TemporaryDirectory() as nobody:
        os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_CONFIG_DIRS"] = nobody
        for folder in folders():
            os.chdir(folder)
            found = diagnostics()
            if not found:
                sys.exit(f"{folder.name}: nothing is told")
            Path("expected.txt").write_text(as_text(found))
            Path("expected.json").write_text(as_json(found))


if __name__ == "__main__":
    main()
