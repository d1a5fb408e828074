"""A job beside strangers on every one of its ports: it opens, sums as if alone, and sends them away."""

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
from crowd import Crowd, Stranger
from fire.record import Record
from ports import free_port
from preload import built
from stranger_rank import ROUNDS

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="compiles strike.cc, which needs a compiler")

HERE = Path(__file__).parent
HOSTS = ["algo-1", "algo-1", "algo-2", "algo-2"]
RATE = 100  # strangers a second on each port
LIMIT_S = 2.0  # docs/threat-model.md
HELLO_BYTES = 112


@pytest.fixture(scope="module")
def strike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("fire/strike.cc", tmp_path_factory.mktemp("strike"))


class Job:
    """Ranks as processes; each makes one step for a line."""

    def __init__(self) -> None:
        self.port = free_port()
        self.ranks: Dict[int, subprocess.Popen[str]] = {}

    def start(self, rank: int, *more: str, preload: str = "") -> None:
        command = [
            sys.executable,
            str(HERE / "stranger_rank.py"),
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

    def hear(self, rank: int) -> List[str]:
        out = self.ranks[rank].stdout
        assert out is not None
        return out.readline().split()

    def hear_all(self) -> List[List[str]]:
        return [self.hear(rank) for rank in range(len(HOSTS))]

    def sum_all(self) -> None:
        for rank in self.ranks.values():
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()
        assert self.hear_all() == [["summed"]] * len(HOSTS)

    def listening(self, *ranks: int) -> Set[int]:
        """TCP ports on which these ranks listen."""
        sockets: Set[str] = set()
        for rank in ranks:
            for entry in Path(f"/proc/{self.ranks[rank].pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    found = re.match(r"socket:\[(\d+)\]", os.readlink(entry))
                    sockets |= {found[1]} if found else set()
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return {int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and line[9] in sockets}

    def kill(self) -> None:
        for rank in self.ranks.values():
            rank.kill()
            rank.communicate()


@pytest.fixture()
def job() -> Iterator[Job]:
    made = Job()
    yield made
    made.kill()


def _catch_a_hello(job: Job) -> bytes:
    """Rank 1 takes the test for rank 0, and tries again when that has gone."""
    with socket.create_server(("127.0.0.1", job.port)) as server:
        job.start(1)
        caller, _ = server.accept()
        with caller:
            return caller.recv(HELLO_BYTES, socket.MSG_WAITALL)


def _digests(job: Job) -> List[str]:
    return [words[1] for words in job.hear_all() if words[0] == "digest"]


def _alone(job: Job) -> Tuple[List[str], List[int]]:
    """Digests and descriptors of a job without strangers."""
    for rank in range(len(HOSTS)):
        job.start(rank)
    descriptors = [int(words[1]) for words in job.hear_all()]
    for _ in range(ROUNDS):
        job.sum_all()
    return _digests(job), descriptors


def _send(ports: Set[int], hello: bytes, seconds: float) -> List[Stranger]:
    crowd = Crowd([("127.0.0.1", port) for port in sorted(ports)], hello)
    crowd.come(RATE, seconds)
    return crowd.all


def _expect_sent_away(strangers: List[Stranger]) -> None:
    """Each kind, from its own side: by what it said, or by the clock."""
    for kind in sorted({stranger.kind for stranger in strangers}):
        ones = [stranger for stranger in strangers if stranger.kind == kind]
        longest = max(stranger.took_s for stranger in ones)
        print(f"{kind}: {len(ones)}, at most {longest:.2f} s, {max(stranger.heard for stranger in ones)} bytes heard")
        assert {stranger.end for stranger in ones} == {"closed"}, kind
        if kind in ("garbage", "oversized"):
            assert all(stranger.heard == 0 for stranger in ones)
        # The limit of the rendezvous is 30 s. A loaded machine may need ten times their own.
        assert longest < 10 * LIMIT_S, "they are sent away by a limit of theirs"


def _held(folder: Path) -> Tuple[Path, Record]:
    path = folder / "record"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        return path, Record.from_buffer(mmap.mmap(file.fileno(), 0))


def test_a_job_beside_strangers_on_every_port(job: Job, strike: Path, tmp_path: Path) -> None:
    quiet = Job()
    try:
        digests, descriptors = _alone(quiet)
    finally:
        quiet.kill()
    hello = _catch_a_hello(job)
    assert hello.startswith(b"SMDPHELO")
    job.start(0)
    job.start(2)
    while job.listening(0) != {job.port}:
        assert job.ranks[0].poll() is None, "rank 0 ended before it listened"
        time.sleep(0.01)
    _expect_sent_away(_send({job.port}, hello, 1.5))

    # Rank 3 meets the others, and stops in its hellos with the other host: now all have their ports for data open.
    path, record = _held(tmp_path)
    job.start(3, str(path), preload=str(strike))
    while not record.link_wanted:
        assert job.ranks[3].poll() is None, "rank 3 ended before it stopped in its hellos"
        time.sleep(0.001)
    ports = job.listening(0, 1)  # rank 2 waits for nobody and has closed its own
    assert len(ports) == 2
    _expect_sent_away(_send(ports, hello, 1.5))
    record.link_cut = 1

    assert [int(words[1]) for words in job.hear_all()][:3] == descriptors[:3]
    assert job.listening(0, 1, 2, 3) == set(), "nobody listens once the job is open"
    strangers: List[Stranger] = []
    crowd = threading.Thread(target=lambda: strangers.extend(_send(ports | {job.port}, hello, 2)))
    crowd.start()
    for _ in range(ROUNDS):
        job.sum_all()
    crowd.join()
    assert {stranger.end for stranger in strangers} == {"refused"}
    assert _digests(job) == digests
