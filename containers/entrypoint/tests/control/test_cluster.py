"""Several entrypoints at once, each on its own tree, as the hosts of a job."""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest
from entrypoint_support.host import NETWORK, hosts_file

if TYPE_CHECKING:
    from entrypoint_support.host import Host

SHOW = """
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "SM_CURRENT_HOST",
         "SMDP_HOST_ID", "SMDATAPARALLEL_SERVER_ADDR")
path = os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], os.environ["LOCAL_RANK"] + ".json")
json.dump([os.environ[name] for name in names], open(path, "w"))
"""


def test_two_hosts_with_two_workers_have_four_ranks(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    names = ["algo-1", "algo-2"]
    file = hosts_file(tmp_path / "hosts", names)
    hosts = cluster(names)
    for host in hosts:
        host.job(SHOW).start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file, SMDP_MASTER_PORT="4711")
    assert [host.wait() for host in hosts] == [0, 0]
    common = [f"{NETWORK}.11", "4711"]
    assert [hosts[0].saved("0.json"), hosts[0].saved("1.json"), hosts[1].saved("0.json"), hosts[1].saved("1.json")] == [
        ["0", "0", "4", "0", *common, "algo-1", "algo-1", "algo-1"],
        ["1", "1", "4", "0", *common, "algo-1", "algo-1", "algo-1"],
        ["2", "0", "4", "1", *common, "algo-2", "algo-2", "algo-1"],
        ["3", "1", "4", "1", *common, "algo-2", "algo-2", "algo-1"],
    ]
    assert hosts[1].events("workers_started")[0]["ranks"] == [2, 3]
    assert hosts[1].events("workers_started")[0]["master"] == f"{NETWORK}.11:4711"


def test_twelve_hosts_are_ranked_in_the_order_of_the_platforms_list(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    names = sorted(f"algo-{number}" for number in range(1, 13))
    file = hosts_file(tmp_path / "hosts", names)
    hosts = cluster(names)
    for host in hosts:
        host.job(SHOW).start(SMDP_WORKERS_PER_HOST="1", SMDP_HOSTS_FILE=file)
    assert [host.wait() for host in hosts] == [0] * 12
    assert [(host.host, host.saved("0.json")[0]) for host in hosts] == [(name, str(i)) for i, name in enumerate(names)]
    assert [host.saved("0.json")[4] for host in hosts] == [f"{NETWORK}.11"] * 12


def test_late_host_of_a_short_job_does_not_wait_for_an_exited_host(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    names = ["algo-1", "algo-2"]
    file = hosts_file(tmp_path / "hosts", names)
    first, second = cluster(names)
    for host in (first, second):
        host.job("print('short')")
    # The first host waits until the other host has connected, however long that takes on this machine.
    first.entrypoint = [
        "-c",
        "import sys; from smdp_entrypoint import cli; cli._CONNECT_TIMEOUT_S = 90; sys.exit(cli.main())",
    ]
    first.start(SMDP_HOSTS_FILE=file)
    first.wait_for_line("short")
    second.start(SMDP_HOSTS_FILE=file)
    assert [first.wait(), second.wait()] == [0, 0]
    assert "has not answered" not in second.text


FAILS_ON_THREE = """
import os, time
print("ready", os.environ["RANK"])
while not os.path.exists(os.environ["SM_OUTPUT_DATA_DIR"] + "/go"):
    time.sleep(0.01)
if os.environ["RANK"] == "3":
    raise ValueError("bad")
while True:
    time.sleep(0.05)
"""
HANGS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.environ["RANK"])
while os.environ["RANK"] == "3" and not os.path.exists(os.environ["SM_OUTPUT_DATA_DIR"] + "/go"):
    time.sleep(0.01)
if os.environ["RANK"] == "3":
    raise ValueError("bad")
while True:
    time.sleep(0.05)
"""
CAUSE = "ValueError: bad (rank 3 on algo-2, exit code 1)"


def started(hosts: list[Host], path: Path, script: str, **environ: str) -> None:
    file = hosts_file(path, [host.host for host in hosts])
    for host in hosts:
        host.job(script).start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file, **environ)
    for number, host in enumerate(hosts):
        host.wait_for_line(f"ready {2 * number}")
        host.wait_for_line(f"ready {2 * number + 1}")


LOGS_ON_ZERO = """
import logging, os, time
if os.environ["RANK"] == "0":
    try:
        raise OSError("no cache")
    except OSError:
        logging.exception("computing it again")
print("ready", os.environ["RANK"])
while not os.path.exists(os.environ["SM_OUTPUT_DATA_DIR"] + "/go"):
    time.sleep(0.01)
raise ValueError("bad")
"""


def test_handled_exception_on_a_healthy_host_is_not_the_cause(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(["algo-1", "algo-2"])
    started(hosts, tmp_path / "hosts", LOGS_ON_ZERO)
    (hosts[1].root / "output/data/go").touch()
    assert [host.wait() for host in hosts] == [1, 1]
    for host in hosts:
        assert host.failure.startswith("ValueError: bad (rank "), host.text
        assert " on algo-2, exit code 1)" in host.failure.splitlines()[0]
    assert "OSError" not in hosts[0].failure
    assert hosts[0].events("worker_exit") == []


def test_worker_failure_ends_all_hosts_and_is_reported_on_all(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(["algo-1", "algo-2", "algo-3"])
    started(hosts, tmp_path / "hosts", FAILS_ON_THREE)
    (hosts[1].root / "output/data/go").touch()
    assert [host.wait() for host in hosts] == [1, 1, 1]
    assert hosts[1].failure.startswith(f"{CAUSE}\nTraceback (most recent call last):")
    assert [hosts[0].failure, hosts[2].failure] == [CAUSE, CAUSE]
    for other in (hosts[0], hosts[2]):
        assert other.text.count(f"[{other.host}] the job's first failure: {CAUSE}") == 1
        assert other.events("worker_exit") == []


def test_workers_that_hang_on_other_hosts_are_killed(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(["algo-1", "algo-2"])
    started(hosts, tmp_path / "hosts", HANGS)
    (hosts[1].root / "output/data/go").touch()
    assert [host.wait() for host in hosts] == [1, 1]
    assert hosts[0].failure == CAUSE
    assert "time limit reached: sending SIGKILL to 2 process(es)" in hosts[0].text


def test_cause_on_another_host_precedes_the_local_consequence(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    """Rank 0 on another host reports its lost connection to rank 2 before rank 2 exits."""
    hosts = cluster(["algo-1", "algo-2"])
    script = """
        import atexit, os, sys, time
        print("ready", os.environ["RANK"])
        rank, shared = os.environ["RANK"], os.environ["SHARED"]
        if rank == "2":
            while not os.path.exists(shared):
                time.sleep(0.01)
            sys.stderr.write("Traceback (most recent call last):\\n  File x\\nKeyError: 'first'\\n")
            sys.stderr.flush()
            os.rename(shared, shared + "2")
            while not os.path.exists(shared + "3"):
                time.sleep(0.001)
            os._exit(5)
        if rank == "0":
            while not os.path.exists(shared + "2"):
                time.sleep(0.001)
            time.sleep(0.05)
            atexit.register(os.rename, shared + "2", shared + "3")  # after the traceback
            raise ConnectionResetError("peer 2")
        time.sleep(600)
        """
    shared = tmp_path / "shared"
    started(hosts, tmp_path / "hosts", script, SHARED=str(shared))
    shared.touch()
    assert sorted(host.wait() for host in hosts) == [1, 5]
    cause = "KeyError: 'first' (rank 2 on algo-2"
    assert hosts[1].failure.startswith(cause)
    first, second = hosts[0].failure.splitlines()[:2]
    assert first.startswith(cause)
    assert second == "ConnectionResetError: peer 2 (rank 0 on algo-1, exit code 1)"


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_host_is_reported_on_the_others(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path, victim: int
) -> None:
    hosts = cluster(["algo-1", "algo-2", "algo-3"])
    started(hosts, tmp_path / "hosts", FAILS_ON_THREE)
    hosts[victim].wait_for_line(f"ready {2 * victim}")
    hosts[victim].signal(signal.SIGKILL)
    others = [host for host in hosts if host is not hosts[victim]]
    assert [host.wait() for host in others] == [1, 1]
    for other in others:
        assert other.failure.startswith(
            f"host algo-{victim + 1} was lost: its connection closed without a final message"
        )


def test_host_that_cannot_start_ends_training_and_preparing_hosts(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(["algo-1", "algo-2", "algo-3"])
    file = hosts_file(tmp_path / "hosts", ["algo-1", "algo-2", "algo-3"])
    for host in hosts:
        host.job(FAILS_ON_THREE)
    hosts[0].start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file)
    hosts[0].wait_for_line("ready 0")
    hosts[1].code("requirements.txt", "--index-url http://127.0.0.1:9\nno-such-package-for-this-test")
    hosts[1].start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file, PIP_RETRIES="20", PIP_DEFAULT_TIMEOUT="20")
    hosts[1].wait_for_line("installing with pip")
    (hosts[2].root / "code/train.py").unlink()
    hosts[2].start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file)
    assert [host.wait() for host in hosts] == [1, 1, 1]
    cause = "sagemaker_program 'train.py' is not in"
    for host in hosts:
        assert host.failure.startswith(cause), host.text
        assert host.failure.splitlines()[0].endswith("(on algo-3)")
    (event,) = hosts[2].events("host_failed")
    assert event["error"].startswith(cause)
    assert hosts[0].events("host_failed") == hosts[1].events("host_failed") == []


def test_hosts_that_exited_with_0_are_not_reported_lost(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(["algo-1", "algo-2", "algo-3"])
    script = "import os, time; print('ready', os.environ['RANK']); time.sleep(int(os.environ['GROUP_RANK']) * 0.7)"
    started(hosts, tmp_path / "hosts", script)
    assert [host.wait() for host in hosts] == [0, 0, 0]
    assert [host.failure for host in hosts] == ["", "", ""]


def test_a_stop_is_no_failure(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    hosts = cluster(["algo-1", "algo-2"])
    started(hosts, tmp_path / "hosts", FAILS_ON_THREE)
    for host in hosts:
        host.signal()
    assert [host.wait() for host in hosts] == [143, 143]
    assert [host.failure for host in hosts] == ["", ""]


def test_unauthenticated_clients_are_refused(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    hosts = cluster(["algo-1", "algo-2"])
    file = hosts_file(tmp_path / "hosts", ["algo-1", "algo-2"])
    hosts[0].job(FAILS_ON_THREE).start(SMDP_HOSTS_FILE=file)
    hosts[0].wait_for_line("ready 0")
    address = (Path(file).read_text().split()[0], 7778)
    handshakes = [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"host": "algo-2", "nonce": "x", "proof": "y"}\n{"is": "failed"}\n',
        b"[" * 100_000,
        b"x" * 200_000,
        b'{"host": 1e999}\n',
    ]
    for handshake in handshakes:
        with socket.create_connection(address, timeout=60) as client:
            client.sendall(handshake)
            with contextlib.suppress(ConnectionResetError):
                while client.recv(4096):
                    pass
    hosts[1].job(FAILS_ON_THREE).start(SMDP_HOSTS_FILE=file)
    hosts[1].wait_for_line("ready 1")
    hosts[0].signal()
    hosts[1].signal()
    assert [host.wait() for host in hosts] == [143, 143]
