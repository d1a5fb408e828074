"""Starts a script as several ranks: processes on simulated hosts, on loopback or in network namespaces."""

import os
import re
import selectors
import signal
import subprocess
import sys
import textwrap
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import DefaultDict, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import forked_process
from ports import free_port

PREAMBLE = """
import os, sys, time
import torch, torch.distributed as dist
import smdistributed.dataparallel.torch.torch_smddp
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# Wait until every rank has called it: a failure ends the whole group, also calls that only some ranks have completed.
def meet(place):
    store = dist.distributed_c10d._get_default_store()
    store.add(place, 1)
    while store.add(place, 0) < size: time.sleep(0.01)
    # Rank 0 leaves last: it serves the store.
    if rank > 0: store.add("left " + place, 1)
    while rank == 0 and store.add("left " + place, 0) < size - 1: time.sleep(0.01)
# Wait until SIGSTOP has stopped the process.
def wait_until_stopped(pid):
    while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "T": time.sleep(0.01)
# Wait until the timelines of all ranks on other hosts than rank 0's have that host's clock.
def wait_until_the_clock_is_known():
    timeline = os.path.join(os.environ["SMDP_TIMELINE"], f"timeline_rank_{rank}.json")
    shares_the_clock = os.environ["SMDP_HOST_ID"] == "algo-1"
    while not shares_the_clock and "smdp_clock" not in open(timeline).read(): time.sleep(0.01)
    meet("the clock is known")
"""
TENSORFLOW = """
import os, sys, time
import numpy as np
import tensorflow as tf
import smdistributed.dataparallel.tensorflow as sdp
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""
_CASE = """
import traceback
def case(name, body):
    try:
        exec(body, dict(globals()))
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # the other ranks notice it
    print("passed", name, flush=True)
"""


Process = Union["subprocess.Popen[str]", forked_process.ForkedProcess]


@dataclass
class Outcome:
    rank: int
    code: int
    out: str
    err: str


@dataclass
class Ranks:
    """Running ranks."""

    processes: List[Process] = field(default_factory=list)
    # The output that ``wait_for`` has read, by rank and stream.
    _read: DefaultDict[Tuple[int, str], bytes] = field(default_factory=lambda: defaultdict(bytes))

    def wait_for(
        self,
        pattern: str,
        of: Optional[Iterable[int]] = None,
        *,
        stream: str = "stdout",
        timeout: float = 120,
    ) -> None:
        """Read the output until it matches the pattern, for every rank in ``of`` (by default all ranks)."""
        ranks = list(range(len(self.processes)) if of is None else of)
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as open_:
            for rank in ranks:
                open_.register(getattr(self.processes[rank], stream), selectors.EVENT_READ, rank)
            while not all(re.search(pattern.encode(), self._read[rank, stream]) for rank in ranks):
                ready = open_.select(max(0.0, deadline - time.monotonic())) if open_.get_map() else []
                if not ready:
                    self._give_up(f"{pattern!r} on {stream} of the ranks {ranks}")
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)  # past the buffer of the file, as communicate() reads
                    self._read[key.data, stream] += data
                    if not data:
                        open_.unregister(key.fileobj)

    def number_after(self, word: str, rank: int) -> int:
        """The number after the word in the rank's output that ``wait_for`` has read."""
        match = re.search(rf"{word} (\d+)".encode(), self._read[rank, "stdout"])
        assert match, word
        return int(match[1])

    def _give_up(self, what: str) -> None:
        self.kill()
        ends = "\n".join(f"rank {one.rank}, {one.code}:\n{one.out}\n{one.err}" for one in self.finish())
        raise AssertionError(f"timed out waiting for {what}:\n{ends}")

    def finish(self, timeout: float = 120) -> List[Outcome]:
        deadline = time.monotonic() + timeout
        outcomes = []
        for rank, process in enumerate(self.processes):
            try:
                out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill()
                out, err = process.communicate()
                err += "\nKILLED: the test's time limit was reached"
            out, err = self._before(rank, "stdout") + out, self._before(rank, "stderr") + err
            outcomes.append(Outcome(rank, process.returncode, out, err))
        return outcomes

    def _before(self, rank: int, stream: str) -> str:
        return self._read.pop((rank, stream), b"").decode(errors="replace")

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def start(
    hosts: Sequence[int],
    body: str,
    *,
    env: Optional[Dict[str, str]] = None,
    env_of: Optional[Dict[int, Dict[str, str]]] = None,
    prefix_of_host: Optional[List[List[str]]] = None,
    master: str = "127.0.0.1",
    interface: str = "127.0.0.1",
    preamble: str = PREAMBLE,
    cold: bool = False,
) -> Ranks:
    """Start ``hosts[h]`` ranks on host h. ``preamble`` precedes the body.

    ``env_of``: additional variables of single ranks. ``prefix_of_host``: a command that enters a host's namespace.
    ``cold``: start a new interpreter for each rank, as outside of tests.
    """
    port = free_port()
    size = sum(hosts)
    ranks = Ranks()
    rank = 0
    for host, count in enumerate(hosts):
        for local_rank in range(count):
            settings = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": master,
                "MASTER_PORT": str(port),
                "SMDP_RENDEZVOUS_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(count),
                "WORLD_SIZE": str(size),
                "SMDP_HOST_ID": f"algo-{host + 1}",
                "SMDP_JOB_TOKEN": "0123456789abcdef0123456789abcdef",
                **({"SMDP_INTERFACE": interface} if interface else {}),
                **(env or {}),
                **(env_of or {}).get(rank, {}),
            }
            code = preamble + textwrap.dedent(body)
            if (
                cold
                or prefix_of_host
                or preamble != PREAMBLE
                or not forked_process.is_possible
                or forked_process.is_early(settings)
            ):
                prefix = prefix_of_host[host] if prefix_of_host else []
                ranks.processes.append(_started([*prefix, sys.executable, "-c", code], settings))
            else:
                ranks.processes.append(forked_process.start(code, settings))
            rank += 1
    return ranks


def _started(command: List[str], env: Dict[str, str]) -> Process:
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(hosts: Sequence[int], body: str, **settings: object) -> List[Outcome]:
    """Run all ranks until they exit; all of them must succeed."""
    outcomes = start(hosts, body, **settings).finish()  # type: ignore[arg-type]
    for outcome in outcomes:
        assert outcome.code == 0, f"rank {outcome.rank}:\n{outcome.out}\n{outcome.err}"
    return outcomes


def in_turn(cases: Dict[str, str]) -> str:
    """The end of a body that runs the cases (name: code) one after the other and prints which have passed.

    A case sees the names of the body before it, and no names of other cases. A failing case ends its rank.
    """
    return _CASE + "".join(f"case({name!r}, {code!r})\n" for name, code in cases.items())
