"""The started hosts of a job, which end together."""

from __future__ import annotations

import time
from collections.abc import Callable

from smdp_launch.localcloud.runtime import outcome
from smdp_launch.localcloud.runtime.started_host import Host, wait_until

_TICK = 0.05  # seconds between checks of the hosts
_REPORT_WAIT = 1.0  # seconds for the other hosts to report what they saw
_FAILURE_GRACE = 2.0  # seconds for the other hosts to exit by themselves


class HostGroup:
    def __init__(self) -> None:
        self.hosts: list[Host] = []

    def add(self, host: Host) -> None:
        self.hosts.append(host)

    @property
    def has_failure(self) -> bool:
        """Whether a host has exited with a code other than 0."""
        return any(host.has_ended and host.code != 0 for host in self.hosts)

    def ended(self) -> int:
        """How many hosts have exited."""
        return sum(host.has_ended for host in self.hosts)

    def fail(self) -> str:
        """End all hosts after one has failed; the reason of the failure.

        Wait for the reports of the other hosts first: the host that exits first need not be the one that failed first.
        """
        wait_until(self.hosts, _REPORT_WAIT, reported=True)
        wait_until([host for host in self.hosts if host.has_reported], _REPORT_WAIT)
        failed = [host for host in self.hosts if host.has_ended and host.code != 0]
        for host in failed:
            host.read_to_end()
        reason = outcome.failure_reason(failed)
        for host in self.hosts:
            host.terminate()
        wait_until(self.hosts, _FAILURE_GRACE)
        self.kill()
        return reason

    def terminate(self, grace: Callable[[], float]) -> None:
        """Send SIGTERM to every host and wait until all have exited, for at most `grace()` seconds.

        `grace` is called again and again: the limit may shrink meanwhile.
        """
        for host in self.hosts:
            host.terminate()
        began = time.monotonic()
        while time.monotonic() < began + grace() and not all(host.has_ended for host in self.hosts):
            time.sleep(_TICK)

    def kill(self) -> None:
        for host in self.hosts:
            host.kill()

    def complete_logs(self) -> None:
        """Write the log lines that met a full disk, after the hosts' end."""
        for host in self.hosts:
            host.complete_log()

    def clear(self) -> None:
        """Forget the hosts, which have exited and whose trees are removed."""
        self.complete_logs()
        self.hosts = []
