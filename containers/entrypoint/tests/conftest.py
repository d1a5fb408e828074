"""Runs the real entrypoint as a process on a temporary tree, as the platform runs it on /opt/ml.

Every process that a test causes carries a marker in its environment; when a test ends, none may be left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

PACKAGE = Path(__file__).parents[1]
MARK = "SMDP_TEST_MARK"
# Ends a hung test. Less than the 115 s that workers have to save, which a test of what ends them sooner relies on.
PATIENCE_S = 100.0


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE_S:g} s for {what}")


def processes_with(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@dataclass
class Host:
    """One simulated host: its tree, and the entrypoint started on it."""

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

    def config(self, name: str, content: Any) -> None:
        path = self.root / "input/config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def job(self, script: str | None = None, program: str = "train.py", **hyperparameters: Any) -> Host:
        """The files of a job whose program is `script`; hyperparameters are encoded as the SDK does."""
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

    def end(self) -> int:
        """The exit code, when the process has ended and all its output is read."""
        assert self.process is not None
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("the entrypoint does not end:\n" + self.text) from None
        if self.reader is not None:
            self.reader.join(PATIENCE_S)
            assert self.process.stdout is not None
            self.process.stdout.close()
        return code

    def run(self, **environ: str) -> int:
        return self.start(**environ).end()

    def wait_for_line(self, part: str) -> str:
        try:
            found = wait_until(lambda: [line for line in list(self.lines) if part in line], repr(part))
        except AssertionError as error:
            raise AssertionError(f"{error} in:\n{self.text}") from None
        return str(found[0])

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
        found = [line[len(prefix) :] for line in self.lines if line.startswith(prefix + '{"smdp_event":')]
        return [event for event in map(json.loads, found) if event["event"] == name]

    def saved(self, name: str) -> Any:
        """What a script wrote as JSON into <root>/output/data."""
        return json.loads((self.root / "output/data" / name).read_text(encoding="utf-8"))


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    left = lambda: processes_with(mark)  # noqa: E731
    try:
        wait_until(lambda: not left(), "all processes of the test to be gone")
    finally:
        for pid in left():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def host(tmp_path: Path, mark: str) -> Iterator[Host]:
    host = Host(tmp_path / "ml", mark)
    yield host
    _finish(host)


@pytest.fixture
def cluster(tmp_path: Path, mark: str) -> Iterator[Callable[[list[str]], list[Host]]]:
    """Makes one tree a host, with a hosts file that gives each a loopback address of its own."""
    made: list[Host] = []

    def make(names: list[str]) -> list[Host]:
        made.extend(Host(tmp_path / name, mark, name, names) for name in names)
        return made

    yield make
    for host in made:
        _finish(host)


def _finish(host: Host) -> None:
    if host.process is None:
        return
    if host.process.poll() is None:
        host.process.kill()
        host.process.wait()
    if host.reader is not None:
        host.reader.join(PATIENCE_S)
    if host.process.stdout is not None:
        host.process.stdout.close()


@pytest.fixture
def said() -> list[str]:
    """Pass `said.append` where a function wants a way to say something."""
    return []


@pytest.fixture
def until() -> Callable[[Callable[[], Any], str], Any]:
    return wait_until
