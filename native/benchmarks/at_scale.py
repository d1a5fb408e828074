"""Models the training of BERT-large and Mask R-CNN on hosts of eight V100, with this engine and with NCCL's ring of
2020.

Usage: ``python native/benchmarks/at_scale.py [--hosts 2,4,8] [--trace NAME] [--samples N] [--dtype float16] ...``.
No time is measured: the cost model (native/simulation/model) computes every bucket of a step. The program prints the
assumptions and, for each claim of AWS about its library, the ring's rate above which the claim fails for this engine.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Mapping, NamedTuple, Optional

import contenders
import cost_model

from smdp_launch.catalog.exchange import published_steps, ring_table
from smdp_launch.scaling.traces import TRACES, buckets_of

RANKS = 8
GBIT = 1e9 / 8

Costs = Dict[str, float]


#: The step times of one V100 with 32 GB in mixed precision, as published by NVIDIA.
STEPS = published_steps()
SAMPLES = {name: step.samples for name, step in STEPS.items()}
#: A backward pass costs twice the forward pass.
BACKWARD_SHARE = 2 / 3

# ml.p3dn.24xlarge: 100 Gbit/s, 96 vCPU, two per core. Its two processors with six channels of DDR4-2666 each transfer
# at most 256 GB/s; 180 GB/s are assumed. For each byte of a rank's gradients the model counts 3 bytes that copies and
# sums
#: read, while the memory transfers 5: values and results once each, the device's copies of both, and the kernel's copy
#: for TCP. The rest stays in the caches, since the engine shares 1 MiB per rank with the others. So 180 x 3 / 5.
HOST: Costs = {"link_rate": 100 * GBIT, "cores": 48, "memory_rate": 110e9}
#: The engine's default on 96 processors with 8 ranks.
COPY_THREADS = 4
#: The speed-up of AWS's library over torch's DDP, by hosts (SageMaker's developer guide).
CLAIMS: Dict[str, Dict[int, float]] = {
    "bert-large": {2: 0.41, 4: 0.52, 8: 0.13},
    "mask-rcnn": {2: 0.04, 4: 0.19, 8: 0.15},
}
#: A ring with NVLink, which is not the bottleneck.
NVLINK: Costs = {"ring_local_rate": 120e9, "ring_local_latency": 5e-6, "wire_overhead": 1.0}


@dataclass(frozen=True)
class Ring:
    name: str
    source: str
    bytes_per_second: Mapping[int, float]  # by the minimum number of hosts

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


class Job(NamedTuple):
    """A step, the same for all schedules."""

    trace: str
    alone_s: float
    dtype: str
    bucket_mib: int
    options: Dict[str, str]  # of the engine

    def step_s(self, schedule: str, hosts: int, costs: Costs) -> float:
        backward = self.alone_s * BACKWARD_SHARE
        width = 4 if self.dtype == "float32" else 2
        buckets = buckets_of(TRACES[self.trace](), width, self.bucket_mib, round(backward * 1000))
        # The model's elements have at most 8 bytes.
        sizes = [(one.bytes + -one.bytes % 8, one.ready_us / 1e6) for one in buckets]
        answer = cost_model.ask(hosts, RANKS, sizes, costs, schedule, self.dtype, self.options)
        return self.alone_s + max(0.0, float(max(answer["bucket_done"])) - backward)


def fails_from(job: Job, hosts: int, engine_s: float, claim: float) -> Optional[float]:
    """The bytes per second of a ring with which the engine's step is no longer faster by ``claim``.

    None where no ring is so slow.
    """
    wanted = engine_s * (1 + claim)
    slow, fast = 0.1e9, 100e9

    def ring_s(rate: float) -> float:
        return job.step_s("ring", hosts, {**HOST, **NVLINK, "link_rate": rate})

    if ring_s(slow) < wanted or ring_s(fast) > wanted:
        return None
    while fast / slow > 1.01:
        middle = (slow * fast) ** 0.5
        slow, fast = (middle, fast) if ring_s(middle) > wanted else (slow, middle)
    return slow


def cost(word: str) -> "tuple[str, float]":
    name, _, value = word.partition("=")
    return name, float(value)


def option(word: str) -> "tuple[str, str]":
    name, _, value = word.partition("=")
    return name, value


def job_of(trace: str, options: argparse.Namespace) -> Job:
    samples = SAMPLES[trace]
    share = (options.samples or samples) / samples
    engine = {"SMDP_COPY_THREADS": str(options.copy_threads), **dict(options.option)}
    return Job(trace, STEPS[trace].seconds * share, options.dtype, options.bucket_mib, engine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", default="2,4,8", metavar="N,N,...")
    parser.add_argument("--trace", choices=sorted(STEPS), action="append")
    parser.add_argument(
        "--samples", type=int, metavar="N", help="samples of a step on one GPU; the step's time is proportional"
    )
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32", help="the type of the gradients")
    parser.add_argument("--bucket-mib", type=int, default=25, metavar="N")
    parser.add_argument("--copy-threads", type=int, default=COPY_THREADS, metavar="N", help="copy threads per rank")
    parser.add_argument(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option or cost of the engine",
    )
    parser.add_argument(
        "--cost", type=cost, action="append", default=[], metavar="NAME=VALUE", help="an option or cost of the engine"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    contenders.build()
    changed: Costs = dict(options.cost)
    rows = []
    print(
        f"Hosts of {RANKS} V100, 100 Gbit/s, 48 cores, {HOST['memory_rate'] / 1e9:.0f} GB/s of copies and sums a host"
    )
    print(f"The engine over TCP, {options.copy_threads} copy threads a rank, the model's default costs", changed or "")
    for ring in RINGS:
        print(f"Ring over {ring.name}: {ring.source}; NVLink is not the bottleneck")
    for trace in options.trace or sorted(STEPS):
        job = job_of(trace, options)
        alone = job.alone_s
        print(
            f"{trace}: a step of {alone * 1000:.0f} ms alone, {options.samples or SAMPLES[trace]} samples a GPU "
            f"({STEPS[trace].source}); {job.dtype}, buckets of {job.bucket_mib} MiB"
        )
        for hosts in (int(word) for word in options.hosts.split(",")):
            engine = job.step_s("engine", hosts, {**HOST, **changed})
            row: Dict[str, Optional[float]] = {"hosts": hosts, "engine_s": engine, "efficiency": alone / engine}
            text = f"  {hosts:4} hosts: engine {engine * 1000:6.0f} ms, efficiency {alone / engine:4.0%}"
            for ring in RINGS:
                theirs = job.step_s("ring", hosts, ring.costs(hosts))
                row[f"ring_{ring.name}_s"] = theirs
                text += f"; {theirs / engine - 1:+4.0%} over the ring of {ring.name} ({theirs * 1000:.0f} ms)"
            if claim := CLAIMS[trace].get(hosts):
                least = fails_from(job, hosts, engine, claim)
                row["claim"], row["ring_rate_where_it_fails"] = claim, least
                text += f"; {claim:+.0%} holds " + (
                    "at no rate of the ring"
                    if least is None
                    else f"where the ring has less than {least / 1e9:.1f} GB/s"
                )
            rows.append({"trace": trace, **row})
            print(text, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"costs": {**HOST, **changed}, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
