"""Workers get stop signals at once, and no process outlives the entrypoint."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest
from entrypoint_support.host import PACKAGE

if TYPE_CHECKING:
    from entrypoint_support.host import Host

SAVES = """
import os, signal, sys, time

def save(signum, frame):
    print("saved by", os.environ["RANK"])
    sys.exit(int(os.environ.get("CODE", "0")))

signal.signal(signal.SIGTERM, save)
print("ready", os.environ["RANK"])
while True:
    time.sleep(0.05)
"""
IGNORES = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.environ["RANK"], os.getpid())
while True:
    time.sleep(0.05)
"""

# Stops at the first import after the package's small modules.
HOLDS_IMPORT = """
import importlib.abc, pathlib, sys, time

class Hold(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == "smdp_entrypoint.cli":
            pathlib.Path({importing!r}).touch()
            while not pathlib.Path({resume!r}).exists():
                time.sleep(0.01)

sys.meta_path.insert(0, Hold())
"""


def started(host: Host, script: str, **environ: str) -> Host:
    host.job(script).start(SMDP_WORKERS_PER_HOST="2", **environ)
    host.wait_for_line("ready 0")
    host.wait_for_line("ready 1")
    return host


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_workers_save_and_exit_with_0_after_a_stop_signal(host: Host, signum: int) -> None:
    started(host, SAVES).signal(signum)
    assert host.wait() == 0
    assert host.of_rank(0)[-1] == "saved by 0"
    assert host.of_rank(1)[-1] == "saved by 1"
    assert "received: sending SIGTERM, workers have 115 s to save and exit" in host.text
    assert (host.root / "output/success").exists()
    assert host.events("worker_exit") == []


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_workers_killed_by_the_stop_signal_are_no_failure(host: Host, signum: int, code: int) -> None:
    started(host, 'import os, time; print("ready", os.environ["RANK"]); time.sleep(600)').signal(signum)
    assert host.wait() == code
    assert host.failure == ""
    assert host.events("worker_exit") == []


def test_a_worker_that_fails_while_saving_is_reported(host: Host) -> None:
    started(host, SAVES.replace("sys.exit(", "raise OSError('disk full') or ("), CODE="1").signal()
    assert host.wait() == 1
    assert host.failure.startswith("OSError: disk full (rank ")


def test_worker_killed_by_the_stop_signal_is_not_the_cause(host: Host) -> None:
    fails = SAVES.replace("sys.exit(", "time.sleep(0.3) or {}['x'] or (")
    started(host, fails.replace("signal.signal(", "if os.environ['RANK'] == '1': signal.signal(", 1)).signal()
    assert host.wait() == 1
    assert host.failure.startswith("KeyError: 'x' (rank 1 on algo-1, exit code 1)")
    assert [event["rank"] for event in host.events("worker_exit")] == [1]


def test_workers_that_ignore_the_signal_are_killed_when_the_budget_ends(host: Host) -> None:
    started(host, IGNORES, SMDP_STOP_BUDGET="0.3").signal()
    assert host.wait() == 143
    assert "time limit reached: sending SIGKILL to 2 process(es)" in host.text


def test_a_second_signal_kills_at_once(host: Host) -> None:
    started(host, IGNORES).signal()
    host.wait_for_line("SIGTERM received")
    host.signal()
    assert host.wait() == 143
    assert "a second stop signal (SIGTERM): sending SIGKILL" in host.text


def test_grandchildren_get_the_signal_too(host: Host, until: Callable[..., Any]) -> None:
    host.job("import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'inner.py']))")
    host.code("inner.py", SAVES)
    host.start()
    host.wait_for_line("ready 0")
    host.signal()
    host.wait()
    assert host.of_rank(0)[-1] == "saved by 0"


def test_workers_of_a_killed_entrypoint_are_killed(host: Host) -> None:
    # The fixture checks that no worker remains.
    started(host, IGNORES).signal(signal.SIGKILL)
    assert host.wait() == -signal.SIGKILL


def test_a_stop_signal_while_waiting_for_the_first_host(host: Host) -> None:
    host.hosts = ["no-such-host.invalid", "algo-1"]
    host.job("print('never')").start()
    host.wait_for_line("waiting for host no-such-host.invalid")
    host.signal()
    assert host.wait() == 143
    assert "SIGTERM received before any worker started: exiting" in host.text


@pytest.fixture
def as_process_one(host: Host) -> Host:
    """The host in a separate process namespace, where the entrypoint is process 1 as in a container."""
    unshare = [shutil.which("unshare") or "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("creating a process namespace is not permitted")
    host.prefix = unshare
    return host


def test_process_one_reaps_orphans_but_not_its_workers(as_process_one: Host) -> None:
    as_process_one.job(
        """
        import os, sys, time

        reading, writing = os.pipe()
        if os.fork() == 0:
            orphan = os.fork()
            if orphan:
                os.write(writing, str(orphan).encode())
                os._exit(0)
            time.sleep(0.2)
            os._exit(0)
        os.wait()
        orphan = os.read(reading, 100).decode()
        print("parent of all is", open("/proc/1/cmdline").read().replace("\\0", " "))
        while os.path.exists("/proc/" + orphan):
            time.sleep(0.01)
        print("orphan collected")
        sys.exit(7)
        """
    )
    assert as_process_one.run() == 7
    assert "-m smdp_entrypoint" in as_process_one.of_rank(0)[0]
    assert as_process_one.of_rank(0)[1] == "orphan collected"


def test_process_one_forwards_the_stop_signal(as_process_one: Host) -> None:
    started(as_process_one, SAVES)
    assert as_process_one.process is not None
    unshare = as_process_one.process.pid
    (first,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    assert as_process_one.wait() == 0
    assert as_process_one.of_rank(1)[-1] == "saved by 1"


@pytest.mark.parametrize("command", ["module", "script"])
def test_stop_signal_during_the_imports_of_process_one_starts_no_worker(
    as_process_one: Host, tmp_path: Path, until: Callable[..., Any], command: str
) -> None:
    importing, resume = tmp_path / "importing", tmp_path / "resume"
    (tmp_path / "sitecustomize.py").write_text(HOLDS_IMPORT.format(importing=str(importing), resume=str(resume)))
    if command == "script":  # as an installer writes it
        module, function = train_command().split(":")
        as_process_one.entrypoint = ["-c", f"import sys; from {module} import {function}; sys.exit({function}())"]
    as_process_one.job("print('never')").start(PYTHONPATH=f"{tmp_path}:{PACKAGE}")
    until(importing.exists, "the import of the command")
    assert as_process_one.process is not None
    unshare = as_process_one.process.pid
    (first,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    resume.touch()
    assert as_process_one.wait() == 143, as_process_one.text
    assert "SIGTERM received before any worker started: exiting" in as_process_one.text
    assert as_process_one.of_rank(0) == []


def train_command() -> str:
    return re.findall(r'^train = "(.*)"$', (PACKAGE / "pyproject.toml").read_text(), re.MULTILINE)[0]


def test_script_runs_on_the_entrypoints_python(host: Host) -> None:
    host.job("import sys; print(sys.executable)")
    assert host.run() == 0
    assert host.of_rank(0) == [sys.executable]
