"""What of the user's environment reaches the local cloud's processes: what the interpreter needs, and no more.

AWS settings, proxies and profiles of the user must not change what happens here, nor be seen by a job.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

ACCOUNT = "000000000000"
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "SMDP_LOCAL_ISOLATION")


def server_environment() -> dict[str, str]:
    """For the server and the supervisors."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, kept["PYTHONPATH"].split(os.pathsep)))
    return {
        **kept,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "MOTO_ACCOUNT_ID": ACCOUNT,
        "MOTO_DISABLE_GLOBAL_CORS": "1",
        "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "65536",  # bytes; larger parts of uploads wait on disk
    }


def isolate() -> None:
    """Give this process that environment, for a server that was started by hand."""
    environment = server_environment()
    os.environ.clear()
    os.environ.update(environment)


def host_environment() -> dict[str, str]:
    """What a simulated host gets from this machine."""
    kept = {
        name: os.environ[name] for name in ("LANG", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH") if os.environ.get(name)
    }
    programs = os.environ.get("PATH", os.defpath)
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{programs}"
    if site.ENABLE_USER_SITE:
        # The host has a HOME of its own; packages that were installed with `pip install --user` stay importable.
        kept["PYTHONUSERBASE"] = site.getuserbase()
    return kept
