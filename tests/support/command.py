"""The installed command as a person runs it: a process of its own, with its output and exit code.

Its imports take longer than most commands, so a Python that has done them becomes the process (``warm``). Tests of the
start itself, of signals and of terminals start ``LAUNCHER``.
"""

from __future__ import annotations

import functools
import pkgutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import warm

import smdp_launch
from tests.conftest import LAUNCHER, clean_environment

_CODE = """
import resource, sys
for one, limit in {limits!r}.items():
    resource.setrlimit(one, (limit, limit))
sys.argv[:] = {arguments!r}
sys.path[0] = {folder!r}
from smdp_launch.cli import main
main()
"""
#: Of ours, what belongs to other processes, to notebooks and to tests.
_ELSEWHERE = ("smdp_launch.__main__", "smdp_launch.localcloud.", "smdp_launch.notebook", "smdp_launch.testing")
_CLIENTS = ("botocore.client", "botocore.credentials", "botocore.httpsession", "botocore.session", "rich.console")


def run(
    folder: Path,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    limits: Mapping[int, int] | None = None,
) -> subprocess.CompletedProcess[str]:
    """The command in ``folder``; stdin is no terminal, and nobody answers there.

    Args:
        timeout: seconds that it may take.
        limits: by resource, such as ``resource.RLIMIT_CPU``.
    """
    environment = dict(clean_environment() if env is None else env)
    command = [str(LAUNCHER), *map(str, arguments)]
    if limits is None and (not warm.is_possible or warm.is_early(environment)):
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
    code = _CODE.format(limits=dict(limits or {}), arguments=command, folder=str(LAUNCHER.parent))
    process = warm.start(code, environment, folder=folder, modules=_modules())
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
    return (*_CLIENTS, *(name for name in ours if not name.startswith(_ELSEWHERE)), "tests.support.service_models")
