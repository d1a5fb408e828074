"""Merged timelines: one valid trace of all ranks with one clock, which names the late rank."""

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, List

import c_interface
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ports import free_port
from timeline_files import Rank, write

from smdp_engine.trace import TraceError, merge, read_timelines, summary
from smdp_engine.trace.__main__ import main


def merged(folder: Path) -> List[Dict[str, Any]]:
    out = folder / "merged.json"
    merge(out, [folder])
    events = json.loads(out.read_text(encoding="utf-8"))
    assert isinstance(events, list)
    return events


def bars(events: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def late_rank_2(ahead: float = 0.0, **clock: Any) -> List[Rank]:
    """Four ranks of which rank 2 calls 500 ms after the others; it runs on another host with a different clock."""
    ranks = [Rank(rank) for rank in range(4)]
    ranks[2] = Rank(2, host="algo-2", ahead=ahead, **clock)
    for rank in ranks:
        called = 500_000.0 if rank.rank == 2 else 10.0 * rank.rank
        rank.call("5", called, called + 1, max(called + 1, 500_020.0), 500_100.0)
    return ranks


def test_the_longest_waits_and_the_longest_lateness_name_the_late_rank(tmp_path: Path) -> None:
    write(tmp_path, late_rank_2())
    found = bars(merged(tmp_path))
    phases = [bar for bar in found if bar["cat"] in {"wait", "phase"}]
    for rank in (0, 1, 3):
        longest = max((bar for bar in phases if bar["pid"] == rank), key=lambda bar: bar["dur"])
        assert longest["name"] == "wait for rank 2@algo-2"
    (late,) = [bar for bar in found if bar["cat"] == "late"]
    assert (late["pid"], late["name"]) == (2, "late for all_reduce 4 KiB")
    assert late["dur"] == pytest.approx(500_000 - 10)  # after rank 1, the lower median of 0, 10, 30 and 500,000


def test_waits_of_the_late_rank_keep_their_name(tmp_path: Path) -> None:
    write(tmp_path, late_rank_2())
    assert {bar["name"] for bar in bars(merged(tmp_path)) if bar["pid"] == 2} == {
        "all_reduce 4 KiB",
        "wait local",
        "copy",
        "late for all_reduce 4 KiB",
    }


@pytest.mark.parametrize("drift", [0.0, 30.0])
def test_times_of_other_hosts_are_corrected(tmp_path: Path, drift: float) -> None:
    """The clock difference is interpolated linearly between two measurements."""
    ahead = 7e9
    clocks = [(ahead, -ahead + drift, 3.0), (ahead + 1_000_000, -ahead - drift, 2.0)]
    write(tmp_path, late_rank_2(ahead, rank0_clock=False, clocks=clocks))
    begins = {bar["pid"]: bar["ts"] for bar in bars(merged(tmp_path)) if bar["cat"] == "operation"}
    assert begins[2] == pytest.approx(500_001, abs=0.01)  # half way between: no drift
    assert begins[0] == pytest.approx(1, abs=0.01)


def test_rank_with_unknown_clock_is_placed_by_wall_clock_and_never_late(tmp_path: Path) -> None:
    paths = write(tmp_path, late_rank_2(7e9, rank0_clock=False))
    found = bars(merged(tmp_path))
    begins = {bar["pid"]: bar["ts"] for bar in found if bar["cat"] == "operation"}
    assert begins[2] == pytest.approx(500_001, abs=1)
    assert not [bar for bar in found if bar["cat"] == "late"]
    assert "unknown for rank 2" in summary(paths)


def test_summary_names_the_late_rank_and_the_share_of_each_phase(tmp_path: Path) -> None:
    text = summary(write(tmp_path, late_rank_2()))
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0] == "4 of 4 ranks, 2 hosts; 4 of 4 operations drawn"
    late = next(line.split() for line in lines if line.startswith("2 "))
    assert late[:4] == ["2", "algo-2", "1", "0.500"]
    shares = next(line.split() for line in lines if line.startswith("4 KiB up"))
    # From begin to end: 500,099, 500,089, 99 and 500,069 us, of which each copied for 80.
    assert shares[3:] == ["4", "375.089", "100.0%", "0.0%", "0.0%", "0.0%"]


def test_ranks_that_call_in_time_are_not_late(tmp_path: Path) -> None:
    ranks = [Rank(rank) for rank in range(3)]
    for rank in ranks:
        rank.call("1", 10.0 * rank.rank, 40, 50, 60)
    assert "No rank was late." in summary(write(tmp_path, ranks))


def test_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    (path, *_) = write(tmp_path, late_rank_2())
    content = path.read_text()
    path.write_text(content[: content.index('"smdp_totals"')])
    (timeline, *_) = read_timelines([tmp_path])
    assert len(timeline.operations) == 1
    assert bars(merged(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not a timeline"),
        ('[\n{"name": "other", "ph": "M"}\n]\n', "not a timeline"),
        ("[\n{broken\n]\n", ":2: not a timeline event"),
        ("[\n7\n]\n", ":2: not a timeline event"),
        ('[\n{"name": "smdp_timeline", "ph": "M", "args": {"version": 2}}\n]\n', "another version"),
    ],
)
def test_invalid_timeline_error_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    path = tmp_path / "timeline_rank_0.json"
    path.write_text(content)
    assert main(["summary", str(path)]) == 4
    error = capsys.readouterr().err
    assert str(path) in error
    assert said in error


def test_merge_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no timeline"):
        read_timelines([tmp_path])


def test_commands_print_what_they_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, late_rank_2())
    assert main(["merge", str(tmp_path / "all.json"), str(tmp_path)]) == 0
    assert "all.json" in capsys.readouterr().out
    assert main(["summary", str(tmp_path)]) == 0
    assert "late rank" in capsys.readouterr().out


CALLS = st.lists(
    st.tuples(st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_trace_is_valid_for_any_names_and_times(ranks: List[Any], host: str, group: str) -> None:
    made = []
    for rank, times in enumerate(ranks):
        made.append(Rank(rank, host=host))
        for number, (called, queued, waited, copied) in enumerate(times):
            begin = float(called + queued)
            made[-1].call(str(number), float(called), begin, begin + waited, begin + waited + copied, group)
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), made)
        events = merged(Path(folder))
        assert all(len(line) <= 80 for line in summary(paths).splitlines())
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        f"rank {rank}@{host}" for rank in range(len(ranks))
    }
    found = bars(events)
    assert {bar["args"]["group"] for bar in found if bar["cat"] == "operation"} == {group}
    assert all(bar["ts"] >= 0 and bar["dur"] >= 0 for bar in found)
    rows = defaultdict(list)
    for bar in found:
        if bar["cat"] == "late":
            rows[bar["pid"]].append((bar["ts"], bar["ts"] + bar["dur"]))
    for row in rows.values():
        row.sort()
        for before, after in zip(row, row[1:]):
            assert after[0] >= before[1] - 0.01


NAMES = st.lists(st.binary(max_size=40).filter(lambda name: b"\0" not in name), min_size=1, max_size=5)


@settings(max_examples=20, deadline=None)
@given(NAMES)
def test_the_engine_writes_any_name_as_valid_json(names: List[bytes]) -> None:
    """Valid text is unchanged; each invalid byte becomes one U+FFFD."""
    library = c_interface.Library(c_interface.installed())
    with tempfile.TemporaryDirectory() as folder:
        options = c_interface.options_of('a "host"\\\n', free_port(), {"SMDP_TIMELINE": folder, "SMDP_ARENA_MIB": "16"})
        engine = c_interface.Engine(library, 0, 1, options)
        for name in names:
            group = engine.group([0], name)
            engine.all_reduce(group, np.ones(3, np.float32), "float32", "sum")
            engine.destroy(group)
        engine.close()
        (timeline,) = read_timelines([Path(folder)])
        for event in json.loads(timeline.path.read_bytes()):
            assert event["ph"] in {"M", "X"}
    assert len(timeline.operations) == len(names)
    assert timeline.host == 'a "host"\\\n'
    for name, operation in zip(names, timeline.operations):
        try:
            assert operation.group == name.decode()
        except UnicodeDecodeError:
            assert "\ufffd" in operation.group
