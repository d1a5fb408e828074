"""Starts servers and supervisors of local clouds by forking a process that has imported their modules.

The imports take longer than most tests: a second of processor time for a server. What runs is the code that
``python -m`` runs, with the same command line in /proc, environment, descriptors, limits and session. Where a new
interpreter would differ in anything else, such as its namespaces, or a variable that it reads at its start, one is
started. So does ``really_started``, for tests of the start, and every command that is not forked
(``tests/support/command.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import forked_process

from smdp_launch.localcloud.client import connect

#: Of a forking process: the name of the address of the one that starts servers.
VARIABLE = "SMDP_TEST_SERVERS"
#: What the forking process imports. The first one also applies the environment of a server, which moto's modules read.
MODULES = ("tests.support.services.forked_servers_imports",)
_SUPERVISORS = ("supervisor", "serving.supervisor", "serving.transform", "tuning.supervisor")
PROGRAMS = (
    "smdp_launch.localcloud.server",
    *(f"smdp_launch.localcloud.runtime.{one}" for one in _SUPERVISORS),
)
_CODE = """
import runpy, sys
sys.argv[:], sys.path[0] = {arguments!r}, "/"
sys.modules.pop({module!r}, None)
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""

ADDRESS = forked_process.Address(os.environ.get(VARIABLE, ""))
_waiting: list[int] = []  # the process of a test session, until it has started the forking process


@contextmanager
def forked() -> Iterator[None]:
    """Servers that this process or a command of ``tests.support.command`` starts are forked."""
    if not forked_process.is_possible:
        yield
        return
    _waiting.append(os.getpid())
    fork_for(connect)
    yield
    connect.subprocess = subprocess


def listen() -> None:
    """Start the forking process, unless it runs; without it, servers are started as usual."""
    if os.getpid() in _waiting:
        _waiting.clear()
        ADDRESS.listen(MODULES, VARIABLE)


def fork_for(module: Any) -> None:
    """Have the module of smdp_launch fork the programs that it starts with ``subprocess.Popen``."""
    module.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": _popen})


@contextmanager
def really_started() -> Iterator[None]:
    """Servers are started as usual."""
    before = connect.subprocess
    connect.subprocess = subprocess
    try:
        yield
    finally:
        connect.subprocess = before


def _popen(command: Sequence[str], **options: Any) -> Any:
    return _forked(command, **options) or subprocess.Popen(command, **options)


def _forked(
    command: Sequence[str], *, env: dict[str, str], stdout: Any, pass_fds: Sequence[int] = (), **_: Any
) -> forked_process.ForkedProcess | None:
    if tuple(command[:2]) != (sys.executable, "-m") or command[2] not in PROGRAMS:
        return None
    listen()
    code = _CODE.format(module=command[2], arguments=list(command[2:]))
    return ADDRESS.start(command, code, env, stdout.fileno(), pass_fds)
