"""Workers that stop making progress: what the log shows, and how the job ends. Real processes, no torch."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from entrypoint_support.host import Host, hosts_file

HAS_ENGINE = importlib.util.find_spec("smdp_engine") is not None
pytestmark = pytest.mark.skipif(
    not HAS_ENGINE, reason="smdp-engine is not installed: its workers register their stacks"
)

# The limit is 0.3 s; a hang is one that never ends.
LIMITS = {"SMDP_HANG_AFTER_S": "0.3", "SMDP_HANG_FACTOR": "3"}
STEPS = """
import json, os, pathlib, sys, time
def steps(first, last, of=1000):
    for number in range(first, last):
        print(json.dumps({"smdp_event": 1, "event": "step", "step": number, "steps": of}), flush=True)
        time.sleep(0.01)
"""
WAITS = f"""{STEPS}
def stop():
    while not pathlib.Path(os.environ["GO"]).exists():
        time.sleep(0.01)
steps(1, 20)
stop()
steps(20, 40)
"""
# A regular expression that backtracks for years holds Python's lock: no Python code of this process runs again.
NATIVE = f"""{STEPS}
import re
def search():
    re.match("(a+)+b", "a" * 64)
steps(1, 20)
search()
"""
# The worker waits for a forked process that hangs.
CHILD = f"""{STEPS}
def load():
    while True:
        time.sleep(0.1)
steps(1, 20)
child = os.fork()
if child == 0:
    load()
os.waitpid(child, 0)
"""


def test_hang_is_reported_with_the_stack_and_the_job_continues(host: Host, tmp_path: Path) -> None:
    go = tmp_path / "go"
    host.job(WAITS).start(GO=str(go), **LIMITS)
    line = host.wait_for_line("has made no progress for")
    assert "hang: rank 0 on algo-1" in line
    assert "it is at stop (train.py:" in line
    host.wait_for_line(f'File "{host.root}/code/train.py"')
    host.wait_for_line('"what": "reported"')
    go.touch()
    assert host.wait() == 0, host.text
    (event, over) = host.events("hang")
    assert event["ranks"][0]["idle_s"] >= event["limit"] >= 0.3
    assert over["what"] == "over"
    assert "make progress again" in host.text
    assert host.failure == ""


def test_hang_of_a_stopped_job_is_never_over(host: Host, tmp_path: Path) -> None:
    host.job(WAITS).start(GO=str(tmp_path / "go"), **LIMITS)
    host.wait_for_line('"what": "reported"')
    assert host.process is not None
    host.process.send_signal(signal.SIGTERM)
    assert host.wait() == 128 + signal.SIGTERM, host.text
    assert [event["what"] for event in host.events("hang")] == ["reported"]
    assert "make progress again" not in host.text


def test_hang_is_over_if_the_script_exits_successfully(host: Host, tmp_path: Path) -> None:
    go = tmp_path / "go"
    host.job(WAITS.replace("steps(20, 40)", "")).start(GO=str(go), **LIMITS)
    host.wait_for_line('"what": "reported"')
    go.touch()
    assert host.wait() == 0, host.text
    assert [event["what"] for event in host.events("hang")] == ["reported", "over"]
    assert "hang: the ranks of this host have exited successfully" in host.text


def test_hang_is_over_if_the_script_reports_its_last_step(host: Host, tmp_path: Path) -> None:
    go = tmp_path / "go"
    host.job(WAITS.replace("steps(20, 40)", "steps(40, 41, of=40)")).start(GO=str(go), **LIMITS)
    host.wait_for_line('"what": "reported"')
    go.touch()
    assert host.wait() == 0, host.text
    assert [event["what"] for event in host.events("hang")] == ["reported", "over"]
    assert "hang: the script has reported its last step, " in host.text
    assert [event["ranks"] for event in host.events("hang_cause")] == [[0]]


def test_rank_that_never_returns_to_python_is_reported_and_ends_the_job(host: Host) -> None:
    assert host.job(NATIVE).run(SMDP_HANG="end", **LIMITS) == 1
    first, *stack = host.failure.splitlines()
    assert first.startswith("hang: rank 0 on algo-1 has made no progress for")
    assert "it is at search (train.py:" in first
    assert any("in search" in line for line in stack)
    assert "the job hangs: ending the workers on this host" in host.text


def test_forked_process_has_a_stack_of_its_own(host: Host) -> None:
    assert host.job(CHILD).run(SMDP_HANG="end", **LIMITS) == 1
    child = host.text.partition("a child process of rank 0")[2].partition("hang")[0]
    assert "in load" in child, host.text
    assert "in load" not in host.text.partition("a child process of rank 0")[0].partition("rank 0 (process")[2]


def test_stopped_process_is_reported_without_a_stack(host: Host) -> None:
    stops = f"{STEPS}\nimport signal\nsteps(1, 20)\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    assert host.job(stops).run(SMDP_HANG="end", **LIMITS) == 1
    assert "no stack: a signal has stopped the process" in host.text
    assert "hang: rank 0 on algo-1" in host.failure


def test_ignored_hang_is_not_reported(host: Host, tmp_path: Path) -> None:
    go = tmp_path / "go"
    host.job(WAITS).start(GO=str(go), SMDP_HANG="ignore", **LIMITS)
    host.wait_for_line('"step": 19')
    go.touch()
    assert host.wait() == 0
    assert host.events("hang") == []


def test_work_after_the_last_step_is_no_hang(host: Host) -> None:
    script = f"{STEPS}\nsteps(1, 21, of=20)\ntime.sleep(2)\n"
    assert host.job(script).run(SMDP_HANG="end", **LIMITS) == 0
    assert host.events("hang") == []


def test_export_after_steps_that_have_no_known_end_does_not_end_the_job(host: Host, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = """
import json, os, pathlib, time
def timing(**fields):
    event = {"smdp_event": 1, "event": "timing", "rank": 0, "window": 0.05, **fields}
    os.write(int(os.environ["SMDP_EVENT_PIPE"].split(":")[0]), json.dumps(event).encode() + b"\\n")
for _ in range(10):
    timing(steps=5, forward_s=0.05)
    time.sleep(0.05)
while not pathlib.Path(os.environ["GO"]).exists():
    timing(other_s=0.05)
    sum(range(1_000_000))
print("exported")
"""
    host.job(script).start(SMDP_HANG="end", GO=str(go), **LIMITS)
    host.wait_for_line("not ending the job yet, because a rank computes outside its steps: 0")
    go.touch()
    assert host.wait() == 0, host.text
    assert host.of_rank(0)[-1] == "exported"


def test_script_that_reports_no_steps_never_hangs(host: Host) -> None:
    assert host.job("import time\ntime.sleep(1.5)\n").run(SMDP_HANG="end", **LIMITS) == 0
    assert host.events("hang") == []


def test_no_other_signal_has_a_handler(host: Host) -> None:
    script = """
        caught = next(line for line in open("/proc/self/status") if line.startswith("SigCgt"))
        print("caught", [n for n in range(1, 65) if int(caught.split()[1], 16) >> (n - 1) & 1], flush=True)
    """
    assert host.job(script).run() == 0
    assert f"caught [{int(signal.SIGINT)}, {signal.SIGRTMAX - 7}]" in host.text


def test_folder_of_the_stacks_is_removed(host: Host) -> None:
    assert host.job("import os\nprint(os.environ['SMDP_STACKS'])\n").run() == 0
    assert f"{host.root}/.smdp-stacks-" in host.text
    assert list(host.root.glob(".smdp*")) == []


@pytest.fixture
def read_only(host: Host) -> Callable[[list[str]], None]:
    """A function that makes the host's root, and the given folders, read-only for the entrypoint. The folders below the
    root that a job writes to are mounts of their own, as on the platform."""
    unshare = [shutil.which("unshare") or "unshare", "--mount"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("creating a mount namespace is not permitted")

    def make(folders: list[str]) -> None:
        steps = ["set -e", "cd /proc"]
        for folder in [*folders, str(host.root)]:
            steps += [f"mount --bind {folder} {folder}", f"mount -o remount,bind,ro {folder}"]
        for name in ("code", "model", "output"):
            path = host.root / name
            path.mkdir(parents=True, exist_ok=True)
            steps += [f"mount --bind {path} {path}", f"mount -o remount,bind,rw {path}"]
        host.prefix = [*unshare, "sh", "-c", "\n".join([*steps, 'exec "$@"']), "--"]

    return make


def test_stacks_of_a_read_only_root_are_in_the_temporary_folder(
    host: Host, read_only: Callable[[list[str]], None], tmp_path: Path
) -> None:
    host.job(NATIVE)
    read_only([])
    assert host.run(SMDP_HANG="end", TMPDIR=str(tmp_path), **LIMITS) == 1
    assert "it is at search (train.py:" in host.failure
    assert list(tmp_path.glob(".smdp-stacks*")) == []


def test_host_without_a_writable_folder_trains_and_reports_a_hang_without_stacks(
    host: Host, read_only: Callable[[list[str]], None]
) -> None:
    host.job("print('trained')")
    read_only(["/tmp", "/var/tmp"])
    assert host.run() == 0, host.text
    assert host.of_rank(0) == ["trained"]
    assert len([line for line in host.lines if "a hang will be reported without stacks: " in line]) == 1
    host.lines.clear()
    host.job(NATIVE)
    assert host.run(SMDP_HANG="end", **LIMITS) == 1
    assert host.failure.startswith("hang: rank 0 on algo-1 has made no progress for"), host.text


def test_invalid_settings_are_refused(host: Host) -> None:
    assert host.job("print(1)").run(SMDP_HANG="kill") == 1
    assert "SMDP_HANG must be one of report, end, ignore, found 'kill'" in host.failure


@pytest.mark.runs
def test_hang_of_one_host_ends_all_hosts(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    names = ["algo-1", "algo-2"]
    file = hosts_file(tmp_path / "hosts", names)
    hosts = cluster(names)
    script = f"""{STEPS}
def stop():
    while True:
        time.sleep(0.1)
steps(1, 20)
if os.environ["RANK"] == "1":
    stop()
while True:
    steps(20, 40)
"""
    for one in hosts:
        one.job(script).start(SMDP_HOSTS_FILE=file, SMDP_HANG="end", **LIMITS)
    assert [one.wait() for one in hosts] == [1, 1]
    for one in hosts:
        assert one.failure.startswith("hang: rank 1 on algo-2 has made no progress for"), one.text
        assert "in stop" in one.failure
    assert hosts[0].events("hang_cause")[-1]["ranks"] == [1]
    assert hosts[1].events("hang_cause") == []
