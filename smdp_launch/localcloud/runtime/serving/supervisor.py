"""`python -m smdp_launch.localcloud.runtime.serving.supervisor ENDPOINTDIR` runs one endpoint until it is deleted.

The endpoint also ends when no client needs the local cloud any more: neither an announcement nor a process that holds
the clients' lock. The supervisor itself holds that lock only while it downloads a model.
"""

from __future__ import annotations

import time
import traceback
from contextlib import suppress

from smdp_launch.localcloud import endpoint_state, processes
from smdp_launch.localcloud.client.connect import Endpoint, private
from smdp_launch.localcloud.endpoint_state import Deployment, EndpointState
from smdp_launch.localcloud.files import Lock, read_json, remove_tree, write_json
from smdp_launch.localcloud.isolation import namespaces
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.runtime import port_lease
from smdp_launch.localcloud.runtime.serving import process
from smdp_launch.localcloud.runtime.serving.async_requests import AsyncRequests
from smdp_launch.localcloud.runtime.serving.fleet import Addresses, Fleet
from smdp_launch.localcloud.runtime.serving.serving_host import GRACE

_TICK = 0.05  # seconds between checks of the hosts and of the server's files
_NEED_INTERVAL = 1.0  # seconds between checks whether a client needs the local cloud
_MOST_UNNEEDED = 3  # such checks in a row, until the endpoint ends


class Supervisor:
    def __init__(self, folder: EndpointFolder, state: EndpointState) -> None:
        self._folder = folder
        self._state = state
        self._current: Fleet | None = None
        self._next: Fleet | None = None
        self._retired: list[Fleet] = []
        self._requests = AsyncRequests(folder)
        self._lease = port_lease.take(folder.principal(""))
        self._addresses = Addresses(self._lease)
        self._isolated = namespaces.refusal() is None
        self._endpoint = self._connect()
        self._deployment_stamp: tuple[int, int] | None = None
        self._checked_need = time.monotonic()
        self._unneeded = 0

    def run(self) -> None:
        """Run the endpoint. In every case nothing of its hosts is left behind."""
        try:
            while self._continues():
                self._read_deployment()
                self._maintain()
                if self._state.status == "Failed":
                    return
                time.sleep(_TICK)
        except Exception:
            with suppress(OSError):
                traceback.print_exc()
            self._fail(f"InternalServerError: the local cloud failed; see {self._folder.supervisor_log}")
        finally:
            self._end()

    def _connect(self) -> Endpoint:
        """The running server, which the containers call. A killed one is started again."""
        with private(self._folder.state_folder.root) as endpoint:
            return endpoint

    def _continues(self) -> bool:
        if self._folder.stop.exists():
            return False
        if time.monotonic() < self._checked_need + _NEED_INTERVAL:
            return True
        self._checked_need = time.monotonic()
        self._unneeded = 0 if _is_needed(self._folder) else self._unneeded + 1
        if self._unneeded < _MOST_UNNEEDED:
            return True
        write_json(self._folder.stop, {"time": time.time()})  # the server removes the endpoint when it runs again
        return False

    def _read_deployment(self) -> None:
        """Begin the deployment that the server has written, if it is new."""
        status = self._folder.deployment.stat()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp == self._deployment_stamp:
            return
        deployment = endpoint_state.read_deployment(self._folder.deployment)
        if deployment is None:
            return
        self._deployment_stamp = stamp
        if self._current is not None:
            self._state.status = "Updating"
            self._write()
        self._next = self._fleet(deployment)

    def _fleet(self, deployment: Deployment) -> Fleet:
        return Fleet(self._folder, deployment, self._addresses, self._endpoint, isolated=self._isolated)

    def _maintain(self) -> None:
        for fleet in (self._current, self._next):
            if fleet is not None:
                fleet.maintain()
        self._retired = [fleet for fleet in self._retired if not fleet.stopped()]
        if self._next is not None:
            self._advance(self._next)
        if self._current is not None and self._current.records() != self._state.variants:
            self._state.variants = self._current.records()
            self._write()
        self._requests.step(self._state.variants, self._state.asynchronous)

    def _advance(self, fleet: Fleet) -> None:
        """Replace the current fleet once the next one is in service; drop a next one that fails."""
        if fleet.failure:
            self._next = None
            fleet.kill()
            if self._current is None:
                self._fail(fleet.failure)
                return
            self._state.rejected = fleet.deployment.generation
            self._enter_service(fleet.failure[:1024])
        elif fleet.is_in_service:
            old, self._current, self._next = self._current, fleet, None
            self._state.generation, self._state.config = fleet.deployment.generation, fleet.deployment.config
            self._state.asynchronous = fleet.deployment.request.get("AsyncInferenceConfig")
            self._state.variants = fleet.records()
            self._enter_service(None)
            if old is not None:
                old.terminate(GRACE)
                self._retired.append(old)

    def _enter_service(self, failure: str | None) -> None:
        self._state.status = "InService"
        self._state.failure = failure
        self._state.modified = time.time()
        self._write()

    def _fail(self, reason: str) -> None:
        self._state.fail(reason, time.time())
        with suppress(OSError):
            self._write()

    def _write(self) -> None:
        endpoint_state.write(self._folder.state, self._state)

    def _end(self) -> None:
        self._requests.end()
        fleets = [fleet for fleet in (self._current, self._next, *self._retired) if fleet is not None]
        while fleets:
            # Read again: the end of the local cloud gives less time than the deletion of the endpoint.
            grace = float((read_json(self._folder.stop) or {}).get("grace", GRACE))
            for fleet in fleets:
                fleet.terminate(grace)
            fleets = [fleet for fleet in fleets if not fleet.stopped()]
            time.sleep(_TICK if fleets else 0)
        for folder in (self._folder.hosts, self._folder.models):
            remove_tree(folder)
        self._lease.release()


def _is_needed(folder: EndpointFolder) -> bool:
    """Whether the local cloud must stay: it is announced, or a client holds the clients' lock."""
    state = folder.state_folder
    if state.is_announced:
        return True
    clients = Lock(state.clients_lock)
    try:
        return not clients.take()
    finally:
        clients.release()


def main() -> int:
    return process.run(
        EndpointFolder,
        endpoint_state.read,
        lambda folder, state: Supervisor(folder, state).run(),
        lambda state, reason: state.fail(reason, time.time()),
    )


if __name__ == "__main__":
    processes.exit_fast(main())
