"""What unauthenticated clients cost a job: the median all_reduce with and without them, in alternating blocks.

Usage: ``python native/benchmarks/unauthenticated_clients.py [--blocks 6] [--size 25M] [--rate 100]``. Two hosts of two
ranks have links of 1 Gbit/s. The clients connect from a third host, ``--rate`` per second to each port of the engine:
the port of the rendezvous and the port of each rank, from before the job opens until it ends. Each block is a separate
job, whose sums must be right. Prints the medians, their ratio, and the processor time of the clients. Needs root and a
machine without other load.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List

import contenders
from lab import Lab
from run import bytes_of

CLIENTS = Path(__file__).resolve().parent.parent / "tests" / "support" / "unauthenticated_clients.py"
PER_HOST = 2
FIRST_PORT = 7600
HELLO_BYTES = 112
CATCH = f"""
import socket, sys
with socket.create_server(("0.0.0.0", {contenders.PORT})) as server:
    print("ready", flush=True)
    with server.accept()[0] as caller:
        sys.stdout.buffer.write(caller.recv({HELLO_BYTES}, socket.MSG_WAITALL))
"""


@dataclass(frozen=True)
class TwoHosts(contenders.Setup):
    """The hosts of the job; the third host of the lab runs the clients."""

    @property
    def size(self) -> int:
        return 2 * self.per_host


@dataclass
class Block:
    milliseconds: List[float]
    clients_cpu_s: float = 0.0
    ends: "Counter[str]" = field(default_factory=Counter)


SETTINGS = {**contenders.TOKEN, "SMDP_PORT_RANGE": f"{FIRST_PORT}-{FIRST_PORT + PER_HOST - 1}"}


def catch_hello(lab: Lab) -> bytes:
    """A hello of a job without rank 0: its rank 1 sends it to this server."""
    server = subprocess.Popen([*lab.enter(0), sys.executable, "-c", CATCH], stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()
    environment = {**SETTINGS, "RANK": "1", "WORLD_SIZE": str(2 * PER_HOST), "MASTER_ADDR": lab.address(0)}
    rank = subprocess.Popen([*lab.enter(0), contenders.ENGINE, "4:1", "float32"], env=environment)
    try:
        return server.communicate(timeout=20)[0]
    finally:
        rank.kill()
        rank.wait()


def start_clients(lab: Lab, hello: Path, rate: float, seconds: float) -> "subprocess.Popen[str]":
    ports = [f"{lab.address(host)}:{FIRST_PORT + local}" for host in range(2) for local in range(PER_HOST)]
    ports.append(f"{lab.address(0)}:{contenders.PORT}")
    command = [
        sys.executable,
        str(CLIENTS),
        "--rate",
        str(rate),
        "--seconds",
        str(seconds),
        "--hello",
        str(hello),
        *ports,
    ]
    return subprocess.Popen([*lab.enter(2), *command], stdout=subprocess.PIPE, text=True)


def run_block(setup: TwoHosts) -> Block:
    reports = contenders.ranks(setup, [contenders.ENGINE, setup.cases, setup.dtype], SETTINGS)
    if len(reports) != setup.size or not all(report["correct"] for report in reports):
        raise RuntimeError(f"the sums are wrong: {reports}")
    slowest = [max(times) * 1e3 for times in zip(*(report["seconds"] for report in reports))]  # type: ignore[call-overload]
    return Block(slowest)


def run_with_clients(setup: TwoHosts, hello: Path, rate: float, seconds: float) -> Block:
    load = start_clients(setup.lab, hello, rate, seconds)
    block = run_block(setup)
    lines = [json.loads(line) for line in load.communicate(timeout=seconds + 60)[0].splitlines()]
    block.ends = Counter(f"{line['end']}" for line in lines[:-1])
    block.clients_cpu_s = float(lines[-1]["cpu_s"])
    return block


def show(blocks: Dict[bool, List[Block]]) -> None:
    medians = {}
    for clients, group in blocks.items():
        times = [time for block in group for time in block.milliseconds]
        medians[clients] = statistics.median(times)
        each = ", ".join(f"{statistics.median(block.milliseconds):.1f}" for block in group)
        name = "with" if clients else "without"
        print(f"{name} clients: median {medians[clients]:.1f} ms of {len(times)}; by block {each}")
    ends: Counter[str] = sum((block.ends for block in blocks[True]), Counter())
    cpu = sum(block.clients_cpu_s for block in blocks[True])
    print(f"ratio {medians[True] / medians[False]:.3f}")
    print(f"{sum(ends.values())} clients: {dict(ends)}; the clients used {cpu:.1f} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=6, help="number of blocks with clients, and without")
    parser.add_argument("--size", default="25M")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--rate", type=float, default=100, help="clients per second on each port")
    arguments = parser.parse_args()
    contenders.build()
    blocks: Dict[bool, List[Block]] = {False: [], True: []}
    with Lab(3, 1000) as lab, tempfile.TemporaryDirectory(dir=contenders.BUILD) as folder:
        hello = Path(folder) / "hello"
        hello.write_bytes(catch_hello(lab))
        setup = TwoHosts(lab, PER_HOST, f"{bytes_of(arguments.size)}:{arguments.iterations}", "float32")
        seconds = 0.3 * arguments.iterations + 1  # about as long as a block
        for turn in range(arguments.blocks):
            for clients in (turn % 2 == 0, turn % 2 != 0):
                block = run_with_clients(setup, hello, arguments.rate, seconds) if clients else run_block(setup)
                blocks[clients].append(block)
    show(blocks)


if __name__ == "__main__":
    main()
