"""Injects random faults into real jobs: processes that are killed, stopped, out of memory or gone, scripts
that end early; links and connections that are cut or silent, descriptors that are closed.

    python native/tests/support/inject_faults.py --faults 100 --seed 7 [--first 300] [--states hello,return] [--out
    FILE]

Every survivor must raise within the time that docs/explanation/engine.md states, name the victim and the phase, and
leak nothing.
Prints a table (states x layouts x kinds) and the seed, and exits with 1 if a requirement is not met. ``--first``
continues where an earlier run with the same seed ended; ``--out`` collects the verdicts, from which ``--table`` prints
the table of all runs. Needs root, since the hosts are network namespaces.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from preload import TESTS, built_fault_injector


def main() -> int:
    path = os.pathsep.join([str(TESTS / "support"), str(TESTS.parent / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPATH": path, "LD_PRELOAD": str(built_fault_injector(Path(folder)))}
        command = [sys.executable, "-m", "fault_injection.campaign", *sys.argv[1:]]
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
