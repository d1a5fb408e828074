"""Hosts that train together have the same number of workers, or the job ends with the difference as its cause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest
from entrypoint_support.host import hosts_file

if TYPE_CHECKING:
    from entrypoint_support.host import Host

WAITS = "import time; time.sleep(600)"
CAUSE = "algo-1 has 4 worker(s) and algo-2 has 3: hosts that train together need the same number."


@pytest.mark.parametrize("first", [0, 1])
def test_different_numbers_end_the_job_on_all_hosts(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path, first: int
) -> None:
    hosts = cluster(["algo-1", "algo-2"])
    file = hosts_file(tmp_path / "hosts", ["algo-1", "algo-2"])
    for host, workers in sorted(zip(hosts, ("4", "3")), key=lambda pair: pair[0] is not hosts[first]):
        host.job(WAITS).start(SMDP_WORKERS_PER_HOST=workers, SMDP_HOSTS_FILE=file)
        host.wait_for_line("world size")
    assert [host.wait() for host in hosts] == [1, 1]
    for host in hosts:
        assert host.failure.startswith(CAUSE), host.text
        assert host.events("worker_exit") == []


def test_groups_that_train_on_their_own_may_have_different_numbers(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(["algo-1", "algo-2", "algo-3"])
    file = hosts_file(tmp_path / "hosts", ["algo-1", "algo-2", "algo-3"])
    groups = [
        {"instance_group_name": "cpu", "hosts": ["algo-1"]},
        {"instance_group_name": "gpu", "hosts": ["algo-2", "algo-3"]},
    ]
    for host, group, workers in zip(hosts, ("cpu", "gpu", "gpu"), ("1", "2", "2")):
        host.job("import os; print(os.environ['WORLD_SIZE'])", sagemaker_mpi_enabled=True)
        host.config(
            "resourceconfig.json",
            {
                "current_host": host.host,
                "hosts": host.hosts,
                "current_group_name": group,
                "instance_groups": groups,
            },
        )
        host.start(SMDP_WORKERS_PER_HOST=workers, SMDP_HOSTS_FILE=file)
    assert [host.wait() for host in hosts] == [0, 0, 0]
    assert [hosts[0].of_rank(0), hosts[1].of_rank(0), hosts[2].of_rank(3)] == [["1"], ["4"], ["4"]]


def test_invalid_setting_on_one_host_ends_all_hosts(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    hosts = cluster(["algo-1", "algo-2"])
    file = hosts_file(tmp_path / "hosts", ["algo-1", "algo-2"])
    for host, workers in zip(hosts, ("1", "x")):
        host.job(WAITS).start(SMDP_WORKERS_PER_HOST=workers, SMDP_HOSTS_FILE=file)
    assert [host.wait() for host in hosts] == [1, 1]
    for host in hosts:
        assert host.failure.startswith("SMDP_WORKERS_PER_HOST must be a whole number"), host.text
        assert host.failure.splitlines()[0].endswith("(on algo-2)")
