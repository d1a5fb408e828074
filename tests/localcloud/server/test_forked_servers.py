"""A server that the tests fork is as one that `python -m` starts (`tests/support/services/forked_servers.py`)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import forked_process
import pytest

from smdp_launch.localcloud.client.connect import private
from smdp_launch.localcloud.processes import has_open
from tests.support.services.cloud import BUCKET, Cloud, is_running, processes_with
from tests.support.services.forked_servers import really_started
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(not forked_process.is_possible, reason="this Python cannot pass descriptors")


def texts(pid: int, name: str) -> list[str]:
    return [os.fsdecode(one) for one in Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0") if one]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def described(pid: int) -> dict[str, object]:
    """What a process has from its start, and its open descriptors."""
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "command": texts(pid, "cmdline"),
        "environment": sorted(texts(pid, "environ")),
        "folder": str(Path(f"/proc/{pid}/cwd").readlink()),
        "leads its session": os.getsid(pid) == pid,
        "limits": Path(f"/proc/{pid}/limits").read_text(),
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")},
        "umask": status["Umask"],
        "standard": [str(Path(f"/proc/{pid}/fd/{fd}").readlink()) for fd in range(3)],
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
    }


@pytest.fixture
def no_core_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


def test_forked_server_is_the_same_as_a_started_one(state_dir: Path, no_core_files: None) -> None:
    ways: tuple[AbstractContextManager[None], ...] = (really_started(), nullcontext())
    found = []
    for way in ways:
        with way, private(state_dir) as endpoint:
            assert (parent(endpoint.pid) == os.getpid()) == (way is ways[0])
            found.append(described(endpoint.pid))
        assert not is_running(endpoint.pid)
    started, forked = found
    assert forked == started
    assert str(state_dir) in forked["command"]  # type: ignore[operator]


def test_supervisor_of_a_forked_server_is_found_and_its_lock_is_freed(state_dir: Path) -> None:
    with private(state_dir) as endpoint:
        cloud = Cloud(endpoint)
        cloud.s3.create_bucket(Bucket=BUCKET)
        go = "os.environ['SM_OUTPUT_DIR'] + '/go'"
        cloud.start("forked", f"import os, time\nwhile not os.path.exists({go}):\n    time.sleep(0.05)\n")
        wait_for(lambda: cloud.describe("forked")["SecondaryStatus"] == "Training", "training")
        supervisor = cloud.supervisor("forked")
        assert parent(supervisor) == parent(endpoint.pid)
        assert texts(supervisor, "cmdline")[1:-1] == [  # without its descriptor
            "-m",
            "smdp_launch.localcloud.runtime.supervisor",
            str(state_dir / "jobs" / "forked"),
        ]
        assert has_open(supervisor, state_dir / "jobs" / "forked" / "supervisor.lock")
        assert supervisor in processes_with(str(state_dir / "jobs"))
        (cloud.output("forked") / "go").touch()
        assert cloud.wait("forked")["TrainingJobStatus"] == "Completed"
    assert not is_running(endpoint.pid)


def test_variable_of_the_interpreter_has_the_server_started(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with private(state_dir) as endpoint:
        assert parent(endpoint.pid) == os.getpid()
