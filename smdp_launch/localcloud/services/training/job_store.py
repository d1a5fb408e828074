"""The jobs of one state folder, as the server sees them: their files, stop marks, and the locks of supervisors.

A job outlives the server that created it. Its supervisor starts before the job is visible and holds the job's
`supervisor.lock`. When the lock is free and the state has not ended, the supervisor has died, and the server finalizes
the job.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from smdp_launch.localcloud import job_state
from smdp_launch.localcloud.errors import ServiceError, damaged, validation
from smdp_launch.localcloud.files import is_locked, read_json, remove_tree, write_json
from smdp_launch.localcloud.isolation import images
from smdp_launch.localcloud.job_state import JobState
from smdp_launch.localcloud.layout import JOB_NAME, JobFolder, StateFolder
from smdp_launch.localcloud.processes import kill_processes_below
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.signatures import Credentials
from smdp_launch.localcloud.runtime import meter, reserve, results
from smdp_launch.localcloud.services.supervised import Supervised

_SUPERVISOR = "smdp_launch.localcloud.runtime.supervisor"
_WITH_RESULTS = ("Training", "Stopping", "Uploading")  # the secondary statuses of a job that may have results
_EXIT_WAIT = 10.0  # seconds for the supervisor of an ended job to exit
_TICK = 0.02


class JobStore:
    def __init__(self, state: StateFolder, credentials: Credentials) -> None:
        self.endpoint_url = ""  # set once the server's socket is bound
        self.credentials = credentials
        self._state = state
        self._root = state.jobs
        retry = "start the job when it is up again"
        self._supervised = Supervised(state, state.jobs, JobFolder, _SUPERVISOR, retry)

    def folders(self, region: str | None = None) -> Iterator[JobFolder]:
        """The jobs of the region, or of all regions."""
        return (one for one in self._state.job_folders() if region is None or one.region == region)

    def folder(self, name: str, region: str | None = None) -> JobFolder | None:
        """The job's folder, or None. `name` may be any text of a client. Without a region the job may be in any."""
        folder = JobFolder(self._root / name)
        is_job = JOB_NAME.fullmatch(name) is not None and folder.state.exists()
        return folder if is_job and region in (None, folder.region) else None

    def create(self, request: Mapping[str, Any], region: str) -> None:
        """Create the job's folder and start its supervisor.

        Raises ServiceError where the name is taken, and while the local cloud is being ended: the command that ends it
        has already listed the jobs to stop.
        """

        def write(draft: JobFolder) -> None:
            draft.logs.mkdir(mode=0o700)
            write_json(draft.request, dict(request))
            write_json(draft.region_file, {"region": region})
            job_state.write(draft.state, job_state.new(time.time()))
            reserve.allocate(draft)

        self._supervised.start(str(request["TrainingJobName"]), write, lambda folder: taken(folder.region))

    def request(self, folder: JobFolder) -> dict[str, Any]:
        """Raises ServiceError for a job that was deleted meanwhile."""
        request: dict[str, Any] | None = read_json(folder.request)
        if request is None:
            raise _deleted()
        return request

    def state(self, folder: JobFolder) -> JobState:
        state = job_state.read(folder.state)
        if state is None and not folder.root.exists():
            raise _deleted()
        if state is None:
            raise damaged(folder.state)
        if folder.stop.exists() and not state.has_ended:
            state.status = "Stopping"
        return state

    def stop(self, folder: JobFolder) -> None:
        if not folder.stop.exists():
            reserve.write(folder, lambda: write_json(folder.stop, {"time": time.time()}))

    def update(self, folder: JobFolder, changed: Mapping[str, Any]) -> None:
        """Replace fields of the request. The running job does not read it again."""
        with self._supervised.lock:
            write_json(folder.request, {**self.request(folder), **changed})

    def delete(self, folder: JobFolder) -> bool:
        """Remove an ended job with its logs; False where its supervisor does not exit in time."""
        deadline = time.monotonic() + _EXIT_WAIT
        while is_locked(folder.lock):
            if time.monotonic() > deadline:
                return False
            time.sleep(_TICK)
        try:
            self._supervised.remove(folder)
        except FileNotFoundError:
            raise _deleted() from None
        return True

    def tags(self, folder: JobFolder) -> dict[str, str]:
        initial = {tag["Key"]: tag["Value"] for tag in self.request(folder).get("Tags", [])}
        changed: dict[str, str | None] = read_json(folder.tags) or {}
        return {key: value for key, value in {**initial, **changed}.items() if value is not None}

    def change_tags(self, folder: JobFolder, added: Mapping[str, str], removed: Iterable[str]) -> None:
        with self._supervised.lock:
            before = read_json(folder.tags) or {}
            write_json(folder.tags, {**before, **dict.fromkeys(removed), **added})

    def active(self) -> bool:
        """Whether a job, or the supervisor of an ended one, still runs."""
        return bool(self._supervised.folders())

    def reap(self) -> None:
        """Forget jobs that have ended, and finalize those whose supervisor died. Called periodically."""
        self._supervised.reap(self._finalize)

    def _finalize(self, folder: JobFolder) -> bool:
        """Clean up after a supervisor that has exited; False where that fails for now, as on a full disk."""
        state = job_state.read(folder.state)
        try:
            if folder.hosts.exists():
                if images.requested(self.request(folder)):
                    images.close(folder.name)
                kill_processes_below(folder.hosts)
                if state is not None and state.secondary in _WITH_RESULTS:
                    results.preserve(folder, self.request(folder))
                remove_tree(folder.hosts)
                if folder.hosts.exists():
                    return False
            if state is not None and not state.has_ended:
                reason = "InternalServerError: the job's supervisor died (killed, or out of memory); see "
                state.fail(f"{reason}{folder.supervisor_log}{results.location(folder)}", time.time())
                state.metrics = meter.final(folder)
                reserve.write(folder, lambda: job_state.write(folder.state, state))
        except OSError:
            return False
        folder.reserve.unlink(missing_ok=True)
        return True


def _deleted() -> ServiceError:
    return validation("Requested resource not found.")


def taken(region: str) -> ServiceError:
    """The error for a taken name. `region`: of the existing job. On AWS names are unique within a region only."""
    there = f" The local cloud keeps names unique in all regions: {region} has the job."
    message = "Training job names must be unique within an AWS account and region."
    return ServiceError("ResourceInUse", message if region == caller.region() else f"{message}{there}")
