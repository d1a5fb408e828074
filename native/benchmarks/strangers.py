"""What strangers cost a job: the median all_reduce with and without them, in blocks that take turns.

Usage: ``python native/benchmarks/strangers.py [--blocks 6] [--size 25M] [--rate 100]``. Two hosts of two ranks with
links of 1 Gbit/s; the strangers come from a third, ``--rate`` a second on each port of the engine's: that of the
rendezvous and the one of each rank. They come from before the job opens until it has ended. Each block is a job of its
own, whose sums must be right. Prints the medians, their ratio, and the processor time of the strangers themselves.
Needs root and a machine with nothing else to do.
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

CROWD = Path(__file__).resolve().parent.parent / "tests" / "crowd.py"
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
    """The job's own hosts; the lab's third is the strangers'."""

    @property
    def size(self) -> int:
        return 2 * self.per_host


@dataclass
class Block:
    milliseconds: List[float]
    strangers_cpu_s: float = 0.0
    ends: "Counter[str]" = field(default_factory=Counter)


SETTINGS = {**contenders.TOKEN, "SMDP_PORT_RANGE": f"{FIRST_PORT}-{FIRST_PORT + PER_HOST - 1}"}


def catch_hello(lab: Lab) -> bytes:
    """A hello of the job's own: rank 1 of one that has no rank 0, sent to whoever listens there."""
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


def send_crowd(lab: Lab, hello: Path, rate: float, seconds: float) -> "subprocess.Popen[str]":
    ports = [f"{lab.address(host)}:{FIRST_PORT + local}" for host in range(2) for local in range(PER_HOST)]
    ports.append(f"{lab.address(0)}:{contenders.PORT}")
    command = [
        sys.executable,
        str(CROWD),
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


def run_beside(setup: TwoHosts, hello: Path, rate: float, seconds: float) -> Block:
    crowd = send_crowd(setup.lab, hello, rate, seconds)
    block = run_block(setup)
    lines = [json.loads(line) for line in crowd.communicate(timeout=seconds + 60)[0].splitlines()]
    block.ends = Counter(f"{line['end']}" for line in lines[:-1])
    block.strangers_cpu_s = float(lines[-1]["cpu_s"])
    return block


def show(blocks: Dict[bool, List[Block]]) -> None:
    medians = {}
    for strangers, ones in blocks.items():
        times = [time for block in ones for time in block.milliseconds]
        medians[strangers] = statistics.median(times)
        each = ", ".join(f"{statistics.median(block.milliseconds):.1f}" for block in ones)
        name = "with" if strangers else "without"
        print(f"{name} strangers: median {medians[strangers]:.1f} ms of {len(times)}; by block {each}")
    ends: Counter[str] = sum((block.ends for block in blocks[True]), Counter())
    cpu = sum(block.strangers_cpu_s for block in blocks[True])
    print(f"ratio {medians[True] / medians[False]:.3f}")
    print(f"{sum(ends.values())} strangers: {dict(ends)}; they took {cpu:.1f} s of processor time themselves")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=6, help="with strangers, and as many without")
    parser.add_argument("--size", default="25M")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--rate", type=float, default=100, help="strangers a second on each port")
    arguments = parser.parse_args()
    contenders.build()
    blocks: Dict[bool, List[Block]] = {False: [], True: []}
    with Lab(3, 1000) as lab, tempfile.TemporaryDirectory(dir=contenders.BUILD) as folder:
        hello = Path(folder) / "hello"
        hello.write_bytes(catch_hello(lab))
        setup = TwoHosts(lab, PER_HOST, f"{bytes_of(arguments.size)}:{arguments.iterations}", "float32")
        seconds = 0.3 * arguments.iterations + 1  # about as long as a block
        for turn in range(arguments.blocks):
            for strangers in (turn % 2 == 0, turn % 2 != 0):
                block = run_beside(setup, hello, arguments.rate, seconds) if strangers else run_block(setup)
                blocks[strangers].append(block)
    show(blocks)


if __name__ == "__main__":
    main()
