"""Sixteen hosts with eight ranks each write 20,000 lines a second in all, and the follower shows each of them once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.localcloud.cloud import Cloud, wait_for
from tests.localcloud.conftest import open_cloud, state_dir

__all__ = ["open_cloud", "state_dir"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
HOSTS, RANKS = 16, 8
RATE = 20_000  # lines a second, of all ranks together
SECONDS = int(os.environ.get("SMDP_SOAK_SECONDS", "20"))
STARTS = 60.0  # seconds that this machine may need for all the workers
NUMBERS = RATE * SECONDS // (HOSTS * RANKS)  # lines of one rank

#: Nothing but the standard library; all ranks begin at one moment, and each keeps its pace.
SCRIPT = f"""\
import os, sys, time
begin, rate, count = float(os.environ["BEGIN"]), {RATE / HOSTS / RANKS}, {NUMBERS}
time.sleep(max(0.0, begin - time.time()))
begin, sent = time.time(), 0
while sent < count:
    due = min(count, int((time.time() - begin) * rate) + 1)
    sys.stdout.write("".join(f"number {{one}} of a line as long as those of a training\\n" for one in range(sent, due)))
    sys.stdout.flush()
    sent = due
    time.sleep(0.1)
"""


def cpu_seconds(pid: int) -> float:
    """Of the process and its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def test_each_line_is_shown_once_and_in_order(open_cloud: Callable[[], Cloud]) -> None:
    cloud = open_cloud()
    environment = {"SMDP_WORKERS_PER_HOST": str(RANKS), "BEGIN": str(time.time() + STARTS)}
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
        told = json.loads(follower.stdout.read())
    assert told["status"] == "Completed"
    assert told["wrong"] == []
    assert told["numbers"] == [NUMBERS] * (HOSTS * RANKS)
    assert told["lines"] == len(cloud.log("lines"))
    times = written_at(cloud)
    delays = told["delays_s"]
    print(
        f"\n{told['lines']} lines in {times[1] - times[0]:.1f} s ({told['lines'] / (times[1] - times[0]):.0f}/s), "
        f"{told['late']} late; shown after {delays[len(delays) // 2]:.1f} s (median), {delays[-1]:.1f} s at most\n"
        f"follower {told['cpu_s']:.1f} s of CPU, {told['rss_mib']:.0f} MiB at most; "
        f"server {cpu_seconds(server) - before:.1f} s, {peak_mib(server):.0f} MiB; supervisor {wrote:.1f} s"
    )


def written_at(cloud: Cloud) -> tuple[float, float]:
    """When the first and the last numbered line came, in seconds."""
    found: list[int] = []
    for path in (cloud.state_dir / "jobs" / "lines" / "logs").glob("*.jsonl"):
        numbered = [line for line in path.read_text().splitlines() if "number " in line]
        found += [json.loads(numbered[index])["timestamp"] for index in (0, -1)]
    return min(found) / 1000, max(found) / 1000
