"""The parts of a job that need no processes: pages of logs, failure reasons, archives."""

from __future__ import annotations

import json
import resource
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.jobs.transfer.unpack import unpack
from smdp_launch.localcloud.host_log import _BACKLOG, HostLog
from smdp_launch.localcloud.runtime import artifacts, channels, outcome
from smdp_launch.localcloud.runtime.checkpoints import _stamps
from smdp_launch.localcloud.runtime.outcome import JobFailed
from smdp_launch.localcloud.runtime.started_host import failure_time
from smdp_launch.localcloud.services.logs.stream_file import Span, in_range, read_backward, read_forward
from smdp_launch.private_files import write_bytes

messages = st.lists(st.text(max_size=20), max_size=30)
limits = st.integers(1, 12)


def stream(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"timestamp": 0, "message": text}).encode() + b"\n" for text in texts)


@given(messages, limits, st.booleans())
def test_paging_forward_gives_every_whole_line_once(texts: list[str], limit: int, half_a_line: bool) -> None:
    data = stream(texts) + (b'{"timest' if half_a_line else b"")
    found: list[str] = []
    position = 0
    while True:
        page = read_forward(data, Span(position, in_range(data, None, None).end), limit)
        assert len(page.events) <= limit
        found += [event["message"] for event in page.events]
        if page.end == position:
            break
        position = page.end
    assert found == texts


@given(messages, limits)
def test_paging_backward_gives_every_line_once(texts: list[str], limit: int) -> None:
    data = stream(texts)
    found: list[str] = []
    position = len(data)
    while True:
        page = read_backward(data, Span(0, position), limit)
        found = [event["message"] for event in page.events] + found
        if page.start == page.end:
            break
        position = page.start
    assert found == texts


@dataclass(frozen=True)
class EndedHost:
    name: str
    code: int
    failed_at: float
    text: str = ""

    def failure_text(self) -> str:
        return self.text


def test_the_host_that_failed_first_gives_the_reason() -> None:
    hosts = [EndedHost("algo-1", 1, 20.0, "late"), EndedHost("algo-2", 7, 10.0, "first\nat line 1")]
    assert outcome.failure_reason(hosts) == "AlgorithmError: first\nat line 1, exit code: 7"


def test_a_long_reason_keeps_its_exit_code() -> None:
    reason = outcome.failure_reason([EndedHost("algo-1", 137, 0.0, "x" * 2000)])
    assert len(reason) == 1024
    assert reason.endswith("x, exit code: 137")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (137, "algo-1 was killed by SIGKILL"),
        (200, "algo-1 exited with code 200 and wrote no failure report"),
        (3, "algo-1 exited with code 3 and wrote no failure report"),
    ],
)
def test_a_host_without_a_report_is_named(code: int, expected: str) -> None:
    assert outcome.failure_reason([EndedHost("algo-1", code, 0.0)]) == f"AlgorithmError: {expected}, exit code: {code}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('[algo-2] {"smdp_event": 1, "event": "worker_exit", "time": 12.5, "rank": 3}', 12.5),
        ('[algo-2] {"smdp_event": 1, "event": "host_failed", "time": 13, "error": "no program"}', 13.0),
        ('[algo-2:3] {"smdp_event": 1, "event": "step", "time": 12.5, "note": "worker_exit"}', None),
        ('[algo-2:3] {"smdp_event": 1, "event": "worker_exit"', None),
        ("[algo-2:3] worker_exit", None),
        ('[algo-2:3] {"smdp_event": 1, "event": "worker_exit", "time": 12.5, "rank": 3}', None),
        ('[algo-2:3] x [algo-2] {"smdp_event": 1, "event": "worker_exit", "time": 12.5, "rank": 3}', None),
        ('{"smdp_event": 1, "event": "host_failed", "time": 12.5}', None),
        ('[algo-1] {"smdp_event": 1, "event": "host_failed", "time": 12.5}', None),
    ],
)
def test_failure_time_is_read_from_host_events_only(line: str, expected: float | None) -> None:
    assert failure_time("algo-2", line) == expected


@pytest.mark.parametrize(
    ("key", "prefix", "expected"),
    [
        ("data/a", "data", "a"),
        ("data/a", "data/", "a"),
        ("data/b/c", "data", "b/c"),
        ("data/a.csv", "data/a.csv", "a.csv"),
        ("data-2/a", "data", "-2/a"),
        ("a", "", "a"),
    ],
)
def test_channel_files_are_named_by_the_key_without_the_prefix(key: str, prefix: str, expected: str) -> None:
    assert channels.relative_path(key, prefix) == Path(expected)


def test_key_that_leads_out_of_the_channel_fails_the_job() -> None:
    with pytest.raises(JobFailed, match=r"\.\./\.\./etc"):
        channels.relative_path("data/../../etc/passwd", "data")


def test_archive_merges_hosts_and_is_deterministic(tmp_path: Path) -> None:
    for host, names in {"1": ["b", "deep/a", "both"], "2": ["c", "both"]}.items():
        for name in names:
            path = tmp_path / host / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(host)
    files = artifacts.merged([tmp_path / "1", tmp_path / "2"])
    assert list(files) == ["b", "both", "c", "deep", "deep/a"]
    assert files["both"].read_text() == "1"
    artifacts.pack(files, tmp_path / "first.tar.gz")
    (tmp_path / "1/b").touch()
    artifacts.pack(files, tmp_path / "second.tar.gz")
    assert (tmp_path / "first.tar.gz").read_bytes() == (tmp_path / "second.tar.gz").read_bytes()


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Sets the maximum size, in bytes, of this process's files, which has the effect of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_log_on_a_full_disk_keeps_whole_lines(tmp_path: Path, small_files: Callable[[int], None]) -> None:
    log = HostLog(tmp_path / "log.jsonl")
    log.write("first")
    small_files((tmp_path / "log.jsonl").stat().st_size + 10)
    log.write("second")
    log.write("third")
    small_files(resource.RLIM_INFINITY)
    log.write("fourth")
    log.close()
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize("is_full_at_the_end", [False, True])
def test_a_closed_log_has_the_lines_that_met_a_full_disk(
    tmp_path: Path, small_files: Callable[[int], None], is_full_at_the_end: bool
) -> None:
    log = HostLog(tmp_path / "log.jsonl")
    log.write("first")
    small_files((tmp_path / "log.jsonl").stat().st_size + 10)
    log.write("second")
    for _ in range(2):
        log.write("x" * _BACKLOG)  # the first has a place in the backlog
    if is_full_at_the_end:
        log.close()
        small_files(resource.RLIM_INFINITY)
        with log.reopened():
            log.write("after the end")
    else:
        small_files(resource.RLIM_INFINITY)
        log.close()
    lines = [json.loads(line)["message"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    left_out = f"1 lines are left out: disk full in {tmp_path}"
    assert lines[:2] == ["first", "second"] and lines[2] == "x" * _BACKLOG
    assert lines[3:] == [left_out, "after the end"] if is_full_at_the_end else [left_out]


def test_failed_write_leaves_the_old_file_unchanged(tmp_path: Path, small_files: Callable[[int], None]) -> None:
    write_bytes(tmp_path / "state", b"old")
    small_files(2)
    with pytest.raises(OSError):
        write_bytes(tmp_path / "state", b"newer")
    small_files(resource.RLIM_INFINITY)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("state", b"old")]


def test_checkpoint_listing_reports_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    (tmp_path / "step/file").touch()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert _stamps(tmp_path)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert _stamps(tmp_path) == ({}, False, [])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_archive_has_no_hard_links_and_is_unpacked_by_download(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/epoch3").write_bytes(b"weights")
    (tmp_path / "model/best").hardlink_to(tmp_path / "model/epoch3")
    (tmp_path / "model/last").symlink_to("epoch3")
    artifacts.pack(artifacts.merged([tmp_path / "model"]), tmp_path / "model.tar.gz")
    with tarfile.open(tmp_path / "model.tar.gz") as tar:
        assert {one.name: one.type for one in tar} == {
            "best": tarfile.REGTYPE, "epoch3": tarfile.REGTYPE, "last": tarfile.SYMTYPE,
        }  # fmt: skip
    unpack(tmp_path / "model.tar.gz", tmp_path / "unpacked")
    assert {one.name: one.read_bytes() for one in (tmp_path / "unpacked").iterdir()} == dict.fromkeys(
        ("best", "epoch3", "last"), b"weights"
    )


def test_location_of_results_is_whole_after_a_long_reason() -> None:
    failure = outcome.failed("x" * 5000, "; the job's results are in /results").failure
    assert failure is not None and len(failure) == 1024
    assert failure.endswith("x; the job's results are in /results")


def test_checkpoint_listing_survives_folders_that_vanish(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            (tmp_path / "step/of/many").mkdir(parents=True)
            shutil.rmtree(tmp_path / "step")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(3000):
            found, is_complete, _ = _stamps(tmp_path)
            assert "kept" in found and is_complete
    finally:
        done.set()
        thread.join()
