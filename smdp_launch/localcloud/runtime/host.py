"""`python -m smdp_launch.localcloud.runtime.host ORDER` is one simulated host. The supervisor starts one for each.

This process is the host's keeper: it makes the namespaces, starts the training entrypoint as their process 1 and
ends with its exit code (128+N for a signal). SIGTERM is passed on, SIGUSR1 ends everything at once, and the end of
the supervisor ends the host. Without namespaces the keeper adopts what the entrypoint leaves behind and ends it.
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

from smdp_launch.localcloud.isolation import container as containers
from smdp_launch.localcloud.isolation import namespaces, network
from smdp_launch.localcloud.isolation.container import Container
from smdp_launch.localcloud.isolation.namespaces import Mount, View
from smdp_launch.localcloud.isolation.network import Plug
from smdp_launch.localcloud.processes import children, leave, minds_sigterm

_SIGNALS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}


@dataclass(frozen=True)
class Order:
    """What the supervisor wants of a host; travels as JSON. `container` and `plug` need namespaces."""

    supervisor: int
    namespaces: bool
    command: list[str]
    environment: dict[str, str]
    view: View
    container: Container | None = None
    plug: Plug | None = None

    def write(self, path: Path) -> None:
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), default=str))

    @staticmethod
    def read(path: Path) -> Order:
        record = json.loads(path.read_text())
        view = record.pop("view")
        folders = {name: Path(view[name]) for name in ("ml", "tmp", "opt", "hosts_file")}
        visible = tuple(map(Path, view["visible"]))
        mounts = tuple(Mount(Path(one["source"]), Path(one["target"]), one["read_only"]) for one in view["mounts"])
        container, plug = record.pop("container"), record.pop("plug")
        if container is not None:
            container |= {name: Path(container[name]) for name in ("image", "layer")}
            container = Container(**container)
        view = View(view["name"], **folders, visible=visible, mounts=mounts)
        return Order(**record, view=view, container=container, plug=Plug(**plug) if plug is not None else None)


def keep(order: Order) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if order.namespaces:
        if order.plug is not None:
            _join_network(order, order.plug)  # starts processes, which must not become the host's first
        namespaces.enter()
        namespaces.die_with_parent(signal.SIGKILL)
    else:
        namespaces.adopt_orphans()
        namespaces.die_with_parent(signal.SIGUSR1)
    if os.getppid() != order.supervisor:
        return 128 + signal.SIGKILL
    child, becoming = _start(order)
    try:
        return _watch(child, becoming)
    finally:
        if not order.namespaces:
            _end_all_children()


def _join_network(order: Order, plug: Plug) -> None:
    try:
        network.join(plug, order.view.name)
    except OSError as error:
        _tell(_output_folder(order), error)
        sys.exit(1)


def _start(order: Order) -> tuple[int, int]:
    """The entrypoint's process, and a pipe whose other end is closed once the process has become the entrypoint."""
    reader, writer = os.pipe()
    becoming, ours = os.pipe()
    child = os.fork()
    if child:
        os.close(reader)  # `writer` stays open for as long as this process lives
        os.close(ours)
        return child, becoming
    os.close(writer)
    os.close(becoming)
    output = _output_folder(order)
    try:
        namespaces.die_with_parent(signal.SIGKILL)
        if select.select([reader], [], [], 0)[0]:  # the keeper ended before it could be watched
            os._exit(128 + signal.SIGKILL)
        _arrange(order)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.execvpe(order.command[0], order.command, order.environment)  # noqa: S606 (no shell wanted)
    except (OSError, ValueError) as error:  # ValueError: a variable that no process can have
        _tell(output, error)
    finally:
        os._exit(1)


def _output_folder(order: Order) -> int:
    return os.open(order.view.ml / "output", os.O_RDONLY | os.O_DIRECTORY)


def _arrange(order: Order) -> None:
    if order.container is not None:
        containers.arrange(order.container, order.view)
        return
    if order.namespaces:
        namespaces.arrange(order.view)
    else:
        os.setsid()
    os.chdir("/")


def _tell(output: int, error: Exception) -> None:
    """To the log and to the failure file in the open folder `output`, which no other root hides."""
    reason = f"the simulated host could not be set up: {error}"
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    with suppress(OSError), os.fdopen(os.open("failure", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=output), "w") as file:
        file.write(reason)


def _watch(child: int, becoming: int) -> int:
    """The exit code of the entrypoint, after passing on what the supervisor signals."""
    stopping = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        # Process 1 of a namespace loses signals that it has no handler for: wait until it cares. Before it is the
        # entrypoint it only holds them back, as its parent does.
        if stopping and select.select([becoming], [], [], 0)[0] and minds_sigterm(child):
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
    """End the whole family: each round adopts what the ended ones leave behind."""
    while family := children(os.getpid()):
        for process in family:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in family:
            with suppress(ChildProcessError):
                os.waitpid(process, 0)


if __name__ == "__main__":
    leave(keep(Order.read(Path(sys.argv[1]))))
