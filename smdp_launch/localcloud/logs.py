"""The CloudWatch Logs calls, read from the append-only files in the jobs' folders; nothing is kept in memory.

A stream is a file with one JSON object a line. Tokens name a place in it: `f/N` goes on at byte N, `b/N` goes back
from it. As on AWS, a token that comes back unchanged means that there is nothing (yet) beyond it.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.localcloud import caller
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.filtering import page, pattern
from smdp_launch.localcloud.jobs import JobStore
from smdp_launch.localcloud.layout import LOG_SUFFIX
from smdp_launch.localcloud.requests import Action, Parameters, checked

GROUP = "/aws/sagemaker/TrainingJobs"
_MOST_EVENTS = 10_000  # the service's page limits
_MOST_BYTES = 1024 * 1024
_TOKEN = re.compile(r"([fb])/(\d{1,18})")
_STREAMS_PER_PAGE = 50


@dataclass(frozen=True)
class Page:
    """Events of a stream and the bytes `start` to `end` of its file that they stand for."""

    events: list[dict[str, Any]]
    start: int
    end: int


@contextmanager
def _mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    """The file's bytes, of which only those that are looked at are read."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def read_forward(data: bytes | mmap.mmap, offset: int, limit: int) -> Page:
    """Whole lines from `offset` on. The last line may still be on its way to the disk."""
    events: list[dict[str, Any]] = []
    position = offset
    while len(events) < limit and position - offset < _MOST_BYTES:
        end = data.find(b"\n", position)
        if end < 0:
            break
        events.append(json.loads(data[position:end]))
        position = end + 1
    return Page(events, offset, position)


def read_backward(data: bytes | mmap.mmap, offset: int, limit: int) -> Page:
    """The last whole lines before `offset`, in the order in which they were written."""
    end = data.rfind(b"\n", 0, offset) + 1
    start = end
    events: list[dict[str, Any]] = []
    while start > 0 and len(events) < limit and end - start < _MOST_BYTES:
        line_start = data.rfind(b"\n", 0, start - 1) + 1
        events.append(json.loads(data[line_start : start - 1]))
        start = line_start
    return Page(events[::-1], start, end)


class LogService:
    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def actions(self) -> dict[str, Action]:
        calls = (self.DescribeLogGroups, self.DescribeLogStreams, self.GetLogEvents, self.FilterLogEvents)
        return checked("logs", *calls)

    def DescribeLogGroups(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        prefix, part = request.get("logGroupNamePrefix", ""), request.get("logGroupNamePattern", "")
        if not GROUP.startswith(prefix) or part not in GROUP or not self._all_streams():
            return {"logGroups": []}
        group = {"logGroupName": GROUP, "arn": f"{_group_arn()}:*", "logGroupArn": _group_arn(), "storedBytes": 0}
        return {"logGroups": [group]}

    def DescribeLogStreams(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        streams = self._streams(request)
        prefix = str(request.get("logStreamNamePrefix", ""))
        names = sorted(name for name in streams if name.startswith(prefix))
        if request.get("descending"):
            names.reverse()
        start = _number(request.get("nextToken", "0"))
        end = start + _limit(request, _STREAMS_PER_PAGE)
        answer: dict[str, Any] = {"logStreams": [_describe(name, streams[name]) for name in names[start:end]]}
        if end < len(names):
            answer["nextToken"] = str(end)
        return answer

    def GetLogEvents(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        path = self._streams(request).get(str(request.get("logStreamName", "")))
        if path is None:
            raise _not_found("The specified log stream does not exist.")
        with _mapped(path) as data:
            page = _read(data, request)
        since, until = request.get("startTime", 0), request.get("endTime", float("inf"))
        return {
            "events": [
                {**event, "ingestionTime": event["timestamp"]}
                for event in page.events
                if since <= event["timestamp"] < until
            ],
            "nextForwardToken": f"f/{page.end}",
            "nextBackwardToken": f"b/{page.start}",
        }

    def FilterLogEvents(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        streams, prefix = self._streams(request), request.get("logStreamNamePrefix", "")
        names = request.get("logStreamNames", streams)
        if any(name not in streams for name in names):
            raise _not_found("The specified log stream does not exist.")
        chosen = {name: streams[name] for name in names if name.startswith(prefix)}
        since, until = request.get("startTime", 0), request.get("endTime", float("inf"))
        fits = pattern(request.get("filterPattern", ""))
        events, token = page(
            chosen,
            request.get("nextToken"),
            _limit(request, _MOST_EVENTS),
            lambda event: since <= event["timestamp"] <= until and fits(event["message"]),
        )
        answer: dict[str, Any] = {"events": events, "searchedLogStreams": []}
        return answer if token is None else {**answer, "nextToken": token}

    def _streams(self, request: Parameters) -> dict[str, Path]:
        group = request.get("logGroupName") or _group_of(request.get("logGroupIdentifier", ""))
        streams = self._all_streams()
        if group != GROUP or not streams:
            raise _not_found("The specified log group does not exist.")
        return streams

    def _all_streams(self) -> dict[str, Path]:
        return {
            f"{folder.name}/{path.stem}": path
            for folder in self._jobs.folders(caller.region())
            for path in folder.logs.glob(f"*{LOG_SUFFIX}")
        }


def _group_arn() -> str:
    return f"arn:aws:logs:{caller.region()}:{ACCOUNT}:log-group:{GROUP}"


def _group_of(identifier: str) -> str:
    """A name, or an ARN that ends in one."""
    return identifier.removesuffix(":*").rpartition(":")[2]


def _read(data: bytes | mmap.mmap, request: Parameters) -> Page:
    limit = _limit(request, _MOST_EVENTS)
    token = request.get("nextToken")
    if token is None:
        from_head = request.get("startFromHead", False)
        return read_forward(data, 0, limit) if from_head else read_backward(data, len(data), limit)
    match = _TOKEN.fullmatch(str(token))
    offset = int(match[2]) if match else -1
    if match is None or not _is_line_start(data, offset):
        raise ServiceError("InvalidParameterException", "The specified nextToken is invalid.")
    return read_forward(data, offset, limit) if match[1] == "f" else read_backward(data, offset, limit)


def _is_line_start(data: bytes | mmap.mmap, offset: int) -> bool:
    return offset == 0 or (0 < offset <= len(data) and data[offset - 1 : offset] == b"\n")


def _limit(request: Parameters, most: int) -> int:
    limit = request.get("limit", most)
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise ServiceError("InvalidParameterException", f"limit must be between 1 and {most}.")
    return limit


def _number(token: object) -> int:
    text = str(token)
    if not (text.isascii() and text.isdecimal()):
        raise ServiceError("InvalidParameterException", "The specified nextToken is invalid.")
    return int(text)


def _describe(name: str, path: Path) -> dict[str, Any]:
    created = int(path.stem.rpartition("-")[2]) * 1000
    stream: dict[str, Any] = {
        "logStreamName": name,
        "creationTime": created,
        "arn": f"{_group_arn()}:log-stream:{name}",
        "storedBytes": 0,
    }
    with _mapped(path) as data:
        first, last = read_forward(data, 0, 1).events, read_backward(data, len(data), 1).events
    if first and last:
        stream |= {"firstEventTimestamp": first[0]["timestamp"], "lastEventTimestamp": last[0]["timestamp"]}
    return stream


def _not_found(message: str) -> ServiceError:
    return ServiceError("ResourceNotFoundException", message)
