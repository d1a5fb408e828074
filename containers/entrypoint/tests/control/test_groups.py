"""Hosts of several instance groups: one group trains, and the others run the script as one process on each host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable

from entrypoint_support.host import NETWORK, hosts_file

if TYPE_CHECKING:
    from entrypoint_support.host import Host

CLUSTER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
SHOW = f"""
import json, os
names = [name for name in {CLUSTER} if name in os.environ] + [name for name in os.environ if "OMPI" in name]
print(json.dumps({{"smdp_event": 1, "event": "step", "step": 1}}))
path = os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], os.environ.get("LOCAL_RANK", "data") + ".json")
shown = {{name: os.environ[name] for name in names}}
json.dump([os.environ["SM_CURRENT_INSTANCE_GROUP"], shown], open(path, "w"))
"""
FAILS = """
import os, time
if os.environ["SM_CURRENT_INSTANCE_GROUP"] == "data":
    raise ValueError("no rows")
time.sleep(600)
"""


def start(hosts: list[Host], path: Path, script: str, *, distributed: bool = True) -> None:
    """As the platform describes it: the groups are in the order of the request, their hosts in any order."""
    file = hosts_file(path, [host.host for host in hosts])
    groups = [
        {"instance_group_name": "data", "instance_type": "ml.c5.18xlarge", "hosts": ["algo-2"]},
        {"instance_group_name": "gpus", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-3", "algo-1"]},
    ]
    flags = {"sagemaker_distributed_dataparallel_enabled": True, "sagemaker_distribution_instance_groups": ["gpus"]}
    for host in hosts:
        own = next(group for group in groups if host.host in group["hosts"])
        host.job(script, **(flags if distributed else {}))
        host.config(
            "resourceconfig.json",
            {
                "current_host": host.host,
                "hosts": host.hosts,
                "current_group_name": own["instance_group_name"],
                "current_instance_type": own["instance_type"],
                "instance_groups": groups,
            },
        )
        host.start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file, SMDP_MASTER_PORT="4711", SMDP_REQUIRE_GPU="0")


def test_only_one_group_has_ranks(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    first, data, third = hosts = cluster(["algo-1", "algo-2", "algo-3"])
    start(hosts, tmp_path / "hosts", SHOW)
    assert [host.wait() for host in hosts] == [0, 0, 0]
    assert data.saved("data.json") == ["data", {}]
    ranks = {}
    for host in (first, third):
        for name in ("0.json", "1.json"):
            group, shown = host.saved(name)
            assert (group, shown["WORLD_SIZE"], shown["OMPI_COMM_WORLD_SIZE"]) == ("gpus", "4", "4")
            assert (shown["MASTER_ADDR"], shown["MASTER_PORT"]) == (f"{NETWORK}.13", "4711")
            ranks[host.host, name] = shown["RANK"]
    assert ranks == {
        ("algo-3", "0.json"): "0",
        ("algo-3", "1.json"): "1",
        ("algo-1", "0.json"): "2",
        ("algo-1", "1.json"): "3",
    }


def test_without_a_distribution_each_host_runs_the_script_once(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(["algo-1", "algo-2", "algo-3"])
    start(hosts, tmp_path / "hosts", SHOW, distributed=False)
    assert [host.wait() for host in hosts] == [0, 0, 0]
    assert [host.saved("data.json") for host in hosts] == [["gpus", {}], ["data", {}], ["gpus", {}]]


def test_process_outside_the_distribution_writes_no_events(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    first, data, third = hosts = cluster(["algo-1", "algo-2", "algo-3"])
    start(hosts, tmp_path / "hosts", SHOW)
    assert [host.wait() for host in hosts] == [0, 0, 0]
    assert not [line for line in data.lines if '{"smdp_event":' in line and "workers_started" in line]
    assert not [line for line in data.lines if line.startswith("[algo-2:")]
    assert '[algo-2] { "smdp_event": 1, "event": "step", "step": 1}' in data.lines
    assert first.of_rank(2) == third.of_rank(0) == ['{"smdp_event": 1, "event": "step", "step": 1}']


def test_failure_outside_the_distribution_ends_the_job(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    first, data, third = hosts = cluster(["algo-1", "algo-2", "algo-3"])
    start(hosts, tmp_path / "hosts", FAILS)
    assert data.wait() == 1
    assert first.wait() != 0
    assert third.wait() != 0
    cause = "ValueError: no rows (the script on algo-2, exit code 1)"
    assert data.failure.startswith(cause)
    assert (first.failure, third.failure) == (cause, cause)
    assert data.events("worker_exit") == []


HANGS = """
import itertools, json, os, time
def steps(numbers):
    for number in numbers:
        if os.path.exists(os.environ["GO"]):
            break
        print(json.dumps({"smdp_event": 1, "event": "step", "step": number, "steps": 100000}), flush=True)
        time.sleep(0.05)
if os.environ["SM_CURRENT_INSTANCE_GROUP"] == "cpu":
    steps(itertools.count(1))
elif os.environ["RANK"] == "0":
    steps(range(1, 20))
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
"""


def test_hang_of_a_group_that_trains_on_its_own_is_a_matter_of_its_hosts(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    """The job's first host passes on what the hosts of the group send to each other."""
    hosts = cluster(["algo-1", "algo-2", "algo-3"])
    file = hosts_file(tmp_path / "hosts", [host.host for host in hosts])
    groups = [
        {"instance_group_name": "cpu", "hosts": ["algo-1"]},
        {"instance_group_name": "gpu", "hosts": ["algo-2", "algo-3"]},
    ]
    for host, group in zip(hosts, ("cpu", "gpu", "gpu")):
        host.job(HANGS, sagemaker_mpi_enabled=True)
        config = {
            "current_host": host.host,
            "hosts": host.hosts,
            "current_group_name": group,
            "instance_groups": groups,
        }
        host.config("resourceconfig.json", config)
        limits = {"SMDP_HANG_AFTER_S": "60" if group == "cpu" else "1", "SMDP_HANG_FACTOR": "100"}
        host.start(SMDP_HOSTS_FILE=file, GO=str(tmp_path / "go"), **limits)
    hosts[1].wait_for_line("(of the hosts algo-2, algo-3)")
    (tmp_path / "go").touch()
    assert [host.wait() for host in hosts] == [0, 0, 0]
    cpu, first, second = hosts
    assert "hang:" not in cpu.text
    assert "hang: rank 0 on algo-2 has made no progress for" in first.text
    assert "hang: rank 1 on algo-3 has made no progress: it is at" in second.text
