"""`python -m smdp_launch.localcloud.runtime.host_process SPEC` is one simulated host. The supervisor starts each.

This process monitors the host: it creates the namespaces, starts the training entrypoint as their process 1 and exits
with the entrypoint's exit code (128+N for a signal). It forwards SIGTERM; SIGUSR1 ends everything at once, and the end
of the supervisor ends the host. Without namespaces the monitor adopts the processes that the entrypoint leaves behind
and ends them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from smdp_launch.localcloud.inputs.service import Inputs, Service, ServiceError
from smdp_launch.localcloud.isolation import container as containers
from smdp_launch.localcloud.isolation import namespaces, network
from smdp_launch.localcloud.isolation.container import Container
from smdp_launch.localcloud.isolation.namespaces import Mount, View
from smdp_launch.localcloud.isolation.network import Plug
from smdp_launch.localcloud.processes import children, exit_fast, handles_sigterm

_SIGNALS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}


@dataclass(frozen=True)
class HostSpec:
    """How to start a host: the supervisor writes it as JSON, the host reads it.

    Args:
        supervisor: process id.
        namespaces: whether the host gets namespaces, which `container` and `plug` need.
    """

    supervisor: int
    namespaces: bool
    command: list[str]
    environment: dict[str, str]
    view: View
    container: Container | None = None
    plug: Plug | None = None
    inputs: Inputs | None = None

    def write(self, path: Path) -> None:
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), default=str))

    @staticmethod
    def read(path: Path) -> HostSpec:
        record = json.loads(path.read_text())
        view = record.pop("view")
        folders = {name: Path(view[name]) for name in ("ml", "tmp", "opt", "hosts_file")}
        visible = tuple(map(Path, view["visible"]))
        mounts = tuple(Mount(Path(one["source"]), Path(one["target"]), one["read_only"]) for one in view["mounts"])
        container, plug, inputs = record.pop("container"), record.pop("plug"), record.pop("inputs")
        if container is not None:
            container |= {name: Path(container[name]) for name in ("image", "layer")}
            container = Container(**container)
        view = View(view["name"], **folders, visible=visible, mounts=mounts)
        plug = Plug(**plug) if plug is not None else None
        inputs = Inputs.from_json(inputs) if inputs is not None else None
        return HostSpec(**record, view=view, container=container, plug=plug, inputs=inputs)


def run(spec: HostSpec) -> int:
    """Run the host to its end; the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    service = _serve_inputs(spec)  # before `enter`: the next process after it is the host's first
    try:
        return _run(spec, service)
    finally:
        if service is not None:
            service.close()
        if not spec.namespaces:
            _end_all_children()


def _run(spec: HostSpec, service: Service | None) -> int:
    if spec.namespaces:
        if spec.plug is not None:
            _join_network(spec, spec.plug)  # starts processes, which must not become the host's first either
        namespaces.enter()
        namespaces.die_with_parent(signal.SIGKILL)
    else:
        namespaces.adopt_orphans()
        namespaces.die_with_parent(signal.SIGUSR1)
    if os.getppid() != spec.supervisor:
        return 128 + signal.SIGKILL
    return _watch(*_start(spec, service))


def _serve_inputs(spec: HostSpec) -> Service | None:
    if spec.inputs is None:
        return None
    try:
        return Service(spec.inputs, namespaces.die_with_parent)
    except ServiceError as error:
        _report(_output_folder(spec), error)
        sys.exit(1)


def _join_network(spec: HostSpec, plug: Plug) -> None:
    try:
        network.join(plug, spec.view.name)
    except OSError as error:
        _report(_output_folder(spec), error)
        sys.exit(1)


def _start(spec: HostSpec, service: Service | None) -> tuple[int, int]:
    """The entrypoint's process id, and the read end of a pipe that closes once the process runs the entrypoint."""
    parent_alive, parent_end = os.pipe()
    exec_pipe, child_end = os.pipe()
    child = os.fork()
    if child:
        os.close(parent_alive)  # `parent_end` stays open for as long as this process lives
        os.close(child_end)
        return child, exec_pipe
    os.close(parent_end)
    os.close(exec_pipe)
    output = _output_folder(spec)
    try:
        namespaces.die_with_parent(signal.SIGKILL)
        if select.select([parent_alive], [], [], 0)[0]:  # the monitor ended before die_with_parent took effect
            os._exit(128 + signal.SIGKILL)
        _set_up(spec, service)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.execvpe(spec.command[0], spec.command, spec.environment)  # noqa: S606 (no shell wanted)
    except (OSError, ValueError) as error:  # ValueError: a variable that no process can have
        _report(output, error)
    finally:
        os._exit(1)


def _output_folder(spec: HostSpec) -> int:
    return os.open(spec.view.ml / "output", os.O_RDONLY | os.O_DIRECTORY)


def _set_up(spec: HostSpec, service: Service | None) -> None:
    def mount_inputs() -> None:
        if service is not None:
            service.attach(namespaces.mount_served)

    if spec.container is not None:
        containers.set_up(spec.container, spec.view, mount_inputs)
        return
    if spec.namespaces:
        namespaces.set_up(spec.view, mount_inputs)
    else:
        os.setsid()
    os.chdir("/")


def _report(output: int, error: Exception) -> None:
    """Write to the log and to the failure file in the open folder `output`, which stays open under another root."""
    reason = f"the simulated host could not be set up: {error}"
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    with suppress(OSError), os.fdopen(os.open("failure", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=output), "w") as file:
        file.write(reason)


def _watch(child: int, exec_pipe: int) -> int:
    """Forward the supervisor's signals to the entrypoint; its exit code."""
    stopping = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        # Process 1 of a namespace loses signals that it has no handler for, so wait for its handler. Before it runs
        # the entrypoint it only blocks signals, as its parent does.
        if stopping and select.select([exec_pipe], [], [], 0)[0] and handles_sigterm(child):
            os.kill(child, signal.SIGTERM)
            stopping = False
        received = signal.sigtimedwait(_SIGNALS, 0.05 if stopping else 1.0)
        if received is None:
            continue
        if received.si_signo == signal.SIGTERM:
            stopping = True
        elif received.si_signo == signal.SIGUSR1:
            os.kill(child, signal.SIGKILL)


def _end_all_children() -> None:
    """Each round adopts the children of the processes that it ends, until none is left."""
    while found := children(os.getpid()):
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in found:
            with suppress(ChildProcessError):
                os.waitpid(process, 0)


if __name__ == "__main__":
    exit_fast(run(HostSpec.read(Path(sys.argv[1]))))
