"""Starts the workers of this host, one process per GPU, and stays until the container's exit code is known."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Callable

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.hangs.cause import is_hang
from smdp_entrypoint.hangs.watch import HangWatch
from smdp_entrypoint.network.probe import NetworkProbe
from smdp_entrypoint.preparation import Job
from smdp_entrypoint.processes.child import Child
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.failure import (
    Failure,
    failure_text,
    find_failure,
    first_cause,
    has_certain_cause,
    killed_from_outside,
)
from smdp_entrypoint.processes.failure_file import FailureFile
from smdp_entrypoint.processes.signals import Signals
from smdp_entrypoint.processes.supervisor import Hooks, Supervisor
from smdp_entrypoint.resources.channels import Channels
from smdp_entrypoint.resources.gpus import Gpus
from smdp_entrypoint.resources.recorder import Recorder
from smdp_entrypoint.resources.sampler import Sampler
from smdp_entrypoint.resources.system_files import SystemFiles


class Training:
    def __init__(
        self, job: Job, tree: MlTree, file: FailureFile, console: Console, signals: Signals, peers: Peers
    ) -> None:
        self.job = job
        self.tree = tree
        self.file = file
        self.console = console
        self.peers = peers
        self.cause: Failure | None = None
        self.children: list[Child] = []
        self._reported: set[int] = set()
        hang = job.hang if job.layout.trains else replace(job.hang, action="ignore")
        self._hang_watch = HangWatch(hang, job.layout, tree, console, peers, self._running_ranks)
        self._supervisor = Supervisor(
            self.children,
            console,
            signals,
            job.stop_budget,
            Hooks(self._child_ended, self._name_cause, self._others_failed, self._hang_watch.turn),
        )

    def run(self) -> int:
        """Start the workers, wait for all of them, and return the exit code. Raises EntrypointError if a worker cannot
        be started; no process remains then either."""
        try:
            self._start()
        except BaseException:
            for child in self.children:
                child.clean_up(time.time())
            self._hang_watch.finish()
            raise
        recorder = self._recorder()
        recorder.start()
        probe = NetworkProbe(self.job.place, self.console, self.peers, self._network_failed)
        probe.start()
        self._supervisor.run()
        probe.finish()
        self._hang_watch.finish()
        recorder.finish()
        return self._conclude()

    def _start(self) -> None:
        layout = self.job.layout
        for local_rank, rank in enumerate(layout.ranks):
            environ = {**self.job.worker_environ(local_rank), **self._hang_watch.variables}
            self.children.append(
                Child(self.job.argv, environ, self.job.code, self._writer(rank), self._event_writer(rank))
            )
        if layout.trains:
            self.console.event(
                "workers_started", ranks=layout.ranks, world_size=layout.world_size, master=str(self.job.master)
            )

    def _recorder(self) -> Recorder:
        def sampler() -> Sampler:
            files = SystemFiles()
            channels = Channels(files, self.tree, self.job.contract.channels)
            return Sampler(files, channels, Gpus.open(), self._running)

        return Recorder(self.job.timing_interval, sampler, self.console.event, self.console.say)

    def _running(self) -> list[int]:
        return [child.pid for child in self.children if not child.is_reaped]

    def _running_ranks(self) -> dict[int, int]:
        pairs = zip(list(self.children), self.job.layout.ranks)
        return {child.pid: rank for child, rank in pairs if child.exit_status is None}

    def _writer(self, rank: int) -> Callable[[str], None]:
        if not self.job.layout.trains:
            return self.console.say  # no worker of the job writes these lines
        return self._both(self.console.worker_line, rank, by_engine=False)

    def _event_writer(self, rank: int) -> Callable[[str], None]:
        if not self.job.layout.trains:
            return self.console.say
        return self._both(self.console.engine_line, rank, by_engine=True)

    def _both(self, write: Callable[[int, str], None], rank: int, *, by_engine: bool) -> Callable[[str], None]:
        def take(line: str) -> None:
            write(rank, line)
            self._hang_watch.line(rank, line, by_engine=by_engine)

        return take

    def _failure(self, child: Child) -> Failure | None:
        local_rank = self.children.index(child)
        layout = self.job.layout
        failure = find_failure(child, layout.ranks[local_rank], local_rank, layout.current_host)
        if failure is None or self._is_excused(child, failure):
            return None
        return replace(failure, trains=layout.trains)

    def _is_excused(self, child: Child, failure: Failure) -> bool:
        """Whether the worker ended only because the supervisor sent it a signal."""
        signalled = child.pid in self._supervisor.signalled
        status = child.exit_status
        return signalled and not failure.error and status is not None and killed_from_outside(status)

    def _network_failed(self, reason: str) -> None:
        """End the job on all hosts: a thread calls this on the first host. The workers have not failed."""
        self.console.say(reason)
        self.peers.report(Report(self.job.layout.current_host, time.time(), 0, 1, reason))

    def _child_ended(self, child: Child) -> None:
        failure = self._failure(child)
        if failure:
            self._report(failure)
        elif child.exit_status and child.exit_status.succeeded and child.pid not in self._supervisor.signalled:
            self._hang_watch.exited(self.job.layout.ranks[self.children.index(child)])

    def _report(self, failure: Failure) -> None:
        if failure.rank not in self._reported:
            self._reported.add(failure.rank)
            if not failure.trains:
                return
            self.console.event("worker_exit", **failure.event_fields())

    def _failures(self) -> list[Failure]:
        failures = [failure for failure in map(self._failure, self.children) if failure]
        ending = self.peers.ending
        if ending is not None and has_certain_cause([ending.precedence]):
            return [failure for failure in failures if not failure.may_be_handled]
        return failures

    def _name_cause(self) -> None:
        """Leave the cause None if no worker has failed."""
        failures = self._failures()
        if not failures:
            return
        self.cause = first_cause(failures)
        self._report(self.cause)
        self.console.say(f"first failure: {self.cause.summary}")
        record_failure(self.file, failure_text(self.cause), self.console)
        self.peers.report(Report.of(self.cause))

    def _others_failed(self) -> str | None:
        ending = self.peers.ending
        if ending is None:
            return None
        if self.cause is None:
            self._answer_others()
        own = self.job.layout.current_host
        return (
            "the job hangs" if is_hang(ending.summary) else f"{'this' if ending.host == own else 'another'} host failed"
        )

    def _answer_others(self) -> None:
        """Report to the other hosts what failed on this host: their failure may be a consequence of it."""
        self._name_cause()
        if self.cause is None:
            self.peers.report(None)

    def _conclude(self) -> int:
        stopped_by = self._supervisor.stopped_by
        # Workers that were stopped because of another host may have saved their state and exited with 0.
        all_succeeded = all(child.exit_status and child.exit_status.succeeded for child in self.children)
        if all_succeeded and (stopped_by or not self._supervisor.signalled):
            self.console.say("all workers exited successfully")
            self._write_success()
            return 0
        if self.cause is None:
            self._name_cause()
        verdict = self.peers.verdict_within()
        if verdict is not None and (verdict.host != self.job.layout.current_host or self.cause is None):
            return self._conclude_for(verdict)
        if self.cause is not None:
            record_failure(self.file, failure_text(self.cause), self.console)
            return self._exit_code(self.cause)
        self.console.say("stopped before all workers had exited successfully")
        return 128 + (stopped_by or signal.SIGKILL)

    def _conclude_for(self, verdict: Report) -> int:
        """The job failed on another host; a failure on this host is written below that one."""
        self.console.say(f"the job's first failure: {verdict.summary}")
        local = f"\n{failure_text(self.cause)}" if self.cause else ""
        record_failure(self.file, verdict.summary + local, self.console)
        return self._exit_code(self.cause) if self.cause else verdict.code

    def _exit_code(self, cause: Failure) -> int:
        # The cause may have been named before its worker exited; the worker's own code counts, not our signal.
        status = self.children[cause.local_rank].exit_status
        return (status.code if status else None) or cause.exit_code

    def _write_success(self) -> None:
        try:
            self.tree.success.write_text("", encoding="utf-8")
        except OSError as error:
            self.console.say(f"{self.tree.success} cannot be written: {error.strerror}")


def record_failure(file: FailureFile, text: str, console: Console) -> None:
    try:
        file.write(text)
    except OSError as error:
        console.say(f"{file.path} cannot be written: {error.strerror}")
