"""One host of an endpoint: its tree, its container, its health check, and its restarts."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.host_log import HostLog
from smdp_launch.localcloud.layout import LOG_SUFFIX
from smdp_launch.localcloud.processes import memory_below
from smdp_launch.localcloud.runtime.host_process import HostSpec
from smdp_launch.localcloud.runtime.serving.health import HealthCheck
from smdp_launch.localcloud.runtime.serving.model_data import share
from smdp_launch.localcloud.runtime.started_host import Host
from smdp_launch.localcloud.runtime.tree import HostTree

PORT = 8080
_MOST_STARTS = 3  # of a container that exits before it has passed a health check
_RESTART_DELAY = 0.5  # seconds; doubled with each restart
_LONGEST_DELAY = 30.0
_MEMORY_INTERVAL = 0.5  # seconds between measurements of a limited container's memory
_STABLE = 60.0  # seconds in service, after which the delay begins anew
GRACE = 30.0  # seconds between SIGTERM and SIGKILL, as on the platform


@dataclass(frozen=True)
class Address:
    """Where a container listens, and the secret that its requests have.

    `number`: of the host among those of the endpoint, from 1.
    """

    number: int
    host: str
    port: int
    token: str = field(repr=False)


@dataclass(frozen=True)
class Limits:
    """Of a container.

    Args:
        startup: seconds from its start to its first passed health check.
        slow_start: seconds in which an injected fault lets the health check fail.
        memory: bytes that all its processes together may have; 0 for no limit.
    """

    startup: float
    slow_start: float = 0.0
    memory: int = 0


class ServingHost:
    """The supervisor's main thread calls all methods: the kernel ends a container whose starting thread has ended.

    Args:
        logs: folder of the variant's log streams.
    """

    def __init__(
        self,
        root: Path,
        logs: Path,
        model: Path,
        address: Address,
        limits: Limits,
        spec: Callable[[HostTree, Address], HostSpec],
    ) -> None:
        self.instance = f"i-{secrets.token_hex(9)[:17]}"
        self.address = address
        self.failure = ""
        self._tree = HostTree(self.instance, root / self.instance)
        self._log_path = logs / f"{self.instance}{LOG_SUFFIX}"
        self._limits = limits
        self._measured_at = 0.0  # of the monotonic clock
        self._spec = spec
        self._host: Host | None = None
        self._health: HealthCheck | None = None
        self._was_in_service = False
        self._starts = 0
        self._restarts = 0
        self._since = 0.0  # of the monotonic clock: when the container was started
        self._not_before = 0.0
        self._stopping_since: float | None = None  # of the monotonic clock
        self._kill_at = 0.0
        create_tree(self._tree, model)

    @property
    def is_in_service(self) -> bool:
        return self._health is not None and self._health.passes and self._stopping_since is None

    def record(self) -> dict[str, Any]:
        """For the server, which sends requests to it."""
        at = self.address
        return {"instance": self.instance, "address": at.host, "port": at.port, "token": at.token}

    def maintain(self) -> None:
        """Start the container if it is not running, and restart it if it is unhealthy.

        Sets `failure` where a container that was never in service cannot be.
        """
        now = time.monotonic()
        if self._host is None:
            if now >= self._not_before and self._stopping_since is None and not self.failure:
                self._start(now)
        elif self._host.has_ended:
            self._ended(now, f"exited with code {self._host.code}")
        elif self._exceeds_memory(now):
            self._ended(
                now, f"needs more than {self._limits.memory // 1024**2} MB (MemorySizeInMB): out of memory, killed"
            )
        elif self._health is not None and self._health.has_failed:
            self._ended(now, "does not answer its health check")
        elif self.is_in_service:
            self._was_in_service = True
            if now > self._since + _STABLE:
                self._restarts = 0
        elif self._health is not None and now > self._since + self._limits.startup and not self._health.passes:
            self._overdue(now)

    def terminate(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds; a later call may set fewer. `stopped` must be called until
        it returns True."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            if self._health is not None:
                self._health.end()
            if self._host is not None:
                self._host.terminate()
        self._kill_at = self._stopping_since + grace

    def stopped(self) -> bool:
        """Whether the container has ended after `terminate`, which is made sure when its grace is over."""
        if self._host is not None and (self._host.has_ended or time.monotonic() > self._kill_at):
            self._discard()
        return self._host is None

    def kill(self) -> None:
        self._stopping_since = time.monotonic()
        self._discard()

    def crash(self) -> None:
        """Kill the container, which is started again."""
        if self._host is not None:
            self._host.kill()

    def report(self, text: str) -> None:
        """Write a line of the local cloud into the host's log."""
        log = HostLog(self._log_path)
        log.write(f"[local cloud] {text}")
        log.close()

    def _start(self, now: float) -> None:
        self._starts += 1
        self._since = now
        (self._tree.ml / "output/failure").unlink(missing_ok=True)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._host = Host(self._tree, self._spec(self._tree, self.address), HostLog(self._log_path))
        self._health = HealthCheck(self.address.host, self.address.port, self._limits.slow_start)

    def _exceeds_memory(self, now: float) -> bool:
        if not self._limits.memory or self._host is None or now < self._measured_at + _MEMORY_INTERVAL:
            return False
        self._measured_at = now
        return memory_below(self._host.pid) > self._limits.memory

    def _ended(self, now: float, what: str) -> None:
        """The container has ended or must be: start it again, after a while that grows."""
        host = self._host
        reason = ""
        if host is not None:
            self._discard()
            reason = host.failure_text().strip()
        text = f"The container {what}{f': {reason}' if reason else ''}"
        if not self._was_in_service and self._starts >= _MOST_STARTS:
            self.failure = f"{text} (started {self._starts} times)."
            return
        delay = min(_LONGEST_DELAY, _RESTART_DELAY * 2**self._restarts)
        self._restarts += 1
        self._not_before = now + delay
        self.report(f"{text}; it is started again in {delay:g} s")

    def _overdue(self, now: float) -> None:
        what = f"did not answer its health check within {self._limits.startup:g} s"
        if self._was_in_service:
            self._ended(now, what)
        else:
            self.failure = f"The container {what}."

    def _discard(self) -> None:
        if self._health is not None:
            self._health.end()
        self._health = None
        if self._host is not None:
            self._host.kill()
        self._host = None


def create_tree(tree: HostTree, model: Path) -> None:
    """Create the folders of a serving host."""
    for folder in (tree.ml / "output", tree.tmp, tree.opt):
        folder.mkdir(parents=True)
    tree.tmp.chmod(0o1777)
    share(model, tree.ml / "model")
    lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback", f"127.0.0.1\t{tree.name}"]
    tree.hosts_file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def free_port(address: str) -> int:
    """The platform's port if it is free at the address, else another one."""
    for port in (PORT, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((address, port))
                trial.listen()
            except OSError:
                continue
            return int(trial.getsockname()[1])
    raise OSError(f"no port is free at {address}")
