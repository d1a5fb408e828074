"""The workers of this host, from their start to the exit code that tells the platform how the job ended."""

from __future__ import annotations

import signal
import time
from typing import Callable

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.preparation import Job
from smdp_entrypoint.processes.child import Child, Ended
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.failure import Failure, examine, failure_text, first_cause
from smdp_entrypoint.processes.failure_file import FailureFile
from smdp_entrypoint.processes.signals import Signals
from smdp_entrypoint.processes.supervisor import Hooks, Supervisor

_OUR_SIGNALS = (signal.SIGTERM, signal.SIGKILL)


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
        self._supervisor = Supervisor(
            self.children,
            console,
            signals,
            job.stop_budget,
            Hooks(self._child_ended, self._name_cause, self._others_failed),
        )

    def run(self) -> int:
        """Start the workers, see them to their end, and return the exit code. Raises EntrypointError if one cannot be
        started; no process is left then either."""
        try:
            self._start()
        except BaseException:
            for child in self.children:
                child.clear(time.time())
            raise
        self._supervisor.run()
        return self._conclude()

    def _start(self) -> None:
        layout = self.job.layout
        for local_rank, rank in enumerate(layout.ranks):
            environ = self.job.worker_environ(local_rank)
            self.children.append(
                Child(self.job.argv, environ, self.job.code, self._writer(rank), self._event_writer(rank))
            )
        self.console.event(
            "workers_started", ranks=layout.ranks, world_size=layout.world_size, master=str(self.job.master)
        )

    def _writer(self, rank: int) -> Callable[[str], None]:
        return lambda line: self.console.worker_line(rank, line)

    def _event_writer(self, rank: int) -> Callable[[str], None]:
        return lambda line: self.console.engine_line(rank, line)

    def _failure(self, child: Child) -> Failure | None:
        local_rank = self.children.index(child)
        layout = self.job.layout
        failure = examine(child, layout.ranks[local_rank], local_rank, layout.current_host)
        return None if failure and self._is_excused(child, failure) else failure

    def _is_excused(self, child: Child, failure: Failure) -> bool:
        """Whether the worker died of nothing but the signal that we sent it."""
        told = child.pid in self._supervisor.told_to_end
        return told and not failure.error and child.ended is not None and _died_of_our_signal(child.ended)

    def _child_ended(self, child: Child) -> None:
        failure = self._failure(child)
        if failure:
            self._report(failure)

    def _report(self, failure: Failure) -> None:
        if failure.rank not in self._reported:
            self._reported.add(failure.rank)
            self.console.event("worker_exit", **failure.event_fields())

    def _name_cause(self) -> None:
        failures = [failure for failure in map(self._failure, self.children) if failure]
        self.cause = first_cause(failures)
        self._report(self.cause)
        self.console.say(f"first failure: {self.cause.summary}")
        record_failure(self.file, failure_text(self.cause), self.console)
        self.peers.report(Report.of(self.cause))

    def _others_failed(self) -> bool:
        if self.peers.ending is None:
            return False
        if self.cause is None:
            self._answer_others()
        return True

    def _answer_others(self) -> None:
        """Another host asks what failed here, if anything did: its own failure may be a consequence of ours."""
        if any(map(self._failure, self.children)):
            self._name_cause()
        else:
            self.peers.report(None)

    def _conclude(self) -> int:
        stopped_by = self._supervisor.stopped_by
        # Workers that were ended because of another host may well have saved and ended well.
        well = all(child.ended and child.ended.well for child in self.children)
        if well and (stopped_by or not self._supervisor.told_to_end):
            self.console.say("all workers ended well")
            self._write_success()
            return 0
        if self.cause is None and any(map(self._failure, self.children)):
            self._name_cause()
        verdict = self.peers.verdict_within()
        if verdict is not None and verdict.host != self.job.layout.current_host:
            return self._conclude_for(verdict)
        if self.cause is not None:
            record_failure(self.file, failure_text(self.cause), self.console)
            return self._exit_code(self.cause)
        self.console.say("stopped before all workers had ended well")
        return 128 + (stopped_by or signal.SIGKILL)

    def _conclude_for(self, verdict: Report) -> int:
        """The job failed on another host; what failed here, if anything, stands below that."""
        self.console.say(f"the job's first failure: {verdict.summary}")
        here = f"\n{failure_text(self.cause)}" if self.cause else ""
        record_failure(self.file, verdict.summary + here, self.console)
        return self._exit_code(self.cause) if self.cause else verdict.code

    def _exit_code(self, cause: Failure) -> int:
        # The cause may have been named before its worker ended; its own code counts, not the signal we sent.
        ended = self.children[cause.local_rank].ended
        return (ended.code if ended else None) or cause.exit_code

    def _write_success(self) -> None:
        try:
            self.tree.success.write_text("", encoding="utf-8")
        except OSError as error:
            self.console.say(f"{self.tree.success} cannot be written: {error.strerror}")


def _died_of_our_signal(ended: Ended) -> bool:
    """A shell in between tells it as 128 + the signal's number."""
    return ended.signum in _OUR_SIGNALS or ended.code in tuple(128 + signum for signum in _OUR_SIGNALS)


def record_failure(file: FailureFile, text: str, console: Console) -> None:
    try:
        file.write(text)
    except OSError as error:
        console.say(f"{file.path} cannot be written: {error.strerror}")
