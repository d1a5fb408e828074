"""The log lines of a job until now, all or filtered."""

from __future__ import annotations

import re
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
from smdp_launch.jobs.service.retry import call_with_retries

_Read = TypeVar("_Read", bound=Timed)


@dataclass(frozen=True)
class LogFilter:
    """Selects log lines.

    Args:
        since: with a time zone; None for all.
        host: such as ``algo-2``.
        rank: of the worker that wrote the line.
        grep: a pattern that the text contains.
        events: include event lines (docs/reference/events.md).
        tail: the last so many of the lines that match the other arguments.
    """

    since: datetime | None = None
    host: str | None = None
    rank: int | None = None
    grep: re.Pattern[str] | None = None
    tail: int | None = None
    events: bool = True

    def matches(self, line: LogLine) -> bool:
        return (self.rank is None or line.rank == self.rank) and (
            self.grep is None or self.grep.search(line.text) is not None
        )


def read_lines(clients: Clients, job: str, wanted: LogFilter) -> Iterator[LogLine]:
    """The selected lines by time, event lines as they were written. No line is later than the second of this
    call, by the service's clock.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    read: Callable[[str, str, int], LogLine | JobEvent] = plain_line if wanted.events else read_line
    every = _all(clients, job, wanted, read)
    lines = (line for line in every if isinstance(line, LogLine) and wanted.matches(line))
    return iter(deque(lines, wanted.tail)) if wanted.tail is not None else lines


def read_events(clients: Clients, job: str, since: datetime | None = None) -> Iterator[JobEvent]:
    """The events of a job until now; raises as `read_lines` does.

    Args:
        since: with a time zone; earlier events are left out, and their part of the log is not read.
    """
    return (one for one in _all(clients, job, LogFilter(since), read_line) if isinstance(one, JobEvent))


def _all(clients: Clients, job: str, wanted: LogFilter, read: Callable[[str, str, int], _Read]) -> Iterator[_Read]:
    since = int(wanted.since.timestamp() * 1000) if wanted.since is not None else None
    streams = Streams(clients, job, partial(call_with_retries, clients), wanted.host, since)
    merge: Merge[_Read] = Merge(window=0)
    streams.refresh()
    streams.until = streams.listed_ms
    while (page := streams.page()) is not None:
        merge.add(page.stream, (read(page.host, text, at) for at, text in page.messages))
        yield from merge.take(streams.behind)
    yield from merge.rest()
