"""The calls for log events return every event of a range once, in order, page by page, as a plain reference does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.host_log import HostLog
from smdp_launch.localcloud.layout import JobFolder, StateFolder
from smdp_launch.localcloud.protocol.signatures import Credentials
from smdp_launch.localcloud.runtime import started_host
from smdp_launch.localcloud.services.logs.calls import GROUP, LogService
from smdp_launch.localcloud.services.training.job_store import JobStore
from tests.support.properties import examples

BASE = 1_750_000_000_000
MEGABYTE = 1024 * 1024
Event = tuple[int, str]
Call = Callable[..., Mapping[str, Any]]


class Group:
    """The real calls, on a state folder whose streams the test writes."""

    def __init__(self, root: Path) -> None:
        self._state = StateFolder.at(root)
        self._state.prepare()
        self._actions = LogService(JobStore(self._state, Credentials("key", "secret")), self._state).actions()

    def path(self, stream: str) -> Path:
        job, _, name = stream.partition("/")
        return JobFolder(self._state.jobs / job).logs / f"{name}.jsonl"

    def write(self, job: str, host: str, events: list[Event]) -> str:
        stream = f"{job}/{host}-{BASE // 1000}"
        self.path(stream).parent.mkdir(parents=True, exist_ok=True)
        with self.path(stream).open("a") as file:
            file.writelines(json.dumps({"timestamp": time, "message": text}) + "\n" for time, text in events)
        return stream

    def clear(self) -> None:
        for path in self._state.jobs.glob("*/logs/*"):
            path.unlink()

    def call(self, name: str, **request: Any) -> Mapping[str, Any]:
        fields = {key: value for key, value in request.items() if value is not None}
        return self._actions[name]({"logGroupName": GROUP, **fields} if "Group" not in name else fields)

    def get(self, stream: str, **request: Any) -> Mapping[str, Any]:
        return self.call("GetLogEvents", logStreamName=stream, **request)


@pytest.fixture(scope="module")
def module_group(tmp_path_factory: pytest.TempPathFactory) -> Group:
    return Group(tmp_path_factory.mktemp("logs") / "state")


@pytest.fixture
def group(module_group: Group) -> Iterator[Group]:
    module_group.clear()
    yield module_group
    module_group.clear()


def plain(events: list[Mapping[str, Any]]) -> list[Event]:
    return [(one["timestamp"], one["message"]) for one in events]


def code_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ServiceError) as caught:
        call()
    return caught.value.code, caught.value.message


TIMES = st.integers(BASE, BASE + 12)
#: A few messages are so large that the bytes end a page.
TEXTS = st.one_of(st.text('aé😀"\\\n\r ', max_size=4), st.sampled_from(["x" * 400_000, "é" * 300_000, "y" * 1_500_000]))
STREAM = st.lists(TIMES, max_size=30).flatmap(
    lambda times: st.lists(TEXTS, min_size=len(times), max_size=len(times)).map(
        lambda texts: list(zip(sorted(times), texts, strict=True))
    )
)
BOUND = st.one_of(st.none(), st.integers(BASE - 2, BASE + 14))
LIMIT = st.one_of(st.none(), st.integers(1, 7))


def pages(group: Group, stream: str, token_name: str, **request: Any) -> Iterator[list[Event]]:
    """Read pages until the token is unchanged, as the service's documentation says."""
    token = None
    while True:
        answer = group.get(stream, nextToken=token, **request)
        yield plain(answer["events"])
        if answer[token_name] == token:
            return
        token = answer[token_name]


@examples(200)
@given(events=STREAM, since=BOUND, until=BOUND, limit=LIMIT, forward=st.booleans())
def test_pages_of_a_stream_are_full_and_in_order(
    module_group: Group, events: list[Event], since: int | None, until: int | None, limit: int | None, forward: bool
) -> None:
    module_group.clear()
    stream = module_group.write("job", "algo-1", events)
    bounds = {"startTime": since, "endTime": until, "limit": limit, "startFromHead": forward}
    found = list(pages(module_group, stream, "nextForwardToken" if forward else "nextBackwardToken", **bounds))
    wanted = [one for one in events if (since is None or since <= one[0]) and (until is None or one[0] < until)]
    assert [one for page in (found if forward else found[::-1]) for one in page] == wanted
    assert found[-1] == [] and (found == [[]] * len(found) or [] not in found[:-1])
    for page in found[:-2]:
        size = sum(len(text.encode()) + 26 for _, text in page)
        assert len(page) == limit or size + 1_500_026 > MEGABYTE
        assert len(page) == 1 or size <= MEGABYTE


@examples(100)
@given(events=STREAM, since=BOUND, limit=LIMIT, rest=STREAM)
def test_reader_at_the_end_gets_later_events(
    module_group: Group, events: list[Event], since: int | None, limit: int | None, rest: list[Event]
) -> None:
    module_group.clear()
    stream = module_group.write("job", "algo-1", events)
    later = [(time + 100, text) for time, text in rest]
    found, token = [], None
    for _ in range(2):
        while True:
            answer = module_group.get(stream, startTime=since, limit=limit, startFromHead=True, nextToken=token)
            found += plain(answer["events"])
            if answer["nextForwardToken"] == token:
                break
            token = answer["nextForwardToken"]
        if found and found[-1:] == later[-1:]:
            break
        module_group.write("job", "algo-1", later)
    assert found == [one for one in [*events, *later] if since is None or since <= one[0]]


@examples(100)
@given(events=STREAM, since=BOUND)
def test_without_startfromhead_latest_events_come_first(
    module_group: Group, events: list[Event], since: int | None
) -> None:
    module_group.clear()
    stream = module_group.write("job", "algo-1", events)
    wanted = [one for one in events if since is None or since <= one[0]]
    last = module_group.get(stream, startTime=since, limit=3)
    found = plain(last["events"])
    assert found == wanted[len(wanted) - len(found) :]
    module_group.write("job", "algo-1", [(BASE + 50, "new")])
    after = module_group.get(stream, startTime=since, nextToken=last["nextForwardToken"], startFromHead=True)
    assert plain(after["events"]) == [(BASE + 50, "new")]
    before = module_group.get(stream, startTime=since, nextToken=last["nextBackwardToken"], limit=3)
    earlier = wanted[: len(wanted) - len(found)]
    assert plain(before["events"]) == earlier[len(earlier) - len(before["events"]) :]


@examples(100)
@given(streams=st.lists(STREAM, min_size=1, max_size=4), since=BOUND, until=BOUND, limit=LIMIT, forward=st.booleans())
def test_pages_of_a_group_are_interleaved_by_time(
    module_group: Group,
    streams: list[list[Event]],
    since: int | None,
    until: int | None,
    limit: int | None,
    forward: bool,
) -> None:
    module_group.clear()
    names = [module_group.write("job", f"algo-{number}", events) for number, events in enumerate(streams, 1)]
    if not forward:
        since = since or BASE - 5
    every = sorted(
        (time, name, place, text)
        for name, events in zip(names, streams, strict=True)
        for place, (time, text) in enumerate(events)
        if (since is None or since <= time) and (until is None or time <= until)
    )
    wanted = [(name, time, text) for time, name, _, text in (every if forward else every[::-1])]
    found: list[tuple[str, int, str]] = []
    ids, token, count = set(), None, 0
    while True:
        answer = module_group.call(
            "FilterLogEvents",
            startTime=since,
            endTime=until,
            limit=limit,
            startFromHead=None if forward else False,
            nextToken=token,
        )
        page = answer["events"]
        found += [(one["logStreamName"], one["timestamp"], one["message"]) for one in page]
        ids |= {one["eventId"] for one in page}
        count += 1
        token = answer.get("nextToken")
        if token is None:
            break
        assert page != []
    assert found == wanted
    assert len(ids) == len(wanted)
    assert limit is not None or sum(len(text.encode()) + 26 for *_, text in wanted) > MEGABYTE or count == 1


def test_a_rare_match_is_found_on_the_first_page(group: Group) -> None:
    stream = group.write("job", "algo-1", [(BASE + number, "noise") for number in range(30_000)])
    group.write("job", "algo-1", [(BASE + 40_000, "needle"), (BASE + 40_001, "noise")])
    answer = group.call("FilterLogEvents", filterPattern="needle", limit=1)
    assert [(one["logStreamName"], one["message"]) for one in answer["events"]] == [(stream, "needle")]
    assert "nextToken" not in answer


def test_range_at_the_end_of_a_long_stream_is_on_the_first_page(group: Group) -> None:
    """The first 10,000 events of the stream are outside the range."""
    stream = group.write("job", "algo-1", [(BASE + number // 2, str(number)) for number in range(60_000)])
    first = group.get(stream, startTime=BASE + 12_345, endTime=BASE + 12_347, startFromHead=True)
    assert [one["message"] for one in first["events"]] == ["24690", "24691", "24692", "24693"]
    filtered = group.call("FilterLogEvents", startTime=BASE + 29_999)["events"]
    assert [one["message"] for one in filtered] == ["59998", "59999"]


def test_page_has_at_most_ten_thousand_events(group: Group) -> None:
    stream = group.write("job", "algo-1", [(BASE, str(number)) for number in range(10_001)])
    assert len(group.get(stream, startFromHead=True)["events"]) == 10_000
    assert len(group.call("FilterLogEvents")["events"]) == 10_000


def test_a_group_of_more_streams_than_a_process_may_open_is_filtered(group: Group) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(120):
        group.write(f"job-{number}", "algo-1", [(BASE + number, "one"), (BASE + 1000 + number, "two")])
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        found = group.call("FilterLogEvents")["events"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [one["message"] for one in found] == ["one"] * 120 + ["two"] * 120


def test_timestamps_of_a_stream_never_decrease_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 50.0, 100.5])
    monkeypatch.setattr(started_host.time, "time", lambda: next(clock))
    log = HostLog(tmp_path / "log.jsonl")
    for text in ("first", "second", "third"):
        log.write(text)
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert plain(lines) == [(100_000, "first"), (100_000, "second"), (100_500, "third")]


def test_incomplete_line_is_not_an_event(group: Group) -> None:
    stream = group.write("job", "algo-1", [(BASE, "whole")])
    with group.path(stream).open("a") as file:
        file.write('{"timestamp": 17500')
    for request in ({"startFromHead": True}, {"startFromHead": False}, {"startTime": BASE}):
        assert plain(group.get(stream, **request)["events"]) == [(BASE, "whole")]
    assert plain(group.call("FilterLogEvents")["events"]) == [(BASE, "whole")]


def streams_of(group: Group, **request: Any) -> list[str]:
    names, token = [], None
    while True:
        answer = group.call("DescribeLogStreams", nextToken=token, **request)
        names += [one["logStreamName"] for one in answer["logStreams"]]
        token = answer.get("nextToken")
        if token is None:
            return names


@pytest.fixture
def ordered(group: Group) -> Group:
    """Streams whose order by name is not that of their last events."""
    for job, last in (("a", 30), ("b", 10), ("c", 20)):
        group.write(job, "algo-1", [(BASE, "first"), (BASE + last, "last")])
    return group


@pytest.mark.parametrize("limit", [None, 1, 2])
@pytest.mark.parametrize(
    ("request_", "jobs"),
    [
        ({}, "abc"),
        ({"descending": True}, "cba"),
        ({"orderBy": "LastEventTime"}, "bca"),
        ({"orderBy": "LastEventTime", "descending": True}, "acb"),
        ({"orderBy": "LogStreamName", "logStreamNamePrefix": "b"}, "b"),
    ],
)
def test_streams_are_ordered_by_name_or_last_event(
    ordered: Group, request_: dict[str, Any], jobs: str, limit: int | None
) -> None:
    assert "".join(name[0] for name in streams_of(ordered, limit=limit, **request_)) == jobs


def test_pages_of_streams_stay_correct_when_streams_change(ordered: Group) -> None:
    order = {"orderBy": "LastEventTime", "descending": True}
    first = ordered.call("DescribeLogStreams", limit=1, **order)
    ordered.write("a", "algo-1", [(BASE + 100, "more")])
    ordered.write("d", "algo-1", [(BASE + 200, "new")])
    rest = ordered.call("DescribeLogStreams", nextToken=first["nextToken"], **order)["logStreams"]
    assert [one["logStreamName"][0] for one in rest] == ["c", "b"]


def test_a_stream_is_described_with_its_times(ordered: Group) -> None:
    stream = ordered.call("DescribeLogStreams", logStreamNamePrefix="a")["logStreams"][0]
    assert (stream["firstEventTimestamp"], stream["lastEventTimestamp"]) == (BASE, BASE + 30)
    assert stream["lastIngestionTime"] == BASE + 30
    assert stream["creationTime"] == BASE
    assert stream["uploadSequenceToken"].isdecimal()
    empty = ordered.write("e", "algo-1", [])
    (described,) = ordered.call("DescribeLogStreams", logStreamNamePrefix=empty)["logStreams"]
    assert "lastEventTimestamp" not in described


def test_a_page_has_fifty_streams_at_most(group: Group) -> None:
    for number in range(51):
        group.write(f"job-{number}", "algo-1", [(BASE, "x")])
    assert len(group.call("DescribeLogStreams")["logStreams"]) == 50
    assert len(streams_of(group)) == 51


@pytest.mark.parametrize(
    ("call", "request_", "message"),
    [
        (
            "DescribeLogStreams",
            {"orderBy": "LastEventTime", "logStreamNamePrefix": "a"},
            "Cannot order by LastEventTime with a logStreamNamePrefix.",
        ),
        ("DescribeLogStreams", {"nextToken": "x"}, "nextToken is invalid"),
        ("DescribeLogStreams", {"nextToken": "WyJuYW1lKyIsIDAsIDVd"}, "nextToken is invalid"),
        ("DescribeLogStreams", {"logGroupIdentifier": GROUP}, "mutually exclusive"),
        ("DescribeLogGroups", {"nextToken": "x"}, "nextToken is invalid"),
        ("DescribeLogGroups", {"logGroupNamePrefix": "/aws", "logGroupNamePattern": "aws"}, "mutually exclusive"),
        ("FilterLogEvents", {"logStreamNames": ["a"], "logStreamNamePrefix": "a"}, "mutually exclusive"),
        ("FilterLogEvents", {"startFromHead": False}, "on or after 2024-01-01"),
        ("FilterLogEvents", {"nextToken": "f/x"}, "nextToken is invalid"),
        ("GetLogEvents", {"logStreamName": "a/algo-1-1750000000", "nextToken": "f/3"}, "nextToken is invalid"),
        ("GetLogEvents", {"logStreamName": "a/algo-1-1750000000", "nextToken": "x/0"}, "nextToken is invalid"),
    ],
    ids=range(11),
)
def test_invalid_log_request_is_refused(ordered: Group, call: str, request_: dict[str, Any], message: str) -> None:
    code, text = code_of(lambda: ordered.call(call, **request_))
    assert code == "InvalidParameterException"
    assert message in text


@pytest.mark.parametrize(
    ("call", "limit"),
    [
        ("GetLogEvents", 10_001),
        ("FilterLogEvents", 10_001),
        ("DescribeLogStreams", 51),
        ("DescribeLogGroups", 51),
        ("GetLogEvents", 0),
    ],
)
def test_limit_outside_the_service_range_is_refused(ordered: Group, call: str, limit: int) -> None:
    stream = {"logStreamName": "a/algo-1-1750000000"} if call == "GetLogEvents" else {}
    with pytest.raises(ServiceError, match="limit"):
        ordered.call(call, limit=limit, **stream)


def test_log_group_is_described(ordered: Group) -> None:
    (found,) = ordered.call("DescribeLogGroups", logGroupClass="STANDARD")["logGroups"]
    assert found["creationTime"] == BASE
    assert found["storedBytes"] > 0
    assert "retentionInDays" not in found
    assert ordered.call("DescribeLogGroups", logGroupIdentifiers=["/aws/other"])["logGroups"] == []
    (short,) = ordered.call("DescribeLogGroups", logGroupNamePattern="sagemaker")["logGroups"]
    assert sorted(short) == ["arn", "creationTime", "logGroupName"]
