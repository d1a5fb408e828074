"""The limit of speed, and the counters that hosts and the local cloud read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.localcloud.inputs.counters import STATUS, Counter, StatusFiles, write_status
from smdp_launch.localcloud.inputs.readings import Readings, readings
from smdp_launch.localcloud.inputs.throttle import Throttle
from smdp_launch.localcloud.inputs.trees import Object, ObjectTree


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bytes_beyond_the_burst_are_due_at_the_rate() -> None:
    clock = Clock()
    throttle = Throttle(rate=1000, latency=0, clock=clock)
    assert throttle.burst == 100
    assert throttle.due(100, is_first=True) == pytest.approx(100.0)
    assert throttle.due(500, is_first=False) == pytest.approx(100.5)
    assert throttle.due(500, is_first=False) == pytest.approx(101.0)
    clock.now = 200.0  # a pause earns no more than the burst
    assert throttle.due(1100, is_first=False) == pytest.approx(201.0)


def test_latency_delays_only_the_first_read_of_an_opening() -> None:
    throttle = Throttle(rate=0, latency=0.5, clock=Clock())
    assert throttle.due(1 << 30, is_first=True) == 100.5
    assert throttle.due(1 << 30, is_first=False) == 100.0


def test_readers_that_wait_at_the_same_time_are_counted_once() -> None:
    clock = Clock()
    counter = Counter("FastFile", clock)
    counter.begin()
    clock.now += 1
    counter.begin()
    clock.now += 1
    counter.end(10)
    clock.now += 1
    counter.end(None)  # an error
    clock.now += 5
    assert counter.to_json() == {"mode": "FastFile", "bytes": 10, "reads": 1, "seconds": 3.0}


def test_status_is_replaced_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    for name in ("input", "root"):
        (tmp_path / name).mkdir()
    (tmp_path / "input" / f"{STATUS}.new").symlink_to(tmp_path / "elsewhere")
    status = StatusFiles([tmp_path / "input", tmp_path / "root"], {"copied": {"mode": "File", "bytes": 3}})
    status.counters["train"] = Counter("FastFile")
    status.start()
    (tmp_path / "input").rename(tmp_path / "moved")
    (tmp_path / "input").symlink_to("/")
    status.counters["train"].add(5)
    status.close()
    expected = {
        "copied": {"mode": "File", "bytes": 3},
        "train": {"mode": "FastFile", "bytes": 5, "reads": 1, "seconds": 0.0},
    }
    assert [json.loads((tmp_path / one / STATUS).read_text()) for one in ("moved", "root")] == [expected, expected]
    assert not (tmp_path / "elsewhere").exists()


def test_status_in_a_removed_folder_is_lost_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    status = StatusFiles([tmp_path / "input"], {})
    (tmp_path / "input").rmdir()
    status.start()
    status.close()


def test_readings_are_what_was_added_since_the_last(tmp_path: Path) -> None:
    file, host = tmp_path / "readings.jsonl", tmp_path / "algo-1"
    host.mkdir()
    collected = Readings(file, {"algo-1": host})
    collected.update()
    assert not file.exists()

    def write(amount: int, reads: int) -> None:
        entry = {"mode": "FastFile", "bytes": amount, "reads": reads, "seconds": 0.5}
        write_status([host], {"train": entry, "copied": {"mode": "File", "bytes": 9, "seconds": 1}})

    for amount, reads in ((10, 1), (10, 1), (25, 3)):
        write(amount, reads)
        collected.update()
    collected.restart()
    write(4, 1)
    collected.update()
    found = [(one.host, one.channel, one.bytes, one.operations) for one in readings(file)]
    assert found == [("algo-1", "train", 10, 1), ("algo-1", "train", 15, 2), ("algo-1", "train", 4, 1)]
    summary = {"host": "algo-1", "channel": "train", "mode": "FastFile", "bytes": 29, "seconds": 1.0}
    assert collected.summary() == [summary]


def test_cut_line_of_readings_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"time": 1.0, "host": "a", "channel": "c", "bytes": 1, "operations": 1}\n{"time":')
    assert [one.bytes for one in readings(tmp_path / "file")] == [1]


@pytest.mark.parametrize("paths", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b"), ("a", "a")])
def test_object_that_is_the_folder_of_another_is_refused(paths: tuple[str, str]) -> None:
    with pytest.raises(FileExistsError):
        ObjectTree(Object(one, "/dev/null", 0, 0) for one in paths)
