"""The image registry of a local cloud: Debian's `docker-registry`, on a port of its own, started on first use.

It is a child of the server's main thread: when that ends, the kernel kills it. Images stay on disk. Every request needs
the random password of the server, which clients get from the calls of ECR.
"""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import json
import secrets
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.isolation import namespaces
from smdp_launch.private_files import write_bytes

USER = "AWS"  # the user name of every ECR login
PROGRAM = "docker-registry"
_ADDRESS = "127.0.0.1"
_START = 10.0  # seconds for the registry to answer
_TRIES = 5  # ports: another process may take a free one first
_MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"


@dataclass
class Registry:
    """The server's main thread calls `start_if_requested` periodically; the threads of requests call the rest."""

    folder: Path
    password: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    host: str = ""
    _requested: threading.Event = field(default_factory=threading.Event)
    _tried: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[bytes] | None = None
    _refusal: str = ""

    def require(self) -> str:
        """ADDRESS:PORT of the running registry. Raises ServiceError where it cannot run."""
        self._requested.set()
        if not self._tried.wait(_START * 2):
            raise ServiceError("ServerException", "The image registry did not start in time.", 500)
        if self._refusal:
            raise ServiceError("ServerException", self._refusal, 500)
        return self.host

    def fetch(self, path: str) -> tuple[str, bytes] | None:
        """Digest and body of a path below /v2/; None where the registry has nothing there."""
        login = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Accept": _MANIFESTS}
        try:
            with _open(urllib.request.Request(f"http://{self.host}/v2/{path}", headers=headers), 10) as answer:
                return answer.headers.get("Docker-Content-Digest", ""), answer.read()
        except urllib.error.HTTPError as error:
            if error.code in (400, 404):
                return None
            raise

    def start_if_requested(self) -> None:
        if self._requested.is_set() and not self._tried.is_set():
            self._refusal = self._start()
            self._tried.set()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> str:
        """Start the registry; the reason why it cannot run, or an empty text."""
        program = shutil.which(PROGRAM)
        if program is None:
            return f"This machine has no {PROGRAM}, which stores the images: apt-get install {PROGRAM}."
        hashed = _bcrypt(self.password)
        if hashed is None:
            return "This machine's C library cannot hash the registry's password (bcrypt)."
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_bytes(self.folder / "htpasswd", f"{USER}:{hashed}\n".encode())
        for _ in range(_TRIES):
            self.host = f"{_ADDRESS}:{_free_port()}"
            write_bytes(self.folder / "config.json", json.dumps(_config(self.folder, self.host)).encode())
            self._process = _spawn(program, self.folder)
            if _answers(self.host, self._process):
                return ""
            self.close()
        return f"The image registry does not start; see {self.folder / 'registry.log'}."


def _config(folder: Path, host: str) -> dict[str, object]:
    """The registry's configuration. It reads YAML, so JSON is valid too."""
    return {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": host, "secret": secrets.token_hex(16)},
        "auth": {"htpasswd": {"realm": "local", "path": str(folder / "htpasswd")}},
    }


def _spawn(program: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "registry.log").open("ab") as log:
        return subprocess.Popen(
            [program, "serve", str(folder / "config.json")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={},
            preexec_fn=namespaces.die_with_parent,  # noqa: PLW1509 (no lock is taken between fork and exec)
        )


def _answers(host: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the registry answers; whether it requires a login, as this registry does."""
    deadline = time.monotonic() + _START
    while process.poll() is None and time.monotonic() < deadline:
        try:
            _open(urllib.request.Request(f"http://{host}/v2/"), 1).close()
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            time.sleep(0.02)
    return False


def _open(request: urllib.request.Request, timeout: float) -> Any:
    """The answer, without a proxy. Raises OSError, of which HTTPError is one."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout)


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind((_ADDRESS, 0))
        return int(trial.getsockname()[1])


def _bcrypt(password: str) -> str | None:
    """The hash that the registry requires. Python has no bcrypt; the system's crypt(3) does."""
    name = ctypes.util.find_library("crypt")
    if name is None:
        return None
    crypt = ctypes.CDLL(name).crypt
    crypt.restype = ctypes.c_char_p
    salt = secrets.token_hex(11)  # 22 characters, all in the alphabet of bcrypt's salts
    found: bytes | None = crypt(password.encode(), f"$2b$05${salt}".encode())
    return found.decode() if found is not None and found.startswith(b"$2b$") else None
