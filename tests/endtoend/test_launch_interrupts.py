"""Ctrl-C, killed processes and a closed terminal during `launch --local`."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import LAUNCHER, clean_environment
from tests.endtoend.conftest import Job, job_state
from tests.endtoend.leftovers import processes
from tests.support.waiting import DEADLINE, wait_for

WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"


class Terminal:
    """The command on a pseudo-terminal."""

    def __init__(self, job: Job, *arguments: str) -> None:
        pid, self._fd = pty.fork()
        if pid == 0:
            os.chdir(job.folder)
            os.execve(LAUNCHER, [str(LAUNCHER), *arguments], clean_environment(TERM="xterm", COLUMNS="100"))
        self.pid = pid
        self.text = ""

    def wait_for(self, text: str, seconds: float = DEADLINE) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.text!r}"
            self._read()

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def exit_code(self) -> int:
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 1)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the terminal's other end is closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def terminal(job: Job, *arguments: str) -> Iterator[Terminal]:
    made = Terminal(job, *arguments)
    try:
        yield made
    finally:
        made.close()


def test_killed_worker_fails_job_and_names_host_and_rank(job: Job) -> None:
    job.write(WAITS)
    with terminal(job, "launch", "--local", "--hosts", "2", "--workers-per-host", "2") as screen:
        for _ in range(4):
            screen.wait_for("waiting")
            screen.text = screen.text.replace("waiting", "", 1)
        (victim,) = processes(f"TRAINING_JOB_NAME={job.name}", "\0RANK=3\0")
        os.kill(victim, signal.SIGKILL)
        screen.wait_for("failed after")  # the other ranks would wait for five minutes
        assert screen.exit_code() == ExitCode.JOB_FAILED
        assert "rank 3 on algo-2 was killed by SIGKILL" in screen.text


def test_ctrl_c_asks_once_and_stops_job(job: Job) -> None:
    job.write(WAITS)
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[s]top it, [d]etach and let it run, [c]ontinue: ")
        screen.type("s\n")
        assert screen.exit_code() == ExitCode.JOB_STOPPED
        assert screen.text.count("[s]top it") == 1
    assert job_state(job)["status"] == "Stopped"


@pytest.mark.runs
def test_second_ctrl_c_stops_job_without_answer(job: Job) -> None:
    job.write(WAITS)
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[c]ontinue: ")
        screen.type("\x03")
        assert screen.exit_code() == ExitCode.JOB_STOPPED
    assert job_state(job)["status"] == "Stopped"


def test_detached_job_continues_and_is_found_by_name(job: Job) -> None:
    job.write(
        "import os, time\nprint('waiting', flush=True)\n"
        "while not os.path.exists('/opt/ml/output/data/go'):\n    time.sleep(0.05)\n"
        "print('done', flush=True)\n"
    )
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[c]ontinue: ")
        screen.type("d\n")
        screen.wait_for("next: smdp-launch follow")
        assert screen.exit_code() == ExitCode.INTERRUPTED
    with terminal(job, "follow") as screen:
        screen.wait_for("| waiting")
        (tree,) = job.folder.glob(".smdp/local/jobs/*/hosts/algo-1/ml/output/data")
        (tree / "go").write_text("")
        assert screen.exit_code() == ExitCode.OK
        assert "| done" in screen.text


@pytest.mark.runs
def test_answer_continue_leaves_job_running(job: Job) -> None:
    job.write(
        "import os, time\nprint('waiting', flush=True)\n"
        "while not os.path.exists('/opt/ml/output/data/go'):\n    time.sleep(0.05)\n"
    )
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[c]ontinue: ")
        screen.type("c\n")
        time.sleep(0.5)
        (tree,) = job.folder.glob(".smdp/local/jobs/*/hosts/algo-1/ml/output/data")
        (tree / "go").write_text("")
        assert screen.exit_code() == ExitCode.OK


@pytest.mark.runs
def test_ctrl_c_without_terminal_stops_local_job(job: Job) -> None:
    job.write(WAITS)
    launching = [LAUNCHER, "launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
    with subprocess.Popen(
        launching, cwd=job.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert any("waiting" in line for line in running.stdout)
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.wait(60) == ExitCode.JOB_STOPPED
    assert job_state(job)["status"] == "Stopped"


@pytest.mark.runs
def test_job_survives_killed_client(job: Job) -> None:
    job.write("import time\nprint('waiting', flush=True)\ntime.sleep(2)\n")
    launching = [LAUNCHER, "launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
    with subprocess.Popen(
        launching, cwd=job.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert any("waiting" in line for line in running.stdout)
        running.kill()
    wait_for(lambda: job_state(job)["status"] == "Completed", "the end of the job")


@pytest.mark.runs
@pytest.mark.parametrize("moment", ["before", "after"])
def test_interrupt_during_create_stops_job(job: Job, moment: str) -> None:
    """The process sends the signal to itself: right before the call, or between its answer and the first poll."""
    job.write(WAITS)
    program = f"""
import os, signal, sys
from smdp_launch.cli import main
from smdp_launch.cli.shared import follow_session
real = follow_session.create
def interrupted(*given):
    if {moment!r} == "before":
        os.kill(os.getpid(), signal.SIGINT)
    real(*given)
    if {moment!r} == "after":
        os.kill(os.getpid(), signal.SIGINT)
follow_session.create = interrupted
sys.argv = ["smdp-launch", "launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=job.folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == ExitCode.JOB_STOPPED, ran.stderr
    assert job_state(job)["status"] == "Stopped"


@pytest.mark.runs
def test_closed_output_stops_local_job(job: Job) -> None:
    job.write("import time\nfor _ in range(3000):\n    print('line', flush=True)\n    time.sleep(0.1)\n")
    piped = f"{LAUNCHER} launch --local --hosts 1 --workers-per-host 1 | grep -m 1 'line'"
    ran = subprocess.run(
        ["bash", "-c", f"{piped}; exit ${{PIPESTATUS[0]}}"],
        cwd=job.folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == ExitCode.READER_EXITED, ran.stderr
    assert ran.stderr == ""
    wait_for(lambda: job_state(job)["status"] not in {"InProgress", "Stopping"}, "the end of the job")
    assert job_state(job)["status"] == "Stopped"
