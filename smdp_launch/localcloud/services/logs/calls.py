"""The CloudWatch Logs calls, which read the append-only files of jobs and endpoints and keep nothing in memory.

All training jobs have one log group, and all transform jobs; each endpoint has a group of its own.

Tokens of GetLogEvents name a place in a stream: `f/N` continues at byte N, `b/N` goes back from it. As on AWS, an
unchanged token in the answer means that there are no more events, or not yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.layout import JOB_NAME, LOG_SUFFIX, StateFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.services.logs.filtering import Search, page, pattern
from smdp_launch.localcloud.services.logs.stream_file import (
    MOST_EVENTS,
    Data,
    Page,
    Span,
    check_place,
    in_range,
    invalid,
    invalid_token,
    mapped,
    read_backward,
    read_forward,
    stored_bytes,
)
from smdp_launch.localcloud.services.paging import decode_token, encode_token
from smdp_launch.localcloud.services.training.job_store import JobStore

GROUP = "/aws/sagemaker/TrainingJobs"
TRANSFORMS = "/aws/sagemaker/TransformJobs"
ENDPOINTS = "/aws/sagemaker/Endpoints/"  # the name of the endpoint follows
_CLASS = "STANDARD"
_GROUPS_PER_PAGE = 50
_TOKEN = re.compile(r"([fb])/(\d{1,18})")
_STREAMS_PER_PAGE = 50
_GROUP_ORDER = "group"  # the order in a token of DescribeLogGroups
_INSTANCE = "i-"  # the beginning of the names of an endpoint's streams
_BACKWARD_SINCE = 1_704_067_200_000  # 2024-01-01, see startFromHead of FilterLogEvents

Streams = dict[str, Path]


class LogService:
    def __init__(self, jobs: JobStore, state: StateFolder) -> None:
        self._jobs = jobs
        self._state = state

    def actions(self) -> dict[str, Action]:
        calls = (self.DescribeLogGroups, self.DescribeLogStreams, self.GetLogEvents, self.FilterLogEvents)
        return checked("logs", *calls)

    def DescribeLogGroups(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        _exclude(request, "logGroupNamePrefix", "logGroupNamePattern")
        last = _read_token(request["nextToken"], _GROUP_ORDER)[1] if "nextToken" in request else ""
        wanted = [name for name in self._group_names() if name > last and _matches_group(name, request)]
        found = [(name, streams) for name in wanted if (streams := self._all_streams(name))]
        page = found[: request.get("limit", _GROUPS_PER_PAGE)]
        groups = [_describe_group(*one) for one in page]
        if "logGroupNamePattern" in request:
            groups = [{name: one[name] for name in ("logGroupName", "creationTime", "arn")} for one in groups]
        following = {} if len(page) == len(found) else {"nextToken": encode_token([_GROUP_ORDER, 0, page[-1][0]])}
        return {"logGroups": groups, **following}

    def DescribeLogStreams(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        streams = self._streams(request)
        by_time = request.get("orderBy") == "LastEventTime"
        if by_time and "logStreamNamePrefix" in request:
            raise invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
        prefix, backward = request.get("logStreamNamePrefix", ""), bool(request.get("descending"))
        order = f"{'time' if by_time else 'name'}{'-' if backward else '+'}"
        keys = [(_last_time(path) if by_time else 0, name) for name, path in streams.items() if name.startswith(prefix)]
        keys.sort(reverse=backward)
        if "nextToken" in request:
            last = _read_token(request["nextToken"], order)
            keys = [one for one in keys if (one < last if backward else one > last)]
        page_keys = keys[: request.get("limit", _STREAMS_PER_PAGE)]
        described = [_describe(_group(request), name, streams[name]) for _, name in page_keys]
        answer: dict[str, Any] = {"logStreams": described}
        return answer if len(page_keys) == len(keys) else {**answer, "nextToken": encode_token([order, *page_keys[-1]])}

    def GetLogEvents(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        path = self._streams(request).get(request["logStreamName"])
        if path is None:
            raise _not_found("The specified log stream does not exist.")
        with mapped(path) as data:
            found = _read(data, request)
        return {
            "events": [{**event, "ingestionTime": event["timestamp"]} for event in found.events],
            "nextForwardToken": f"f/{found.end}",
            "nextBackwardToken": f"b/{found.start}",
        }

    def FilterLogEvents(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        streams, backward = self._searched(request), not request.get("startFromHead", True)
        since, until = request.get("startTime"), request.get("endTime")
        if backward and (since or 0) < _BACKWARD_SINCE:
            raise invalid("startFromHead can be false only with a startTime on or after 2024-01-01T00:00:00Z.")
        # The range includes endTime, while that of GetLogEvents does not.
        search = Search(
            streams, since, None if until is None else until + 1, pattern(request.get("filterPattern", "")), backward
        )
        events, token = page(search, request.get("nextToken"), request.get("limit", MOST_EVENTS))
        answer: dict[str, Any] = {"events": events, "searchedLogStreams": []}
        return answer if token is None else {**answer, "nextToken": token}

    def _searched(self, request: Parameters) -> Streams:
        _exclude(request, "logStreamNames", "logStreamNamePrefix")
        streams, prefix = self._streams(request), request.get("logStreamNamePrefix", "")
        names = request.get("logStreamNames", streams)
        if any(name not in streams for name in names):
            raise _not_found("The specified log stream does not exist.")
        return {name: streams[name] for name in names if name.startswith(prefix)}

    def _streams(self, request: Parameters) -> Streams:
        streams = self._all_streams(_group(request))
        if not streams:
            raise _not_found("The specified log group does not exist.")
        return streams

    def _group_names(self) -> list[str]:
        """Of all groups that may have streams, in order."""
        folders = self._endpoint_folder.iterdir() if self._endpoint_folder.is_dir() else ()
        return sorted([GROUP, TRANSFORMS, *(f"{ENDPOINTS}{one.name}" for one in folders)])

    def _all_streams(self, group: str) -> Streams:
        """The streams of a group; none for an unknown one. `group` may be any text of a client."""
        if group == GROUP:
            return {
                f"{folder.name}/{path.stem}": path
                for folder in self._jobs.folders(caller.region())
                for path in folder.log_files()
            }
        if group == TRANSFORMS:
            return _below(self._state.transform_logs / caller.region())
        name = group.removeprefix(ENDPOINTS)
        if not group.startswith(ENDPOINTS) or not JOB_NAME.fullmatch(name):
            return {}
        return _below(self._endpoint_folder / name)

    @property
    def _endpoint_folder(self) -> Path:
        """With one folder for each endpoint of the region."""
        return self._state.endpoint_logs / caller.region()


def _below(folder: Path) -> Streams:
    """The streams in the folders below one."""
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(folder.glob(f"*/*{LOG_SUFFIX}"))}


def _group(request: Parameters) -> str:
    _exclude(request, "logGroupName", "logGroupIdentifier")
    return str(request.get("logGroupName") or _group_of(request.get("logGroupIdentifier", "")))


def _group_arn(group: str) -> str:
    return f"arn:aws:logs:{caller.region()}:{ACCOUNT}:log-group:{group}"


def _exclude(request: Parameters, one: str, other: str) -> None:
    if one in request and other in request:
        raise invalid(f"{one} and {other} are mutually exclusive; pass only one of them.")


def _matches_group(name: str, request: Parameters) -> bool:
    names = request.get("logGroupIdentifiers")
    return (
        name.startswith(request.get("logGroupNamePrefix", ""))
        and request.get("logGroupNamePattern", "") in name
        and request.get("logGroupClass", _CLASS) == _CLASS
        and (names is None or name in map(_group_of, names))
    )


def _group_of(identifier: str) -> str:
    """The group's name in an identifier: a name, or an ARN that ends with one."""
    return identifier.removesuffix(":*").rpartition(":")[2]


def _read(data: Data, request: Parameters) -> Page:
    """The first or last events of the range after the token. Where there are none, the answer has the same token."""
    span = in_range(data, request.get("startTime"), request.get("endTime"))
    limit, token = request.get("limit", MOST_EVENTS), request.get("nextToken")
    if token is None:
        read = read_forward if request.get("startFromHead") else read_backward
        return read(data, span, limit)
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise invalid_token()
    place = int(match[2])
    check_place(data, place)
    if match[1] == "f":
        start = max(place, span.start)
        return read_forward(data, Span(start, span.end), limit) if start < span.end else _empty_page(start)
    end = min(place, span.end)
    return read_backward(data, Span(span.start, end), limit) if end > span.start else _empty_page(end)


def _empty_page(place: int) -> Page:
    return Page([], place, place)


def _read_token(token: str, order: str) -> tuple[int, str]:
    """The sort key of the last stream of the page before. Raises ServiceError for the token of another order."""
    match decode_token(token, invalid_token()):
        case [str(token_order), int(time), str(name)] if token_order == order:
            return time, name
    raise invalid_token()


def _describe_group(name: str, streams: Streams) -> dict[str, Any]:
    return {
        "logGroupName": name,
        "creationTime": min(map(_created, streams.values())),
        "metricFilterCount": 0,
        "arn": f"{_group_arn(name)}:*",
        "storedBytes": sum(map(stored_bytes, streams.values())),
        "logGroupClass": _CLASS,
        "logGroupArn": _group_arn(name),
    }


def _created(path: Path) -> int:
    """Milliseconds since 1970: of a job's stream in its name, of an endpoint's the time of its first event."""
    seconds = path.stem.rpartition("-")[2]
    if seconds.isdecimal() and not path.stem.startswith(_INSTANCE):
        return int(seconds) * 1000
    ends = _ends(path)
    return ends[0] if ends else 0


def _ends(path: Path) -> tuple[int, int] | None:
    """The times of the first and the last event."""
    with mapped(path) as data:
        span = in_range(data, None, None)
        first, last = read_forward(data, span, 1).events, read_backward(data, span, 1).events
    return (first[0]["timestamp"], last[0]["timestamp"]) if first and last else None


def _last_time(path: Path) -> int:
    ends = _ends(path)
    return ends[1] if ends else 0


def _describe(group: str, name: str, path: Path) -> dict[str, Any]:
    stream: dict[str, Any] = {
        "logStreamName": name,
        "creationTime": _created(path),
        "uploadSequenceToken": f"{stored_bytes(path):056d}",
        "arn": f"{_group_arn(group)}:log-stream:{name}",
        "storedBytes": 0,
    }
    if ends := _ends(path):
        first, last = ends
        stream |= {"firstEventTimestamp": first, "lastEventTimestamp": last, "lastIngestionTime": last}
    return stream


def _not_found(message: str) -> ServiceError:
    return ServiceError("ResourceNotFoundException", message)
