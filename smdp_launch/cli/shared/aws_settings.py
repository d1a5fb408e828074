"""Finds settings of this machine that send requests to AWS despite the exports of `local up`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: The first versions that read AWS_ENDPOINT_URL, by major version (the AWS CLI's changelogs).
READS_ENDPOINT_URL = {1: (1, 29, 0), 2: (2, 13, 0)}
_VERSION = re.compile(r"aws-cli/(\d+)\.(\d+)\.(\d+)")
_TIMEOUT = 20.0  # seconds for `aws --version`, which starts a Python
_RULE = "AWS CLI 1 before 1.29 and 2 before 2.13 ignore AWS_ENDPOINT_URL and send requests to AWS"


class CommandLine:
    """The AWS CLI on PATH. It prints its version in the background, and is killed when the context ends."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._path = shutil.which("aws", path=environ.get("PATH"))
        self._process: subprocess.Popen[str] | None = None
        if self._path is not None:
            self._process = _started(self._path)

    def __enter__(self) -> CommandLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            with self._process as process:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def warning(self) -> str | None:
        """A warning if the version ignores AWS_ENDPOINT_URL. Waits for the version."""
        if self._path is None:
            return None
        output = "" if self._process is None else _output(self._process)
        match = _VERSION.search(output)
        if match is None:
            return f"`{self._path} --version` prints no version: check the program. {_RULE}"
        version = tuple(int(part) for part in match.groups())
        if version >= READS_ENDPOINT_URL.get(version[0], version):
            return None
        shown = ".".join(match.groups())
        return f"{self._path} is version {shown}. {_RULE}: pass --endpoint-url $AWS_ENDPOINT_URL, or update it"


def _started(path: str) -> subprocess.Popen[str] | None:
    try:
        return subprocess.Popen(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError:
        return None


def _output(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=_TIMEOUT)[0]
    except subprocess.TimeoutExpired:
        return ""


def ignored_endpoints(environ: Mapping[str, str]) -> str | None:
    """A warning if the current settings make clients ignore AWS_ENDPOINT_URL."""
    name = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
    if environ.get(name, "").lower() == "true":
        return (
            f"the environment has {name}=true, with which clients ignore AWS_ENDPOINT_URL: the exports set it to false"
        )
    file = Path(environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    profile = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
    for one in dict.fromkeys((profile, "default")):  # the exports remove AWS_PROFILE
        if _setting(file, one, "ignore_configured_endpoint_urls").lower() == "true":
            return (
                f"{file} has ignore_configured_endpoint_urls = true in the profile {one}, with which clients ignore "
                f"AWS_ENDPOINT_URL: the exports set {name}=false, which overrides it"
            )
    return None


def _setting(file: Path, profile: str, name: str) -> str:
    from botocore.configloader import load_config
    from botocore.exceptions import BotoCoreError

    try:
        profiles = load_config(str(file))["profiles"]
    except BotoCoreError:  # clients report an unreadable file themselves
        return ""
    value = profiles.get(profile, {}).get(name, "")
    return value if isinstance(value, str) else ""
