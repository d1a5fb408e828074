"""The log streams of one job, read page by page from the last position; the stream that is furthest behind first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.response_time import response_time

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


def _ms(answer: Mapping[str, Any]) -> int:
    """Milliseconds since 1970 of the answer: the end of the second that its header names."""
    at = response_time(answer)
    return int(at.timestamp() * 1000) + 999 if at is not None else int(time.time() * 1000)


def _is_token_refused(error: Any) -> bool:
    answer = error.response["Error"]
    return answer.get("Code") == "InvalidParameterException" and "token" in str(answer.get("Message", "")).lower()


@dataclass
class Streams:
    """A position in each stream. It moves only when a page has arrived, so an interrupted reader can continue.

    The position is a token, which CloudWatch accepts for 24 hours. After a pause that was longer, as of a laptop that
    slept, the time of the last line replaces it.

    Args:
        call: makes the calls to the service, and handles their errors.
        host: only the streams of this host.
        since: milliseconds since 1970; earlier lines are left out.
        until: milliseconds since 1970; later lines are left out, so that a growing stream has an end. None to read
            repeatedly: a stream that has been read up to now is not read again until the next `refresh`.

    Attributes:
        listed_ms: milliseconds since 1970 of the last `refresh` by the service's clock, or else by this machine's.
    """

    clients: Clients
    job: str
    call: Call
    host: str | None = None
    since: int | None = None
    until: int | None = None
    listed_ms: int = field(default=0, init=False)
    _tokens: dict[str, str] = field(default_factory=dict)
    _starts: dict[str, int] = field(default_factory=dict)  # in place of `since`, after a token was refused
    _last: dict[str, int] = field(default_factory=dict)
    _at_last: dict[str, int] = field(default_factory=dict)  # number of lines with the time of the last line
    _repeated: dict[str, int] = field(default_factory=dict)  # of them, those that will be read a second time
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
        if token == self._tokens.get(stream) or len(messages) < len(every) or self._is_present(messages, _ms(answer)):
            self._behind.remove(stream)
        self._tokens[stream] = token
        return Page(stream, host_of(stream), list(self._new(stream, messages)))

    def _new(self, stream: str, messages: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """The messages that were not read before a token was refused."""
        for one in messages:
            last = self._last.get(stream, 0)
            if one[0] == last and self._repeated.get(stream):
                self._repeated[stream] -= 1
                continue
            if one[0] >= last:
                self._at_last[stream] = self._at_last.get(stream, 0) + 1 if one[0] == last else 1
                self._last[stream] = one[0]
            yield one

    def _is_present(self, messages: Sequence[tuple[int, str]], now: int) -> bool:
        """Whether the page ends with the newest lines, so that another page is not worth a call."""
        return (
            self.until is None
            and 0 < len(messages) < _FULL
            and sum(len(text) for _, text in messages) < _FULL_CHARACTERS
            and now - messages[-1][0] < _NEWEST
        )

    def _get(self, stream: str) -> Any:
        from botocore.exceptions import ClientError

        try:
            return self._get_page(stream)
        except ClientError as error:
            if stream not in self._tokens or not _is_token_refused(error):
                raise
            self._continue_by_time(stream)
            return self._get_page(stream)

    def _continue_by_time(self, stream: str) -> None:
        del self._tokens[stream]
        if stream in self._last:
            self._starts[stream] = self._last[stream]
            self._repeated[stream] = self._at_last[stream]

    def _get_page(self, stream: str) -> Any:
        place: dict[str, Any] = {"nextToken": self._tokens[stream]} if stream in self._tokens else {}
        start = self._starts.get(stream, self.since)
        if start is not None:
            place["startTime"] = start
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
            names: list[str] = []
            for page in pages:
                self.listed_ms = _ms(page)
                names += [one["logStreamName"] for one in page["logStreams"]]
            return sorted(names)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return []
            raise
