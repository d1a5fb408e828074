"""A job with unauthenticated clients on all its ports opens, computes the same sums as without them, and refuses
them."""

import contextlib
import mmap
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

import pytest
from fault_injection.record import Record
from ports import free_port
from preload import TESTS, built_fault_injector
from summing_rank import ROUNDS
from unauthenticated_clients import Client, ClientLoad

pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None, reason="compiles the fault injector, which needs a compiler"
)

HOSTS = ["algo-1", "algo-1", "algo-2", "algo-2"]
RATE = 100  # clients per second on each port
LIMIT_S = 2.0  # docs/explanation/threat-model.md
HELLO_BYTES = 112


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_fault_injector(tmp_path_factory.mktemp("injector"))


class Job:
    """Ranks as processes; each performs one step for each line of input."""

    def __init__(self) -> None:
        self.port = free_port()
        self.ranks: Dict[int, subprocess.Popen[str]] = {}

    def start(self, rank: int, *more: str, preload: str = "") -> None:
        command = [
            sys.executable,
            str(TESTS / "support" / "summing_rank.py"),
            str(rank),
            str(len(HOSTS)),
            HOSTS[rank],
            str(self.port),
        ]
        self.ranks[rank] = subprocess.Popen(
            [*command, *more],
            env={**os.environ, **({"LD_PRELOAD": preload} if preload else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read_line(self, rank: int) -> List[str]:
        out = self.ranks[rank].stdout
        assert out is not None
        return out.readline().split()

    def read_all(self) -> List[List[str]]:
        return [self.read_line(rank) for rank in range(len(HOSTS))]

    def sum_all(self) -> None:
        for rank in self.ranks.values():
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()
        assert self.read_all() == [["summed"]] * len(HOSTS)

    def listening(self, *ranks: int) -> Set[int]:
        """TCP ports on which these ranks listen."""
        sockets: Set[str] = set()
        for rank in ranks:
            for entry in Path(f"/proc/{self.ranks[rank].pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    match = re.match(r"socket:\[(\d+)\]", os.readlink(entry))
                    sockets |= {match[1]} if match else set()
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return {int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and line[9] in sockets}

    def kill(self) -> None:
        for rank in self.ranks.values():
            rank.kill()
            rank.communicate()


@pytest.fixture()
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.kill()


def _capture_hello(job: Job) -> bytes:
    """Rank 1 connects to this server instead of rank 0, and retries when it closes."""
    with socket.create_server(("127.0.0.1", job.port)) as server:
        job.start(1)
        caller, _ = server.accept()
        with caller:
            return caller.recv(HELLO_BYTES, socket.MSG_WAITALL)


def _digests(job: Job) -> List[str]:
    return [words[1] for words in job.read_all() if words[0] == "digest"]


def _alone(job: Job) -> Tuple[List[str], List[int]]:
    """Digests and descriptors of a job without clients."""
    for rank in range(len(HOSTS)):
        job.start(rank)
    descriptors = [int(words[1]) for words in job.read_all()]
    for _ in range(ROUNDS):
        job.sum_all()
    return _digests(job), descriptors


def _send(ports: Set[int], hello: bytes, seconds: float) -> List[Client]:
    load = ClientLoad([("127.0.0.1", port) for port in sorted(ports)], hello)
    load.run(RATE, seconds)
    return load.all


def _expect_refused(clients: List[Client]) -> None:
    """All connections are closed, because of their data or after a time limit."""
    for kind in sorted({client.kind for client in clients}):
        group = [client for client in clients if client.kind == kind]
        longest = max(client.took_s for client in group)
        print(
            f"{kind}: {len(group)}, at most {longest:.2f} s, {max(client.received for client in group)} bytes received"
        )
        assert {client.end for client in group} == {"closed"}, kind
        if kind in ("garbage", "oversized"):
            assert all(client.received == 0 for client in group)
        # The limit of the rendezvous is 30 s. A loaded machine may need ten times the clients' own limit.
        assert longest < 10 * LIMIT_S, "unauthenticated clients have their own time limit"


def _shared_record(folder: Path) -> Tuple[Path, Record]:
    path = folder / "record"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        return path, Record.from_buffer(mmap.mmap(file.fileno(), 0))


@pytest.mark.runs
def test_unauthenticated_clients_on_every_port_do_not_change_the_sums(job: Job, injector: Path, tmp_path: Path) -> None:
    quiet = Job()
    try:
        digests, descriptors = _alone(quiet)
    finally:
        quiet.kill()
    hello = _capture_hello(job)
    assert hello.startswith(b"SMDPHELO")
    job.start(0)
    job.start(2)
    while job.listening(0) != {job.port}:
        assert job.ranks[0].poll() is None, "rank 0 exited before it listened"
        time.sleep(0.01)
    _expect_refused(_send({job.port}, hello, 1.5))

    # Rank 3 joins the rendezvous and pauses in its hellos with the other host: now all ranks have open data ports.
    path, record = _shared_record(tmp_path)
    job.start(3, str(path), preload=str(injector))
    while not record.link_requested:
        assert job.ranks[3].poll() is None, "rank 3 exited before it paused in its hellos"
        time.sleep(0.001)
    ports = job.listening(0, 1)  # rank 2 waits for no connection and has closed its port
    assert len(ports) == 2
    _expect_refused(_send(ports, hello, 1.5))
    record.link_cut = 1

    assert [int(words[1]) for words in job.read_all()][:3] == descriptors[:3]
    assert job.listening(0, 1, 2, 3) == set(), "no rank listens once the job is open"
    clients: List[Client] = []
    load = threading.Thread(target=lambda: clients.extend(_send(ports | {job.port}, hello, 2)))
    load.start()
    for _ in range(ROUNDS):
        job.sum_all()
    load.join()
    assert {client.end for client in clients} == {"refused"}
    assert _digests(job) == digests
