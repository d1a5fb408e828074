"""Processes over providers of libfabric: a death is reported as over TCP, signal handlers stay, shm is refused."""

import ctypes.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

import pytest
from ports import free_port

# Not opened here: libraries that it loads replace this process's handler of SIGINT.
pytestmark = pytest.mark.skipif(ctypes.util.find_library("fabric") is None, reason="libfabric is not installed")

TCP = {"SMDP_TRANSPORT": "tcp"}
FABRIC = {"SMDP_TRANSPORT": "ofi", "FI_PROVIDER": "tcp;ofi_rxm"}
# A death reaches every rank within a second (docs/explanation/engine.md). The calls have ten times as long, for a
# busy machine: after that, and after the heartbeat, the engine would raise another error.
DEADLINE_S = 10
# Ranks 0 and 1 share a host. They compute sums until one fails.
RANK = """
import sys
import numpy as np
import c_interface
rank, port, deadline_s = map(int, sys.argv[1:4])
options = c_interface.options_of(f"host-{rank // 2}", port, {"SMDP_HEARTBEAT_S": "60", "SMDP_CLOSE_TIMEOUT_S": "1"})
try:
    engine = c_interface.Engine(c_interface.Library(c_interface.installed()), rank, 3, options)
    group = engine.group([0, 1, 2], "all", deadline_s)
    values = np.zeros(1 << 20, np.float32)
    for number in range(1_000_000):
        engine.add_up(group, values)
        if number == 5:
            print("summed", flush=True)
except c_interface.EngineError as error:
    print("raised", error, flush=True)
"""

HANDLES_SIGNALS = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("saves a checkpoint", flush=True))
""" + RANK.replace(
    "for number in range(1_000_000):",
    """engine.add_up(group, values)
    signal.raise_signal(signal.SIGTERM)
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    for number in ():""",
)


def _start(rank: int, port: int, env: Dict[str, str], script: str = RANK) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(rank), str(port), str(DEADLINE_S)],
        cwd=Path(__file__).parents[1] / "support",
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        text=True,
    )


def _wait_until_stopped(pid: int) -> None:
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)


def _errors_of_survivors(victim: int, env: Dict[str, str]) -> List[str]:
    port = free_port()
    job = [_start(rank, port, env) for rank in range(3)]
    try:
        for rank in job:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "summed\n"
        # The others wait for it in the middle of a sum when it dies.
        job[victim].send_signal(signal.SIGSTOP)
        _wait_until_stopped(job[victim].pid)
        job[victim].kill()
        outputs = [rank.communicate(timeout=60)[0].strip() for rank in job]
        return outputs[:victim] + outputs[victim + 1 :]
    finally:
        for rank in job:
            rank.kill()
            rank.wait()


def _cause(error: str) -> str:
    """The error without the operation's number, and with one text for the ways in which a connection ends.

    A rank that had completed its sum raises the error in its next call."""
    head = error.split(" [", maxsplit=1)[0].replace("group 'all' failed before: ", "")
    return re.sub(
        r"(the connection was closed|(sending|receiving) failed: (Connection reset by peer|Broken pipe))$",
        "its connection ended",
        head,
    )


@pytest.mark.parametrize(
    ("victim", "rails"),
    [(0, 1), pytest.param(1, 1, marks=pytest.mark.runs), (2, 1), (0, 2), pytest.param(2, 2, marks=pytest.mark.runs)],
)
def test_death_over_a_fabric_is_reported_as_over_tcp(victim: int, rails: int) -> None:
    fabric = {**FABRIC, "SMDP_FABRIC_RAILS": str(rails)}
    over_tcp, over_fabric = ([_cause(error) for error in _errors_of_survivors(victim, env)] for env in (TCP, fabric))
    assert over_tcp == [f"raised rank {victim} (host host-{victim // 2}) was lost: its connection ended"] * 2
    assert over_fabric == over_tcp


def test_provider_shm_is_refused_on_every_rank() -> None:
    port = free_port()
    job = [_start(rank, port, {"SMDP_TRANSPORT": "ofi", "FI_PROVIDER": "shm"}) for rank in range(3)]
    outputs = [rank.communicate(timeout=60)[0].strip() for rank in job]
    assert [rank.returncode for rank in job] == [0] * 3, outputs
    for output in outputs:
        assert output.startswith(
            "raised SMDP_TRANSPORT=ofi: rank 0 (host host-0): the engine does not use libfabric's provider shm"
        ), output


def test_signal_handlers_of_the_script_stay() -> None:
    port = free_port()
    job = [_start(rank, port, FABRIC, HANDLES_SIGNALS) for rank in range(3)]
    outputs = [rank.communicate(timeout=60)[0] for rank in job]
    assert outputs == ["saves a checkpoint\ninterrupted\n"] * 3
