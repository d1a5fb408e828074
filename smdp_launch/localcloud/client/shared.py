"""A local cloud that stays until it is told to go: announced in its state folder, and kept through that alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.localcloud import job_state
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
from smdp_launch.localcloud.layout import JobFolder, StateFolder
from smdp_launch.localcloud.processes import has_open

_CLEANING = 30.0  # seconds that a stopped job has for its upload and its cleaning up
_LEAVING = 10.0  # seconds for a server to end
_TICK = 0.05


@dataclass(frozen=True)
class Standing:
    """`endpoint` is None while no server runs, though it may be announced: then one that was killed is meant."""

    state_dir: Path
    endpoint: Endpoint | None
    announced: bool
    running: tuple[str, ...]
    ended: int


def look(state_dir: Path) -> Standing:
    """What is there; nothing is started, nothing is made. Raises LocalCloudError where another user may have prepared
    the folder."""
    state = existing(state_dir)
    if state is None:
        return Standing(StateFolder.at(state_dir).root, None, False, (), 0)
    names = [folder.name for folder in state.job_folders()]
    going = tuple(folder.name for folder in _unended(state))
    return Standing(state.root, running(state), state.is_announced, going, len(names) - len(going))


def up(state_dir: Path, *, timeout: float = 30) -> Endpoint:
    """The server on `state_dir`, from now on there until `down`; started unless one runs. Raises LocalCloudError.

    The defaults of the SageMaker SDK and the bucket that they name are there too.
    """
    with private(state_dir, timeout=timeout) as endpoint:
        sdk_defaults.write(endpoint)
        sdk_defaults.create_bucket(endpoint)
        StateFolder(endpoint.state_dir).announce()
    return endpoint


@contextmanager
def alone(state_dir: Path) -> Iterator[Endpoint]:
    """A server that nobody had before and that ends with the context, and its jobs with it.

    The bucket of the SageMaker SDK's defaults is created by the SDK when it is needed.

    Raises LocalCloudError where one runs on `state_dir`, was announced, or has jobs that still run.
    """
    before = look(state_dir)
    if before.announced or before.running:
        raise in_use(StateFolder(before.state_dir))
    with private(state_dir, join=False) as endpoint:
        try:
            sdk_defaults.write(endpoint)
            yield endpoint
        finally:
            down(state_dir, grace=0)


def down(state_dir: Path, *, grace: float = 10) -> tuple[str, ...]:
    """End the server on `state_dir` and all its jobs; the names of those that still ran.

    `grace` (seconds) is what their scripts get after SIGTERM. What has not ended half a minute later is killed.
    No job can be created meanwhile. Raises LocalCloudError where even that does not help.
    """
    state = existing(state_dir)
    if state is None:
        return ()
    going = Lock(state.going_lock)
    try:
        if not going.wait(time.monotonic() + grace + _CLEANING + 2 * _LEAVING):
            raise LocalCloudError(f"Another command has not done ending the local cloud on {state.root}; try again.")
        return _down(state, grace)
    finally:
        going.release()


def _down(state: StateFolder, grace: float) -> tuple[str, ...]:
    state.announced.unlink(missing_ok=True)
    stopped: tuple[str, ...] = ()
    if _unended(state):
        with private(state.root):  # a server that was killed is needed to keep what the jobs leave
            stopped = _end_jobs(state, grace)
    _end_server(state)
    return stopped


def _unended(state: StateFolder) -> list[JobFolder]:
    """Jobs with work left, be it only that of the server for one whose supervisor died."""
    found = [(folder, job_state.read(folder.state)) for folder in state.job_folders()]
    return [folder for folder, known in found if is_locked(folder.lock) or (known and not known.has_ended)]


def _end_jobs(state: StateFolder, grace: float) -> tuple[str, ...]:
    asked: dict[str, None] = {}
    deadline = time.monotonic() + grace + _CLEANING
    while going := _unended(state):
        for folder in going:
            if folder.name not in asked:
                write_json(folder.stop, {"time": time.time(), "grace": grace})
                asked[folder.name] = None
        if time.monotonic() > deadline + _LEAVING:
            raise LocalCloudError(f"Job {going[0].name} does not end; see {going[0].supervisor_log}.")
        if time.monotonic() > deadline:
            for folder in going:
                _kill_supervisor(folder)
        time.sleep(_TICK)
    return tuple(asked)


def _kill_supervisor(folder: JobFolder) -> None:
    """Its hosts end with it, and the server writes down that it died."""
    record = read_json(folder.pid)
    if record and has_open(record["pid"], folder.lock):
        with suppress(ProcessLookupError):
            os.kill(record["pid"], signal.SIGKILL)


def _end_server(state: StateFolder) -> None:
    deadline = time.monotonic() + _LEAVING
    pid: int | None = None
    sent: signal.Signals | None = None
    while is_locked(state.server_lock):
        pid = server_pid(state) or pid
        wanted = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        if pid is not None and wanted is not sent and has_open(pid, state.server_lock):
            with suppress(ProcessLookupError):
                os.kill(pid, wanted)
            sent = wanted
        if time.monotonic() > deadline + _LEAVING:
            raise LocalCloudError(f"The local cloud on {state.root} does not end: process {pid}.")
        time.sleep(_TICK)
