"""The package on every supported Python version that is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from entrypoint_support.host import Host

MINORS = range(8, 14)


def find_python(minor: int) -> str | None:
    """A working python3.<minor>, on the path or from pyenv."""
    versions = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
    candidates = [shutil.which(f"python3.{minor}"), *map(str, versions)]
    for candidate in filter(None, candidates):
        # pyenv has a shim for every version; those of versions that are not selected fail.
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture(params=MINORS, ids=lambda minor: f"python3.{minor}")
def on_python(request: pytest.FixtureRequest, host: Host) -> Host:
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"no python3.{request.param} is installed")
    host.python = python
    return host


@pytest.mark.containers
def test_failing_job_gives_arguments_exit_code_and_failure_file(on_python: Host) -> None:
    on_python.job(
        """
        import os, sys, time
        print(sys.argv[1:], "%d.%d" % sys.version_info[:2], flush=True)
        open("printed" + os.environ["RANK"], "w").close()
        while not (os.path.exists("printed0") and os.path.exists("printed1")):
            time.sleep(0.01)
        if os.environ["RANK"] == "1":
            raise ValueError("bad thing")
        """,
        epochs=3,
        on=True,
    )
    assert on_python.run(SMDP_WORKERS_PER_HOST="2") == 1
    version = Path(on_python.python).name.replace("python", "")
    assert on_python.of_rank(0) == [f"['--epochs', '3', '--on', 'True'] {version}"]
    assert on_python.failure.startswith("ValueError: bad thing (rank 1 on algo-1, exit code 1)")


@pytest.mark.containers
def test_every_module_can_be_imported_without_a_warning(on_python: Host) -> None:
    package = Path(__file__).parents[1] / "smdp_entrypoint"
    names = [f"smdp_entrypoint.{path.stem}" for path in package.glob("*.py") if path.stem != "__main__"]
    command = [on_python.python, "-W", "error", "-c", f"import {', '.join(names)}"]
    done = subprocess.run(command, env=on_python.environ(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.containers
def test_model_is_served(on_python: Host) -> None:
    from entrypoint_support.serving import Server

    server = Server(on_python)
    server.script("def model_fn(d): return 2\ndef predict_fn(data, model): return [model * one for one in data]\n")
    server.serve(workers=2)
    assert server.invoke("1,2", "text/csv").json == [2, 4]
    on_python.signal()
    assert on_python.wait() == 0


@pytest.mark.containers
def test_stop_signal_is_forwarded(on_python: Host) -> None:
    on_python.job(
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("ready")
        while True:
            time.sleep(0.05)
        """
    ).start()
    on_python.wait_for_line("ready")
    on_python.signal()
    assert on_python.wait() == 0
