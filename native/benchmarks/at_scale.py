"""Models the training of BERT-large and Mask R-CNN on hosts of eight V100, this engine beside NCCL's ring of 2020.

Usage: ``python native/benchmarks/at_scale.py [--hosts 2,4,8] [--trace NAME] [--cost NAME=VALUE ...] [--json FILE]``.
Nothing is measured: the model of cost (native/model) is asked for every bucket of a step. What is assumed is printed.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional

import contenders
import cost_model
from traces import TRACES, Bucket, buckets_of

from smdp_launch.catalog.exchange import published_steps, ring_table

RANKS = 8
GBIT = 1e9 / 8

Costs = Dict[str, float]


#: Of one V100 with 32 GB alone in mixed precision, as NVIDIA published them.
STEPS = published_steps()
#: A backward pass costs twice the forward pass.
BACKWARD_SHARE = 2 / 3

#: ml.p3dn.24xlarge: 100 Gbit/s, 96 vCPU of two a core.
HOST: Costs = {"link_rate": 100 * GBIT, "cores": 48}
#: A ring through NVLink, which does not bind.
NVLINK: Costs = {"ring_local_rate": 120e9, "ring_local_latency": 5e-6, "wire_overhead": 1.0}


@dataclass(frozen=True)
class Ring:
    name: str
    source: str
    bytes_per_second: Mapping[int, float]  # from so many hosts on

    def costs(self, hosts: int) -> Costs:
        rate = self.bytes_per_second[max(least for least in self.bytes_per_second if least <= hosts)]
        return {**HOST, **NVLINK, "link_rate": rate}


RINGS = [
    Ring("TCP", "4.7 GB/s between p3dn, 2020 (github.com/NVIDIA/nccl/issues/398)", ring_table()["TCP"]),
    Ring(
        "EFA",
        "10 GB/s on 2 p3dn, 8 on 4, 7 on 8 and more, 2019 (github.com/NVIDIA/nccl/issues/235: 6 to 8 on 8 to 32)",
        ring_table()["EFA"],
    ),
]


def exchange_s(schedule: str, hosts: int, buckets: List[Bucket], costs: Costs) -> float:
    """Seconds from the beginning of the backward pass to the last sum on the last rank."""
    # The model counts in elements of at most 8 bytes.
    sizes = [(one.bytes + -one.bytes % 8, one.ready_us / 1e6) for one in buckets]
    return float(max(cost_model.ask(hosts, RANKS, sizes, costs, schedule)["bucket_done"]))


def step_s(trace: str, schedule: str, hosts: int, costs: Costs) -> float:
    alone = STEPS[trace].seconds
    backward = alone * BACKWARD_SHARE
    buckets = buckets_of(TRACES[trace](), 4, 25, round(backward * 1000))
    return alone + max(0.0, exchange_s(schedule, hosts, buckets, costs) - backward)


def cost(word: str) -> "tuple[str, float]":
    name, _, value = word.partition("=")
    return name, float(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", default="2,4,8", metavar="N,N,...")
    parser.add_argument("--trace", choices=sorted(STEPS), action="append")
    parser.add_argument("--cost", type=cost, action="append", default=[], metavar="NAME=VALUE", help="of the engine")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    contenders.build()
    changed: Costs = dict(options.cost)
    rows = []
    print(f"Hosts of {RANKS} V100, 100 Gbit/s, 48 cores. The engine: the model's default costs over TCP", changed or "")
    for ring in RINGS:
        print(f"Ring over {ring.name}: {ring.source}; NVLink does not bind")
    for trace in options.trace or sorted(STEPS):
        alone = STEPS[trace].seconds
        print(f"{trace}: a step of {alone * 1000:.0f} ms alone, {STEPS[trace].source}; float32, buckets of 25 MiB")
        for hosts in (int(word) for word in options.hosts.split(",")):
            engine = step_s(trace, "engine", hosts, {**HOST, **changed})
            row: Dict[str, Optional[float]] = {"hosts": hosts, "engine_s": engine, "efficiency": alone / engine}
            text = f"  {hosts:4} hosts: engine {engine * 1000:6.0f} ms, efficiency {alone / engine:4.0%}"
            for ring in RINGS:
                theirs = step_s(trace, "ring", hosts, ring.costs(hosts))
                row[f"ring_{ring.name}_s"] = theirs
                text += f"; {theirs / engine - 1:+4.0%} over the ring of {ring.name} ({theirs * 1000:.0f} ms)"
            rows.append({"trace": trace, **row})
            print(text, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"costs": {**HOST, **changed}, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
