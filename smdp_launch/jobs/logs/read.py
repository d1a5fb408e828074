"""The lines that a job's hosts have written so far, or those of them that are asked for."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from smdp_launch.jobs.logs.merge import Merge, Timed
from smdp_launch.jobs.logs.messages import JobEvent, LogLine, plain_line, read_line
from smdp_launch.jobs.logs.streams import Streams
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import ask

_Read = TypeVar("_Read", bound=Timed)


@dataclass(frozen=True)
class Wanted:
    """Which lines.

    Args:
        since: with a time zone; None for all.
        host: such as ``algo-2``.
        rank: of the worker that wrote it.
        grep: what the text holds, a pattern of Python's ``re``.
        tail: the last so many of those that fit the rest.
    """

    since: datetime | None = None
    host: str | None = None
    rank: int | None = None
    grep: re.Pattern[str] | None = None
    tail: int | None = None

    def takes(self, line: LogLine) -> bool:
        return (self.rank is None or line.rank == self.rank) and (
            self.grep is None or self.grep.search(line.text) is not None
        )


def read_lines(clients: Clients, job: str, wanted: Wanted) -> Iterator[LogLine]:
    """By time, event lines as they were written; none is later than the moment of the call.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    found = (line for line in _all(clients, job, wanted, plain_line) if wanted.takes(line))
    return iter(deque(found, wanted.tail)) if wanted.tail is not None else found


def read_events(clients: Clients, job: str) -> Iterator[JobEvent]:
    """The events among them; raises as `read_lines` does."""
    return (one for one in _all(clients, job, Wanted(), read_line) if isinstance(one, JobEvent))


def _all(clients: Clients, job: str, wanted: Wanted, read: Callable[[str, str, int], _Read]) -> Iterator[_Read]:
    since = int(wanted.since.timestamp() * 1000) if wanted.since is not None else None
    streams = Streams(clients, job, partial(ask, clients), wanted.host, since, int(time.time() * 1000))
    merge: Merge[_Read] = Merge(window=0)
    streams.look()
    while (page := streams.page()) is not None:
        merge.add(page.stream, (read(page.host, text, at) for at, text in page.messages))
        yield from merge.take(streams.behind)
    yield from merge.rest()
