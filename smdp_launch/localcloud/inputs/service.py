"""The process of one host that serves its channels while it trains.

The host's monitor forks it before the host has namespaces, so it sees this machine's files. The host mounts each file
system in its own mount namespace and hands over the descriptor; so the kernel unmounts it with the host's last
process, however the host ends. The server exits when the monitor closes its socket, and is killed with the monitor.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from smdp_launch.localcloud.inputs.counters import Counter, StatusFiles
from smdp_launch.localcloud.inputs.file_system import FileSystem
from smdp_launch.localcloud.inputs.pipes import Pipe
from smdp_launch.localcloud.inputs.throttle import Throttle
from smdp_launch.localcloud.inputs.trees import FolderTree, ObjectTree, Tree, listing

Kind = Literal["objects", "folder", "pipe"]

_READY = b"+"
_LONGEST_NAME = 256  # bytes, of a channel
_TICK = 0.01  # seconds between two looks whether it has exited
_EXIT_WAIT = 2.0  # seconds for the last counters


@dataclass(frozen=True)
class Served:
    """A channel of one host.

    Args:
        mode: as in the counters: FastFile, Pipe, FSxLustre, or File in a rehearsal.
        source: the listing of `objects` and `pipe`; the `folder`.
        target: where the host mounts it; for a pipe, the folder of the pipes.
    """

    name: str
    kind: Kind
    mode: str
    source: str
    target: str

    @property
    def is_mounted(self) -> bool:
        return self.kind != "pipe"


@dataclass(frozen=True)
class Inputs:
    """The channels of one host, part of its spec.

    Args:
        status: the folders in which the counters are written.
        copied: the counters of the channels that were copied before the start.
        rate: bytes a second for all channels together; 0 for no limit.
        latency: seconds before the first bytes of each opening.
    """

    channels: list[Served]
    status: list[str]
    copied: dict[str, Any] = field(default_factory=dict)
    rate: float = 0.0
    latency: float = 0.0

    @staticmethod
    def from_json(record: dict[str, Any]) -> Inputs:
        return Inputs(**{**record, "channels": [Served(**one) for one in record["channels"]]})


class ServiceError(Exception):
    """The channels cannot be served; the message says why."""


class Service:
    """The monitor's side."""

    def __init__(self, inputs: Inputs, on_start: Callable[[], None]) -> None:
        """Fork the server and wait until it can serve. `on_start` is called in it first.

        Raises ServiceError.
        """
        self._inputs = inputs
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = os.fork()
        if self._process == 0:
            _become_server(inputs, self._socket, other, on_start)
        other.close()
        reply = self._socket.recv(4096)
        if reply != _READY:
            self.close()
            raise ServiceError(reply.decode(errors="replace") or "the server of the channels has ended")

    def attach(self, mount: Callable[[str], int]) -> None:
        """Mount the channels, in the host. `mount` makes the mount at a path and returns its descriptor."""
        for one in self._inputs.channels:
            if one.is_mounted:
                descriptor = mount(one.target)
                socket.send_fds(self._socket, [one.name.encode()], [descriptor])
                os.close(descriptor)

    def close(self) -> None:
        """End the server once it has written the last counters."""
        self._socket.close()
        deadline = time.monotonic() + _EXIT_WAIT
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)
                return
            time.sleep(_TICK)


def _become_server(inputs: Inputs, monitor: socket.socket, own: socket.socket, on_start: Callable[[], None]) -> None:
    code = 1
    try:
        monitor.close()
        on_start()
        _serve(inputs, own)
        code = 0
    except Exception as error:
        try:
            own.send(f"{type(error).__name__}: {error}".encode()[:4096])
        except OSError:
            sys.stderr.write(f"the server of the channels has ended: {error}\n")
            sys.stderr.flush()
    finally:
        os._exit(code)


def _serve(inputs: Inputs, monitor: socket.socket) -> None:
    throttle = Throttle(inputs.rate, inputs.latency) if inputs.rate or inputs.latency else None
    status = StatusFiles([Path(one) for one in inputs.status], inputs.copied)
    trees: dict[str, Tree] = {}
    for one in inputs.channels:
        counter = status.counters[one.name] = Counter(one.mode)
        if one.kind == "pipe":
            Pipe(one.name, Path(one.target), listing(Path(one.source)), counter, throttle).start()
        else:
            trees[one.name] = FolderTree(one.source) if one.kind == "folder" else ObjectTree(listing(Path(one.source)))
    status.start()
    monitor.send(_READY)
    while True:
        name, descriptors, *_ = socket.recv_fds(monitor, _LONGEST_NAME, 1)
        if not name:
            break
        channel = name.decode()
        FileSystem(descriptors[0], trees[channel], status.counters[channel], throttle).start()
    status.close()
