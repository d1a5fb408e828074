"""Flight records and timelines of real ranks, for a failed run and for a slow run."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest
import ranks

from smdp_engine.trace import TraceError, merge, read_records, summary
from smdp_engine.trace.__main__ import main

pytestmark = pytest.mark.torch

# Rank 3 makes no call, and exits after the failure is reported.
MISSING_RANK = """
import datetime
dist.init_process_group("smddp", timeout=datetime.timedelta(seconds=5))
meet("initialized")
for _ in range(3): dist.all_reduce(torch.ones(10))
meet("ready")
if rank != 3:
    try: dist.all_reduce(torch.ones(1000))
    except dist.DistBackendError as error: print("raised", error)
else:
    while not os.path.exists(os.path.join(os.environ["SMDP_TRACE_DIR"], "flight_3")): time.sleep(0.01)
"""

OTHER_SIZE = """
dist.init_process_group("smddp")
dist.all_reduce(torch.ones(10))
meet("ready")
try: dist.all_reduce(torch.ones(1000 if rank == 1 else 2000))
except dist.DistBackendError as error: print("raised", error)
"""


def analysed(folder: Path) -> str:
    """The output of torch's own analyser for the dumps."""
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def lost_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of four ranks of which rank 3 made no call."""
    folder = tmp_path_factory.mktemp("lost")
    ranks.run([2, 2], MISSING_RANK, env={"SMDP_TRACE_DIR": str(folder)})
    return folder


@pytest.mark.runs
def test_torchs_analyser_names_the_rank_that_made_no_call(lost_run: Path) -> None:
    assert {path.name for path in lost_run.iterdir()} == {f"flight_{rank}" for rank in range(4)}
    said = analysed(lost_run)
    assert "Not all ranks joining collective, sequence number: 3" in said
    assert "missing ranks: {3}" in said


@pytest.mark.runs
def test_torchs_analyser_names_the_rank_that_made_another_call(tmp_path: Path) -> None:
    ranks.run([4], OTHER_SIZE, env={"SMDP_TRACE_DIR": str(tmp_path)})
    said = analysed(tmp_path)
    assert "Collective sequence number: 1 has errors" in said
    assert "Culprit rank 1" in said
    assert "SIZE_OR_SYNTAX_MISMATCH" in said


def test_records_show_the_awaited_ranks_and_times(lost_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = {rank: read_records(lost_run / f"flight_{rank}") for rank in range(4)}
    for rank, content in records.items():
        assert content["smdp"]["rank"] == rank
        assert content["smdp"]["host"] == f"algo-{1 + rank // 2}"
        assert "deadline passed" in content["smdp"]["reason"]
        states = [entry["state"] for entry in content["entries"]]
        assert states == ["completed"] * 3 + ([] if rank == 3 else ["failed"])
        (progress,) = content["pg_status"].values()
        assert progress["last_completed_collective"] == 2
        for entry in content["entries"]:
            assert entry["created_ns"] <= entry["started_ns"] <= entry["ended_ns"]
            age_ns = content["smdp"]["wall_ns"] - entry["time_created_ns"]
            assert age_ns == content["smdp"]["monotonic_ns"] - entry["created_ns"]
            assert 0 <= time.time_ns() - content["smdp"]["wall_ns"] < 3600e9
    # For small operations the agent alternates; in this one it is the second rank of each host.
    phases = ["waiting for the result", "waiting for the sums of the other hosts", "waiting for the result"]
    assert [records[rank]["entries"][-1]["phase"] for rank in range(3)] == phases
    assert [records[rank]["entries"][-1]["waits_for"] for rank in range(3)] == [[1], [3], [3]]
    waiting = records[2]["entries"][-1]
    assert "rank 3 (host algo-2)" in waiting["error"]
    assert waiting["deadline_ns"] - waiting["created_ns"] == pytest.approx(5e9)
    assert main(["records", str(lost_run)]) == 0
    shown = capsys.readouterr().out
    assert "waiting for the sums of the other hosts: rank 3" in shown
    assert "all_reduce 1000 x float32" in shown


class Harmful:
    def __reduce__(self) -> Any:
        return os.system, ("echo harmed",)


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps(Harmful()), pickle.dumps([1]), pickle.dumps({})])
def test_file_that_is_no_flight_record_runs_no_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes
) -> None:
    path = tmp_path / "flight_0"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="not a flight record"):
        read_records(path)
    assert "harmed" not in capfd.readouterr().out


def test_records_are_written_at_a_signal_and_on_request(tmp_path: Path) -> None:
    settings = {"SMDP_TRACE_DIR": str(tmp_path / "kept"), "SMDP_TRACE_SIGNAL": "USR1"}
    outcomes = ranks.run(
        [2],
        f"""
        import signal
        from pathlib import Path
        from smdp_engine import trace
        try: trace.dump()
        except RuntimeError as error: assert "no process group" in str(error), error
        dist.init_process_group("smddp")
        dist.all_reduce(torch.ones(10))
        os.kill(os.getpid(), signal.SIGUSR1)
        ours = os.path.join(os.environ["SMDP_TRACE_DIR"], f"flight_{{rank}}")
        while not os.path.exists(ours): time.sleep(0.01)
        assert trace.read_records(Path(ours))["smdp"]["reason"] == "requested by a signal"
        assert str(trace.dump()) == ours
        print(trace.dump({str(tmp_path / "asked")!r}))
        dist.barrier()
        """,
        env=settings,
    )
    for outcome in outcomes:
        path = Path(outcome.out.strip())
        assert path == tmp_path / "asked" / f"flight_{outcome.rank}"
        assert read_records(path)["smdp"]["reason"] == "requested by the program"
        assert f"flight records of rank {outcome.rank}" in outcome.err


ENDS_BY_AN_EXCEPTION = """
dist.init_process_group("smddp")
dist.all_reduce(torch.ones(10))
meet("ready")
if rank == 1: raise ValueError("a bug of the script")
try: dist.all_reduce(torch.ones(10))
except dist.DistBackendError: pass
"""


def test_script_that_raises_writes_its_records(tmp_path: Path) -> None:
    outcomes = ranks.start([1, 1], ENDS_BY_AN_EXCEPTION, env={"SMDP_TRACE_DIR": str(tmp_path)}).finish()
    assert [outcome.code for outcome in outcomes] == [0, 1]
    assert "exception" in read_records(tmp_path / "flight_1")["smdp"]["reason"]
    assert "rank 1 (host algo-2) was lost" in read_records(tmp_path / "flight_0")["smdp"]["reason"]


def test_no_records_are_written_by_default(tmp_path: Path) -> None:
    ranks.start([1, 1], f"os.chdir({str(tmp_path)!r})\n" + ENDS_BY_AN_EXCEPTION).finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"SMDP_TRACE_SIGNAL": "USR1"}, "SMDP_TRACE_DIR"),
        ({"SMDP_TRACE_SIGNAL": "KILL", "SMDP_TRACE_DIR": "x"}, "USR1, USR2, QUIT, HUP"),
    ],
)
def test_signal_without_effect_is_refused(settings: Dict[str, str], said: str) -> None:
    (outcome,) = ranks.start([1], 'dist.init_process_group("smddp")', env=settings).finish()
    assert outcome.code != 0
    assert said in outcome.err


# Rank 2 is stopped before its call, until the test has read its name in the log of another rank.
SLOW_RANK = """
import signal
dist.init_process_group("smddp")
for _ in range(20): dist.all_reduce(torch.ones(1000))
wait_until_the_clock_is_known()
meet("ready")
store = dist.distributed_c10d._get_default_store()
if rank == 2:
    store.set("stops", str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    wait_until_stopped(int(store.get("stops")))
dist.all_reduce(torch.ones(100_000))
dist.barrier()
"""


@pytest.mark.parametrize("hosts", [pytest.param([4], marks=pytest.mark.runs), [2, 2]])
def test_stopped_rank_is_named_in_the_log_and_by_the_longest_bars(tmp_path: Path, hosts: List[int]) -> None:
    settings = {"SMDP_TIMELINE": str(tmp_path), "SMDP_WARN_S": "2"}
    job = ranks.start(hosts, SLOW_RANK, env=settings)
    host = "algo-1" if len(hosts) == 1 else "algo-2"
    job.wait_for(rf"slow:.*rank 2 \(host {host}\)", of=[0], stream="stderr")
    job.processes[2].send_signal(signal.SIGCONT)
    for outcome in job.finish():
        assert outcome.code == 0, outcome.err
    out = tmp_path / "all.json"
    merge(out, [tmp_path])
    bars = [event for event in json.loads(out.read_text()) if event["ph"] == "X"]
    late = max((bar for bar in bars if bar["cat"] == "late"), key=lambda bar: bar["dur"])
    assert late["pid"] == 2
    assert late["dur"] > 0.5e6
    for rank in (0, 1, 3):
        own = [bar for bar in bars if bar["pid"] == rank and bar["cat"] in {"wait", "phase"}]
        longest = max(own, key=lambda bar: bar["dur"])
        assert longest["name"] == f"wait for rank 2@{host}"
        assert longest["dur"] > 0.5e6
    rows = [line.split() for line in summary([tmp_path]).splitlines()]
    assert next(row for row in rows if row[:1] == ["2"])[1] == host


def test_clock_differences_are_measured(tmp_path: Path) -> None:
    """Both hosts are this machine, so the clocks are known to be the same."""
    ranks.run(
        [1, 2],
        """
        dist.init_process_group("smddp")
        dist.all_reduce(torch.ones(10))
        wait_until_the_clock_is_known()
        """,
        env={"SMDP_TIMELINE": str(tmp_path)},
    )
    for rank in range(3):
        events = json.loads((tmp_path / f"timeline_rank_{rank}.json").read_text())
        clocks = [event["args"] for event in events if event["name"] == "smdp_clock"]
        assert bool(clocks) == (rank != 0)
        for clock in clocks:
            assert abs(clock["ahead_us"]) <= clock["error_us"]


def test_bars_are_within_their_operation_and_times_add_up(tmp_path: Path) -> None:
    ranks.run(
        [2, 1],
        """
        dist.init_process_group("smddp")
        works = [dist.all_reduce(torch.ones(size), async_op=True) for size in (10, 300_000, 1_000_000, 5)]
        for work in works: work.wait()
        """,
        env={"SMDP_TIMELINE": str(tmp_path)},
    )
    for rank in range(3):
        events = json.loads((tmp_path / f"timeline_rank_{rank}.json").read_text())
        whole = {event["args"]["n"]: event for event in events if event.get("cat") == "operation"}
        assert {event["name"] for event in whole.values()} == {
            "all_reduce 40 B",
            "all_reduce 1 MiB",
            "all_reduce 3 MiB",
            "all_reduce 20 B",
        }
        seen: Set[int] = set()
        for event in events:
            if event.get("cat") == "phase":
                around = whole[event["args"]["n"]]
                seen.add(event["args"]["n"])
                assert event["tid"] == around["tid"]
                assert event["ts"] >= around["ts"] - 0.001
                assert event["ts"] + event["dur"] <= around["ts"] + around["dur"] + 0.01
        assert seen == set(whole)
        for event in whole.values():
            times = [value for key, value in event["args"].items() if key.endswith("_us") and key != "called_us"]
            assert sum(times) == pytest.approx(event["dur"], abs=0.1)


def test_counters_are_written_as_event_lines(tmp_path: Path) -> None:
    outcomes = ranks.run(
        [2, 1],
        """
        dist.init_process_group("smddp")
        for number in range(30):
            meet(f"call {number}")
            if rank == 1: time.sleep(0.05)
            dist.all_reduce(torch.ones(1000))
        dist.destroy_process_group()
        """,
        env={"SMDP_COUNTERS_S": "0.3"},
    )
    for outcome in outcomes:
        lines = [line for line in outcome.out.splitlines() if line.startswith('{"smdp_event":')]
        events = [json.loads(line) for line in lines]
        assert len(events) >= 2
        assert {event["event"] for event in events} == {"engine"}
        assert {event["rank"] for event in events} == {outcome.rank}
        assert sum(event["operations"] for event in events) == 30
        assert sum(event["bytes"] for event in events) == 30 * 4000
        waited = sum(event["wait_local_s"] + event["wait_hosts_s"] for event in events)
        late: Dict[int, float] = {}
        for event in events:
            for one in event["late"]:
                late[one["rank"]] = late.get(one["rank"], 0) + one["seconds"]
        if outcome.rank == 0:  # rank 1 sleeps for 1.5 s in total
            assert waited > 0.3
            assert max(late, key=lambda rank: late[rank]) == 1


# A program between the launcher and the engine may have closed the pipe, and its number may now be another file's.
@pytest.mark.parametrize("is_it", [True, False])
def test_event_lines_go_to_the_launchers_pipe_and_to_no_other_file(is_it: bool, tmp_path: Path) -> None:
    outcomes = ranks.run(
        [2],
        f"""
        reading, writing = os.pipe()
        status = os.fstat(writing)
        if not {is_it}:
            writing_too = os.open({str(tmp_path / "checkpoint")!r} + str(rank), os.O_WRONLY | os.O_CREAT)
            os.dup2(writing_too, writing)
        os.environ["SMDP_EVENT_PIPE"] = f"{{writing}}:{{status.st_dev}}:{{status.st_ino}}"
        dist.init_process_group("smddp")
        dist.all_reduce(torch.ones(1000))
        dist.destroy_process_group()
        if {is_it}:
            print("piped", os.read(reading, 65536).decode(), end="", flush=True)
        else:
            assert os.fstat(writing).st_size == 0
        """,
        env={"SMDP_COUNTERS_S": "60"},
    )
    for outcome in outcomes:
        (line,) = [line for line in outcome.out.splitlines() if '"event": "engine"' in line]
        assert line.startswith("piped" if is_it else '{"smdp_event":'), line
