"""The workers of this host, from their start to the exit code that tells the platform how the job ended."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Callable

from smdp_entrypoint.child import Child, Ended
from smdp_entrypoint.console import Console
from smdp_entrypoint.failure import Failure, examine, failure_text, first_cause, write_failure
from smdp_entrypoint.paths import MlTree
from smdp_entrypoint.preparation import Job
from smdp_entrypoint.signals import Signals
from smdp_entrypoint.supervisor import Hooks, Supervisor

_OUR_SIGNALS = (signal.SIGTERM, signal.SIGKILL)


class Training:
    def __init__(self, job: Job, tree: MlTree, console: Console, signals: Signals) -> None:
        self.job = job
        self.tree = tree
        self.console = console
        self.cause: Failure | None = None
        self.children: list[Child] = []
        self._reported: set[int] = set()
        self._supervisor = Supervisor(
            self.children, console, signals, job.stop_budget, Hooks(self._child_ended, self._name_cause)
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
            self.children.append(
                Child(self.job.argv, self.job.worker_environ(local_rank), self.job.code, self._writer(rank))
            )
        self.console.event(
            "workers_started", ranks=layout.ranks, world_size=layout.world_size, master=str(self.job.master)
        )

    def _writer(self, rank: int) -> Callable[[str], None]:
        return lambda line: self.console.worker_line(rank, line)

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
        self._write_failure(self.cause)

    def _conclude(self) -> int:
        stopped_by = self._supervisor.stopped_by
        if all(child.ended and child.ended.well for child in self.children):
            self.console.say("all workers ended well")
            self._write_success()
            return 0
        if self.cause is None and any(map(self._failure, self.children)):
            self._name_cause()
        if self.cause is not None:
            self._write_failure(self.cause)
            return self._exit_code(self.cause)
        self.console.say("stopped before all workers had ended well")
        return 128 + (stopped_by or signal.SIGKILL)

    def _exit_code(self, cause: Failure) -> int:
        # The cause may have been named before its worker ended; its own code counts, not the signal we sent.
        ended = self.children[cause.local_rank].ended
        return (ended.code if ended else None) or cause.exit_code

    def _write_failure(self, cause: Failure) -> None:
        record_failure(self.tree.failure, failure_text(cause), self.console)

    def _write_success(self) -> None:
        try:
            self.tree.success.write_text("", encoding="utf-8")
        except OSError as error:
            self.console.say(f"{self.tree.success} cannot be written: {error.strerror}")


def _died_of_our_signal(ended: Ended) -> bool:
    """A shell in between tells it as 128 + the signal's number."""
    return ended.signum in _OUR_SIGNALS or ended.code in tuple(128 + signum for signum in _OUR_SIGNALS)


def record_failure(path: Path, text: str, console: Console) -> None:
    try:
        write_failure(path, text)
    except OSError as error:
        console.say(f"{path} cannot be written: {error.strerror}")
