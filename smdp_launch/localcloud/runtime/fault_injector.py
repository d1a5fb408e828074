"""Inject the fault of a local run into its hosts: decide when, do it, and report it in the job's log."""

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
from smdp_launch.localcloud.processes import catches, command_line, descendants, hang_signal, variable
from smdp_launch.localcloud.protocol import injected_refusals
from smdp_launch.localcloud.protocol.injected_refusals import Refusal
from smdp_launch.localcloud.protocol.signatures import job_hash
from smdp_launch.localcloud.runtime.outcome import JobFailed
from smdp_launch.localcloud.runtime.started_host import Host

_DEFAULT_DELAY = 60.0  # seconds of training; a fault without a step or delay waits no longer for its signal


def requested_fault(request: Mapping[str, Any]) -> Fault | None:
    """Return the fault that the request names. Raises JobFailed where its text is invalid."""
    text = request.get("Environment", {}).get(VARIABLE)
    if text is None:
        return None
    try:
        return Fault.parse(text)
    except ValueError as error:
        raise JobFailed(f"ClientError: {VARIABLE}: {error}") from error


class FaultInjector:
    """Injects the job's fault once, if the job has one.

    The hosts' own threads call `read_line`; the supervisor's thread calls everything else.
    """

    def __init__(self, fault: Fault | None, folder: JobFolder) -> None:
        self.fault = fault
        self._folder = folder
        self._state = folder.state_folder
        self._lock = threading.Lock()
        self._step = 0  # the highest that a rank has reported
        self._target_started = False  # whether the target rank has been started
        self._started_at: float | None = None
        self._injected = False
        self._refusing_until: float | None = None
        self._paused: tuple[Host, int, float] | None = None  # a paused worker: its host, process id, end of the pause

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
        """Start the clock of the training; later calls change nothing."""
        self._started_at = self._started_at or time.monotonic()

    def read_line(self, host: str, line: str) -> None:
        """Take the step and the started ranks from a log line of a host."""
        event = event_of(split_line(host, line)) if self.fault is not None else None
        if event is None:
            return
        name, step, ranks = event["event"], event.get("step"), event.get("ranks")
        with self._lock:
            if name == "step" and isinstance(step, int):
                self._step = max(self._step, step)
            elif name == "workers_started" and isinstance(ranks, list):
                self._target_started = self._target_started or self._rank in ranks

    def delays(self, host: str) -> bool:
        """Whether the host must still wait before it starts."""
        return self._is("late") and self._targets(host) and self._age() < self.seconds

    def report_started(self, host: Host, served: Sequence[str], unlimited: Sequence[str]) -> None:
        """Report a fault that began with the host.

        Args:
            served, unlimited: the channels that a slow input limits, and those that it does not reach.
        """
        if self._is("late") and self._targets(host.name):
            self.report([host], "late", seconds=round(self._age(), 3))
        if self.fault is not None and self._is("slow-input") and not self._injected:
            self._injected = True
            limits = {"rate": self.fault.rate, "latency": self.fault.latency}
            self.report([host], "slowed", **limits, channels=list(served), unlimited=list(unlimited))

    def report_reads(self, hosts: Sequence[Host], reads: Sequence[Mapping[str, Any]]) -> None:
        """Report what the hosts, which have ended, read from slow channels."""
        if self._is("slow-input") and self.fault is not None and hosts:
            hosts[0].report_after_end(EVENT, kind=self.fault.kind, what="read", reads=list(reads))

    def interrupts_now(self, checkpoint_uploaded: bool | None) -> bool:
        """Whether to take the hosts away now. True at most once.

        Args:
            checkpoint_uploaded: whether a checkpoint is in the bucket; None for a job without checkpoints.
        """
        return self._is("spot") and self._is_first_time(checkpoint_uploaded)

    def stops_now(self, checkpoint_uploaded: bool | None) -> bool:
        """Whether to stop the job now. True at most once."""
        return self._is("resume") and self._is_first_time(checkpoint_uploaded)

    def inject(self, hosts: Sequence[Host]) -> None:
        """Inject a fault of a worker or of the service if it is due, and end one whose time is over."""
        if self._is("kill", "slow", "hang") and self._is_first_time(None):
            for host in hosts:
                if self._targets(host.name) and not self._signal_worker(host):
                    where = {"where": self.fault.where} if self.fault is not None and self._is("hang") else {}
                    self.report(hosts, "missed", host=host.name, rank=self._rank, **where)
        if self._is("throttle", "expire") and self._is_first_time(None):
            self._refuse_calls(hosts)
        if self._refusing_until is not None and time.monotonic() >= self._refusing_until:
            self._refusing_until = None
            self.report(hosts, "answered", refused=injected_refusals.counted(self._state))
        if self._paused is not None and time.monotonic() >= self._paused[2]:
            self.resume_worker()

    def report(self, hosts: Sequence[Host], what: str, **more: Any) -> None:
        """Write an event into the log of the first host that still runs: ended hosts take no more lines."""
        if self.fault is not None:
            log = next((one for one in hosts if not one.has_ended), hosts[0])
            log.report(EVENT, kind=self.fault.kind, what=what, **more)

    def _signal_worker(self, host: Host) -> bool:
        """Kill, pause or stop the target worker; False where it does not exist."""
        process = _worker(host, self._rank)
        if process is None:
            return False
        if self._is("hang"):
            return self._hang(host, process)
        if self._is("kill"):
            self.report([host], "killed", rank=self._rank)
            _send(process, signal.SIGKILL)
        else:
            self.report([host], "stopped", rank=self._rank, seconds=self.seconds)
            _send(process, signal.SIGSTOP)
            self._paused = (host, process, time.monotonic() + self.seconds)
        return True

    def _hang(self, host: Host, worker: int) -> bool:
        """Make the worker, or one of its DataLoader, stop for ever; False where there is none that can."""
        where = self.fault.where if self.fault is not None else "computing"
        processes = [one for one in descendants(worker) if _is_of_loader(one)] if where == "loader" else [worker]
        target = next((one for one in processes if catches(one, hang_signal())), None)
        if target is None:
            return False
        self.report([host], "hung", rank=self._rank, where=where)
        _send(target, hang_signal())
        return True

    def _refuse_calls(self, hosts: Sequence[Host]) -> None:
        kind: Literal["throttle", "expire"] = "expire" if self._is("expire") else "throttle"
        injected_refusals.begin(self._state, Refusal(kind, time.time() + self.seconds, job_hash(self._folder.name)))
        self._refusing_until = time.monotonic() + self.seconds
        self.report(hosts, "refused", seconds=self.seconds)

    def close(self) -> None:
        """End the refusal of calls; called when the job has ended."""
        if self._is("throttle", "expire"):
            injected_refusals.end(self._state, job_hash(self._folder.name))

    def resume_worker(self) -> None:
        """Continue the paused worker, if there is one."""
        if self._paused is None:
            return
        host, process, _ = self._paused
        self._paused = None
        if process in descendants(host.pid):  # otherwise the process id may belong to another process by now
            _send(process, signal.SIGCONT)
            self.report([host], "continued", rank=self._rank)

    def _is(self, *kinds: Kind) -> bool:
        return self.fault is not None and self.fault.kind in kinds

    def _targets(self, host: str) -> bool:
        return self.fault is not None and self.fault.host == host

    def _is_first_time(self, checkpoint_uploaded: bool | None) -> bool:
        if self._injected or not self._is_due(checkpoint_uploaded):
            return False
        self._injected = True
        return True

    def _is_due(self, checkpoint_uploaded: bool | None) -> bool:
        if self.fault is None:
            return False
        with self._lock:
            step, target_started = self._step, self._target_started
        if self._is("kill", "slow", "hang") and not target_started:
            return False
        if self.fault.after is not None:
            return self._age() >= self.fault.after
        if self.fault.step is not None:
            return step >= self.fault.step
        signalled = step > 0 if checkpoint_uploaded is None else checkpoint_uploaded
        return signalled or self._age() >= _DEFAULT_DELAY

    def _age(self) -> float:
        """Seconds since the hosts were first started."""
        return time.monotonic() - self._started_at if self._started_at is not None else 0.0


def _worker(host: Host, rank: int) -> int | None:
    """The id of the worker's process: the first of the host's processes that has this rank."""
    found = [one for one in descendants(host.pid) if variable(one, "RANK") == str(rank)]
    return found[0] if found else None


def _is_of_loader(process: int) -> bool:
    """Whether a process of a worker may be one of its DataLoader: Python starts others that serve these."""
    text = " ".join(command_line(process))
    return "multiprocessing.resource_tracker" not in text and "multiprocessing.forkserver" not in text


def _send(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)
