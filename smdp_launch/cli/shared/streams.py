"""Standard output and standard error of the command whose reader may exit before the command does (`| head`)."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any

from smdp_launch.systems import IS_WINDOWS

_STDERR = 2


class _OptionalOutput(io.FileIO):
    """A descriptor whose output is discarded once its reader has exited."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if not is_closed_pipe(error):
                raise
        discard(self.fileno())
        return memoryview(data).nbytes


def is_closed_pipe(error: OSError) -> bool:
    """Whether the reader of the output has exited. Windows also reports EINVAL."""
    if isinstance(error, BrokenPipeError):
        return True
    return IS_WINDOWS and error.errno == errno.EINVAL and error.filename is None


def has_reader(descriptor: int) -> bool:
    """Whether the reader of the output is known to be there: then the closed pipe is another one."""
    if IS_WINDOWS:
        return False
    output = select.poll()
    output.register(descriptor, 0)  # POLLERR and POLLHUP are always reported
    return not output.poll(0)


def discard(descriptor: int) -> None:
    """Discard what is written to the descriptor from now on, by this process and those that it starts."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def continue_without_stderr() -> None:
    """Let the command continue if the reader of standard error exits: notes and progress decide about no job."""
    stream = sys.stderr
    if not isinstance(stream, io.TextIOWrapper):
        return
    raw = getattr(stream.buffer, "raw", stream.buffer)  # the same with PYTHONUNBUFFERED
    if type(raw) is not io.FileIO or raw.fileno() != _STDERR:  # a console of Windows, or the stream of a test
        return
    optional = _OptionalOutput(_STDERR, "w", closefd=False)
    buffer: Any = optional if raw is stream.buffer else io.BufferedWriter(optional)
    sys.stderr = io.TextIOWrapper(
        buffer, stream.encoding, stream.errors, line_buffering=True, write_through=stream.write_through
    )
