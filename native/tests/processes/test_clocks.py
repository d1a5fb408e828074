"""Clocks that jump, and hosts with different clocks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
import ranks
from ports import free_port
from preload import TESTS, built

from smdp_engine.trace import merge

# Rank 2 makes no second call: the others must raise after the deadline, and not before. It exits after them.
RANK = """
import sys, time
from pathlib import Path
import numpy as np
import c_interface
rank, port = map(int, sys.argv[1:3])
raised = [Path(sys.argv[3], f"raised_{one}") for one in range(2)]
times = [time.time() for _ in range(200) if time.sleep(0.001) is None]
assert max(times) - min(times) > 7000, "the clock does not jump"
more = {"SMDP_WARN_S": "0.5", "SMDP_HEARTBEAT_S": "1"}
options = c_interface.options_of(f"host-{rank // 2}", port, more)
engine = c_interface.Engine(c_interface.Library(c_interface.installed()), rank, 3, options)
group = engine.group([0, 1, 2], "all")
for count in [10, 300_000] * 100:
    assert (engine.all_reduce(group, np.full(count, rank, np.float32), "float32", "sum") == 3).all()
if rank < 2:
    begun = time.monotonic()
    try:
        engine.add_up(group, np.ones(10, np.float32), 3)
    except c_interface.EngineError as error:
        print(begun, time.monotonic(), error)
    raised[rank].touch()
else:
    while not all(one.exists() for one in raised): time.sleep(0.01)
"""


def test_jump_of_the_wall_clock_changes_no_deadline(tmp_path: Path) -> None:
    port = free_port()
    clock = str(built("jumping_clock.c", tmp_path))
    job = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(port), str(tmp_path)],
            cwd=TESTS / "support",
            env={**os.environ, "LD_PRELOAD": clock},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    outputs = [process.communicate(timeout=120) for process in job]
    for rank, process in enumerate(job):
        assert process.returncode == 0, outputs[rank][1]
    lines = [out.split(maxsplit=2) for out, _ in outputs[:2]]
    # The deadline of the rank that makes its call first counts; the other rank raises with it.
    assert min(float(raised) for _, raised, _ in lines) - min(float(begun) for begun, _, _ in lines) >= 2.9
    for (_, _, message), (_, err) in zip(lines, outputs):
        assert message.startswith("the deadline passed") and "rank 2 (host host-1)" in message
        assert "slow:" in err


@pytest.mark.torch
@pytest.mark.skipif(os.geteuid() != 0, reason="makes time namespaces, which needs root")
def test_merged_timeline_aligns_hosts_with_clocks_a_day_apart(tmp_path: Path) -> None:
    day = 86_400
    later: List[str] = ["unshare", "--time", "--monotonic", str(day), "--boottime", str(day), "--fork", "--kill-child"]
    job = ranks.start(
        [1, 2],
        """
        dist.init_process_group("smddp")
        for _ in range(20):
            t = torch.full((1000,), float(rank)); dist.all_reduce(t); assert t[0] == 3
        wait_until_the_clock_is_known()
        """,
        env={"SMDP_TIMELINE": str(tmp_path)},
        prefix_of_host=[[], later],
    )
    for outcome in job.finish():
        assert outcome.code == 0, outcome.err
    for rank in (1, 2):
        events = json.loads((tmp_path / f"timeline_rank_{rank}.json").read_text())
        clocks = [event["args"] for event in events if event["name"] == "smdp_clock"]
        assert clocks
        for clock in clocks:
            assert abs(clock["ahead_us"] + day * 1e6) <= clock["error_us"]  # rank 0's, before this host's
    merge(tmp_path / "all.json", [tmp_path])
    bars = [event for event in json.loads((tmp_path / "all.json").read_text()) if event["ph"] == "X"]
    assert {bar["pid"] for bar in bars} == {0, 1, 2}
    assert max(bar["ts"] for bar in bars) - min(bar["ts"] for bar in bars) < 60e6
