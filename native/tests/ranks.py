"""Starts a script as several ranks: processes on simulated hosts, on loopback or in network namespaces."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Union

import warm
from ports import free_port

PREAMBLE = """
import os, sys, time
import torch, torch.distributed as dist
import smdistributed.dataparallel.torch.torch_smddp
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
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
        os._exit(1)  # the others hear of it
    print("passed", name, flush=True)
"""


Process = Union["subprocess.Popen[str]", warm.Rank]


@dataclass
class Outcome:
    rank: int
    code: int
    out: str
    err: str


@dataclass
class Ranks:
    """Ranks under way. ``hosts`` is the number of ranks of each simulated host."""

    processes: List[Process] = field(default_factory=list)

    def finish(self, timeout: float = 120) -> List[Outcome]:
        deadline = time.monotonic() + timeout
        outcomes = []
        for rank, process in enumerate(self.processes):
            try:
                out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill()
                out, err = process.communicate()
                err += "\nKILLED: the test's time was over"
            outcomes.append(Outcome(rank, process.returncode, out, err))
        return outcomes

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
    """Start ``hosts[h]`` ranks on each host. ``preamble`` comes before the body.

    ``env_of``: additions for single ranks. ``prefix_of_host``: command that enters a host's namespace. ``cold``: each
    rank is a Python that was started for it, as they are outside of tests.
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
            if cold or prefix_of_host or preamble != PREAMBLE or not warm.is_possible or warm.is_early(settings):
                prefix = prefix_of_host[host] if prefix_of_host else []
                ranks.processes.append(_started([*prefix, sys.executable, "-c", code], settings))
            else:
                ranks.processes.append(warm.start(code, settings))
            rank += 1
    return ranks


def _started(command: List[str], env: Dict[str, str]) -> Process:
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(hosts: Sequence[int], body: str, **settings: object) -> List[Outcome]:
    """All ranks, to their end; every one must succeed."""
    outcomes = start(hosts, body, **settings).finish()  # type: ignore[arg-type]
    for outcome in outcomes:
        assert outcome.code == 0, f"rank {outcome.rank}:\n{outcome.out}\n{outcome.err}"
    return outcomes


def in_turn(cases: Dict[str, str]) -> str:
    """The end of a body that runs the cases, name and code, one after the other, and says which have passed.

    A case sees what stands before it in the body, and leaves nothing to the next. One that fails ends its rank.
    """
    return _CASE + "".join(f"case({name!r}, {code!r})\n" for name, code in cases.items())
