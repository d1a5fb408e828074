"""The supervisor's side of a simulated host: its process, its lines and the failures that it reports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from smdp_launch.event_lines import event_of, split_line
from smdp_launch.localcloud.host_log import HostLog
from smdp_launch.localcloud.processes import kill_processes_below
from smdp_launch.localcloud.runtime.host_process import HostSpec
from smdp_launch.localcloud.runtime.outcome import REASON_LIMIT
from smdp_launch.localcloud.runtime.tree import HostTree

_LONGEST_LINE = 256 * 1024  # bytes, the service's limit of one event
_FAILURE_EVENTS = ("worker_exit", "host_failed")
_END_WAIT = 5.0  # seconds for a killed host to exit, and for its last lines


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
            [sys.executable, "-m", "smdp_launch.localcloud.runtime.host_process", str(tree.spec)],
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
        head = {"smdp_event": 1, "event": event, "time": time.time(), "host": self.name}
        self._log.write(f"[{self.name}] {json.dumps({**head, **fields})}")

    def report_after_end(self, event: str, **fields: Any) -> None:
        """As `report`, for a host that has ended."""
        with self._log.reopened():
            self.report(event, **fields)

    def note(self, text: str) -> None:
        """Write a line of the local cloud into the host's log, also after the host's end."""
        with self._log.reopened():
            self._log.write(f"[{self.name}] {text}")

    def complete_log(self) -> None:
        """Try again to write the lines of an ended host that met a full disk."""
        with suppress(OSError), self._log.reopened():
            pass

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
