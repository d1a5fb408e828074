"""The pipe on which the entrypoint reads the events of this rank: SMDP_EVENT_PIPE=descriptor:device:inode."""

import os
import select
import stat
from typing import Optional, Tuple

VARIABLE = "SMDP_EVENT_PIPE"


def parse_identity(text: str) -> Optional[Tuple[int, int, int]]:
    """The descriptor, device and inode in ``descriptor:device:inode``; None for another text."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def is_pipe(fd: int, device: int, inode: int) -> bool:
    """Whether the descriptor is open and is this pipe. A program between the entrypoint and this process may have
    closed it, and another file may have its number."""
    try:
        status = os.fstat(fd)
    except (OSError, OverflowError):
        return False
    return stat.S_ISFIFO(status.st_mode) and (status.st_dev, status.st_ino) == (device, inode)


class EventPipe:
    def __init__(self, fd: int, device: int, inode: int) -> None:
        self._identity = fd, device, inode

    def is_there(self) -> bool:
        return is_pipe(*self._identity)

    def write(self, line: bytes, timeout_s: float) -> bool:
        """Write a line of at most PIPE_BUF bytes (4096) in one call; False if the pipe is closed or stays full."""
        fd = self._identity[0]
        try:
            if not self.is_there():
                return False
            # POLLOUT: PIPE_BUF bytes are free, so the call below does not block.
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            ready = poll.poll(timeout_s * 1000)
            return bool(ready) and bool(ready[0][1] & select.POLLOUT) and os.write(fd, line) == len(line)
        except OSError:
            return False


def event_pipe() -> Optional[EventPipe]:
    """This process's event pipe; None if there is none, or it is another process's."""
    identity = parse_identity(os.environ.get(VARIABLE, ""))
    if identity is None:
        return None
    pipe = EventPipe(*identity)
    return pipe if pipe.is_there() else None
