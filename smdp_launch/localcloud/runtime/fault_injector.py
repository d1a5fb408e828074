"""The fault of a job that is being rehearsed: when it strikes, and what it then does to the hosts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from smdp_launch.catalog.faults import EVENT, VARIABLE, Fault, Kind
from smdp_launch.event_lines import event_of, split_line
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.processes import descendants, variable
from smdp_launch.localcloud.protocol import injected_refusals
from smdp_launch.localcloud.protocol.injected_refusals import Refusal
from smdp_launch.localcloud.protocol.signatures import mark
from smdp_launch.localcloud.runtime.hosts import Host
from smdp_launch.localcloud.runtime.outcome import JobFailed

_UNSIGNALLED = 60.0  # seconds of training after which a fault strikes that waits for a step or a checkpoint by default


def asked(request: Mapping[str, Any]) -> Fault | None:
    """The fault that the request asks for. Raises JobFailed where it cannot be one of this job."""
    text = request.get("Environment", {}).get(VARIABLE)
    if text is None:
        return None
    try:
        return Fault.parse(text)
    except ValueError as error:
        raise JobFailed(f"ClientError: {VARIABLE}: {error}") from error


class Striker:
    """Watches a job for the moment of its fault, if it is to have one, and strikes once.

    `watch` is called by the hosts' own threads, all else by the supervisor's.
    """

    def __init__(self, fault: Fault | None, folder: JobFolder) -> None:
        self.fault = fault
        self._folder = folder
        self._state = folder.state_folder
        self._lock = threading.Lock()
        self._step = 0  # the furthest that a rank has reported
        self._has_victim = False  # the rank that is to be struck has been started
        self._began: float | None = None
        self._struck = False
        self._refusing_until: float | None = None
        self._stopped: tuple[Host, int, float] | None = None  # a process of a host that stands still, and until when

    @property
    def seconds(self) -> float:
        return self.fault.seconds if self.fault is not None else 0.0

    @property
    def grace(self) -> float:
        return self.fault.grace if self.fault is not None else 0.0

    @property
    def _rank(self) -> int:
        return self.fault.rank if self.fault is not None else 0

    def begin(self) -> None:
        """The hosts are being started, for the first time or again."""
        self._began = self._began or time.monotonic()

    def watch(self, host: str, line: str) -> None:
        """A line that a host has written."""
        event = event_of(split_line(host, line)) if self.fault is not None else None
        if event is None:
            return
        name, step, ranks = event["event"], event.get("step"), event.get("ranks")
        with self._lock:
            if name == "step" and isinstance(step, int):
                self._step = max(self._step, step)
            elif name == "workers_started" and isinstance(ranks, list):
                self._has_victim = self._has_victim or self._rank in ranks

    def is_held_back(self, host: str) -> bool:
        """Whether the host has still to wait before it starts."""
        return self._is("late") and self._strikes(host) and self._age() < self.seconds

    def see_started(self, host: Host) -> None:
        if self._is("late") and self._strikes(host.name):
            self.tell([host], "late", seconds=round(self._age(), 3))

    def takes_hosts(self, checkpoint_kept: bool | None) -> bool:
        """Whether the hosts are to be taken away now, and to come back; said once.

        Args:
            checkpoint_kept: None for a job that keeps none.
        """
        return self._is("spot") and self._is_time(checkpoint_kept)

    def stops(self, checkpoint_kept: bool | None) -> bool:
        """Whether the job is to be stopped now; said once."""
        return self._is("resume") and self._is_time(checkpoint_kept)

    def strike(self, hosts: Sequence[Host]) -> None:
        """Do to a worker what is to be done now, and undo what is over."""
        if self._is("kill", "slow") and self._is_time(None):
            for host in hosts:
                if self._strikes(host.name) and not self._strike(host):
                    self.tell(hosts, "missed", host=host.name, rank=self._rank)
        if self._is("throttle", "expire") and self._is_time(None):
            self._refuse(hosts)
        if self._refusing_until is not None and time.monotonic() >= self._refusing_until:
            self._refusing_until = None
            self.tell(hosts, "answered", refused=injected_refusals.counted(self._state))
        if self._stopped is not None and time.monotonic() >= self._stopped[2]:
            self.let_go()

    def tell(self, hosts: Sequence[Host], what: str, **more: Any) -> None:
        """Write what is done into the log of one of the hosts that takes a line: those that have ended do not."""
        if self.fault is not None:
            log = next((one for one in hosts if not one.has_ended), hosts[0])
            log.tell(EVENT, kind=self.fault.kind, what=what, **more)

    def _strike(self, host: Host) -> bool:
        """False where there is no such worker any more."""
        process = _worker(host, self._rank)
        if process is None:
            return False
        if self._is("kill"):
            self.tell([host], "killed", rank=self._rank)
            _send(process, signal.SIGKILL)
        else:
            self.tell([host], "stopped", rank=self._rank, seconds=self.seconds)
            _send(process, signal.SIGSTOP)
            self._stopped = (host, process, time.monotonic() + self.seconds)
        return True

    def _refuse(self, hosts: Sequence[Host]) -> None:
        kind: Literal["throttle", "expire"] = "expire" if self._is("expire") else "throttle"
        injected_refusals.begin(self._state, Refusal(kind, time.time() + self.seconds, mark(self._folder.name)))
        self._refusing_until = time.monotonic() + self.seconds
        self.tell(hosts, "refused", seconds=self.seconds)

    def close(self) -> None:
        """The job has ended."""
        if self._is("throttle", "expire"):
            injected_refusals.end(self._state, mark(self._folder.name))

    def let_go(self) -> None:
        """Have a worker that stands still go on."""
        if self._stopped is None:
            return
        host, process, _ = self._stopped
        self._stopped = None
        if process in descendants(host.pid):  # else the number may be another's by now
            _send(process, signal.SIGCONT)
            self.tell([host], "continued", rank=self._rank)

    def _is(self, *kinds: Kind) -> bool:
        return self.fault is not None and self.fault.kind in kinds

    def _strikes(self, host: str) -> bool:
        return self.fault is not None and self.fault.host == host

    def _is_time(self, checkpoint_kept: bool | None) -> bool:
        self._struck, before = self._struck or self._is_due(checkpoint_kept), self._struck
        return self._struck and not before

    def _is_due(self, checkpoint_kept: bool | None) -> bool:
        if self.fault is None:
            return False
        with self._lock:
            step, has_victim = self._step, self._has_victim
        if self._is("kill", "slow") and not has_victim:
            return False
        if self.fault.after is not None:
            return self._age() >= self.fault.after
        if self.fault.step is not None:
            return step >= self.fault.step
        is_seen = step > 0 if checkpoint_kept is None else checkpoint_kept
        return is_seen or self._age() >= _UNSIGNALLED

    def _age(self) -> float:
        """Seconds since the hosts were first started."""
        return time.monotonic() - self._began if self._began is not None else 0.0


def _worker(host: Host, rank: int) -> int | None:
    """The worker's process: the eldest that has this rank."""
    found = [one for one in descendants(host.pid) if variable(one, "RANK") == str(rank)]
    return found[0] if found else None


def _send(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)
