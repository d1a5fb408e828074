"""A simulated host: the real entrypoint as a process on a temporary tree, as the platform runs it on /opt/ml."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

PACKAGE = Path(__file__).parents[2]
MARK = "SMDP_TEST_MARK"
# The limit of a test that hangs. It is below the 115 s that workers have to save: tests of an earlier end rely on that.
TIMEOUT_S = 100.0
# The first host listens at a fixed port, and tests may run in several processes at once on one machine.
NETWORK = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError(f"waited {TIMEOUT_S:g} s for {what}")


def hosts_file(path: Path, names: list[str]) -> str:
    """Write a hosts file that gives each host a loopback address of its own."""
    path.write_text("".join(f"{NETWORK}.{number} {name}\n" for number, name in enumerate(names, start=11)))
    return str(path)


def reserve_port() -> socket.socket:
    """A socket whose port torch's store can listen on, and no other test that reserves a port, while it is open.

    The store listens on all addresses, so the default port serves one test of a machine at a time.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    return reserved


def processes_with(mark: str) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


@dataclass
class Host:
    """A simulated host: its tree, and the entrypoint that runs on it."""

    root: Path
    mark: str
    host: str = "algo-1"
    hosts: list[str] = field(default_factory=lambda: ["algo-1"])
    python: str = sys.executable
    prefix: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=lambda: ["-m", "smdp_entrypoint"])
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    reader: threading.Thread | None = None
    master_port: int | None = None  # of SMDP_MASTER_PORT; None: not set

    def config(self, name: str, content: Any) -> None:
        path = self.root / "input/config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def job(self, script: str | None = None, program: str = "train.py", **hyperparameters: Any) -> Host:
        """Write the files of a job whose program is `script`; hyperparameters are encoded as in the SDK."""
        values = {"sagemaker_program": program, **hyperparameters}
        self.config("hyperparameters.json", {name: json.dumps(value) for name, value in values.items()})
        self.config("resourceconfig.json", {"current_host": self.host, "hosts": self.hosts})
        if script is not None:
            self.code(program, script)
        return self

    def code(self, name: str, text: str) -> Path:
        path = self.root / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def environ(self, **more: str) -> dict[str, str]:
        base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        if self.master_port is not None:
            base["SMDP_MASTER_PORT"] = str(self.master_port)
        return {**base, "PYTHONPATH": str(PACKAGE), MARK: self.mark, "SMDP_ML_ROOT": str(self.root), **more}

    def start(self, read: bool = True, **environ: str) -> Host:
        self.process = subprocess.Popen(
            [*self.prefix, self.python, *self.entrypoint],
            env=self.environ(**environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if read:
            self.read()
        return self

    def read(self) -> None:
        assert self.process is not None
        pipe = self.process.stdout

        def collect() -> None:
            assert pipe is not None
            for line in pipe:
                self.lines.append(line.decode("utf-8").rstrip("\n"))

        self.reader = threading.Thread(target=collect, daemon=True)
        self.reader.start()

    def wait(self) -> int:
        """Wait until the process exits and all its output is read; return the exit code."""
        assert self.process is not None
        try:
            code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("the entrypoint does not exit:\n" + self.text) from None
        if self.reader is not None:
            self.reader.join(TIMEOUT_S)
            assert self.process.stdout is not None
            self.process.stdout.close()
        return code

    def run(self, **environ: str) -> int:
        return self.start(**environ).wait()

    def wait_for_line(self, part: str) -> str:
        try:
            lines = wait_until(lambda: [line for line in list(self.lines) if part in line], repr(part))
        except AssertionError as error:
            raise AssertionError(f"{error} in:\n{self.text}") from None
        return str(lines[0])

    def signal(self, signum: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(signum)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def failure(self) -> str:
        path = self.root / "output/failure"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def of_rank(self, rank: int) -> list[str]:
        prefix = f"[{self.host}:{rank}] "
        return [line[len(prefix) :] for line in self.lines if line.startswith(prefix)]

    def events(self, name: str) -> list[dict[str, Any]]:
        prefix = f"[{self.host}] "
        lines = [line[len(prefix) :] for line in self.lines if line.startswith(prefix + '{"smdp_event":')]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def saved(self, name: str) -> Any:
        """The JSON file that a script wrote into <root>/output/data."""
        return json.loads((self.root / "output/data" / name).read_text(encoding="utf-8"))

    def clean_up(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.reader is not None:
            self.reader.join(TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
