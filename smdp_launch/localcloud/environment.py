"""The part of the user's environment that reaches the local cloud's processes: only what the interpreter needs.

The user's AWS settings, proxies and profiles must not change the local cloud's behaviour, and no job may see them.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

ACCOUNT = "000000000000"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "SMDP_LOCAL_ISOLATION")


def server_environment() -> dict[str, str]:
    """For the server and the supervisors."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if passed_on.get("PYTHONPATH"):
        passed_on["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, passed_on["PYTHONPATH"].split(os.pathsep)))
    return {
        **passed_on,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "MOTO_ACCOUNT_ID": ACCOUNT,
        "MOTO_DISABLE_GLOBAL_CORS": "1",
        "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "65536",  # bytes; larger parts of uploads wait on disk
    }


def isolate() -> None:
    """Apply `server_environment` to this process: the user may have started it by hand."""
    environment = server_environment()
    os.environ.clear()
    os.environ.update(environment)


def host_environment() -> dict[str, str]:
    """The variables that a simulated host gets from this machine."""
    passed_on = {
        name: os.environ[name] for name in ("LANG", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH") if os.environ.get(name)
    }
    programs = os.environ.get("PATH", os.defpath)
    passed_on["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{programs}"
    if site.ENABLE_USER_SITE:
        # The host has a HOME of its own; packages installed with `pip install --user` stay importable.
        passed_on["PYTHONUSERBASE"] = site.getuserbase()
    return passed_on
