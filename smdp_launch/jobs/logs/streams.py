"""The log streams of one job, read page by page from the last position; the stream that is furthest behind first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.jobs.service.clients import Clients

LOG_GROUP = "/aws/sagemaker/TrainingJobs"

_STREAM = re.compile(r"(?P<host>algo-\d+)-\d+$")

#: Half of the service's limits for a page, in messages and in characters.
_FULL, _FULL_CHARACTERS = 5_000, 1 << 19
_NEWEST = 10_000  # milliseconds

#: Makes a call to the service. The text says what cannot be done if the call fails.
Call = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True)
class Page:
    """Messages of one stream, each with its time in milliseconds since 1970."""

    stream: str
    host: str
    messages: list[tuple[int, str]]


def host_of(stream: str) -> str:
    match = _STREAM.search(stream)
    return match["host"] if match else stream


@dataclass
class Streams:
    """A position in each stream. It moves only when a page has arrived, so an interrupted reader can continue.

    Args:
        call: makes the calls to the service, and handles their errors.
        host: only the streams of this host.
        since: milliseconds since 1970; earlier lines are left out.
        until: milliseconds since 1970; later lines are left out, so that a growing stream has an end. None to read
            repeatedly: a stream that has been read up to now is not read again until the next `refresh`.
    """

    clients: Clients
    job: str
    call: Call
    host: str | None = None
    since: int | None = None
    until: int | None = None
    _tokens: dict[str, str] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _behind: list[str] = field(default_factory=list)

    @property
    def behind(self) -> tuple[str, ...]:
        """Streams that have not been read to their end since the last `refresh`."""
        return tuple(self._behind)

    def refresh(self) -> None:
        """List the streams; each of them may have new lines. Streams appear one by one, and the log group appears with
        the account's first job."""
        self._behind = [one for one in self._names() if self.host in (None, host_of(one))]

    def page(self) -> Page | None:
        """The next page of the stream that is furthest behind; None when every stream has been read to its end."""
        if not self._behind:
            return None
        stream = min(self._behind, key=lambda one: self._last.get(one, -1))
        answer = self.call(f"the log of {stream} cannot be read", lambda: self._get(stream))
        token = str(answer["nextForwardToken"])
        every = [(int(one["timestamp"]), str(one["message"])) for one in answer["events"]]
        messages = [one for one in every if self.until is None or one[0] <= self.until]
        # Only an unchanged token means the end: a page before the end may be empty.
        if token == self._tokens.get(stream) or len(messages) < len(every) or self._is_present(messages):
            self._behind.remove(stream)
        self._tokens[stream] = token
        if messages:
            self._last[stream] = max(messages[-1][0], self._last.get(stream, 0))
        return Page(stream, host_of(stream), messages)

    def _is_present(self, messages: Sequence[tuple[int, str]]) -> bool:
        """Whether the page ends with the newest lines, so that another page is not worth a call."""
        return (
            self.until is None
            and 0 < len(messages) < _FULL
            and sum(len(text) for _, text in messages) < _FULL_CHARACTERS
            and time.time() * 1000 - messages[-1][0] < _NEWEST
        )

    def _get(self, stream: str) -> Any:
        place: dict[str, Any] = {"nextToken": self._tokens[stream]} if stream in self._tokens else {}
        if self.since is not None:
            place["startTime"] = self.since
        return self.clients.logs.get_log_events(
            logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **place
        )

    def _names(self) -> list[str]:
        names: list[str] = self.call(f"the logs of {self.job} cannot be listed", self._list)
        return names

    def _list(self) -> list[str]:
        from botocore.exceptions import ClientError

        try:
            pages = self.clients.logs.get_paginator("describe_log_streams").paginate(
                logGroupName=LOG_GROUP, logStreamNamePrefix=f"{self.job}/"
            )
            return sorted(one["logStreamName"] for page in pages for one in page["logStreams"])
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return []
            raise
