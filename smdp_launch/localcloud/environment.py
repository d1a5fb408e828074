"""The part of the user's environment that reaches the local cloud's processes: only what the interpreter needs.

The user's AWS settings, proxies and profiles must not change the local cloud's behaviour, and no job may see them.
"""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

ACCOUNT = "000000000000"
_PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "HOME",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CXX",
    "SMDP_LOCAL_ISOLATION",
)
_TO_HOSTS = ("LANG", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH", "CXX")
_ADAPTER_CACHE = "SMDP_ADAPTER_CACHE"


def server_environment() -> dict[str, str]:
    """For the server and the supervisors."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if passed_on.get("PYTHONPATH"):
        passed_on["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, passed_on["PYTHONPATH"].split(os.pathsep)))
    return {
        **passed_on,
        **_adapter_cache(),
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
    passed_on = {name: os.environ[name] for name in _TO_HOSTS if os.environ.get(name)}
    programs = os.environ.get("PATH", os.defpath)
    passed_on["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{programs}"
    if site.ENABLE_USER_SITE:
        # The host has a HOME of its own; packages installed with `pip install --user` stay importable.
        passed_on["PYTHONUSERBASE"] = site.getuserbase()
    return {**passed_on, **_adapter_cache()}


def adapter_cache() -> Path | None:
    """The user's folder of the engine's adapters that were built on this machine, by the same rules as in the engine
    (smdp_engine.adapters.cache). None without a home folder."""
    chosen, base = os.environ.get(_ADAPTER_CACHE), os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(os.path.expanduser(chosen)) if chosen else None  # noqa: PTH111 (no home: no exception)
    if folder is None:
        home = Path(os.path.expanduser("~/.cache"))  # noqa: PTH111
        folder = (Path(base) if os.path.isabs(base) else home) / "smdp-engine"  # noqa: PTH117 (may be empty)
        return folder if folder.is_absolute() else None
    return folder.absolute()


def _adapter_cache() -> dict[str, str]:
    """For the hosts: they have a home of their own, where each would build the adapter again."""
    folder = adapter_cache()
    return {} if folder is None else {_ADAPTER_CACHE: str(folder)}
