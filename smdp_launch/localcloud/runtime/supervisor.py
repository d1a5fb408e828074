"""`python -m smdp_launch.localcloud.runtime.supervisor JOBDIR`: runs one job from its request to its end.

The supervisor is the only writer of the job's state while it lives. It needs the server only to fetch and to store
objects, so training goes on while the server is away.
"""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from smdp_launch.catalog import not_simulated
from smdp_launch.catalog.faults import GRACE
from smdp_launch.disk import full, is_full
from smdp_launch.localcloud import job_state, processes
from smdp_launch.localcloud.client.bucket import BucketError, Buckets
from smdp_launch.localcloud.environment import isolate
from smdp_launch.localcloud.files import read_json, remove_tree, write_json
from smdp_launch.localcloud.isolation import images, namespaces, network
from smdp_launch.localcloud.isolation.namespaces import Mount
from smdp_launch.localcloud.layout import LOG_SUFFIX, JobFolder
from smdp_launch.localcloud.runtime import channels, fault_injector, lease, outcome, reserve, results
from smdp_launch.localcloud.runtime.artifacts import Artifacts
from smdp_launch.localcloud.runtime.checkpoints import CheckpointSync
from smdp_launch.localcloud.runtime.fault_injector import Striker
from smdp_launch.localcloud.runtime.hosts import Host, HostLog, wait_until
from smdp_launch.localcloud.runtime.launch import Grounds, Launch
from smdp_launch.localcloud.runtime.meter import Meter, final
from smdp_launch.localcloud.runtime.outcome import Ending, JobFailed, JobStopped
from smdp_launch.localcloud.runtime.tree import HostTree, host_names, plant

_TICK = 0.05  # seconds between looks at hosts, clock and stop mark
_MEASURING = 1.0  # seconds between looks at the log
_REPORT_WAIT = 1.0  # seconds for the other hosts to say what they saw
_FAILURE_GRACE = 2.0  # seconds for the other hosts to end by themselves
_RECORDING = 1.0  # seconds between tries to write the end of a job on a full disk
_DEFAULT_RUNTIME = 86400  # seconds, the service's default of MaxRuntimeInSeconds


class Supervisor:
    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._request: Mapping[str, Any] = read_json(folder.request)
        state = job_state.read(folder.state)
        if state is None:
            raise FileNotFoundError(folder.state)
        self._state = state
        # The limits of the job's time are judged by the clock that nobody sets.
        self._created = time.monotonic() - max(0.0, time.time() - state.created)
        self._started = math.inf
        self._hosts: list[Host] = []
        names = host_names(self._request["ResourceConfig"]["InstanceCount"])
        self._trees = [HostTree(name, folder.hosts / name) for name in names]
        self._resources = ExitStack()
        self._meter = Meter(folder, self._request)
        self._mounts: list[Mount] = []
        self._checkpoints: CheckpointSync | None = None
        self._striker = Striker(None, folder)
        self._no_network = ""  # why the hosts share this machine's, where they should not

    @cached_property
    def _no_namespaces(self) -> str | None:
        """Why hosts have none here, if so."""
        return namespaces.refusal()

    def run(self) -> None:
        """Run the job; whatever happens, its state ends and nothing of it stays."""
        try:
            ending = self._run()
        except JobFailed as error:
            ending = outcome.failed(str(error))
        except JobStopped:
            ending = outcome.STOPPED
        except (BucketError, OSError) as error:
            _note_exception()
            ending = outcome.failed(self._reason(error))
        except Exception:
            _note_exception()
            ending = outcome.failed(f"InternalServerError: the local cloud failed; see {self._folder.supervisor_log}")
        self._clean_up()
        self._meter.look()
        self._state.metrics = final(self._folder)
        now = time.time()
        if ending.failure is not None:
            self._state.fail(ending.failure, now)
        else:
            self._state.end(ending.status, ending.secondary, ending.message, now)
        self._record_end()

    def _run(self) -> Ending:
        self._proceed()
        self._striker = Striker(fault_injector.asked(self._request), self._folder)
        self._state.started, self._started = time.time(), time.monotonic()
        buckets = self._open_buckets()
        artifacts = Artifacts(self._request, buckets, self._folder.hosts)
        held = lease.take(self._folder.name)
        self._resources.callback(held.release)
        while True:
            self._prepare(held, buckets, artifacts)
            ending = self._train(held, buckets)
            if ending is not outcome.INTERRUPTED:
                break
            if not self._comes_back(self._striker.seconds):
                return outcome.NO_CAPACITY
        return self._deliver(artifacts, ending)

    def _prepare(self, held: lease.Lease, buckets: Buckets, artifacts: Artifacts) -> None:
        """Hosts with all that they find when they start, each time anew."""
        self._enter("Downloading", "Downloading input data")
        self._plant(held)
        artifacts.check_bucket()
        for channel in self._request.get("InputDataConfig", []):
            self._fill(channel, buckets)
        self._checkpoints = self._sync_checkpoints()

    def _proceed(self) -> None:
        if self._folder.stop.exists():
            raise JobStopped

    def _enter(self, secondary: str, message: str) -> None:
        self._state.enter(secondary, message, time.time())
        self._record()

    def _explain(self, message: str) -> None:
        self._state.explain(message, time.time())
        self._record()

    def _record(self) -> None:
        reserve.write(self._folder, lambda: job_state.write(self._folder.state, self._state))

    def _record_end(self) -> None:
        """However long the disk is full: nobody else knows how the job ended."""
        while True:
            try:
                self._record()
            except OSError as error:
                if not is_full(error):
                    raise
                time.sleep(_RECORDING)
            else:
                self._folder.reserve.unlink(missing_ok=True)
                return

    def _open_buckets(self) -> Buckets:
        buckets = Buckets(self._folder.state_folder, self._folder.name)
        self._resources.callback(buckets.close)
        return buckets

    def _plant(self, held: lease.Lease) -> None:
        has_network = self._switch is not None
        address = network.address if has_network else held.address
        addresses = {tree.name: address(tree.number) for tree in self._trees}
        for tree in self._trees:
            plant(tree, self._request, addresses, network.INTERFACE if has_network else "lo")

    def _fill(self, channel: Mapping[str, Any], buckets: Buckets) -> None:
        if "S3DataSource" in channel["DataSource"]:
            channels.download(channel, self._trees, buckets, self._proceed)
            return
        # pydantic takes a third of the time that a supervisor takes to start, and few jobs have file systems
        from smdp_launch.localcloud.account import AccountFile
        from smdp_launch.localcloud.runtime import mounts

        account, isolated = AccountFile(self._folder.state_folder.root), self._no_namespaces is None
        self._mounts += mounts.attach(channel, self._trees, account, isolated=isolated)

    def _sync_checkpoints(self) -> CheckpointSync | None:
        config = self._request.get("CheckpointConfig")
        if config is None:
            return None
        sync = CheckpointSync(config, self._trees, self._open_buckets(), self._folder.hosts / "checkpoint")
        sync.restore()
        sync.start()
        return sync

    def _train(self, held: lease.Lease, buckets: Buckets) -> Ending:
        self._proceed()
        refusal = self._no_namespaces
        grounds = replace(self._grounds, mounts=tuple(self._mounts))
        launch = Launch(
            self._request,
            self._folder,
            held,
            buckets.endpoint,
            isolated=refusal is None,
            grounds=grounds,
            fault=self._striker.fault,
        )
        warning = f"No namespaces here ({refusal}): scripts that write /opt/ml literally write to this machine's. "
        self._enter(
            "Training", f"{warning if refusal else ''}Training in progress on {len(self._trees)} simulated host(s)."
        )
        notes = [f"{warning}Use the SM_* variables."] if refusal else []
        notes += [self._no_network] if self._no_network else []
        if launch.replaced_variables:
            notes.append(
                f"{', '.join(launch.replaced_variables)}: replaced by the HTTP proxy of the job's own network."
            )
        began = int(time.time())
        self._striker.begin()

        def start(tree: HostTree) -> None:
            log = HostLog(self._folder.logs / f"{tree.name}-{began}{LOG_SUFFIX}")
            for line in [*notes, *(not_simulated.log_lines(self._request) if tree is self._trees[0] else [])]:
                log.write(f"[{tree.name}] {line}")
            host = Host(tree, launch.order(tree), log, self._striker.watch)
            self._hosts.append(host)
            if self._checkpoints is not None and self._checkpoints.restored:
                host.tell("checkpoints_restored", files=self._checkpoints.restored)
            self._striker.see_started(host)

        return self._watch(start)

    @cached_property
    def _grounds(self) -> Grounds:
        """The image and the network of hosts that have them; let go of when the job ends."""
        try:
            image = self._open_image() if images.wanted(self._request) else None
            speed = network.speed(self._request)
        except (images.ContainerError, network.NetworkError) as error:
            raise JobFailed(f"ClientError: {error}") from error
        return Grounds(image, self._switch.pid if self._switch is not None else None, speed)

    @cached_property
    def _switch(self) -> network.Switch | None:
        """Of the hosts' own network, until the job ends; None where they share this machine's."""
        needed = images.wanted(self._request) or network.wanted(self._request)
        if not needed and not network.suits(self._request):
            return None
        try:
            switch = network.open_switch()
        except network.NetworkError as error:
            if needed:
                raise JobFailed(f"ClientError: {error}") from error
            self._no_network = (
                f"The hosts share the network of the machine that runs smdp-launch ({error}): another job cannot use "
                "the same ports, and network isolation is not applied."
            )
            return None
        self._resources.callback(switch.close)
        return switch

    def _open_image(self) -> images.Image:
        image: str = self._request["AlgorithmSpecification"]["TrainingImage"]
        self._resources.callback(images.close, self._folder.name)
        return images.open_image(image, self._folder.name)

    def _watch(self, start: Callable[[HostTree], None]) -> Ending:
        """Start the hosts, and see the job to its end or its interruption."""
        measured = time.monotonic()
        to_start = list(self._trees)
        while True:
            to_start = self._start(to_start, start)
            if time.monotonic() > measured + _MEASURING:
                self._meter.look()
                measured = time.monotonic()
            ended = [host for host in self._hosts if host.has_ended]
            if any(host.code != 0 for host in ended):
                return self._fail()
            if len(ended) == len(self._trees):
                return outcome.COMPLETED
            cut_off = self._cut_off() or self._struck()
            if cut_off is not None:
                return cut_off
            time.sleep(_TICK)

    def _cut_off(self) -> Ending | None:
        """Stop a job that somebody wants stopped, or whose time is over."""
        limit = self._request["StoppingCondition"].get("MaxRuntimeInSeconds", _DEFAULT_RUNTIME)
        if self._folder.stop.exists():
            return self._stop(outcome.STOPPED, "Stopping the training job")
        if time.monotonic() > self._started + self._state.away + limit:
            return self._stop(outcome.OUT_OF_TIME, "MaxRuntimeInSeconds is over; stopping the training job")
        if time.monotonic() > self._last_wait:
            return self._stop(outcome.NO_CAPACITY, "MaxWaitTimeInSeconds is over; stopping the training job")
        return None

    def _struck(self) -> Ending | None:
        """Do to the job what it is to be rehearsed for."""
        kept = self._checkpoints.has_kept if self._checkpoints is not None else None
        if self._striker.takes_hosts(kept):
            return self._interrupt(self._striker.grace)
        if self._striker.stops(kept):
            self._striker.tell(self._hosts, "job_stopped")
            return self._stop(outcome.STOPPED, "Stopping the training job")
        self._striker.strike(self._hosts)
        return None

    def _start(self, trees: Sequence[HostTree], start: Callable[[HostTree], None]) -> list[HostTree]:
        """Start the hosts that may; those that may not yet."""
        held = [one for one in trees if self._striker.is_held_back(one.name)]
        for tree in trees:
            if tree not in held:
                start(tree)
        return held

    @property
    def _last_wait(self) -> float:
        """By the monotonic clock: of spot training, waiting and running together."""
        limit: float = self._request["StoppingCondition"].get("MaxWaitTimeInSeconds", math.inf)
        return self._created + limit

    def _interrupt(self, grace: float) -> Ending:
        """Take the hosts away as the platform takes spot instances: SIGTERM to all, SIGKILL when the grace is over, and
        what of the checkpoints has not reached the bucket by then is lost."""
        self._striker.tell(self._hosts, "interrupted", grace=grace)
        until = time.monotonic() + grace
        if grace > 0:
            self._terminate(lambda: min(grace, self._grace()))
        self._kill()
        try:
            if self._checkpoints is not None:
                self._checkpoints.finish(until)
        except (BucketError, OSError):
            _note_exception()  # what was kept before is there
        return outcome.INTERRUPTED

    def _comes_back(self, seconds: float) -> bool:
        """Wait the seconds until there is capacity again; False if that is longer than the job may wait."""
        self._enter("Interrupted", "Training job interrupted: its spot capacity was taken away")
        self._hosts, self._mounts = [], []
        remove_tree(self._folder.hosts)
        began = time.monotonic()
        back = began + seconds
        last = self._last_wait
        try:
            while time.monotonic() < min(back, last):
                self._proceed()
                time.sleep(_TICK)
        finally:
            self._state.away += time.monotonic() - began
        if back > last:
            return False
        self._enter("Starting", "Preparing the simulated hosts for training")
        return True

    def _fail(self) -> Ending:
        """A host has failed. Hear the others first: the one that ended first need not be the one that failed first."""
        wait_until(self._hosts, _REPORT_WAIT, reported=True)
        wait_until([host for host in self._hosts if host.has_reported], _REPORT_WAIT)
        failed = [host for host in self._hosts if host.has_ended and host.code != 0]
        for host in failed:
            host.read_to_end()
        reason = outcome.failure_reason(failed)
        for host in self._hosts:
            host.terminate()
        wait_until(self._hosts, _FAILURE_GRACE)
        self._kill()
        return outcome.failed(reason)

    def _stop(self, ending: Ending, message: str) -> Ending:
        self._state.status = "Stopping"
        self._enter("Stopping", message)
        self._terminate(self._grace)
        self._kill()
        return ending

    def _terminate(self, grace: Callable[[], float]) -> None:
        """SIGTERM to every host, and `grace` seconds for them to end."""
        self._striker.let_go()
        for host in self._hosts:
            host.terminate()
        began = time.monotonic()
        while time.monotonic() < began + grace() and not all(host.has_ended for host in self._hosts):
            time.sleep(_TICK)

    def _grace(self) -> float:
        """Seconds; who asked for the stop, or asks again, may give less than the platform does."""
        asked = read_json(self._folder.stop) or {}
        return float(asked.get("grace", GRACE))

    def _kill(self) -> None:
        for host in self._hosts:
            host.kill()

    def _deliver(self, artifacts: Artifacts, ending: Ending) -> Ending:
        """Upload what the job leaves; what cannot be uploaded is kept in the job's folder."""
        self._kill()
        with suppress(OSError):  # on a full disk, for which the upload waits
            self._enter("Uploading", "Uploading generated training model")
        try:
            if ending.failure is None:
                results.upload(lambda: self._upload(artifacts, ending), self._folder, self._explain)
            else:
                self._upload(artifacts, ending)
        except (BucketError, OSError) as error:
            _note_exception()
            if ending.failure is not None:
                return ending  # why the job failed matters more than that its output could not be kept
            results.keep(self._folder, self._request)
            return outcome.failed(f"{self._reason(error)}{results.note(self._folder)}")
        return ending

    def _upload(self, artifacts: Artifacts, ending: Ending) -> None:
        if self._checkpoints is not None:
            self._checkpoints.finish()
        if ending.failure is None:
            self._state.model = artifacts.upload_model(self._trees)
        artifacts.upload_output(self._trees)

    def _reason(self, error: BucketError | OSError) -> str:
        """A failure reason."""
        if results.is_disk_full(error):
            return f"InternalServerError: {full(self._folder.state_folder.root)}"
        if isinstance(error, BucketError):
            return f"ClientError: {error.reason}" if error.code else f"InternalServerError: {error}"
        return f"InternalServerError: this machine could not go on with the job: {error}"

    def _clean_up(self) -> None:
        self._kill()
        if self._checkpoints is not None:
            self._checkpoints.abandon()
        self._striker.close()
        remove_tree(self._folder.hosts)
        self._resources.close()


def _note_exception() -> None:
    """The exception being handled, into the supervisor's log, unless the disk is what failed."""
    with suppress(OSError):
        traceback.print_exc()


def main() -> int:
    isolate()
    namespaces.adopt_orphans()
    folder = JobFolder(Path(sys.argv[1]))
    reserve.write(folder, lambda: write_json(folder.pid, {"pid": os.getpid()}))
    Supervisor(folder).run()
    return 0


if __name__ == "__main__":
    processes.leave(main())
