"""The step time of a transformer beside its bound, and beside Gloo's.

Three measurements of the same ranks on the same machine: steps that compute and exchange nothing, the exchange of the
same buckets without computing, and whole steps. The bound of a step comes from the first two: after a bucket is ready,
it and all later buckets must still be exchanged, and the optimizer follows. The tokens of a step are chosen so that
computing takes as long as the exchange, as far as the memory of the GPU allows; the backward pass computes each block
again, so that the ranks that share a GPU have room for these tokens. The time of a step is that of its slowest rank.

Example: ``python native/benchmarks/gpu/steps.py --layout 2x4``
"""

import argparse
import statistics
import sys
import time
from typing import Any, Dict, List

import figures
import job

MOST = 1.05
LIMIT_S = 420
MOST_TOKENS = 16_384
#: Of the GPU's memory, for all ranks that share it; the rest is for what the allocator cannot use again.
SHARE_OF_MEMORY = 0.85
#: What CUDA and cuBLAS need for each process.
CONTEXT_BYTES = 1 << 30


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--layout", default="2x4", help="hosts x ranks, or the ranks of each host: 3+1")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=0, help="tokens of a rank in a step; 0: computing = exchange")
    parser.add_argument("--backend", default="smddp", help=argparse.SUPPRESS)
    return job.parsed(parser)


class Steps:
    """One model, with and without an exchange."""

    def __init__(self, arguments: argparse.Namespace, gpu: Any) -> None:
        import device
        import torch
        import torch.distributed as dist
        import transformer
        from torch.nn.parallel import DistributedDataParallel

        self._event, self._dist, self._torch, self._transformer = device.event, dist, torch, transformer
        self.gpu = gpu
        self.size = transformer.SMALL if arguments.small else transformer.LARGE
        torch.manual_seed(1)
        model = transformer.Transformer(self.size, recomputes=True).to(gpu)
        self.parameters = transformer.parameters(model)
        self.exchanging = DistributedDataParallel(model)
        self.computing = DistributedDataParallel(model)
        self.ready: List[Any] = []
        self.buckets: List[int] = []
        self.computing.register_comm_hook(None, self._without_exchange)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.tokens = torch.zeros(1)

    def _without_exchange(self, _state, bucket):
        """Notes when a bucket is ready; its gradients stay those of this rank. DDP accepts no other annotations."""
        self.ready.append(self._event())
        self.ready[-1].record()
        gradients = bucket.buffer()
        self.buckets.append(gradients.numel())
        devices = [gradients.device] if gradients.device.type == "cuda" else None
        done = self._torch.futures.Future(devices=devices)
        done.set_result(gradients)
        return done

    def choose(self, tokens: int) -> None:
        length = min(self.size.length, max(8, tokens))
        shape = (max(1, round(tokens / length)), length + 1)
        self.tokens = self._torch.randint(0, self.size.words, shape, device=self.gpu)
        self._torch.cuda.reset_peak_memory_stats()

    def most_tokens(self) -> int:
        """The tokens for which this rank's share of the GPU is enough, by the steps so far."""
        cuda = self._torch.cuda
        always = cuda.memory_allocated()
        of_tokens = cuda.max_memory_allocated() - always
        if of_tokens <= 0:
            return MOST_TOKENS  # the emulation has no memory of its own
        ranks = -(-self._dist.get_world_size() // cuda.device_count())
        share = SHARE_OF_MEMORY * cuda.get_device_properties(self.gpu).total_memory / ranks - CONTEXT_BYTES
        return min(MOST_TOKENS, max(8, int(self.chosen * (share - always) / of_tokens)))

    @property
    def chosen(self) -> int:
        return self.tokens.shape[0] * (self.tokens.shape[1] - 1)

    def step(self, model: Any) -> Dict[str, Any]:
        """Milliseconds of one step: the whole by the host's clock, its parts by the GPU's."""
        self.ready, self.buckets = [], []
        self._dist.barrier()
        began, start, backward, end = time.perf_counter(), self._event(), self._event(), self._event()
        start.record()
        with self._transformer.lowered("bf16"):
            loss = model(self.tokens)
        loss.backward()
        backward.record()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        end.record()
        end.synchronize()
        return {
            "whole": 1e3 * (time.perf_counter() - began),
            "backward": start.elapsed_time(backward),
            "optimizer": backward.elapsed_time(end),
            "ready": [start.elapsed_time(one) for one in self.ready],
        }

    def steps(self, model: Any, count: int) -> List[Dict[str, Any]]:
        # The first steps of DDP rebuild its buckets.
        return [self.step(model) for _ in range(count + 3)][3:]

    def exchanges(self, count: int) -> List[List[float]]:
        """Milliseconds until each bucket of a step is exchanged when nothing computes."""
        flat = [self._torch.zeros(one, device=self.gpu) for one in self.buckets]
        rounds = []
        for _ in range(count + 1):
            self._torch.cuda.synchronize()
            self._dist.barrier()
            began = time.perf_counter()
            works = [self._dist.all_reduce(one, async_op=True) for one in flat]
            done = []
            for work in works:
                work.wait()
                self._torch.cuda.current_stream().synchronize()
                done.append(1e3 * (time.perf_counter() - began))
            rounds.append(done)
        return rounds[1:]


def slowest(dist: Any, values: List[float]) -> List[float]:
    """Each value of the rank whose value is largest."""
    everywhere: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, values)
    return [max(column) for column in zip(*everywhere)]


def medians(rows: List[List[float]]) -> List[float]:
    return [statistics.median(column) for column in zip(*rows)]


def bound_ms(computed: Dict[str, Any], exchanged: List[float]) -> float:
    """The shortest step: after a bucket is ready, it and all later ones must still be exchanged."""
    before = [0.0, *exchanged[:-1]]
    ends = [ready + exchanged[-1] - gone for ready, gone in zip(computed["ready"], before)]
    return float(max(computed["backward"], *ends) + computed["optimizer"])


def calibrate(steps: Steps, dist: Any, tokens: int) -> Dict[str, Any]:
    """The medians of the slowest rank, after tokens were chosen with which computing takes as long as the exchange."""
    steps.choose(tokens or 256)
    turns = 4  # the memory of few tokens says little about that of many
    for turn in range(turns):
        rows = steps.steps(steps.computing, 5)
        parts = medians([[row["backward"], row["optimizer"], *row["ready"]] for row in rows])
        backward, optimizer, *ready = slowest(dist, parts)
        exchanged = slowest(dist, medians(steps.exchanges(5)))
        if tokens or turn == turns - 1:
            break
        wanted: List[Any] = [min(steps.most_tokens(), max(8, round(steps.chosen * exchanged[-1] / backward)))]
        dist.broadcast_object_list(wanted, src=0)
        steps.choose(wanted[0])
    computed = {"backward": backward, "optimizer": optimizer, "ready": ready}
    return {"computed": computed, "exchanged": exchanged}


def run(arguments: argparse.Namespace) -> None:
    import device
    import torch.distributed as dist

    import smdp_engine.torch  # noqa: F401 - registers the backend

    gpu = device.this_gpu(arguments.device)
    dist.init_process_group(arguments.backend)
    steps = Steps(arguments, gpu)
    parts = calibrate(steps, dist, arguments.tokens)
    whole = [slowest(dist, [one["whole"]])[0] for one in steps.steps(steps.exchanging, arguments.steps)]
    job.report(
        **parts,
        bound_ms=bound_ms(parts["computed"], parts["exchanged"]),
        whole_ms=whole,
        tokens=steps.chosen,
        buckets=[4 * one for one in steps.buckets] or None,
        parameters=steps.parameters,
    )
    dist.barrier()
    dist.destroy_process_group()


def of_reports(ours: Dict[str, Any], theirs: Dict[str, Any], layout: str) -> List[figures.Figure]:
    step, other = statistics.median(ours["whole_ms"]), statistics.median(theirs["whole_ms"])
    computing, exchange = ours["computed"]["backward"], ours["exchanged"][-1]
    note = (
        f"{step:.1f} ms, bound {ours['bound_ms']:.1f} ms; computing {computing:.1f} ms, exchange {exchange:.1f} ms, "
        f"{ours['tokens']} tokens a rank, {ours['parameters'] / 1e6:.0f} M parameters"
    )
    what = f"transformer, {layout} ranks: step / bound"
    rows = [figures.Figure(what, step / ours["bound_ms"], at_most=MOST, note=note)]
    rows.append(figures.Figure("computing / exchange (wanted: 1)", computing / exchange))
    note = f"gloo {other:.1f} ms, its exchange alone {theirs['exchanged'][-1]:.1f} ms"
    rows.append(figures.Figure(f"transformer, {layout} ranks: step / step with gloo", step / other, note=note))
    return rows


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    layout = job.layout(arguments.layout)
    command = ["--device", arguments.device, "--steps", str(3 if arguments.small else arguments.steps)]
    command += ["--small"] if arguments.small else []
    found = {}
    tokens = arguments.tokens
    for backend in ("smddp", "gloo"):
        more = ["--backend", backend, "--tokens", str(tokens)]
        found[backend] = job.reports(
            "steps.py", layout, [*command, *more], limit_s=LIMIT_S, environment=job.options(arguments)
        )[0]
        tokens = found["smddp"]["tokens"]  # the same step
    return of_reports(found["smddp"], found["gloo"], arguments.layout)


if __name__ == "__main__":
    sys.exit(job.main(parse(), run, measure))
