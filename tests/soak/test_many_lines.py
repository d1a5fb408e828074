"""Sixteen hosts with eight ranks each write 20,000 lines a second in all, and the follower shows each of them once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.localcloud.conftest import open_cloud, state_dir
from tests.support.services.cloud import Cloud
from tests.support.waiting import wait_for

__all__ = ["open_cloud", "state_dir"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
HOSTS, RANKS = 16, 8
RATE = 20_000  # lines a second, of all ranks together
OFFERED = 1.02 * RATE  # so that the measured rate is at least RATE
TICK = 0.1  # seconds between two writes of a rank
SECONDS = int(os.environ.get("SMDP_SOAK_SECONDS", "20"))
STARTS = 60.0  # seconds for the start of all workers
NUMBERS = RATE * SECONDS // (HOSTS * RANKS)  # lines of one rank

#: Standard library only. All ranks begin at the same time, and write the lines that are due at each tick of a common
#: clock. They wait before they exit: 128 interpreters that exit at once would delay the last lines.
SCRIPT = f"""\
import os, sys, time
begin, count = float(os.environ["BEGIN"]), {NUMBERS}
sent = tick = 0
while sent < count:
    time.sleep(max(0.0, begin + tick * {TICK} - time.time()))
    tick += 1
    due = min(count, int(tick * {TICK * OFFERED / HOSTS / RANKS}))
    sys.stdout.write("".join(f"number {{one}} of a line as long as those of a training\\n" for one in range(sent, due)))
    sys.stdout.flush()
    sent = due
time.sleep(3)
"""


def cpu_seconds(pid: int) -> float:
    """The processor time of the process and its threads until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def test_each_line_is_shown_once_in_order(open_cloud: Callable[[], Cloud]) -> None:
    cloud = open_cloud()
    begin = time.time() + STARTS
    environment = {"SMDP_WORKERS_PER_HOST": str(RANKS), "BEGIN": str(begin)}
    cloud.start("lines", SCRIPT, hosts=HOSTS, Environment=environment)
    wait_for((cloud.state_dir / "jobs" / "lines" / "supervisor.pid").exists, "the supervisor")
    server, supervisor = cloud.endpoint.pid, cloud.supervisor("lines")
    before = cpu_seconds(server)
    command = [sys.executable, "-m", "tests.soak.many_lines_follower", str(cloud.state_dir), "lines"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        wrote = 0.0
        while follower.poll() is None:
            if Path(f"/proc/{supervisor}/stat").exists():
                wrote = cpu_seconds(supervisor)
            time.sleep(0.5)
        result = json.loads(follower.stdout.read())
    assert result["status"] == "Completed"
    assert result["wrong"] == []
    assert result["numbers"] == [NUMBERS] * (HOSTS * RANKS)
    assert result["lines"] == len(cloud.log("lines"))
    seconds, lags = written(cloud, begin)
    delays = result["delays_s"]
    print(
        f"\n{len(lags)} lines written in {seconds:.1f} s ({len(lags) / seconds:.0f}/s), {lags[len(lags) // 2]:.2f} s "
        f"after they were due (median), {lags[-1]:.1f} s at most; {result['late']} late\n"
        f"shown {delays[len(delays) // 2]:.1f} s later (median), {delays[-1]:.1f} s at most\n"
        f"follower {result['cpu_s']:.1f} s of CPU, {result['rss_mib']:.0f} MiB at most; "
        f"server {cpu_seconds(server) - before:.1f} s, {peak_mib(server):.0f} MiB; supervisor {wrote:.1f} s"
    )


def written(cloud: Cloud, begin: float) -> tuple[float, list[float]]:
    """The seconds from the first numbered line to the last, and the delay of each line."""
    times: list[float] = []
    lags: list[float] = []
    for path in (cloud.state_dir / "jobs" / "lines" / "logs").glob("*.jsonl"):
        for record in map(json.loads, path.read_text().splitlines()):
            found = re.search(r"\] number (\d+)", record["message"])
            if found is not None:
                tick = int((int(found[1]) + 1) // (TICK * OFFERED / HOSTS / RANKS))
                times.append(record["timestamp"] / 1000)
                lags.append(times[-1] - begin - tick * TICK)
    return max(times) - min(times) + TICK, sorted(lags)
