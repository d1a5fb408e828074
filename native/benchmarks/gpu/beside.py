"""How much an exchange slows a loop of matrix products on the same GPU.

Rank 0 queues products on a stream of its own and sums buckets with rank 1 meanwhile. The GPU's clock times the
products alone and beside the exchange, in alternating rounds. Rank 1 stands for another host: it computes nothing, but
its copies use the same GPU.

Example: ``python native/benchmarks/gpu/beside.py``
"""

import argparse
import sys
import time
from typing import Any, Dict, List

import figures
import job

MOST = 2.0  # per cent
#: A smaller share of the loop beside the exchange says too little about the rest.
LEAST_BESIDE = 0.95
LIMIT_S = 300
#: Kernels that the driver queues without blocking the host, with a margin.
MOST_QUEUED = 900


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--mib", type=float, default=25, help="MiB of a bucket")
    parser.add_argument("--buckets", type=int, default=24, help="buckets of a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--side", type=int, default=8192, help="rows and columns of the matrices, bfloat16")
    return job.parsed(parser)


class Loop:
    """Products on their own stream, and sums of buckets on the current one."""

    def __init__(self, arguments: argparse.Namespace, gpu: Any) -> None:
        import device
        import torch

        self._event = device.event
        self._torch = torch
        side = arguments.side
        self.left, self.right = (torch.randn(side, side, device=gpu).to(torch.bfloat16) for _ in range(2))
        self.product = torch.empty_like(self.left)
        self.stream = torch.cuda.Stream()
        count = int(arguments.mib * (1 << 20)) // 4
        self.buckets = [torch.ones(count, device=gpu) for _ in range(arguments.buckets)]
        torch.cuda.synchronize()

    def queue(self, products: int) -> Any:
        """Queue the products; the result gives their milliseconds."""
        start, end = self._event(), self._event()
        with self._torch.cuda.stream(self.stream):
            start.record()
            for _ in range(products):
                self._torch.mm(self.left, self.right, out=self.product)
            end.record()

        def took() -> float:
            end.synchronize()
            return float(start.elapsed_time(end))

        return took

    def exchange_ms(self) -> float:
        import torch.distributed as dist

        began = time.perf_counter()
        works = [dist.all_reduce(one, async_op=True) for one in self.buckets]
        for work in works:
            work.wait()
        self._torch.cuda.current_stream().synchronize()
        return 1e3 * (time.perf_counter() - began)


def exchange(arguments: argparse.Namespace) -> None:
    import device
    import torch
    import torch.distributed as dist

    import smdp_engine.torch  # noqa: F401 - registers the backend

    gpu = device.this_gpu(arguments.device)
    dist.init_process_group("smddp")
    computes = dist.get_rank() == 0
    loop = Loop(arguments, gpu)
    loop.exchange_ms()
    dist.barrier()
    exchange_ms = device.median([loop.exchange_ms() for _ in range(3)])
    products = 0
    if computes:
        loop.queue(3)()
        one_ms = loop.queue(10)() / 10
        # A little shorter than the exchange, so that all of it is beside the exchange.
        products = max(1, min(MOST_QUEUED, int(0.8 * exchange_ms / one_ms)))
    alone, beside, exchanges = [], [], []
    for _ in range(arguments.rounds):
        dist.barrier()
        if computes:
            alone.append(loop.queue(products)())
        dist.barrier()
        took = loop.queue(products) if computes else None
        exchanges.append(loop.exchange_ms())
        if took is not None:
            beside.append(took())
    torch.cuda.synchronize()
    job.report(products=products, alone_ms=alone, beside_ms=beside, exchange_ms=exchanges, without_ms=exchange_ms)
    dist.barrier()
    dist.destroy_process_group()


def of_report(found: Dict[str, Any]) -> List[figures.Figure]:
    import statistics

    alone, beside = statistics.median(found["alone_ms"]), statistics.median(found["beside_ms"])
    exchange_ms = statistics.median(found["exchange_ms"])
    covered = statistics.median(min(1.0, a / b) for a, b in zip(found["exchange_ms"], found["beside_ms"]))
    note = (
        f"{found['products']} products, {alone:.1f} ms alone, {beside:.1f} ms beside an exchange; "
        f"the exchange {found['without_ms']:.1f} ms alone, {exchange_ms:.1f} ms beside the products"
    )
    return [
        figures.Figure("matrix products slowed by an exchange", 100 * (beside / alone - 1), "%", MOST, note=note),
        figures.Figure("share of the products that was beside the exchange", covered, at_least=LEAST_BESIDE),
    ]


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    command = ["--device", arguments.device]
    sizes = {"mib": 1.0, "buckets": 4, "rounds": 3, "side": 64} if arguments.small else {}
    for name in ("mib", "buckets", "rounds", "side"):
        command += [f"--{name}", str(sizes.get(name, getattr(arguments, name)))]
    return of_report(job.reports("beside.py", [1, 1], command, limit_s=LIMIT_S, environment=job.options(arguments))[0])


if __name__ == "__main__":
    sys.exit(job.main(parse(), exchange, measure))
