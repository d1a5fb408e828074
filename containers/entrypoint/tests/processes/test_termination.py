"""A stop signal reaches the program that saves, through shells and launchers, and none of the program's helpers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Iterable, Iterator

import pytest

from smdp_entrypoint.processes import supervisor, termination
from smdp_entrypoint.processes.termination import Termination

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet
    from entrypoint_support.host import Host

# The save takes as long as the file `go` does not exist.
SAVES = """
import os, signal, time

stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
print("ready", flush=True)
while not stops:
    time.sleep(0.01)
print("saving", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("saved after", len(stops), flush=True)
"""
PYTHON = sys.executable
CALL = f"import subprocess, sys; sys.exit(subprocess.call([{PYTHON!r}, 'train.py']))"
CALL_IN_SHELL = f"import subprocess; subprocess.run('{PYTHON} train.py && echo finished', shell=True, check=True)"
WRAPPERS = {
    "bash": f"#!/bin/bash\n{PYTHON} train.py\necho finished\n",
    "bash with exec": f"#!/bin/bash\nexec {PYTHON} train.py\n",
    "no interpreter line": f"A=1 {PYTHON} train.py\necho finished\n",
    "pipeline": f"#!/bin/bash\n{PYTHON} train.py 2>&1 | tee log\n",
    "nested shells": f"#!/bin/bash\n(sh -c '{PYTHON} train.py; true')\necho finished\n",
    "trap without forwarding": f"#!/bin/bash\ntrap 'echo trapped' TERM\n{PYTHON} train.py\n",
    "background process": f"#!/bin/bash\nsleep 600 &\n{PYTHON} train.py\necho finished\n",
    "python": f"#!{PYTHON}\n{CALL}\n",
    "python and a shell": f"#!{PYTHON}\n{CALL_IN_SHELL}\n",
    "python in bash": f'#!/bin/bash\n{PYTHON} -c "{CALL}"\necho finished\n',
}


def _some(cases: Iterable[str], *always: str) -> list[ParameterSet]:
    """All cases, of which `make test` runs only those in `always`."""
    return [pytest.param(case, marks=() if case in always else pytest.mark.runs) for case in cases]


def started(host: Host, wrapper: str, **environ: str) -> Host:
    host.job(wrapper, program="train.sh").start(**environ)
    host.wait_for_line("ready")
    return host


def save_longer_than_the_drain(host: Host) -> None:
    host.wait_for_line("saving")
    time.sleep(supervisor._DRAIN_S + 0.5)
    host.code("go", "")


@pytest.mark.parametrize(
    "wrapper", _some(WRAPPERS, "bash", "pipeline", "trap without forwarding", "python and a shell")
)
def test_script_below_a_wrapper_gets_one_signal_and_saves(host: Host, wrapper: str) -> None:
    host.code("train.py", SAVES)
    started(host, WRAPPERS[wrapper]).signal()
    save_longer_than_the_drain(host)
    code = host.wait()
    assert host.of_rank(0)[:3] == ["ready", "saving", "saved after 1"]
    assert "finished" not in host.text
    assert code == (0 if wrapper in ("bash with exec", "trap without forwarding") else 143), host.text
    assert host.failure == ""


def test_shell_whose_file_is_replaced_passes_the_signal_to_its_script(host: Host) -> None:
    # As an update of the package does, while the shell runs.
    shell = host.root.parent / "bash"
    replace = f"cp {shell} {shell}.new\nmv {shell}.new {shell}"
    shell.write_bytes(Path("/bin/bash").read_bytes())
    shell.chmod(0o755)
    host.code("train.py", SAVES)
    host.code("go", "")
    started(host, f"#!{shell}\ntrap 'echo trapped' TERM\n{replace}\n{PYTHON} train.py\n").signal()
    assert host.wait() == 0
    assert host.of_rank(0) == ["ready", "saving", "saved after 1", "trapped"]


# Only the part of the state goes into the pipeline.
SAVES_INTO_A_PIPE = (
    SAVES.replace("import os", "import os, sys")
    .replace("flush=True", "file=sys.stderr, flush=True")
    .replace('print("saved', 'print("part", flush=True)\nprint("saved')
)


@pytest.mark.parametrize(
    "consumer",
    _some(["gzip", "while read line; do echo $line; done", "(sleep 0; tee log)", "tee log | gzip"], "gzip"),
)
def test_consumer_of_the_output_gets_no_signal_while_the_script_saves(host: Host, consumer: str) -> None:
    host.code("train.py", SAVES_INTO_A_PIPE)
    started(host, f"#!/bin/bash\n{PYTHON} train.py | {consumer} > /dev/null\n").signal()
    host.wait_for_line("saving")
    time.sleep(3 * supervisor._SEARCH_S)
    host.code("go", "")
    assert host.wait() == 143
    assert host.of_rank(0) == ["ready", "saving", "saved after 1"]


@pytest.mark.parametrize(
    "wrapper",
    [
        f"#!/bin/bash\n{PYTHON} train.py &\ntrap 'kill -TERM $!' TERM\nwait $!\n",  # `wait` returns at the signal
        f"#!/bin/bash\ntimeout 600 {PYTHON} train.py\necho finished\n",  # a process group of its own
    ],
)
def test_script_below_a_forwarding_wrapper_saves(host: Host, wrapper: str) -> None:
    host.code("train.py", SAVES)
    started(host, wrapper).signal()
    save_longer_than_the_drain(host)
    assert host.wait() == 143
    assert host.of_rank(0)[2].startswith("saved after")


def test_command_of_a_trap_gets_no_signal(host: Host) -> None:
    host.code("train.py", SAVES)
    host.code("upload.py", "import time; print('uploading', flush=True); time.sleep(0.5); print('uploaded')")
    started(host, f"#!/bin/bash\ntrap '{PYTHON} upload.py' TERM\n{PYTHON} train.py\n").signal()
    host.code("go", "")
    assert host.wait() == 0
    assert host.of_rank(0)[-2:] == ["uploading", "uploaded"]


IGNORES = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


@pytest.mark.parametrize("launcher", ["", "timeout 600 "])
def test_script_that_outlives_its_wrapper_is_killed_when_the_budget_ends(host: Host, launcher: str) -> None:
    # The fixture checks that no process remains.
    host.code("train.py", IGNORES)
    started(host, f"#!/bin/bash\n{launcher}{PYTHON} train.py\necho finished\n", SMDP_STOP_BUDGET="0.5").signal()
    assert host.wait() == 143
    assert "time limit reached: sending SIGKILL to 1 process(es)" in host.text


def test_a_second_signal_kills_a_script_that_outlives_its_wrapper(host: Host) -> None:
    host.code("train.py", SAVES)
    started(host, WRAPPERS["bash"]).signal()
    host.wait_for_line("saving")
    host.signal()
    assert host.wait() == 143
    assert "a second stop signal (SIGTERM): sending SIGKILL to 1 process(es)" in host.text
    assert "saved" not in host.text


# The script saves only if all its helpers still run.
WITH_HELPERS = """
import multiprocessing, os, signal, subprocess, sys, time
from multiprocessing.pool import Pool

def rest(*_):
    time.sleep(600)

def helpers():
    kind = os.environ["HELPERS"]
    if kind == "command":
        return [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    if kind == "pool":
        pool = Pool(2)
        pool.map_async(rest, range(2))
        return pool._pool
    context = multiprocessing.get_context(kind)
    processes = [context.Process(target=rest, daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    return processes

def runs(helper):
    return helper.poll() is None if isinstance(helper, subprocess.Popen) else helper.is_alive()

if __name__ == "__main__":
    found, stops = helpers(), []
    signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
    print("ready", flush=True)
    while not stops:
        time.sleep(0.01)
    print("saving", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    print("all run", all(map(runs, found)), len(found), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("wrapper", [f"exec {PYTHON} train.py", f"{PYTHON} train.py\necho finished"])
@pytest.mark.parametrize("kind", _some(["command", "pool", "fork", "spawn", "forkserver"], "fork"))
def test_helpers_of_the_script_get_no_signal_while_it_saves(host: Host, wrapper: str, kind: str) -> None:
    # They get it after that: the job ends, and the fixture checks that no process remains.
    host.code("train.py", WITH_HELPERS)
    started(host, f"#!/bin/bash\n{wrapper}\n", HELPERS=kind).signal()
    host.wait_for_line("saving")
    time.sleep(3 * supervisor._SEARCH_S)
    host.code("go", "")
    assert host.wait() == (0 if "exec" in wrapper else 143)
    assert host.of_rank(0) == ["ready", "saving", "all run True 2"]


def test_helpers_of_a_script_without_a_handler_end_with_it(host: Host) -> None:
    handler = "    signal.signal(signal.SIGTERM, lambda *_: stops.append(1))\n"
    host.job(WITH_HELPERS.replace(handler, "")).start(HELPERS="spawn")
    host.wait_for_line("ready")
    host.signal()
    assert host.wait() == 128 + signal.SIGTERM


# The helper has the script's handler, so SIGTERM does not end it.
WITH_A_HELPER_THAT_HANDLES_THE_SIGNAL = SAVES.replace(
    'print("ready"', 'while os.fork() == 0:\n    while True:\n        time.sleep(600)\nprint("ready"'
)


def test_helper_that_does_not_exit_is_killed_before_the_budget_ends(host: Host) -> None:
    # The budget is longer than the limit of `wait`.
    host.code("go", "")
    host.job(WITH_A_HELPER_THAT_HANDLES_THE_SIGNAL).start()
    host.wait_for_line("ready")
    host.signal()
    assert host.wait() == 0
    assert host.of_rank(0) == ["ready", "saving", "saved after 1"]
    assert "time limit reached: sending SIGKILL to 1 process(es)" in host.text


def test_shell_that_exits_successfully_leaves_the_budget_to_its_script(host: Host) -> None:
    host.code("train.py", SAVES)
    started(host, f"#!/bin/bash\ntrap 'exit 0' TERM\n{PYTHON} train.py &\nwait\n").signal()
    host.wait_for_line("saving")
    time.sleep(supervisor._HELPERS_GRACE_S + 2 * supervisor._SEARCH_S)
    host.code("go", "")
    assert host.wait() == 0
    assert host.of_rank(0) == ["ready", "saving", "saved after 1"]


@contextlib.contextmanager
def session(*command: str) -> Iterator[tuple[int, IO[str]]]:
    """The process ID and the output of a worker that runs `command`."""
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert worker.stdout is not None
    try:
        yield worker.pid, worker.stdout
    finally:
        Termination([worker.pid]).kill()
        worker.communicate()


REPORTS_SIGNALS = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGWINCH):
    signal.signal(number, lambda number, _: print(signal.Signals(number).name, flush=True))
print(os.getpid(), flush=True)
sys.stdin.read()
print("end of input", flush=True)
while True:
    time.sleep(0.01)
"""


def test_consumer_gets_the_signal_some_time_after_the_end_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "_READ_S", float("inf"))
    with session("sh", "-c", f"sleep 600 | {PYTHON} -c '{REPORTS_SIGNALS}'; true") as (worker, output):
        consumer = int(output.readline())
        stop = Termination([worker])
        assert stop.proceed() == {worker}
        assert output.readline() == "end of input\n"
        assert stop.proceed() == {worker}
        os.kill(consumer, signal.SIGWINCH)
        assert output.readline() == "SIGWINCH\n"
        monkeypatch.setattr(termination, "_READ_S", 0.0)
        stop.proceed()
        assert output.readline() == "SIGTERM\n"


@pytest.mark.parametrize(("prefix", "is_waiting"), [("exec ", False), ("", True)])
def test_processes_are_searched_again_only_for_shells_and_exited_workers(prefix: str, is_waiting: bool) -> None:
    with session("sh", "-c", f'{prefix}{PYTHON} -c "{IGNORES}"; true') as (worker, output):
        output.readline()
        stop = Termination([worker])
        assert stop.proceed() == {worker}
        assert stop.is_waiting == is_waiting
        os.kill(worker, signal.SIGKILL)
        os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
        assert stop.proceed() == (set() if prefix else {worker})
        assert stop.is_waiting == is_waiting
