"""The endpoints of one state folder, as the server sees them: their files, stop marks, and the locks of supervisors.

As with jobs, an endpoint's supervisor inherits the locked `supervisor.lock`. An endpoint ends when it is deleted, and
when no client needs the local cloud any more; then its folder is removed. Its logs stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from smdp_launch.localcloud import endpoint_state
from smdp_launch.localcloud.arns import endpoint_arn
from smdp_launch.localcloud.endpoint_state import Deployment, EndpointState
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.files import is_locked, remove_tree, write_json
from smdp_launch.localcloud.layout import JOB_NAME, EndpointFolder, StateFolder
from smdp_launch.localcloud.processes import kill_processes_below
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.services.supervised import Supervised

_KIND = "endpoint"
_TICK = 0.02
_CLEAN_UP_WAIT = 10.0  # seconds for a stopped supervisor to remove its hosts
_SUPERVISOR = "smdp_launch.localcloud.runtime.serving.supervisor"


class EndpointStore:
    """Any thread may call the methods, except `reap` and `end_all`, which the main thread calls."""

    def __init__(self, state: StateFolder) -> None:
        self.state_folder = state
        self._root = state.endpoints
        self._supervised = Supervised(state, state.endpoints, EndpointFolder, _SUPERVISOR)

    def folders(self) -> Iterator[EndpointFolder]:
        """The endpoints of the caller's region."""
        return (one for one in self.state_folder.endpoint_folders() if one.region == caller.region())

    def all(self) -> Iterator[tuple[EndpointFolder, EndpointState, Deployment]]:
        """The endpoints of the caller's region, without those that are removed meanwhile."""
        for folder in self.folders():
            try:
                yield folder, self.state(folder), self.deployment(folder)
            except ServiceError:
                if folder.root.exists():
                    raise

    def find(self, name: str) -> EndpointFolder:
        """Raises ServiceError for an unknown name. `name` may be any text of a client."""
        folder = EndpointFolder(self._root / name) if JOB_NAME.fullmatch(name) else None
        if folder is None or not folder.state.exists() or folder.region != caller.region():
            raise _unknown(name)
        return folder

    def create(self, name: str, deployment: Deployment, tags: Mapping[str, str]) -> None:
        """Create the endpoint's folder and start its supervisor.

        Raises ServiceError where the name is taken, and while the local cloud is being ended.
        """

        def write(draft: EndpointFolder) -> None:
            write_json(draft.region_file, {"region": caller.region()})
            write_json(draft.tags, dict(tags))
            endpoint_state.write_deployment(draft.deployment, deployment)
            now = round(time.time(), 3)
            endpoint_state.write(draft.state, EndpointState(now, now, config=deployment.config))

        self._supervised.start(name, write, self.taken)

    def taken(self, folder: EndpointFolder) -> ServiceError:
        """The error for a taken name. On AWS names are unique within a region only."""
        message = f'Cannot create already existing endpoint "{endpoint_arn(folder.name, caller.region())}".'
        if folder.region == caller.region():
            return validation(message)
        return validation(f"{message} The local cloud keeps names unique in all regions: {folder.region} has it.")

    def existing(self, name: str) -> EndpointFolder | None:
        """The endpoint with this name in any region."""
        folder = EndpointFolder(self._root / name)
        return folder if folder.state.exists() else None

    def state(self, folder: EndpointFolder) -> EndpointState:
        """Raises ServiceError for an endpoint that was deleted meanwhile."""
        state, deployment = endpoint_state.read(folder.state), endpoint_state.read_deployment(folder.deployment)
        if state is None or deployment is None:
            raise _unknown(folder.name)
        if folder.stop.exists():
            state.status = "Deleting"
        elif state.status == "InService" and deployment.generation > max(state.generation, state.rejected):
            state.status = "Updating"  # the supervisor has not read the new deployment yet
        return state

    def deployment(self, folder: EndpointFolder) -> Deployment:
        found = endpoint_state.read_deployment(folder.deployment)
        if found is None:
            raise _unknown(folder.name)
        return found

    def update(self, folder: EndpointFolder, deployment: Deployment) -> None:
        """Have the endpoint run another deployment. Raises ServiceError unless the endpoint is in service."""
        with self._supervised.lock:
            if self.state(folder).status != "InService":
                raise in_progress(folder.name)
            generation = self.deployment(folder).generation + 1
            deployment.generation = generation
            endpoint_state.write_deployment(folder.deployment, deployment)

    def delete(self, folder: EndpointFolder) -> None:
        """Raises ServiceError for an endpoint that is being created or updated."""
        with self._supervised.lock:
            status = self.state(folder).status
            if status in ("Creating", "Updating"):
                raise in_progress(folder.name)
            if status != "Deleting":
                write_json(folder.stop, {"time": time.time()})

    def tags(self, name: str) -> Mapping[str, str]:
        return self._supervised.tags(self.find(name))

    def change_tags(self, name: str, added: Mapping[str, str], removed: Iterable[str]) -> None:
        self._supervised.change_tags(self.find(name), added, removed)

    def active(self) -> bool:
        """Whether an endpoint, or the supervisor of one that ends, still runs."""
        return self._supervised.active()

    def reap(self) -> None:
        """Remove endpoints that have ended, and finalize those whose supervisor died. Called periodically."""
        self._supervised.reap(self._finalize)

    def end_all(self, grace: float) -> None:
        """End every endpoint and wait for it. Their containers get `grace` seconds after SIGTERM."""
        for folder in self._supervised.folders():
            if is_locked(folder.lock):
                write_json(folder.stop, {"time": time.time(), "grace": grace})
        deadline = time.monotonic() + grace + _CLEAN_UP_WAIT
        while self.active() and time.monotonic() < deadline:
            time.sleep(_TICK)
        self._supervised.kill()
        self.reap()

    def _finalize(self, folder: EndpointFolder) -> bool:
        """Clean up after a supervisor that has exited; False where that fails for now, as on a full disk.

        A failed endpoint stays until it is deleted; then it is watched again by `delete`.
        """
        state = endpoint_state.read(folder.state)
        try:
            for tree in (folder.hosts, folder.models):
                if tree.exists():
                    kill_processes_below(folder.hosts)
                    remove_tree(tree)
            if folder.stop.exists():
                self._supervised.remove(folder)
                return True
            if state is not None and state.status != "Failed":
                reason = "InternalServerError: the endpoint's supervisor died (killed, or out of memory); see "
                state.fail(f"{reason}{folder.supervisor_log}", time.time())
                endpoint_state.write(folder.state, state)
        except OSError:
            return False
        return False  # a failed endpoint is removed once it is deleted


def in_progress(name: str) -> ServiceError:
    """The service's error for a change of an endpoint that is being created, updated or deleted."""
    return validation(f'Cannot update in-progress endpoint "{endpoint_arn(name, caller.region())}".')


def _unknown(name: str) -> ServiceError:
    return validation(f'Could not find {_KIND} "{endpoint_arn(name, caller.region())}".')


def summary_of(variant: Mapping[str, Any]) -> dict[str, Any]:
    """A production variant as DescribeEndpoint shows it, from its record in the endpoint's state."""
    serverless = variant["serverless"]
    if serverless is not None:
        counts = {"CurrentServerlessConfig": serverless, "DesiredServerlessConfig": serverless}
    else:
        counts = {"CurrentInstanceCount": len(variant["hosts"]), "DesiredInstanceCount": variant["desired"]}
    image = {"SpecifiedImage": variant["image"], "ResolvedImage": variant["image"], "ResolutionTime": variant["since"]}
    return {
        "VariantName": variant["name"],
        "DeployedImages": [image],
        "CurrentWeight": variant["weight"],
        "DesiredWeight": variant["weight"],
        **counts,
    }
