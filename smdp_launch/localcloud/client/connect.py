"""Find, start and leave a local cloud. Imports nothing outside the standard library.

There are no timers: a server runs while a process holds the clients' lock or a job runs. The kernel releases the locks
of processes that die.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from smdp_launch.disk import full, is_full
from smdp_launch.localcloud import objects
from smdp_launch.localcloud.environment import server_environment
from smdp_launch.localcloud.files import Lock, is_locked, read_json
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.processes import has_open
from smdp_launch.localcloud.protocol import proof
from smdp_launch.localcloud.protocol.signatures import Credentials
from smdp_launch.private_files import NotPrivate, check_folder, open_file
from smdp_launch.saved_versions import NewerVersion
from smdp_launch.systems import linux_refusal

if TYPE_CHECKING:
    from smdp_launch.localcloud.isolation.remedy import Remedy

_EXIT_WAIT = 3.0  # seconds that a client waits for the exit of the server that it started
_DOCTOR = "To find the cause in this environment, run: smdp-launch doctor."
_TAIL = 20  # lines of the server's log in an error
DISK_FULL = 73  # EX_CANTCREAT: exit code of a server that could not start because its disk is full


class LocalCloudError(Exception):
    """The local cloud cannot be used; the message says what happened and what to do."""


class UnusableFolder(LocalCloudError):
    """The state cannot be stored in this folder.

    Args:
        reason: a sentence without its full stop.
        other: how to choose another folder, as one more sentence.
    """

    def __init__(self, reason: str, other: str) -> None:
        super().__init__(f"{reason}. {other}")
        self.reason = reason


@dataclass(frozen=True)
class Endpoint:
    """A running server. `access_key` and `secret_key` are valid for this server only."""

    url: str
    access_key: str
    secret_key: str
    region: str
    state_dir: Path
    pid: int


@dataclass(frozen=True)
class Isolation:
    """How simulated hosts are isolated on this machine.

    `namespaces`: own /opt/ml, /tmp, host name, /etc/hosts and processes. `tree`: a folder in place of /opt/ml, and
    `reason` says why; scripts that write to /opt/ml then write to this machine's /opt/ml. `remedy` says what to do
    about it, and `explanation` is a sentence of both.
    """

    level: Literal["namespaces", "tree"]
    reason: str | None
    explanation: str | None = None
    remedy: Remedy | None = None


@contextmanager
def private(state_dir: Path, *, timeout: float = 30, join: bool = True) -> Iterator[Endpoint]:
    """Use the server on `state_dir`, and start one if none runs. It runs until the context ends, or longer.

    A private server exits by itself after the last context and the last job. The process that started it waits for
    that, at most a few seconds.

    Args:
        timeout: seconds for the start.
        join: without it, a running server is an error.

    Raises:
        LocalCloudError: no server can be used.
    """
    state, clients = _prepared(state_dir)
    deadline = time.monotonic() + timeout
    try:
        if not clients.wait(deadline, shared=True):
            raise LocalCloudError(
                f"The local cloud on {state.root} has been shutting down for {timeout:.0f} s. "
                f"End process {server_pid(state) or 'of the server'} and try again."
            )
        try:
            endpoint, process = _join_or_start(state, deadline, join)
        except OSError as error:
            raise _unusable(state, error) from error
        try:
            yield endpoint
        finally:
            clients.release()
            if process is not None:
                _wait_for_exit(state, process)
    finally:
        clients.release()


def object_path(state_dir: Path, bucket: str, key: str) -> Path | None:
    """The file of an object, or None where there is no such object. Needs no server."""
    if "/" in bucket or bucket in ("", ".", ".."):
        return None
    return objects.find(StateFolder.at(state_dir).objects / bucket, key)


def isolation() -> Isolation:
    """Try in a process of its own (about 20 ms) what this machine allows."""
    from smdp_launch.localcloud.isolation import namespaces, remedy

    reason = namespaces.refusal()
    if reason is None:
        return Isolation("namespaces", None)
    return Isolation("tree", reason, remedy.explained(reason), remedy.remedy())


@dataclass(frozen=True)
class InputsProblem:
    """Why hosts cannot read the objects of a channel while they train, and what to do about it."""

    reason: str
    remedy: Remedy


def inputs_problem() -> InputsProblem | None:
    """Try as `isolation` does whether hosts can mount channels; None where they can."""
    from smdp_launch.localcloud.isolation import namespaces, remedy

    reason = namespaces.refusal(with_inputs=True)
    return None if reason is None else InputsProblem(reason, remedy.inputs_remedy())


def inputs_refusal() -> str | None:
    """The reason of `inputs_problem`."""
    problem = inputs_problem()
    return problem.reason if problem is not None else None


def existing(state_dir: Path) -> StateFolder | None:
    """The state folder if a local cloud has ever used it. Raises LocalCloudError where another user may have created
    it, or this system runs none."""
    _require_linux()
    state = StateFolder.at(state_dir)
    try:
        check_folder(state.root)
        state.check_version()
    except NewerVersion as error:
        raise LocalCloudError(f"The local cloud cannot be used: {error}.") from error
    except NotPrivate as error:
        raise _unsafe(error) from error
    except OSError:
        return None
    return state if state.jobs.is_dir() else None


def _prepared(state_dir: Path) -> tuple[StateFolder, Lock]:
    """The folder, created unless it exists, and its clients' lock, not yet taken."""
    _require_linux()
    state = StateFolder.at(state_dir)
    try:
        state.prepare()
        return state, Lock(state.clients_lock)
    except NewerVersion as error:
        raise LocalCloudError(f"The local cloud cannot be used: {error}.") from error
    except NotPrivate as error:
        raise _unsafe(error) from error
    except OSError as error:
        raise _unusable(state, error) from error


def _require_linux() -> None:
    refusal = linux_refusal("the local cloud")
    if refusal is not None:
        raise LocalCloudError(refusal)


def _unusable(state: StateFolder, error: OSError) -> LocalCloudError:
    if is_full(error):
        return _full(state)
    return UnusableFolder(
        f"Cannot store the local cloud's state in {state.root}: {error.strerror}",
        'Choose a writable folder, such as with: export SMDP_LOCAL_STATE="$(mktemp -d)/local"',
    )


def _full(state: StateFolder) -> LocalCloudError:
    return LocalCloudError(f"The local cloud cannot start: {full(state.root)}.")


def _unsafe(error: NotPrivate) -> UnusableFolder:
    return UnusableFolder(str(error), "To use another folder, set SMDP_LOCAL_STATE.")


def _join_or_start(state: StateFolder, deadline: float, join: bool) -> tuple[Endpoint, subprocess.Popen[bytes] | None]:
    spawning = Lock(state.spawn_lock)
    try:
        if not spawning.wait(deadline):
            raise LocalCloudError(f"Another command is still starting the local cloud on {state.root}. Try again.")
        endpoint = running(state)
        if endpoint is not None:
            if not join:
                raise in_use(state)
            return endpoint, None
        process = _spawn(state)
        try:
            return _await(state, process, deadline), process
        except BaseException:
            process.kill()
            process.wait()
            raise
    finally:
        spawning.release()


def running(state: StateFolder) -> Endpoint | None:
    """The server of this state folder, if it is ready and has proved that it has the secret key; otherwise None."""
    endpoint = _recorded(state)
    if endpoint is None or not is_locked(state.server_lock) or not has_open(endpoint.pid, state.server_lock):
        return None
    credentials = Credentials(endpoint.access_key, endpoint.secret_key)
    return endpoint if proof.is_proved(endpoint.url, credentials) else None


def server_pid(state: StateFolder) -> int | None:
    """The id of the process that holds the server's lock, once it is ready, whether or not it still answers."""
    endpoint = _recorded(state)
    return endpoint.pid if endpoint is not None and has_open(endpoint.pid, state.server_lock) else None


def _recorded(state: StateFolder) -> Endpoint | None:
    """A later version may add fields, which are ignored."""
    record = read_json(state.server_file)
    if not record:
        return None
    known = {one.name: record[one.name] for one in fields(Endpoint) if one.name in record}
    return Endpoint(**{**known, "state_dir": state.root})


def in_use(state: StateFolder) -> LocalCloudError:
    return LocalCloudError(
        f"The local cloud on {state.root} is in use. Choose another folder, or end it first "
        f"(SMDP_LOCAL_STATE={shlex.quote(str(state.root))} smdp-launch local down)."
    )


def _spawn(state: StateFolder) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "smdp_launch.localcloud.server", "--state", str(state.root)]
    with os.fdopen(open_file(state.server_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
        # A session of its own: Ctrl-C in the client's terminal reaches neither the server nor its jobs.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=server_environment(),
            start_new_session=True,
        )


def _await(state: StateFolder, process: subprocess.Popen[bytes], deadline: float) -> Endpoint:
    while time.monotonic() < deadline:
        endpoint = running(state)
        if endpoint is not None and endpoint.pid == process.pid:
            return endpoint
        if process.poll() == DISK_FULL:
            raise _full(state)
        if process.poll() is not None:
            raise _not_started(state, process.returncode)
        time.sleep(0.02)
    raise LocalCloudError(f"The local cloud on {state.root} was not ready in time. {_DOCTOR} {_log_tail(state)}")


def _not_started(state: StateFolder, code: int) -> LocalCloudError:
    """A missing or broken package is named without a traceback."""
    tail = _log_tail(state)
    last = tail.rpartition("\n")[2]
    if last.startswith(("ModuleNotFoundError: ", "ImportError: ")):
        return LocalCloudError(f"The local cloud did not start: {last.partition(': ')[2]}. {_DOCTOR}")
    return LocalCloudError(f"The local cloud did not start (exit code {code}). {_DOCTOR} {tail}")


def _log_tail(state: StateFolder) -> str:
    try:
        lines = state.server_log.read_text("utf-8", errors="replace").splitlines()[-_TAIL:]
    except OSError:
        lines = []
    return "\n".join([f"The end of {state.server_log}:", *lines]) if lines else "Its log is empty."


def _wait_for_exit(state: StateFolder, process: subprocess.Popen[bytes]) -> None:
    """Wait for the exit of a server that no other process needs. A server that is still needed continues."""
    deadline = time.monotonic() + _EXIT_WAIT
    while process.poll() is None and time.monotonic() < deadline and not _is_needed(state):
        time.sleep(0.02)
    if process.poll() is None:
        process.returncode = 0  # left running on purpose: subprocess must not warn about it


def _is_needed(state: StateFolder) -> bool:
    """Whether the server is announced, or other clients or the supervisors of running jobs share the clients' lock."""
    if state.is_announced:
        return True
    clients = Lock(state.clients_lock)
    try:
        return not clients.take() and clients.take(shared=True)
    finally:
        clients.release()
