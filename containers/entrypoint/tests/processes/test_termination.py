"""A stop signal reaches the program that saves, through shells and launchers, and none of the program's helpers."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Iterable

import pytest

from smdp_entrypoint.processes import supervisor

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
