"""The worker processes of `serve`, and the queue of requests that wait for them.

Each worker has a thread in `serve`, which passes it one request at a time, so a request never waits behind another one
while a worker is idle. The main thread starts the workers: the kernel ends a process whose starting thread has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Mapping

from smdp_entrypoint.processes.child import die_with_parent
from smdp_entrypoint.serving.messages import Request, Response, receive, send

# Workers that end one after the other without having been ready, until `serve` gives up. The first one may have been
# killed because memory was short while several loaded the model.
_MOST_FAILED_STARTS = 3
_RESTART_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_KILL_WAIT_S = 5.0
_TICK_S = 0.2


@dataclass
class Launch:
    """How to start a worker. `script` None: the defaults alone. `gpus`: number of GPUs, which the workers share."""

    script: Path | None
    code: Path
    model: Path
    accept: str
    gpus: int
    environ: Mapping[str, str]

    def start(self, number: int, connection: socket.socket) -> subprocess.Popen[bytes]:
        options = {
            "script": str(self.script) if self.script is not None else "",
            "model": str(self.model),
            "accept": self.accept,
            "gpu": number % self.gpus if self.gpus else None,
        }
        descriptor = connection.fileno()
        return subprocess.Popen(
            [sys.executable, "-m", "smdp_entrypoint.serving.worker", str(descriptor), json.dumps(options)],
            env={**self.environ},
            cwd=str(self.code if self.code.is_dir() else self.model),
            stdin=subprocess.DEVNULL,
            pass_fds=(descriptor,),
            start_new_session=True,
            # Two system calls between fork and exec need no lock of another thread.
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509
        )


@dataclass
class Task:
    """A request with its answer. `timeout` is in seconds, and `deadline` of the monotonic clock."""

    request: Request
    timeout: float
    deadline: float
    response: Response | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def finish(self, response: Response) -> None:
        self.response = response
        self.done.set()

    @property
    def has_expired(self) -> bool:
        return time.monotonic() > self.deadline


class _Worker:
    """A worker process and the thread that passes it requests."""

    def __init__(self, number: int, launch: Launch, tasks: queue.Queue[Task], say: Callable[[str], None]) -> None:
        self.number = number
        self.is_ready = False
        self.was_ready = False
        self.failure = ""
        self.is_refused = False  # whether the script itself is the reason of the failure
        self._say = say
        self._tasks = tasks
        self._is_stopping = False
        self._own, other = socket.socketpair()
        with other:
            self._process = launch.start(number, other)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Have the worker exit after its current request."""
        self._is_stopping = True

    def clean_up(self) -> None:
        """Kill the worker with all processes that it started, and reap it."""
        self.stop()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_WAIT_S)
        self._thread.join(_KILL_WAIT_S)
        self._own.close()

    def _serve(self) -> None:
        try:
            if self._await_ready():
                self._pass_on()
        finally:
            self.is_ready = False

    def _await_ready(self) -> bool:
        """Loading has no limit of its own: the platform's health check limits the start of the container."""
        try:
            head, _ = receive(self._own)
        except (EOFError, OSError):
            self.failure = f"worker {self.number} ended while it loaded the model: {self._end()}"
            return False
        self.failure = str(head.get("failed", ""))
        self.is_refused = bool(self.failure)
        self.is_ready = self.was_ready = not self.failure
        return self.is_ready

    def _pass_on(self) -> None:
        while not self._is_stopping:
            try:
                task = self._tasks.get(timeout=_TICK_S)
            except queue.Empty:
                if self._process.poll() is not None:
                    if not self._is_stopping:  # else `clean_up` has killed it
                        self._say(f"worker {self.number} ended: {self._end()}")
                    return
                continue
            if not task.has_expired and not self._answer(task):
                return

    def _answer(self, task: Task) -> bool:
        """Whether the worker can take another request."""
        self._own.settimeout(max(0.01, task.deadline - time.monotonic()))
        try:
            send(self._own, task.request.head(), task.request.body)
            head, body = receive(self._own)
        except socket.timeout:
            reason = f"did not answer within {task.timeout:g} s (SAGEMAKER_MODEL_SERVER_TIMEOUT)"
            self._say(f"worker {self.number} is killed: it {reason}")
            task.finish(Response.refusal(504, f"The model {reason}."))
            self.is_ready = False
            return False
        except (EOFError, OSError):
            self.is_ready = False
            end = self._end()
            self._say(f"worker {self.number} ended during a request: {end}")
            task.finish(Response.refusal(500, f"The worker process ended during the request: {end}."))
            return False
        task.finish(Response(head["status"], body, head["content_type"], head["headers"]))
        return True

    def _end(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_WAIT_S)
        code = self._process.poll()
        if code is None:
            return "it closed its connection"
        if code >= 0:
            return f"exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"killed by {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")


class Pool:
    """`answer` may be called by any thread; all else by the main thread."""

    def __init__(self, launch: Launch, workers: int, waiting: int, say: Callable[[str], None]) -> None:
        self._launch = launch
        self._count = workers
        self._say = say
        self._tasks: queue.Queue[Task] = queue.Queue(waiting)
        self._workers: list[_Worker] = []
        self._was_ready = False
        self._failed_starts = 0
        self._not_before = 0.0  # of the monotonic clock: when the next worker may start

    @property
    def is_ready(self) -> bool:
        return any(worker.is_ready for worker in self._workers)

    def maintain(self) -> str:
        """Start the workers that are missing. Returns the reason why none can start, or an empty text."""
        for worker in [one for one in self._workers if one.has_ended]:
            self._workers.remove(worker)
            worker.clean_up()
            if worker.was_ready:
                self._failed_starts = 0
            elif worker.failure:
                self._say(worker.failure)
                self._failed_starts += 1
                if not self._was_ready and (worker.is_refused or self._failed_starts >= _MOST_FAILED_STARTS):
                    return worker.failure
            delay = min(_LONGEST_DELAY_S, _RESTART_DELAY_S * 2**self._failed_starts)
            self._not_before = time.monotonic() + delay
        self._was_ready = self._was_ready or self.is_ready
        while len(self._workers) < self._count and time.monotonic() >= self._not_before:
            used = {worker.number for worker in self._workers}
            number = next(one for one in range(self._count) if one not in used)
            self._workers.append(_Worker(number, self._launch, self._tasks, self._say))
        return ""

    def answer(self, request: Request, timeout: float) -> Response:
        """Pass the request to a worker and wait for the answer, for `timeout` seconds."""
        task = Task(request, timeout, time.monotonic() + timeout)
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            return Response.refusal(503, f"{self._tasks.maxsize} requests are waiting already. Try again.")
        # The worker's thread applies the time limit to a request that has reached a worker.
        if not task.done.wait(timeout + 1.0) or task.response is None:
            return Response.refusal(503, f"No worker could take the request within {timeout:g} s. Try again.")
        return task.response

    def stop(self) -> None:
        """End all workers. Requests should have been answered by then."""
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.clean_up()
        self._workers = []
