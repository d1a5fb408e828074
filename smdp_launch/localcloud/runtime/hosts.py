"""The supervisor's side of a simulated host: its process, its log and the failures that it reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdp_launch.event_lines import event_of, split_line
from smdp_launch.localcloud.processes import kill_processes_below
from smdp_launch.localcloud.runtime.host import HostSpec
from smdp_launch.localcloud.runtime.outcome import REASON_LIMIT
from smdp_launch.localcloud.runtime.tree import HostTree

_LONGEST_LINE = 256 * 1024  # bytes, the service's limit of one event
_FAILURE_EVENTS = ("worker_exit", "host_failed")
_BACKLOG = 1024 * 1024  # bytes of lines that wait for space on the disk; later lines are dropped
_END_WAIT = 5.0  # seconds for a killed host to exit, and for its last lines


class HostLog:
    """One log stream: a JSON object a line, each written in one piece, so that readers need no lock.

    Where the disk has space for only a part of a line, the rest is written with the next line. After `close` nothing is
    written. Timestamps never decrease, whatever the clock does: readers bisect by them.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._unwritten = bytearray()
        self._dropped = 0
        self._last_time = 0
        self._path = path
        self._folder = path.parent
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, message: str) -> None:
        with self._lock:
            if len(self._unwritten) >= _BACKLOG:
                self._dropped += 1
            else:
                if self._dropped:
                    self._append(f"{self._dropped} lines are left out: disk full in {self._folder}")
                    self._dropped = 0
                self._append(message)
            if self._descriptor is not None:
                with suppress(OSError):
                    del self._unwritten[: os.write(self._descriptor, self._unwritten)]

    def reopened(self) -> HostLog:
        """The same stream again, for lines after the host's end."""
        return HostLog(self._path)

    def _append(self, message: str) -> None:
        self._last_time = max(self._last_time, int(time.time() * 1000))
        self._unwritten += (json.dumps({"timestamp": self._last_time, "message": message}) + "\n").encode()

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class Host:
    """A started host. Its own thread calls `on_line` with the host's name and each of its lines."""

    def __init__(
        self, tree: HostTree, spec: HostSpec, log: HostLog, on_line: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        self.tree = tree
        self._log = log
        self._on_line = on_line
        self._failures: list[float] = []
        self._ended_at = 0.0
        spec.write(tree.spec)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "smdp_launch.localcloud.runtime.host", str(tree.spec)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._pump = threading.Thread(target=self._copy_lines, daemon=True)
        self._pump.start()

    @property
    def name(self) -> str:
        return self.tree.name

    @property
    def pid(self) -> int:
        """The id of the host's monitor, the ancestor of all the host's processes."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        if self._process.poll() is None:
            return False
        self._ended_at = self._ended_at or time.time()
        return True

    @property
    def code(self) -> int:
        """The exit code once the host has ended, 128+N after signal N."""
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    @property
    def has_reported(self) -> bool:
        """Whether the host has ended or has reported a failure."""
        return self.has_ended or bool(self._failures)

    @property
    def failed_at(self) -> float:
        return min(self._failures, default=self._ended_at or time.time())

    def failure_text(self) -> str:
        try:
            with (self.tree.ml / "output/failure").open(errors="replace") as file:
                return file.read(REASON_LIMIT)
        except OSError:
            return ""

    def read_to_end(self) -> None:
        """Wait until the host's last lines are in the log, for at most `_END_WAIT` seconds."""
        self._pump.join(_END_WAIT)

    def terminate(self) -> None:
        if not self.has_ended:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every process of the host now."""
        if not self.has_ended:
            self._process.send_signal(signal.SIGUSR1)
            try:
                self._process.wait(_END_WAIT)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        kill_processes_below(self.tree.root)
        self.read_to_end()

    def _copy_lines(self) -> None:
        output = self._process.stdout
        if output is None:
            return
        with output:
            while line := output.readline(_LONGEST_LINE):
                self._take(line.rstrip(b"\r\n").decode(errors="replace"))
        self._log.close()

    def report(self, event: str, **fields: Any) -> None:
        """Write an event of the local cloud into the host's log (docs/reference/events.md)."""
        self._report(self._log, event, fields)

    def report_after_end(self, event: str, **fields: Any) -> None:
        """As `report`, for a host that has ended."""
        log = self._log.reopened()
        self._report(log, event, fields)
        log.close()

    def _report(self, log: HostLog, event: str, fields: Mapping[str, Any]) -> None:
        head = {"smdp_event": 1, "event": event, "time": time.time(), "host": self.name}
        log.write(f"[{self.name}] {json.dumps({**head, **fields})}")

    def _take(self, line: str) -> None:
        self._log.write(line)
        self._on_line(self.name, line)
        failed_at = failure_time(self.name, line)
        if failed_at is not None:
            self._failures.append(failed_at)


def failure_time(host: str, line: str) -> float | None:
    """The time of the failure that a host's log line reports (docs/reference/events.md); None for every other line."""
    event = event_of(split_line(host, line)) or {}
    try:
        return float(event["time"]) if event.get("event") in _FAILURE_EVENTS else None
    except (ValueError, KeyError, TypeError):
        return None


def wait_until(hosts: Sequence[Host], seconds: float, *, reported: bool = False) -> bool:
    """Wait until all hosts have ended or, with `reported`, have reported a failure. False after `seconds`."""
    deadline = time.monotonic() + seconds
    while not all(host.has_reported if reported else host.has_ended for host in hosts):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
