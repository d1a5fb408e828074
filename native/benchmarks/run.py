"""Measures the engine and its peers with the same sizes, hosts and data, alternating in one run.

Example: ``python native/benchmarks/run.py --shape 2x8 --rate 1000 --sizes 4K,64K,1M,25M``. Prints a table and writes
all results as JSON. The time of an operation is that of its slowest rank; results are medians over all iterations of
all rounds. CPU is user and system time of all ranks with the machine's softirq time, per GiB of one rank's payload. PSS
is a rank's memory without the benchmark's own buffers. The wire limit of a shape is 2(n-1)/n times the payload with its
headers, minus one burst, divided by the rate. The wire limit of a trace is the maximum over all buckets of the time at
which the bucket is ready plus the transfer time of it and all later buckets.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import contenders
from lab import WIRE_BYTES_PER_BYTE, Lab, burst_bytes

from smdp_launch.scaling.traces import TRACES, Bucket, buckets_of

UNITS = {"K": 1 << 10, "M": 1 << 20}
# The number of buffers of the payload's size in each rank of the benchmark: the values and the sum.
HELD = 2


def bytes_of(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def iterations_of(size: int, rate_mbit: Optional[int]) -> int:
    # Without a link's rate the memory is the bottleneck; its times vary more, so more iterations are needed.
    fewest = 5 if rate_mbit else 15
    return max(fewest, min(60, (64 << 20) // max(size, 1)))


def trace_buckets(arguments: argparse.Namespace, hosts: int) -> List[Bucket]:
    """The buckets of the trace; empty without a trace."""
    if not arguments.trace:
        return []
    shapes = TRACES[arguments.trace]()
    element = 4 if arguments.dtype == "float32" else 2
    backward_ms = arguments.backward_ms
    if backward_ms is None:
        size = sum(bucket.bytes for bucket in buckets_of(shapes, element, arguments.bucket_mib, 0))
        backward_ms = round(1e3 * (wire_limit_s(hosts, size, arguments.rate) or 0.2))
    return buckets_of(shapes, element, arguments.bucket_mib, backward_ms)


def trace_case(arguments: argparse.Namespace, buckets: List[Bucket]) -> str:
    path = contenders.BUILD / f"{arguments.trace}.buckets"
    path.write_text("".join(f"{bucket.bytes} {bucket.ready_us}\n" for bucket in buckets))
    return f"@{path}:{arguments.iterations}"


def wire_limit_s(hosts: int, size: int, rate_mbit: Optional[int]) -> Optional[float]:
    if rate_mbit is None or hosts == 1:
        return None
    rate = rate_mbit * 1e6 / 8
    return max(0.0, 2 * (hosts - 1) / hosts * size * WIRE_BYTES_PER_BYTE - burst_bytes(rate_mbit)) / rate


def trace_limit_s(buckets: List[Bucket], hosts: int, rate_mbit: Optional[int]) -> Optional[float]:
    """The earliest possible end: after each bucket is ready, it and all later buckets must be transferred."""
    if rate_mbit is None or hosts == 1:
        return None
    rest = 0
    limits = []
    for bucket in reversed(buckets):
        rest += bucket.bytes
        limits.append(bucket.ready_us / 1e6 + (wire_limit_s(hosts, rest, rate_mbit) or 0.0))
    return max(limits)


def softirq_s() -> float:
    ticks = Path("/proc/stat").read_text().splitlines()[0].split()[7]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def measure(setup: contenders.Setup, names: List[str], rounds: int) -> Dict[str, Dict[int, dict]]:
    """For each contender and size: the slowest rank's seconds of each iteration, CPU and memory."""
    taken: Dict[str, Dict[int, dict]] = {
        name: defaultdict(lambda: {"seconds": [], "cpu_s": 0.0, "pss_kib": 0, "correct": True}) for name in names
    }
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            softirq = softirq_s()
            reports = contenders.CONTENDERS[name].start(setup)
            softirq = softirq_s() - softirq
            payload = sum(int(str(report["bytes"])) * int(str(report["sums"])) for report in reports)
            for size in {int(str(report["bytes"])) for report in reports}:
                ranks = [report for report in reports if report["bytes"] == size]
                if len(ranks) != setup.size:
                    raise RuntimeError(f"{name}: {len(ranks)} of {setup.size} ranks reported {size} bytes")
                one = taken[name][size]
                one["seconds"] += [max(times) for times in zip(*(rank["seconds"] for rank in ranks))]  # type: ignore[call-overload]
                one["cpu_s"] += sum(float(str(rank["cpu_s"])) for rank in ranks)
                one["cpu_s"] += softirq * size * sum(len(rank["seconds"]) for rank in ranks) / payload  # type: ignore[arg-type]
                one["pss_kib"] = max(one["pss_kib"], *(int(str(rank["pss_kib"])) for rank in ranks))
                one["correct"] = one["correct"] and all(rank["correct"] for rank in ranks)
                one["correct"] = one["correct"] and len({rank.get("checksum") for rank in ranks}) == 1
    return taken


def summarize(taken: Dict[str, Dict[int, dict]], hosts: int, rate: Optional[int], buckets: List[Bucket]) -> List[dict]:
    rows = []
    for name, by_size in taken.items():
        for size, one in sorted(by_size.items()):
            seconds = sorted(one["seconds"])
            median = statistics.median(seconds)
            limit = trace_limit_s(buckets, hosts, rate) if buckets else wire_limit_s(hosts, size, rate)
            rows.append(
                {
                    "contender": name,
                    "bytes": size,
                    "median_ms": median * 1e3,
                    "p95_ms": seconds[min(len(seconds) - 1, int(len(seconds) * 0.95))] * 1e3,
                    "min_ms": seconds[0] * 1e3,
                    "iterations": len(seconds),
                    "wire_share": limit / median if limit else None,
                    "cpu_s_per_gib": one["cpu_s"] / (len(seconds) * size / (1 << 30)),
                    "pss_mib": one["pss_kib"] / 1024 - HELD * size / (1 << 20),
                    "correct": one["correct"],
                }
            )
    ours = {row["bytes"]: row["median_ms"] for row in rows if row["contender"] == "smdp"}
    for row in rows:
        row["times_ours"] = row["median_ms"] / ours[row["bytes"]] if row["bytes"] in ours else None
    return rows


def table(rows: List[dict]) -> str:
    lines = [
        "| contender | bytes | median ms | p95 ms | wire share | CPU s/GiB | PSS MiB | times ours | correct |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["bytes"], row["median_ms"])):
        share = "" if row["wire_share"] is None else f"{row['wire_share']:.3f}"
        ratio = "" if row["times_ours"] is None else f"{row['times_ours']:.2f}"
        lines.append(
            f"| {row['contender']} | {row['bytes']} | {row['median_ms']:.3f} | {row['p95_ms']:.3f} | {share} "
            f"| {row['cpu_s_per_gib']:.2f} | {row['pss_mib']:.0f} | {ratio} | {'yes' if row['correct'] else 'NO'} |"
        )
    return "\n".join(lines)


def machine() -> dict:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]}


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def shape(text: str) -> Tuple[int, int]:
    hosts, _, per_host = text.partition("x")
    return positive(hosts), positive(per_host)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=shape, default="2x4", help="hosts x ranks per host, as 2x8")
    parser.add_argument("--rate", type=positive, help="Mbit/s of each host's link; unshaped without it")
    parser.add_argument("--sizes", default="4K,64K,1M,4M,25M")
    parser.add_argument(
        "--small-beside-bulk", action="store_true", help="measure 4 KiB while another group reduces 25 MiB"
    )
    parser.add_argument("--trace", choices=sorted(TRACES), help="a model's gradients instead of sizes")
    parser.add_argument("--bucket-mib", type=positive, default=25, help="the bucket size of a trace, in MiB")
    parser.add_argument(
        "--backward-ms", type=int, help="the time of a trace's backward pass; by default the transfer time"
    )
    parser.add_argument("--iterations", type=positive, default=5, help="iterations of a trace in each round")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--contenders", default="smdp,gloo,gloo4,openmpi")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", type=Path, help="the file for the results")
    return parser.parse_args()


def beside_bulk(hosts: int, per_host: int, rate: Optional[int]) -> int:
    with Lab(hosts, rate) as lab:
        took = contenders.small_beside_bulk(contenders.Setup(lab, per_host, "", "float32"))
    print(f"{len(took)} of 4 KiB during 25 MiB: median {statistics.median(took):.2f} ms, longest {max(took):.2f} ms")
    return 0


def main() -> int:
    arguments = parse()
    hosts, per_host = arguments.shape
    contenders.build()
    if arguments.small_beside_bulk:
        return beside_bulk(hosts, per_host, arguments.rate)
    buckets = trace_buckets(arguments, hosts)
    if buckets:
        cases = trace_case(arguments, buckets)
        print(f"{len(buckets)} buckets, the last ready after {buckets[-1].ready_us / 1e3:.0f} ms")
    else:
        sizes = [bytes_of(word) for word in arguments.sizes.split(",")]
        cases = ",".join(f"{size}:{iterations_of(size, arguments.rate)}" for size in sizes)
    before = machine()
    with Lab(hosts, arguments.rate) as lab:
        setup = contenders.Setup(lab, per_host, cases, arguments.dtype)
        names = []
        for name in arguments.contenders.split(","):
            reason = contenders.CONTENDERS[name].why_not(setup)
            if reason:
                print(f"{name}: skipped, {reason}")
            else:
                names.append(name)
        taken = measure(setup, names, arguments.rounds)
    rows = summarize(taken, hosts, arguments.rate, buckets)
    command = "python native/benchmarks/run.py " + " ".join(sys.argv[1:])
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    print(
        f"{command}\n{before['cpu']}, {before['cores']} cores, Linux {before['kernel']}, load before {before['load']}"
    )
    print(f"{when}\n{table(rows)}")
    if arguments.json:
        figures = {"command": command, "when": when, "machine": before, "rows": rows}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if all(row["correct"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
