"""The bytes between hosts, read from the interfaces of network namespaces that the tests create and remove."""

import os
import re
import subprocess
import time
from typing import Iterator, List

import pytest
import ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces, which needs root"),
]

M = 25 << 20
BODY = """
dist.init_process_group("smddp")
def sent():
    with open("/sys/class/net/eth0/statistics/tx_bytes") as file: return int(file.read())
t = torch.ones(%d)
dist.barrier()
time.sleep(0.3)
before = sent()
for _ in range(%d): dist.all_reduce(t); t.fill_(1)
dist.barrier()
time.sleep(0.3)
if os.environ["LOCAL_RANK"] == "0": print("sent", sent() - before)
dist.barrier()
dist.destroy_process_group()
"""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture()
def hosts() -> Iterator[List[str]]:
    """Two namespaces joined by a virtual cable, with an eth0 each."""
    names = [f"smdp-{os.getpid()}-{i}" for i in range(2)]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip(
            "link",
            "add",
            "eth0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            names[1],
        )
        for i, name in enumerate(names):
            _ip("-n", name, "address", "add", f"10.213.7.{i + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.runs
@pytest.mark.parametrize("wire_dtype", ["", pytest.param("bfloat16", marks=pytest.mark.soak)])
def test_each_host_sends_the_bytes_of_the_hierarchy(hosts: List[str], wire_dtype: str) -> None:
    rounds = 5
    owed = 2 * (2 - 1) / 2 * M  # 2(n-1)/n * M for two hosts, whatever their number of ranks
    owed *= 0.5 if wire_dtype else 1
    outcomes = ranks.run(
        [4, 4],
        BODY % (M // 4, rounds),
        prefix_of_host=[["ip", "netns", "exec", name] for name in hosts],
        env={"SMDP_WIRE_DTYPE": wire_dtype},
        master="10.213.7.1",
        interface="",
    )
    shares = [int(re.search(r"sent (\d+)", outcomes[rank].out)[1]) / rounds / owed for rank in (0, 4)]  # type: ignore[index]
    print("share of the owed bytes sent by each host:", [f"{share:.4f}" for share in shares])
    assert all(0.95 <= share <= 1.10 for share in shares)


@pytest.mark.runs
def test_equal_host_names_in_two_namespaces_are_two_hosts(hosts: List[str]) -> None:
    outcomes = ranks.run(
        [1, 1],
        BODY % (M // 4, 1),
        prefix_of_host=[["ip", "netns", "exec", name] for name in hosts],
        env={"SMDP_HOST_ID": "same"},
        master="10.213.7.1",
        interface="",
    )
    assert "cannot share memory" in outcomes[0].err
    assert int(re.search(r"sent (\d+)", outcomes[0].out)[1]) > 0.95 * M  # type: ignore[index]


def test_heartbeat_detects_a_cut_link(hosts: List[str]) -> None:
    started = ranks.start(
        [1, 1],
        """
        import datetime
        dist.init_process_group("smddp", timeout=datetime.timedelta(seconds=600))
        meet("ready")
        print("ready", flush=True)
        if rank == 1: time.sleep(600)
        try:
            dist.all_reduce(torch.ones(1000))
        except dist.DistBackendError as error:
            print("raised", error, flush=True)
        os._exit(0)
        """,
        prefix_of_host=[["ip", "netns", "exec", name] for name in hosts],
        env={"SMDP_HEARTBEAT_S": "2"},
        master="10.213.7.1",
        interface="",
    )
    started.wait_for("ready")
    _ip("-n", hosts[1], "link", "set", "eth0", "down")
    cut = time.monotonic()
    # The call's own deadline is much later.
    started.wait_for(r"raised .*rank 1 \(host algo-2\) was lost", of=[0])
    print(f"raised {time.monotonic() - cut:.1f} s after the cut")
    started.kill()
    started.finish()
