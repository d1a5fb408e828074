"""A failed worker ends the job with its own exit code, and the first of several failures is reported."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

from smdp_entrypoint.processes import supervisor
from smdp_entrypoint.processes.child import Child
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.failure import find_failure
from smdp_entrypoint.processes.signals import Signals
from smdp_entrypoint.processes.supervisor import Supervisor

if TYPE_CHECKING:
    from entrypoint_support.host import Host

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("smdp_engine") is None,
    reason="smdp-engine is not installed: its workers report exceptions",
)
# Files in the code folder order the ranks' steps, so that the order of events does not depend on the machine.
TURNS = """
import os, signal, sys, time
rank = int(os.environ["RANK"])

def say(name):
    open(name, "w").close()

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.005)

"""


def test_exception_is_reported_with_rank_exit_code_and_traceback(host: Host) -> None:
    host.job(TURNS + 'if rank == 1: raise ValueError("bad thing")\nwait_for("never")')
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 1
    first, *rest = host.failure.splitlines()
    assert first == "ValueError: bad thing (rank 1 on algo-1, exit code 1)"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: bad thing"
    assert len(host.failure) <= 1024
    (event,) = host.events("worker_exit")
    assert (event["rank"], event["local_rank"], event["code"], event["signal"]) == (1, 1, 1, None)
    assert event["error"] == "ValueError: bad thing"
    assert not (host.root / "output/success").exists()


def test_exit_code_without_traceback_is_the_containers(host: Host) -> None:
    host.job('import sys; print("cannot continue", file=sys.stderr); sys.exit(3)')
    assert host.run() == 3
    assert host.failure == "rank 0 on algo-1 exited with code 3\ncannot continue"
    assert host.events("worker_exit")[0]["code"] == 3


def test_killed_worker_is_reported_with_signal(host: Host) -> None:
    host.job(TURNS + 'print("pid", os.getpid())\nwait_for("never")').start()
    pid = int(host.wait_for_line("pid").split()[-1])
    os.kill(pid, signal.SIGKILL)
    assert host.wait() == 137
    assert host.failure == "rank 0 on algo-1 was killed by SIGKILL (out of memory, or killed from outside)"
    (event,) = host.events("worker_exit")
    assert (event["code"], event["signal"]) == (None, "SIGKILL")


@needs_engine
def test_first_failed_rank_is_the_cause_although_it_exits_last(host: Host) -> None:
    host.job(
        TURNS
        + """
import atexit
if rank == 1:
    atexit.register(wait_for, "rank 0 has ended")
    atexit.register(say, "rank 1 has raised")
    raise ValueError("the cause")
wait_for("rank 1 has raised")
time.sleep(0.05)  # longer than the tick of the kernel's clock
atexit.register(say, "rank 0 has ended")
raise RuntimeError("a consequence")
"""
    )
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 1
    # On a busy machine it is reported before it exits, and then without its exit code.
    assert host.failure.startswith("ValueError: the cause (rank 1 on algo-1")
    times = {event["rank"]: event["time"] for event in host.events("worker_exit")}
    assert times[1] < times[0]


@needs_engine
def test_a_rank_that_hangs_after_its_traceback_is_still_the_cause(host: Host) -> None:
    host.job(
        TURNS
        + """
import atexit
if rank == 1:
    atexit.register(wait_for, "never")
    atexit.register(say, "rank 1 has raised")
    raise ValueError("the cause")
wait_for("rank 1 has raised")
time.sleep(0.05)  # as above
raise RuntimeError("a consequence")
"""
    )
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 1
    assert host.failure.splitlines()[0] == "ValueError: the cause (rank 1 on algo-1)"
    events = {event["rank"]: event for event in host.events("worker_exit")}
    assert events[1]["time"] < events[0]["time"]
    assert (events[1]["code"], events[1]["signal"]) == (None, None)


def test_handled_traceback_is_not_the_cause(host: Host) -> None:
    host.job(
        TURNS
        + """
import traceback
if rank == 0:
    try:
        raise OSError("tried again")
    except OSError:
        traceback.print_exc()
    for number in range(200):
        print("step", number, file=sys.stderr)
    say("rank 0 continues")
    wait_for("never")
wait_for("rank 0 continues")
raise ValueError("the cause")
"""
    )
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 1
    assert host.failure.splitlines()[0] == "ValueError: the cause (rank 1 on algo-1, exit code 1)"


def test_running_worker_with_an_old_traceback_is_not_the_cause(host: Host) -> None:
    host.job(
        TURNS
        + """
import traceback
if rank == 0:
    try:
        raise OSError("tried again")
    except OSError:
        traceback.print_exc()
    for number in range(12):
        print("step", number, file=sys.stderr)
    say("rank 0 continues")
    wait_for("never")
wait_for("rank 0 continues")
sys.exit(9)
"""
    )
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 9
    assert host.failure == "rank 1 on algo-1 exited with code 9"


# An exception that the script handles and logs.
LOGS = """
import logging
def log():
    try:
        raise OSError("no cache")
    except OSError:
        logging.exception("computing it again")

"""


@pytest.mark.parametrize(
    ("ends", "code", "reason"),
    [
        ('raise ValueError("the cause")', 1, "ValueError: the cause (rank 1 on algo-1, exit code 1)"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            137,
            "rank 1 on algo-1 was killed by SIGKILL (out of memory, or killed from outside)",
        ),
    ],
    ids=["exception", "killed"],
)
def test_handled_exception_of_a_healthy_rank_is_not_the_cause(host: Host, ends: str, code: int, reason: str) -> None:
    waits = f'if rank == 0:\n    log()\n    say("logged")\n    wait_for("never")\nwait_for("logged")\n{ends}\n'
    host.job(f"{TURNS}{LOGS}{waits}")
    assert host.run(SMDP_WORKERS_PER_HOST="2") == code
    assert host.failure.splitlines()[0] == reason
    assert [event["rank"] for event in host.events("worker_exit")] == [1]


def test_killed_rank_that_handled_an_exception_before_is_reported_as_killed(host: Host) -> None:
    host.job(f"{TURNS}{LOGS}log()\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert host.run() == 137
    assert host.failure.startswith("rank 0 on algo-1 was killed by SIGKILL")


def test_exit_with_a_text_is_not_reported_as_the_exception_handled_before(host: Host) -> None:
    trains = 'for number in range(200): print("step", number)\nsys.exit("error: the loss is NaN")\n'
    host.job(f'{TURNS}{LOGS}log()\nwait_for("the traceback is read")\n{trains}').start()
    host.wait_for_line("OSError: no cache")
    host.code("the traceback is read", "")
    assert host.wait() == 1
    first, *tail = host.failure.splitlines()
    assert first == "rank 0 on algo-1 exited with code 1"
    assert tail[-1] == "error: the loss is NaN"


def test_logged_exception_before_an_exit_is_the_cause(host: Host) -> None:
    host.job(f"{TURNS}{LOGS}log()\nsys.exit(1)\n")
    assert host.run() == 1
    assert host.failure.splitlines()[0] == "OSError: no cache (rank 0 on algo-1, exit code 1)"


def test_exception_of_a_shells_script_is_the_cause_although_the_shell_writes_more(host: Host) -> None:
    host.code("train.py", 'raise ValueError("the cause")')
    waits = 'until [ -e "the traceback is read" ]; do sleep 0.05; done'
    uploads = "for i in $(seq 150); do echo uploading log $i; done"
    host.job(f"#!/bin/sh\n{sys.executable} train.py\ncode=$?\n{waits}\n{uploads}\nexit $code\n", program="train.sh")
    host.start()
    host.wait_for_line("ValueError: the cause")
    host.code("the traceback is read", "")
    assert host.wait() == 1
    assert host.failure.splitlines()[0] == "ValueError: the cause (rank 0 on algo-1, exit code 1)"


def test_exception_of_a_shells_script_is_the_cause_although_the_shell_takes_long(
    tmp_path: Path, until: Callable[..., Any]
) -> None:
    script = """printf 'Traceback (most recent call last):\nValueError: the cause\n' >&2; seq 20 >&2; exit 1"""
    shell = Child(["/bin/sh", "-c", script], {}, tmp_path, lambda line: None)
    began = time.time()
    until(lambda: shell.poll(began + 100.0), "the shell to exit")
    shell.clean_up(began)
    failure = find_failure(shell, 0, 0, "algo-1")
    assert failure is not None
    assert failure.error == "ValueError: the cause"


def test_exception_of_a_script_whose_shell_still_runs_precedes_a_lost_peer(host: Host) -> None:
    host.code(
        "train.py",
        f"""{TURNS}
if rank == 0:
    raise ValueError("the cause")
wait_for("rank 0 has failed")
raise ConnectionResetError("Connection reset by peer")
""",
    )
    waits = '[ $RANK = 0 ] && touch "rank 0 has failed" && while :; do sleep 0.05; done'
    host.job(f"#!/bin/sh\n{sys.executable} train.py\ncode=$?\n{waits}\nexit $code\n", program="train.sh")
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 1
    assert host.failure.splitlines()[0] == "ValueError: the cause (rank 0 on algo-1)"


def test_exception_of_a_forked_process_is_not_one_of_the_rank(host: Host) -> None:
    script = """
if rank == 0:
    if os.fork() == 0:
        raise OSError("in a forked process")
    os.wait()
    say("waited")
    wait_for("never")
wait_for("waited")
raise ValueError("the cause")
"""
    host.job(TURNS + script)
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 1
    assert host.failure.splitlines()[0] == "ValueError: the cause (rank 1 on algo-1, exit code 1)"


def test_scripts_own_exception_hook_replaces_the_default_one(host: Host) -> None:
    script = """
import sys
assert sys.excepthook is sys.__excepthook__
sys.excepthook = lambda kind, error, trace: print("own hook:", error, file=sys.stderr)
raise ValueError("bad")
"""
    assert host.job(script).run() == 1
    assert host.failure == "rank 0 on algo-1 exited with code 1\nown hook: bad"


def test_chained_exception_is_reported_by_its_last_block(host: Host) -> None:
    host.job('try:\n    {}["x"]\nexcept KeyError:\n    raise RuntimeError("no x")')
    assert host.run() == 1
    assert host.failure.splitlines()[0] == "RuntimeError: no x (rank 0 on algo-1, exit code 1)"
    assert "KeyError: 'x'" in host.failure


def test_worker_that_exits_with_0_before_others_is_no_failure(host: Host) -> None:
    host.job(TURNS + 'if rank == 1: wait_for("rank 0 has exited")')
    host.start(SMDP_WORKERS_PER_HOST="2")
    host.wait_for_line("workers_started")
    host.code("rank 0 has exited", "")
    assert host.wait() == 0


def test_scripts_own_failure_text_comes_first(host: Host) -> None:
    host.job('import os; open(os.environ["SM_OUTPUT_DIR"] + "/failure", "w").write("my reason"); raise ValueError("x")')
    assert host.run() == 1
    assert host.failure.splitlines()[:2] == ["my reason", "ValueError: x (rank 0 on algo-1, exit code 1)"]


def test_failure_text_written_after_sigterm_comes_first(host: Host) -> None:
    host.job(
        TURNS
        + """
if rank == 1:
    wait_for("ready")
    raise ValueError("x")

def last_words(signum, frame):
    with open(os.environ["SM_OUTPUT_DIR"] + "/failure", "w") as file:
        file.write("rank 0 got SIGTERM")
    sys.exit(5)

signal.signal(signal.SIGTERM, last_words)
say("ready")
wait_for("never")
"""
    )
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 1
    assert host.failure.splitlines()[:2] == [
        "rank 0 got SIGTERM",
        "ValueError: x (rank 1 on algo-1, exit code 1)",
    ]


def test_workers_that_outlive_a_failure_and_a_sigterm_are_killed(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, until: Callable[..., Any]
) -> None:
    monkeypatch.setattr(supervisor, "FAILURE_GRACE_S", 0.2)
    lines: list[str] = []
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    ignores = Child(["/bin/sh", "-c", stubborn], host.environ(), tmp_path, lines.append)
    until(lambda: ignores.streams[0].read(0.0), "the trap to be set")
    fails = Child(["/bin/sh", "-c", "exit 4"], host.environ(), tmp_path, lines.append)
    with Path(os.devnull).open("wb") as null:
        loop = Supervisor([ignores, fails], Console(null.fileno()), Signals(), stop_budget=60)
        loop.run()
    assert fails.exit_status is not None
    assert fails.exit_status.code == 4
    assert ignores.exit_status is not None
    assert ignores.exit_status.signum == signal.SIGKILL


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"hyperparameters.json": "{]"}, "hyperparameters.json cannot be read: Expecting property name"),
        ({"resourceconfig.json": "{}"}, 'resourceconfig.json: "hosts" must be a list of different host names'),
        ({"hyperparameters.json": "{}"}, "The job names no program"),
        ({"hyperparameters.json": '{"sagemaker_program": "../x.py"}'}, "must be a path within the source folder"),
        ({"hyperparameters.json": '{"sagemaker_program": "x.py"}'}, "'x.py' is not in"),
    ],
    ids=["not-json", "no-hosts", "no-program", "program-outside", "program-missing"],
)
def test_malformed_platform_files_give_a_one_line_error(host: Host, files: dict[str, str], reason: str) -> None:
    host.job("print('never')")
    for name, content in files.items():
        host.config(name, content)
    assert host.run() == 1
    assert reason in host.failure
    assert len([line for line in host.lines if "failed:" in line and reason in line]) == 1
    assert "Traceback" not in host.text


def test_invalid_argument_gives_a_one_line_error(host: Host) -> None:
    host.job("print('never')", text="a\0b")
    assert host.run() == 1
    assert "cannot be started" in host.failure
    assert "Traceback" not in host.text


def test_internal_error_is_reported_as_one(host: Host) -> None:
    # A stand-in module makes the entrypoint itself break.
    host.job("print('never')")
    host.code("../broken/sitecustomize.py", "import socket; socket.if_nameindex = None")
    host.config("resourceconfig.json", {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"})
    environ = host.environ()
    assert host.run(PYTHONPATH=f"{host.root / 'broken'}:{environ['PYTHONPATH']}") == 1
    assert host.failure.startswith("TypeError: 'NoneType' object is not callable (internal error in smdp-entrypoint")
    assert "Traceback (most recent call last)" in host.text


def test_events_are_single_json_lines_with_documented_field_order(host: Host) -> None:
    host.job("raise SystemExit(2)")
    host.run()
    lines = [line.partition("] ")[2] for line in host.lines if '"smdp_event"' in line]
    assert [list(json.loads(line))[:3] for line in lines] == [["smdp_event", "event", "time"]] * 3
