"""Runs the installed command in a process of its own, and returns its output and exit code.

The imports take longer than most commands, so the process is forked from a Python that has done them (``warm``). Tests
of the start, of signals and of terminals start ``LAUNCHER`` itself.
"""

from __future__ import annotations

import functools
import pkgutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import forked_process

import smdp_launch
from tests.conftest import LAUNCHER, clean_environment
from tests.support.services import forked_servers

_CODE = """
import resource, sys
for one, limit in {limits!r}.items():
    resource.setrlimit(one, (limit, limit))
sys.argv[:] = {arguments!r}
sys.path[0] = {folder!r}
from smdp_launch.localcloud.client import connect
from tests.support.services import forked_servers
forked_servers.ADDRESS.name = {servers!r}
forked_servers.fork_for(connect)
from smdp_launch.cli import main
main()
"""
#: Of commands that may start a local cloud.
_LOCAL = {"--local", "local", "rehearse"}
#: Packages of other processes, of notebooks and of tests.
_ELSEWHERE = ("smdp_launch.__main__", "smdp_launch.localcloud.", "smdp_launch.notebook", "smdp_launch.testing")
_CLIENTS = ("botocore.client", "botocore.credentials", "botocore.httpsession", "botocore.session", "rich.console")


def run(
    folder: Path,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    limits: Mapping[int, int] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command in ``folder``. Standard input is no terminal.

    Args:
        timeout: limit in seconds.
        limits: by resource, such as ``resource.RLIMIT_CPU``.
    """
    environment = dict(clean_environment() if env is None else env)
    command = [str(LAUNCHER), *map(str, arguments)]
    if limits is None and (not forked_process.is_possible or forked_process.is_early(environment)):
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    if _LOCAL & set(command):
        forked_servers.listen()
    settings = {"limits": dict(limits or {}), "arguments": command, "folder": str(LAUNCHER.parent)}
    code = _CODE.format(**settings, servers=forked_servers.ADDRESS.name)
    process = forked_process.start(code, environment, folder=folder, modules=_modules())
    try:
        out, err = process.communicate(timeout)
    except BaseException:
        process.kill()
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@functools.cache
def _modules() -> tuple[str, ...]:
    ours = (one.name for one in pkgutil.walk_packages(smdp_launch.__path__, "smdp_launch."))
    return (
        *_CLIENTS,
        *(name for name in ours if not name.startswith(_ELSEWHERE)),
        "tests.support.service_models",
        "tests.support.services.forked_servers",
    )
