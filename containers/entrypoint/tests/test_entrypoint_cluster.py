"""Several entrypoints at once, each on a tree of its own, as many hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from conftest import Host

SHOW = """
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "SM_CURRENT_HOST",
         "SMDP_HOST_ID", "SMDATAPARALLEL_SERVER_ADDR")
path = os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], os.environ["LOCAL_RANK"] + ".json")
json.dump([os.environ[name] for name in names], open(path, "w"))
"""


def hosts_file(path: Path, names: list[str]) -> str:
    path.write_text("".join(f"127.0.1.{number} {name}\n" for number, name in enumerate(names, start=11)))
    return str(path)


def test_two_hosts_with_two_workers(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    names = ["algo-1", "algo-2"]
    file = hosts_file(tmp_path / "hosts", names)
    hosts = cluster(names)
    for host in hosts:
        host.job(SHOW).start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file, SMDP_MASTER_PORT="4711")
    assert [host.end() for host in hosts] == [0, 0]
    common = ["127.0.1.11", "4711"]
    assert [hosts[0].saved("0.json"), hosts[0].saved("1.json"), hosts[1].saved("0.json"), hosts[1].saved("1.json")] == [
        ["0", "0", "4", "0", *common, "algo-1", "algo-1", "algo-1"],
        ["1", "1", "4", "0", *common, "algo-1", "algo-1", "algo-1"],
        ["2", "0", "4", "1", *common, "algo-2", "algo-2", "algo-1"],
        ["3", "1", "4", "1", *common, "algo-2", "algo-2", "algo-1"],
    ]
    assert hosts[1].events("workers_started")[0]["ranks"] == [2, 3]
    assert hosts[1].events("workers_started")[0]["master"] == "127.0.1.11:4711"


def test_twelve_hosts_are_ranked_in_the_order_of_the_platforms_list(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    names = sorted(f"algo-{number}" for number in range(1, 13))
    file = hosts_file(tmp_path / "hosts", names)
    hosts = cluster(names)
    for host in hosts:
        host.job(SHOW).start(SMDP_WORKERS_PER_HOST="1", SMDP_HOSTS_FILE=file)
    assert [host.end() for host in hosts] == [0] * 12
    assert [(host.host, host.saved("0.json")[0]) for host in hosts] == [(name, str(i)) for i, name in enumerate(names)]
    assert [host.saved("0.json")[4] for host in hosts] == ["127.0.1.11"] * 12


def test_only_the_host_whose_worker_failed_reports_it(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    names = ["algo-1", "algo-2"]
    file = hosts_file(tmp_path / "hosts", names)
    hosts = cluster(names)
    script = 'import os, time\nif os.environ["RANK"] == "3": raise ValueError("bad")\ntime.sleep(60)'
    for host in hosts:
        host.job(script).start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file)
    assert hosts[1].end() == 1
    hosts[0].signal()
    assert hosts[0].end() == 143
    assert hosts[0].failure == ""
    assert hosts[1].failure.startswith("ValueError: bad (rank 3 on algo-2, exit code 1)")
