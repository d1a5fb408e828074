"""The image registry of a local cloud: Debian's `docker-registry`, on a port of its own, started when first asked for.

It runs as a child of the server's main thread, with whose end the kernel ends it; images stay on disk. Nobody gets in
without the password that the server drew, which the calls of ECR hand out.
"""

from __future__ import annotations

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

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.isolation import namespaces
from smdp_launch.private_files import write_bytes

USER = "AWS"  # the user name of every ECR login
PROGRAM = "docker-registry"
_ADDRESS = "127.0.0.1"
_START = 10.0  # seconds for the registry to answer
_TRIES = 5  # ports, should somebody else be given the one that was free


@dataclass
class Registry:
    """`look` is called by the server's main thread, again and again; `require` by whoever serves a request."""

    folder: Path
    password: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    host: str = ""
    _wanted: threading.Event = field(default_factory=threading.Event)
    _settled: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[bytes] | None = None
    _refusal: str = ""

    def require(self) -> str:
        """ADDRESS:PORT of the running registry. Raises ServiceError where there can be none."""
        self._wanted.set()
        if not self._settled.wait(_START * 2):
            raise ServiceError("ServerException", "The image registry did not start in time.", 500)
        if self._refusal:
            raise ServiceError("ServerException", self._refusal, 500)
        return self.host

    def look(self) -> None:
        if self._wanted.is_set() and not self._settled.is_set():
            self._refusal = self._start()
            self._settled.set()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> str:
        """Why there is none, or nothing."""
        program = shutil.which(PROGRAM)
        if program is None:
            return f"This machine has no {PROGRAM}, which keeps the images: apt-get install {PROGRAM}."
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
    """JSON is YAML, which the registry reads."""
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
    """Whether it asks for a login, which only this registry does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START
    while process.poll() is None and time.monotonic() < deadline:
        try:
            opener.open(f"http://{host}/v2/", timeout=1).close()
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            time.sleep(0.02)
    return False


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind((_ADDRESS, 0))
        return int(trial.getsockname()[1])


def _bcrypt(password: str) -> str | None:
    """The registry takes no other kind of hash. Python has none of its own; the system's crypt(3) does."""
    name = ctypes.util.find_library("crypt")
    if name is None:
        return None
    crypt = ctypes.CDLL(name).crypt
    crypt.restype = ctypes.c_char_p
    salt = secrets.token_hex(11)  # 22 characters of the alphabet that bcrypt's salts have
    found: bytes | None = crypt(password.encode(), f"$2b$05${salt}".encode())
    return found.decode() if found is not None and found.startswith(b"$2b$") else None
