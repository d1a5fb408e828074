"""`python -m smdp_launch.localcloud.runtime.supervisor JOBDIR` runs one job, from its request to its end.

The supervisor needs the server only to fetch and to store objects, so the training continues while the server is away.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from smdp_launch.catalog import not_simulated
from smdp_launch.catalog.faults import GRACE
from smdp_launch.disk import full
from smdp_launch.host_counts import host_count
from smdp_launch.localcloud import capacity, processes
from smdp_launch.localcloud.client.bucket import BucketError, Buckets
from smdp_launch.localcloud.files import read_json, remove_tree, write_json
from smdp_launch.localcloud.groups import host_names
from smdp_launch.localcloud.host_log import HostLog
from smdp_launch.localcloud.inputs.readings import Readings
from smdp_launch.localcloud.isolation import namespaces, network
from smdp_launch.localcloud.layout import LOG_SUFFIX, JobFolder
from smdp_launch.localcloud.runtime import outcome, port_lease, reserve, results
from smdp_launch.localcloud.runtime.artifacts import Artifacts
from smdp_launch.localcloud.runtime.checkpoints import FolderSync
from smdp_launch.localcloud.runtime.fault_injector import FaultInjector, requested_fault
from smdp_launch.localcloud.runtime.host_group import HostGroup
from smdp_launch.localcloud.runtime.host_resources import ResourceOpener
from smdp_launch.localcloud.runtime.host_specs import Launch
from smdp_launch.localcloud.runtime.inputs import InputChannels
from smdp_launch.localcloud.runtime.job_record import JobRecord
from smdp_launch.localcloud.runtime.meter import Meter, final
from smdp_launch.localcloud.runtime.outcome import Ending, JobFailed, JobStopped
from smdp_launch.localcloud.runtime.started_host import Host
from smdp_launch.localcloud.runtime.tree import HostTree, create_tree
from smdp_launch.localcloud.started_supervisor import own_folder

_TICK = 0.05  # seconds between checks of the hosts, the clock and the stop request
_METRIC_INTERVAL = 1.0  # seconds between searches of the log
_NO_NAMESPACES = (
    "scripts that write to /opt/ml write to this machine's /opt/ml. Use the SM_* variables and SMDP_CHECKPOINT_DIR."
)
_DEFAULT_RUNTIME = 86400  # seconds, the service's default of MaxRuntimeInSeconds


class Supervisor:
    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._request: Mapping[str, Any] = read_json(folder.request)
        self._record = JobRecord(folder)
        self._state = self._record.state
        # The monotonic clock measures the limits of the job's time: the user may set the other one meanwhile.
        self._created = time.monotonic() - max(0.0, time.time() - self._state.created)
        self._started = math.inf
        self._hosts = HostGroup()
        names = host_names(host_count(self._request["ResourceConfig"]))
        self._trees = [HostTree(name, folder.hosts / name) for name in names]
        self._exit_stack = ExitStack()
        self._resources = ResourceOpener(self._request, folder.name)
        self._meter = Meter(folder, self._request)
        self._inputs = InputChannels(self._request, folder, self._trees)
        self._readings = Readings(folder.readings, {tree.name: tree.root for tree in self._trees})
        self._copies: FolderSync | None = None
        self._injector = FaultInjector(None, folder)
        self._is_delivered = False

    @cached_property
    def _no_namespaces(self) -> str | None:
        """Why hosts cannot have namespaces on this machine; None where they can."""
        return namespaces.refusal()

    def run(self) -> None:
        """Run the job. In every case the job gets an end state, and nothing of its hosts is left behind."""
        try:
            ending = self._run()
        except JobFailed as error:
            ending = outcome.failed(str(error))
        except JobStopped:
            ending = outcome.STOPPED
        except Exception as error:
            _log_exception()
            ending = outcome.failed(self._reason(error))
        ending = self._clean_up(ending)
        self._meter.update()
        self._record.end(ending, final(self._folder))

    def _run(self) -> Ending:
        self._check_stop()
        self._injector = FaultInjector(requested_fault(self._request), self._folder)
        self._state.started, self._started = time.time(), time.monotonic()
        buckets = self._open_buckets()
        artifacts = Artifacts(self._request, buckets, self._folder.hosts)
        addresses = port_lease.take(self._folder.name)
        self._exit_stack.callback(addresses.release)
        while True:
            self._prepare(addresses, buckets, artifacts)
            ending = self._train(addresses, buckets)
            if ending is not outcome.INTERRUPTED:
                break
            if not self._wait_for_capacity(self._injector.seconds):
                return outcome.NO_CAPACITY
        return self._deliver(artifacts, ending)

    def _prepare(self, addresses: port_lease.Lease, buckets: Buckets, artifacts: Artifacts) -> None:
        """Create the hosts' trees and fill them with all that a host finds when it starts."""
        self._record.enter("Downloading", "Downloading input data")
        self._create_trees(addresses)
        artifacts.check_bucket()
        self._inputs.fill(buckets, self._check_stop, self._injector.fault, isolated=self._no_namespaces is None)
        self._copies = self._copy_folders()

    def _check_stop(self) -> None:
        """Raises JobStopped where a stop was requested."""
        if self._folder.stop.exists():
            raise JobStopped

    def _open_buckets(self) -> Buckets:
        buckets = Buckets(self._folder.state_folder, self._folder.name)
        self._exit_stack.callback(buckets.close)
        return buckets

    def _create_trees(self, addresses: port_lease.Lease) -> None:
        has_network = self._resources.switch is not None
        address = network.address if has_network else addresses.address
        by_name = {tree.name: address(tree.number) for tree in self._trees}
        for tree in self._trees:
            create_tree(tree, self._request, by_name, network.INTERFACE if has_network else "lo")

    def _copy_folders(self) -> FolderSync | None:
        if not {"CheckpointConfig", "TensorBoardOutputConfig"} & self._request.keys():
            return None
        scratch = self._folder.hosts / "checkpoint"
        sync = FolderSync(self._request, self._trees, self._open_buckets(), scratch, self._note)
        sync.restore()
        sync.start()
        return sync

    def _train(self, addresses: port_lease.Lease, buckets: Buckets) -> Ending:
        self._check_stop()
        refusal = self._no_namespaces
        launch = Launch(
            self._request,
            self._folder,
            addresses,
            buckets.endpoint,
            isolated=refusal is None,
            resources=self._resources.resources(self._inputs.mounts),
            fault=self._injector.fault,
        )
        self._record.enter("Training", f"Training in progress on {len(self._trees)} simulated host(s).")
        notes = [f"No Linux namespaces ({refusal}): {_NO_NAMESPACES}"] if refusal else []
        notes += [self._resources.network_warning] if self._resources.network_warning else []
        if launch.replaced_variables:
            notes.append(
                f"{', '.join(launch.replaced_variables)}: replaced by the HTTP proxy of the job's own network."
            )
        began = int(time.time())
        notes += self._inputs.notes()
        self._injector.begin()

        def start(tree: HostTree) -> None:
            log = HostLog(self._folder.logs / f"{tree.name}-{began}{LOG_SUFFIX}")
            # Once, and not in the log of each host.
            for line in [*notes, *not_simulated.log_lines(self._request)] if tree is self._trees[0] else []:
                log.write(f"[{tree.name}] {line}")
            spec = replace(launch.spec(tree), inputs=self._inputs.of(tree))
            host = Host(tree, spec, log, self._injector.read_line)
            self._hosts.add(host)
            if self._copies is not None and self._copies.restored:
                host.report("checkpoints_restored", files=self._copies.restored)
            self._injector.report_started(host, self._inputs.served, self._inputs.unlimited)

        return self._watch(start)

    def _watch(self, start: Callable[[HostTree], None]) -> Ending:
        """Start the hosts and watch them until the job ends or is interrupted."""
        measured = time.monotonic()
        to_start = list(self._trees)
        while True:
            to_start = self._start(to_start, start)
            if time.monotonic() > measured + _METRIC_INTERVAL:
                self._meter.update()
                self._readings.update()
                measured = time.monotonic()
            ended = self._hosts.ended()
            if self._hosts.has_failure:
                return outcome.failed(self._hosts.fail())
            if ended == len(self._trees):
                return outcome.COMPLETED
            ending = self._apply_limits() or self._inject_fault()
            if ending is not None:
                return ending
            time.sleep(_TICK)

    def _apply_limits(self) -> Ending | None:
        """Stop the job where a stop was requested or its time is over."""
        limit = self._request["StoppingCondition"].get("MaxRuntimeInSeconds", _DEFAULT_RUNTIME)
        if self._folder.stop.exists():
            return self._stop(outcome.STOPPED, "Stopping the training job")
        if time.monotonic() > self._started + self._state.away + limit:
            return self._stop(outcome.OUT_OF_TIME, "MaxRuntimeInSeconds is over; stopping the training job")
        if time.monotonic() > self._wait_deadline:
            return self._stop(outcome.NO_CAPACITY, "MaxWaitTimeInSeconds is over; stopping the training job")
        return None

    def _inject_fault(self) -> Ending | None:
        """Inject the job's fault if it is due; the ending, where the fault ends or interrupts the job."""
        checkpoint_uploaded = self._copies.has_uploaded if self._copies is not None else None
        if self._injector.interrupts_now(checkpoint_uploaded):
            return self._interrupt(self._injector.grace)
        if self._injector.stops_now(checkpoint_uploaded):
            self._injector.report(self._hosts.hosts, "job_stopped")
            return self._stop(outcome.STOPPED, "Stopping the training job")
        self._injector.inject(self._hosts.hosts)
        return None

    def _start(self, trees: Sequence[HostTree], start: Callable[[HostTree], None]) -> list[HostTree]:
        """Start the hosts that the fault does not delay; the delayed ones."""
        delayed = [one for one in trees if self._injector.delays(one.name)]
        for tree in trees:
            if tree not in delayed:
                start(tree)
        return delayed

    @property
    def _wait_deadline(self) -> float:
        """On the monotonic clock: the end of MaxWaitTimeInSeconds, which bounds waiting and running together."""
        limit: float = self._request["StoppingCondition"].get("MaxWaitTimeInSeconds", math.inf)
        return self._created + limit

    def _interrupt(self, grace: float) -> Ending:
        """Take the hosts away as the platform takes spot instances: SIGTERM to all, and SIGKILL after `grace` seconds.

        Checkpoints that have not reached the bucket by then are lost.
        """
        self._injector.report(self._hosts.hosts, "interrupted", grace=grace)
        until = time.monotonic() + grace
        if grace > 0:
            self._terminate(lambda: min(grace, self._grace()))
        self._hosts.kill()
        try:
            if self._copies is not None:
                self._copies.finish(until)
        except Exception:
            _log_exception()  # earlier checkpoints are in the bucket
        return outcome.INTERRUPTED

    def _wait_for_capacity(self, seconds: float) -> bool:
        """Wait the seconds until there is capacity again; False where the job may not wait that long."""
        self._announce("Interrupted", "Training job interrupted: its spot capacity was taken away")
        self._readings.update()
        self._readings.restart()
        self._inputs.clear()
        remove_tree(self._folder.hosts)
        self._hosts.clear()
        began = time.monotonic()
        back = began + seconds
        last = self._wait_deadline
        try:
            while time.monotonic() < min(back, last):
                self._check_stop()
                time.sleep(_TICK)
        finally:
            self._state.away += time.monotonic() - began
        if back > last:
            return False
        self._record.enter("Starting", "Preparing the simulated hosts for training")
        return True

    def _stop(self, ending: Ending, message: str) -> Ending:
        self._state.status = "Stopping"
        self._announce("Stopping", message)
        self._terminate(self._grace)
        self._hosts.kill()
        return ending

    def _announce(self, secondary: str, message: str) -> None:
        """Enter the next secondary status. On a full disk the job continues, and a later write has this status too."""
        with suppress(OSError):
            self._record.enter(secondary, message)

    def _note(self, text: str) -> None:
        """Write a line into the job's log, once for all hosts."""
        for host in self._hosts.hosts[:1]:
            host.note(text)

    def _terminate(self, grace: Callable[[], float]) -> None:
        self._injector.resume_worker()
        self._hosts.terminate(grace)

    def _grace(self) -> float:
        """Seconds from SIGTERM to SIGKILL. A stop request, or a later one, may set fewer than the platform's."""
        stop = read_json(self._folder.stop) or {}
        return float(stop.get("grace", GRACE))

    def _deliver(self, artifacts: Artifacts, ending: Ending) -> Ending:
        """Upload the job's results. `_clean_up` preserves those that cannot be uploaded."""
        self._hosts.kill()
        self._readings.update()
        self._injector.report_reads(self._hosts.hosts, self._readings.summary())
        self._announce("Uploading", "Uploading generated training model")  # on a full disk the upload waits for space
        try:
            if ending.failure is None:
                results.upload(lambda: self._upload(artifacts, ending), self._folder, self._record.explain)
            else:
                self._upload(artifacts, ending)
        except Exception as error:
            _log_exception()
            # why the job failed matters more than the failed upload of its output
            return ending if ending.failure is not None else outcome.failed(self._reason(error))
        self._is_delivered = True
        return ending

    def _upload(self, artifacts: Artifacts, ending: Ending) -> None:
        if self._copies is not None:
            self._copies.finish()
        if ending.failure is None:
            self._state.model = artifacts.upload_model(self._trees)
        artifacts.upload_output(self._trees)

    def _reason(self, error: Exception) -> str:
        """The FailureReason for an error of the object store, of this machine or of the local cloud."""
        if results.is_disk_full(error):
            return f"InternalServerError: {full(self._folder.state_folder.root)}"
        if isinstance(error, BucketError):
            return f"ClientError: {error.reason}" if error.code else f"InternalServerError: {error}"
        if isinstance(error, OSError):
            return f"InternalServerError: this machine cannot run the job: {error}"
        return f"InternalServerError: the local cloud failed; see {self._folder.supervisor_log}"

    def _clean_up(self, ending: Ending) -> Ending:
        self._hosts.kill()
        if self._copies is not None:
            self._copies.abandon()
        if self._hosts.hosts:
            ending = self._preserve(ending)
        self._injector.close()
        remove_tree(self._folder.hosts)
        self._hosts.complete_logs()  # now there may be space
        self._resources.close()
        self._exit_stack.close()
        return ending

    def _preserve(self, ending: Ending) -> Ending:
        """Keep results that the bucket lacks. The failure reason or the log names their folder."""
        skipped = self._copies.skipped if self._copies is not None else set()
        if self._is_delivered and not skipped:
            return ending
        try:
            results.preserve(self._folder, self._request, only=skipped if self._is_delivered else None)
        except OSError:
            _log_exception()
        location = results.location(self._folder)
        if not self._is_delivered:
            return outcome.failed(ending.failure or ending.message, location)
        if location:
            self._note(f"files were not uploaded{location}")
        return ending


def _log_exception() -> None:
    """Write the exception being handled to the supervisor's log, unless the disk is what failed."""
    with suppress(OSError):
        traceback.print_exc()


def main() -> int:
    folder = own_folder(JobFolder)
    namespaces.adopt_orphans()
    reserve.write(folder, lambda: write_json(folder.pid, {"pid": os.getpid()}))
    record = JobRecord(folder)
    try:
        capacity.acquire(folder, read_json(folder.request), record.explain)
    except capacity.NoCapacity as error:
        record.end(outcome.failed(str(error)), [])
    else:
        Supervisor(folder).run()
    return 0


if __name__ == "__main__":
    processes.exit_fast(main())
