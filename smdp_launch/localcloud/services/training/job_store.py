"""The jobs of one state directory, as the server sees them: files, a stop mark, and the locks of supervisors.

A job outlives the server that took it. Its supervisor inherits the locked `supervisor.lock`, so there is no moment
at which a job is visible and nobody answers for it; when the lock is free and the state has not ended, the
supervisor died and the server buries the job.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from smdp_launch.localcloud import job_state
from smdp_launch.localcloud.environment import server_environment
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.files import Lock, is_locked, read_json, remove_tree, write_json
from smdp_launch.localcloud.isolation import images
from smdp_launch.localcloud.job_state import JobState
from smdp_launch.localcloud.layout import JOB_NAME, JobFolder, StateFolder
from smdp_launch.localcloud.processes import kill_processes_below
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.signatures import Credentials
from smdp_launch.localcloud.runtime import meter, reserve, results

_UNFINISHED = ".new-"
_LEAVING = 10.0  # seconds for the supervisor of a job that has ended to be gone
_TICK = 0.02


class JobStore:
    def __init__(self, state: StateFolder, credentials: Credentials) -> None:
        self.endpoint_url = ""  # known once the server's socket is bound
        self.credentials = credentials
        self._state = state
        self._root = state.jobs
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for leftover in self._root.glob(f"{_UNFINISHED}*"):
            remove_tree(leftover)
        self._watched = {folder.name for folder in self.folders()}

    def folders(self, region: str | None = None) -> Iterator[JobFolder]:
        """Of the region; of all without one."""
        return (one for one in self._state.job_folders() if region is None or one.region == region)

    def folder(self, name: str, region: str | None = None) -> JobFolder | None:
        """`name` may be anything that a client sent. Without a region the job may be in any."""
        folder = JobFolder(self._root / name)
        is_job = JOB_NAME.fullmatch(name) is not None and folder.state.exists()
        return folder if is_job and region in (None, folder.region) else None

    def create(self, request: Mapping[str, Any], region: str) -> None:
        """Write the job down and start its supervisor. ResourceInUse where the name is taken, and refused once the
        local cloud is going down: whoever ends it would not look for the job again."""
        going = Lock(self._state.going_lock)
        try:
            if not going.take(shared=True):
                raise validation("The local cloud is going down; start the job when it is up again.")
            self._create(request, region)
        finally:
            going.release()

    def _create(self, request: Mapping[str, Any], region: str) -> None:
        name = str(request["TrainingJobName"])
        draft = JobFolder(self._root / f"{_UNFINISHED}{secrets.token_hex(8)}")
        try:
            lock = _write_draft(draft, request, region)
        except OSError:
            remove_tree(draft.root)
            raise
        try:
            lock.take()
            folder = JobFolder(self._root / name)
            with self._lock:
                try:
                    draft.root.rename(folder.root)
                except OSError:
                    remove_tree(draft.root)
                    raise taken(folder.region) from None
                self._watched.add(name)
                self._processes[name] = _start_supervisor(folder, lock)
        finally:
            lock.release()

    def request(self, folder: JobFolder) -> dict[str, Any]:
        """Raises ServiceError for a job that was deleted meanwhile."""
        request: dict[str, Any] | None = read_json(folder.request)
        if request is None:
            raise _gone()
        return request

    def state(self, folder: JobFolder) -> JobState:
        state = job_state.read(folder.state)
        if state is None and not folder.root.exists():
            raise _gone()
        if state is None:
            raise ServiceError("InternalFailure", f"{folder.state} cannot be read.", 500)
        if folder.stop.exists() and not state.has_ended:
            state.status = "Stopping"
        return state

    def stop(self, folder: JobFolder) -> None:
        if not folder.stop.exists():
            reserve.write(folder, lambda: write_json(folder.stop, {"time": time.time()}))

    def update(self, folder: JobFolder, changed: Mapping[str, Any]) -> None:
        """Members of the request to replace; the running job does not look at it any more."""
        with self._lock:
            write_json(folder.request, {**self.request(folder), **changed})

    def delete(self, folder: JobFolder) -> bool:
        """Remove an ended job with its logs; False where its supervisor does not end in time."""
        deadline = time.monotonic() + _LEAVING
        while is_locked(folder.lock):
            if time.monotonic() > deadline:
                return False
            time.sleep(_TICK)
        gone = JobFolder(self._root / f"{_UNFINISHED}{secrets.token_hex(8)}")
        with self._lock:
            try:
                folder.root.rename(gone.root)
            except FileNotFoundError:
                raise _gone() from None
            self._watched.discard(folder.name)
        remove_tree(gone.root)
        return True

    def tags(self, folder: JobFolder) -> dict[str, str]:
        given = {tag["Key"]: tag["Value"] for tag in self.request(folder).get("Tags", [])}
        changed: dict[str, str | None] = read_json(folder.tags) or {}
        return {key: value for key, value in {**given, **changed}.items() if value is not None}

    def change_tags(self, folder: JobFolder, added: Mapping[str, str], removed: Iterable[str]) -> None:
        with self._lock:
            before = read_json(folder.tags) or {}
            write_json(folder.tags, {**before, **dict.fromkeys(removed), **added})

    def active(self) -> bool:
        """Whether some job, or the supervisor of an ended one, is still at work."""
        with self._lock:
            return bool(self._watched)

    def reap(self) -> None:
        """Forget jobs that have ended, and bury those whose supervisor died. Called again and again."""
        with self._lock:
            names = list(self._watched)
        for name in names:
            process = self._processes.get(name)
            if process is not None:
                process.poll()
            folder = JobFolder(self._root / name)
            if not is_locked(folder.lock) and self._put_to_rest(folder):
                with self._lock:
                    self._watched.discard(name)
                    self._processes.pop(name, None)

    def _put_to_rest(self, folder: JobFolder) -> bool:
        """Clean up behind a supervisor that is gone; False while something is still in the way, such as a full disk."""
        state = job_state.read(folder.state)
        try:
            if folder.hosts.exists():
                if images.wanted(self.request(folder)):
                    images.close(folder.name)
                kill_processes_below(folder.hosts)
                if state is not None and state.secondary == "Uploading":
                    results.keep(folder, self.request(folder))
                remove_tree(folder.hosts)
                if folder.hosts.exists():
                    return False
            if state is not None and not state.has_ended:
                reason = "InternalServerError: the job's supervisor died (killed, or out of memory); see "
                state.fail(f"{reason}{folder.supervisor_log}{results.note(folder)}", time.time())
                state.metrics = meter.final(folder)
                reserve.write(folder, lambda: job_state.write(folder.state, state))
        except OSError:
            return False
        folder.reserve.unlink(missing_ok=True)
        return True


def _write_draft(draft: JobFolder, request: Mapping[str, Any], region: str) -> Lock:
    """All that a job's folder has when it can be seen; the lock is the supervisor's, not yet taken."""
    draft.logs.mkdir(mode=0o700, parents=True)
    write_json(draft.request, dict(request))
    write_json(draft.place, {"region": region})
    job_state.write(draft.state, job_state.new(time.time()))
    reserve.allocate(draft)
    return Lock(draft.lock)


def _gone() -> ServiceError:
    return validation("Requested resource not found.")


def taken(region: str) -> ServiceError:
    """`region`: that of the job with the name. On AWS only jobs of one region need different names."""
    there = f" The local cloud keeps names unique in all regions: {region} has the job."
    message = "Training job names must be unique within an AWS account and region."
    return ServiceError("ResourceInUse", message if region == caller.region() else f"{message}{there}")


def _start_supervisor(folder: JobFolder, lock: Lock) -> subprocess.Popen[bytes]:
    with folder.supervisor_log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "smdp_launch.localcloud.runtime.supervisor", str(folder.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=server_environment(),
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )
