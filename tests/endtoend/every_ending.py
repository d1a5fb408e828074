"""Runs one job to each kind of end in the current network namespace, and prints the ports that are still open.

    python -m tests.endtoend.every_ending FOLDER

Start it in a separate namespace, which has no ports of other processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import LAUNCHER, clean_environment
from tests.endtoend.conftest import Job
from tests.endtoend.leftovers import left_behind, listening, processes

WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"


def run(job: Job, kill: str | None = None) -> int:
    """Return the launcher's exit code. ``kill`` is "worker" or "client" (by Ctrl-C), when all workers wait."""
    command = [LAUNCHER, "launch", "--local", "--hosts", "2", "--workers-per-host", "1"]
    with subprocess.Popen(
        command, cwd=job.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        waiting = 0
        for line in running.stdout:
            waiting += "waiting" in line
            if kill is not None and waiting == 2:
                waiting = 0
                if kill == "worker":
                    os.kill(processes(f"TRAINING_JOB_NAME={job.name}", "\0RANK=1\0")[0], signal.SIGKILL)
                else:
                    running.send_signal(signal.SIGINT)
    return running.returncode


def main() -> None:
    job = Job(Path(sys.argv[1]))
    before = listening()
    codes: list[int] = []
    for script, kill in (("print(1)", None), ("raise ValueError", None), (WAITS, "worker"), (WAITS, "client")):
        job.write(script)
        codes.append(run(job, kill))
    left = left_behind(job.name, str(job.folder))
    deadline = time.monotonic() + 60
    while listening() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    sys.stdout.write(json.dumps({"codes": codes, "left": left, "ports": listening(), "before": before}) + "\n")


if __name__ == "__main__":
    main()
