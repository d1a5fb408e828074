"""A rank without free descriptors or memory reports it, and every other rank raises an error that names it."""

import contextlib
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest
from ports import free_port

VICTIMS = [pytest.param(0, marks=pytest.mark.runs), 1, pytest.param(2, marks=pytest.mark.runs)]
# Three ranks on two hosts; rank ``victim`` gets ``limit`` descriptors, or ``room`` KiB above what it has.
RANK = """
import resource, sys
import numpy as np
import c_interface
kind = sys.argv[1]
rank, port, victim, limit = map(int, sys.argv[2:6])
library = c_interface.Library(c_interface.installed())
more = {"SMDP_OPERATION_TIMEOUT_S": "60", "SMDP_CLOSE_TIMEOUT_S": "1", "SMDP_TRACE_DIR": sys.argv[6]}
options = c_interface.options_of(f"host-{rank // 2}", port, more)
values = np.ones(8_000_000, np.float32)

try:
    if kind in ("descriptors", "clients") and rank == victim:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    engine = c_interface.Engine(library, rank, 3, options)
    group = engine.group([0, 1, 2], "all")
    engine.add_up(group, values[:100])
    if kind == "memory" and rank == victim:
        held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + limit * 1024, resource.RLIM_INFINITY))
    engine.add_up(group, values)
    print("done", values[0])
except c_interface.EngineError as error:
    print("raised", error)
"""


def _start(kind: str, rank: int, port: int, victim: int, limit: int, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RANK, kind, *map(str, (rank, port, victim, limit, folder))],
        cwd=Path(__file__).parents[1] / "support",
        stdout=subprocess.PIPE,
        text=True,
    )


def _outcomes(kind: str, victim: int, limit: int, folder: Path) -> List[str]:
    port = free_port()
    return _outputs([_start(kind, rank, port, victim, limit, folder) for rank in range(3)])


def _outputs(ranks: "List[subprocess.Popen[str]]") -> List[str]:
    try:
        return [rank.communicate(timeout=120)[0].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.mark.parametrize("victim", VICTIMS)
def test_rank_without_descriptors_is_named_on_every_rank(victim: int, tmp_path: Path) -> None:
    verdicts = []
    for limit in range(7, 13):
        outcomes = _outcomes("descriptors", victim, limit, tmp_path)
        if all(outcome.startswith("done 9.0") for outcome in outcomes):
            verdicts.append("done")
            continue
        for outcome in outcomes:
            assert "Too many open files (raise the limit: ulimit -n)" in outcome, (limit, outcomes)
            assert f"rank {victim}" in outcome, (limit, outcomes)
        verdicts.append("raised")
    assert verdicts == sorted(verdicts, reverse=True) and verdicts[0] == "raised" and verdicts[-1] == "done"


@pytest.mark.parametrize("victim", VICTIMS)
def test_rank_without_memory_is_named_on_every_rank(victim: int, tmp_path: Path) -> None:
    for room in (400, 300, 200, 100):  # the free space in the heap varies
        outcomes = _outcomes("memory", victim, room, tmp_path)
        if not outcomes[0].startswith("done"):
            break
    # A rank that learns of it before its call raises in the call.
    named = re.compile(f"raised (group 'all' failed before: )?rank {victim} \\(host [^)]+\\) has no memory left ")
    for outcome in outcomes:
        assert named.match(outcome), (room, outcomes)


def test_unauthenticated_clients_do_not_use_up_descriptors(tmp_path: Path) -> None:
    port = free_port()
    ranks = [_start("clients", 0, port, victim=0, limit=24, folder=tmp_path)]
    with contextlib.ExitStack() as clients:
        for _ in range(60):
            clients.enter_context(_connected(port))
        ranks += [_start("clients", rank, port, victim=0, limit=24, folder=tmp_path) for rank in (1, 2)]
        assert _outputs(ranks) == ["done 9.0"] * 3


def _connected(port: int) -> socket.socket:
    """A client that sends nothing, once rank 0 listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "rank 0 does not listen"
            time.sleep(0.01)
