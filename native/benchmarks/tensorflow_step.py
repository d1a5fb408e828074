"""Compares the exchange of BERT-base's gradients with the engine and with MultiWorkerMirroredStrategy's ring.

Usage: ``python native/benchmarks/tensorflow_step.py [--hosts 2] [--per-host 4] [--rate 1000] [--rounds 2] [--steps 4]
[--warmup 2]``, with the Python of ``.venv-tensorflow``. The two alternate on simulated hosts with links of ``--rate``
Mbit/s. Both have two threads between operations and one within. Prints the median of the slowest rank's steps, the
ratio, and the share of the wire limit. Needs root and a machine without other load.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Dict, List

import contenders
from lab import WIRE_BYTES_PER_BYTE, Lab

from smdp_launch.scaling.traces import bert_base, elements

RANK = Path(__file__).with_name("tensorflow_rank.py")
FIRST_PORT = 7700


def steps_of(who: str, setup: contenders.Setup, steps: int, warmup: int) -> List[float]:
    """The seconds of each step on the slowest rank."""
    hosts = [setup.lab.address(rank // setup.per_host) for rank in range(setup.size)]
    environment = {
        **contenders.TOKEN,
        "WORKERS": ",".join(f"{host}:{FIRST_PORT + rank}" for rank, host in enumerate(hosts)),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "LOCAL_WORLD_SIZE": str(setup.per_host),
    }
    reports = contenders.ranks(setup, [sys.executable, str(RANK), who, str(warmup + steps)], environment)
    return [max(one) for one in zip(*(report["seconds"][warmup:] for report in reports))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("hosts", 2), ("per-host", 4), ("rate", 1000), ("rounds", 2), ("steps", 4), ("warmup", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    count = sum(elements(shape) for shape in bert_base())
    found: Dict[str, List[float]] = {"smdp": [], "ring": []}
    with Lab(given.hosts, given.rate) as lab:
        setup = contenders.Setup(lab, given.per_host, "", "float32")
        for _ in range(given.rounds):
            for who, seconds in found.items():
                seconds.extend(steps_of(who, setup, given.steps, given.warmup))
                print(who, [round(one, 2) for one in seconds], flush=True)
    ours, theirs = (statistics.median(found[who]) for who in ("smdp", "ring"))
    limit = 2 * (given.hosts - 1) / given.hosts * count * 4 * WIRE_BYTES_PER_BYTE * 8 / (given.rate * 1e6)
    print(f"{count / 1e6:.1f} million parameters, {given.hosts} x {given.per_host} ranks, {given.rate} Mbit/s")
    print(
        f"engine {ours:.2f} s, ring {theirs:.2f} s: {theirs / ours:.2f} x; wire limit {limit:.2f} s, {limit / ours:.1%}"
    )


if __name__ == "__main__":
    main()
