"""Prints how long hosts take to exit. No bound is asserted, since the times depend on the load of the machine."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest
from entrypoint_support.host import NETWORK

if TYPE_CHECKING:
    from entrypoint_support.host import Host

pytestmark = pytest.mark.soak
HOSTS, WORKERS = 4, 4
EXITS_WITH_0 = """
import os, sys, time
print("ready", flush=True)
time.sleep(1 + 0.1 * int(os.environ["RANK"]))
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/" + os.environ["RANK"], "w") as file:
    file.write(str(time.time()))
"""
CRASHES = """
import os, signal, sys, time
if os.environ["IGNORES"] == "1":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(2)
if os.environ["RANK"] == "9":
    with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/9", "w") as file:
        file.write(str(time.time()))
    raise RuntimeError("crash")
time.sleep(120)
"""


def run(hosts: list[Host], script: str, folder: Path, **environ: str) -> dict[str, float]:
    """The time at which each host's entrypoint exited, in seconds since 1970."""
    file = folder / "hosts"
    file.write_text("".join(f"{NETWORK}.{number} {host.host}\n" for number, host in enumerate(hosts, start=31)))
    for host in hosts:
        host.job(script).start(SMDP_WORKERS_PER_HOST=str(WORKERS), SMDP_HOSTS_FILE=str(file), **environ)
    ended: dict[str, float] = {}

    def watch(host: Host) -> None:
        host.wait()
        ended[host.host] = time.time()

    threads = [threading.Thread(target=watch, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def marks(host: Host) -> list[float]:
    return [float(path.read_text()) for path in (host.root / "output/data").iterdir()]


def test_print_time_from_last_worker_exit_to_host_exit(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster([f"algo-{number}" for number in range(1, HOSTS + 1)])
    ended = run(hosts, EXITS_WITH_0, tmp_path)
    assert [host.process.returncode for host in hosts if host.process] == [0] * HOSTS
    tails = {host.host: ended[host.host] - max(marks(host)) for host in hosts}
    print("\nlast worker's exit to container's exit, s:", {name: round(tail, 2) for name, tail in tails.items()})


@pytest.mark.parametrize("ignores", ["0", "1"])
def test_print_time_from_crash_to_host_exits(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path, ignores: str
) -> None:
    hosts = cluster([f"algo-{number}" for number in range(1, HOSTS + 1)])
    ended = run(hosts, CRASHES, tmp_path, IGNORES=ignores)
    cause = "RuntimeError: crash (rank 9 on algo-3, exit code 1)"
    assert [host.process.returncode for host in hosts if host.process] == [1] * HOSTS
    assert hosts[2].failure.startswith(f"{cause}\nTraceback")
    assert [host.text.count(f"the job's first failure: {cause}") for host in hosts] == [1, 1, 0, 1]
    (crash,) = marks(hosts[2])
    what = "workers that ignore SIGTERM" if ignores == "1" else "workers that do not"
    print(f"\ncrash to end of each host, {what}, s:", {name: round(at - crash, 2) for name, at in ended.items()})
