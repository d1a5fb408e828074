"""A local cloud that runs until it is ended: an announcement in its state folder keeps the server running."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from smdp_launch.localcloud import job_state, tuning_state
from smdp_launch.localcloud.client import sdk_defaults
from smdp_launch.localcloud.client.connect import (
    Endpoint,
    LocalCloudError,
    existing,
    in_use,
    private,
    running,
    server_pid,
)
from smdp_launch.localcloud.files import Lock, is_locked, read_json, write_json
from smdp_launch.localcloud.layout import EndpointFolder, JobFolder, StateFolder, SupervisedFolder, TuningFolder
from smdp_launch.localcloud.processes import has_open

_CLEAN_UP_WAIT = 30.0  # seconds that a stopped job has for its upload and its cleaning up
_EXIT_WAIT = 10.0  # seconds for a server to exit
_TICK = 0.05
_Folder = TypeVar("_Folder", bound=SupervisedFolder)


@dataclass(frozen=True)
class CloudStatus:
    """What a state folder holds.

    Args:
        endpoint: None while no server runs. An announced one without an endpoint was killed.
        announced: whether the local cloud runs until it is ended.
        running: names of the jobs that have not ended, and `endpoint/NAME`, `transform/NAME` and `tuning/NAME` for
            each endpoint, transform job and tuning job that has not.
        ended: number of the jobs that have ended.
    """

    state_dir: Path
    endpoint: Endpoint | None
    announced: bool
    running: tuple[str, ...]
    ended: int


def status(state_dir: Path) -> CloudStatus:
    """Read the status; starts and creates nothing. Raises LocalCloudError where another user may have created the
    folder."""
    state = existing(state_dir)
    if state is None:
        return CloudStatus(StateFolder.at(state_dir).root, None, False, (), 0)
    names = [folder.name for folder in state.job_folders()]
    unended = tuple(folder.name for folder in _unended(state))
    ended = len(names) - len(unended)
    more = (*_endpoints(state), *_tunings(state))
    return CloudStatus(state.root, running(state), state.is_announced, (*unended, *more), ended)


def up(state_dir: Path, *, timeout: float = 30) -> Endpoint:
    """The server on `state_dir`, which runs until `down`; start it unless it runs. Raises LocalCloudError.

    Also write the defaults of the SageMaker SDK and create the bucket that they name.
    """
    with private(state_dir, timeout=timeout) as endpoint:
        sdk_defaults.write(endpoint)
        sdk_defaults.create_bucket(endpoint)
        StateFolder(endpoint.state_dir).announce()
    return endpoint


@contextmanager
def exclusive(state_dir: Path) -> Iterator[Endpoint]:
    """A new server that ends, with all its jobs, when the context ends.

    The bucket of the SageMaker SDK's defaults is created by the SDK when the SDK needs it.

    Raises LocalCloudError where a server runs on `state_dir`, was announced, or has jobs that still run.
    """
    before = status(state_dir)
    if before.announced or before.running:
        raise in_use(StateFolder(before.state_dir))
    with private(state_dir, join=False) as endpoint:
        try:
            sdk_defaults.write(endpoint)
            yield endpoint
        finally:
            down(state_dir, grace=0)


def down(state_dir: Path, *, grace: float = 10) -> tuple[str, ...]:
    """End the server on `state_dir` with all its jobs and endpoints; their names, as in `CloudStatus`.

    Their scripts get `grace` seconds after SIGTERM. Supervisors that have not exited half a minute later are killed.
    No job or endpoint can be created meanwhile. Raises LocalCloudError where a process survives that.
    """
    state = existing(state_dir)
    if state is None:
        return ()
    shutdown = Lock(state.shutdown_lock)
    try:
        if not shutdown.wait(time.monotonic() + grace + _CLEAN_UP_WAIT + 2 * _EXIT_WAIT):
            raise LocalCloudError(f"Another command is still ending the local cloud on {state.root}. Try again.")
        return _down(state, grace)
    finally:
        shutdown.release()


def _down(state: StateFolder, grace: float) -> tuple[str, ...]:
    state.announced.unlink(missing_ok=True)
    stopped: tuple[str, ...] = ()
    if _unended(state) or _endpoints(state) or _tunings(state):
        # Jobs upload their results, and the server removes endpoints: a killed server is started again.
        with private(state.root):
            stopped = (*_end_tunings(state, grace), *_end_jobs(state, grace), *_end_endpoints(state, grace))
    _end_server(state)
    return stopped


def _unended(state: StateFolder) -> list[JobFolder]:
    """Jobs with work left, including jobs whose supervisor died and that the server must finalize."""
    found = [(folder, job_state.read(folder.state)) for folder in state.job_folders()]
    return [folder for folder, known in found if is_locked(folder.lock) or (known and not known.has_ended)]


def _endpoints(state: StateFolder) -> tuple[str, ...]:
    """`endpoint/NAME` for each endpoint with processes, and for each one that the server must remove; `transform/NAME`
    for each transform job with processes."""
    return tuple(_serving(state))


def _serving(state: StateFolder) -> dict[str, EndpointFolder]:
    """The folders of `_endpoints`, by those names."""
    endpoints = [one for one in state.endpoint_folders() if is_locked(one.lock) or one.stop.exists()]
    transforms = [one for one in state.transform_folders() if is_locked(one.lock)]
    found: dict[str, EndpointFolder] = {f"endpoint/{one.name}": one for one in endpoints}
    return found | {f"transform/{one.name}": one for one in transforms}


def _tunings(state: StateFolder) -> dict[str, TuningFolder]:
    """The tuning jobs with a supervisor, by `tuning/NAME`."""
    return {f"tuning/{one.name}": one for one in state.tuning_folders() if is_locked(one.lock)}


def _end_tunings(state: StateFolder, grace: float) -> tuple[str, ...]:
    """Tuning jobs start no more trials, and end when their trials have."""

    def stop_trials(folder: TuningFolder) -> None:
        for one in _trials(state, folder):
            write_json(one.stop, {"time": time.time(), "grace": grace})

    return _end(lambda: _tunings(state), grace, always=stop_trials)


def _trials(state: StateFolder, folder: TuningFolder) -> list[JobFolder]:
    """The running jobs of a tuning job."""
    known = tuning_state.read(folder.state)
    names = {one.name for one in known.trials} if known is not None else set()
    return [one for one in _unended(state) if one.name in names]


def _end_endpoints(state: StateFolder, grace: float) -> tuple[str, ...]:
    """Endpoints that failed to be created have no processes and stay, with their reason."""
    return _end(lambda: _serving(state), grace)


def _end_jobs(state: StateFolder, grace: float) -> tuple[str, ...]:
    return _end(lambda: {one.name: one for one in _unended(state)}, grace, title="Job ")


def _end(
    find: Callable[[], Mapping[str, _Folder]],
    grace: float,
    always: Callable[[_Folder], None] = lambda _: None,
    title: str = "",
) -> tuple[str, ...]:
    """Stop what `find` finds until it finds nothing. A supervisor that does not exit in time is killed.

    Args:
        find: the folders of what runs, by their names.
        always: called again and again with each of the folders.
        title: before the name in the error.
    """
    stopped: dict[str, None] = {}
    deadline = time.monotonic() + grace + _CLEAN_UP_WAIT
    while found := find():
        for name, folder in found.items():
            if name not in stopped:
                write_json(folder.stop, {"time": time.time(), "grace": grace})
                stopped[name] = None
            always(folder)
            if time.monotonic() > deadline:
                _kill_supervisor(folder)
        if time.monotonic() > deadline + _EXIT_WAIT:
            name, folder = next(iter(found.items()))
            raise LocalCloudError(f"{title}{name} does not end; see {folder.supervisor_log}.")
        time.sleep(_TICK)
    return tuple(stopped)


def _kill_supervisor(folder: SupervisedFolder) -> None:
    """The hosts end with their supervisor, and the server finalizes the job or endpoint."""
    record = read_json(folder.pid)
    if record and has_open(record["pid"], folder.lock):
        with suppress(ProcessLookupError):
            os.kill(record["pid"], signal.SIGKILL)


def _end_server(state: StateFolder) -> None:
    deadline = time.monotonic() + _EXIT_WAIT
    pid: int | None = None
    sent: signal.Signals | None = None
    while is_locked(state.server_lock):
        pid = server_pid(state) or pid
        wanted = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        if pid is not None and wanted is not sent and has_open(pid, state.server_lock):
            with suppress(ProcessLookupError):
                os.kill(pid, wanted)
            sent = wanted
        if time.monotonic() > deadline + _EXIT_WAIT:
            raise LocalCloudError(f"The local cloud on {state.root} does not end: process {pid}.")
        time.sleep(_TICK)
