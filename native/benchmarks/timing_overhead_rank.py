"""A process of timing_overhead.py: pairs of steps, one with the measurement's hooks and one without them.

    timing_overhead_rank.py WORKERS PAIRS SIZE

Prints a JSON object: ``pairs``, each [off, on] with the times of a step (seconds, seconds on a CPU); ``event``, the
seconds that one event takes.
"""

import importlib
import json
import sys
import time
from typing import Any, Iterator, List, Tuple

import torch
import torch.distributed
from torch.nn.parallel.distributed import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, _utils

from smdp_engine.timing import emission, torch_hooks

WORKERS, PAIRS, SIZE = (int(text) for text in sys.argv[1:])
WARM_UP = 50  # pairs

c10d: Any = importlib.import_module("torch._C._distributed_c10d")
optimizers: Any = importlib.import_module("torch.optim.optimizer")
fetchers: Any = _utils.fetch
loaders: Any = importlib.import_module("torch.utils.data.dataloader")


class Hooks:
    """What the measurement replaces in torch, and how to give torch back its own functions."""

    def __init__(self) -> None:
        owners: List[Any] = [
            *(torch, torch.serialization, torch.Tensor, torch.autograd, torch.distributed),
            *(torch.distributed.distributed_c10d, c10d.Work, c10d.ProcessGroup, DataLoader, DistributedDataParallel),
            *(loaders._BaseDataLoaderIter, fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher),
        ]
        before = [dict(vars(owner)) for owner in owners]
        torch_hooks.install()
        self._replaced = [
            (owner, name, own.get(name), value)
            for owner, own in zip(owners, before)
            for name, value in vars(owner).items()
            if own.get(name) is not value
        ]
        self._optimizers = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
        self._of_optimizers = [dict(hooks) for hooks in self._optimizers]
        missing = {"backward", "wait", "allreduce", "__iter__", "__next__", "fetch", "forward"} - {
            name for _, name, _, _ in self._replaced
        }
        if missing or not all(self._of_optimizers):
            raise SystemExit(f"no hook of {missing or 'optimizers'} is known")

    def switch(self, *, is_on: bool) -> None:
        for owner, name, own, hook in self._replaced:
            if is_on or own is not None:
                setattr(owner, name, hook if is_on else own)
            elif name in vars(owner):
                delattr(owner, name)  # the function is of its base class
        for hooks, measured in zip(self._optimizers, self._of_optimizers):
            hooks.clear()
            hooks.update(measured if is_on else {})


class Samples(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 2 * (WARM_UP + PAIRS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(SIZE)


def step(model: Any, optimizer: Any, batches: Iterator[torch.Tensor]) -> Tuple[float, float]:
    before, cpu_before = time.perf_counter(), time.thread_time()
    model(next(batches).expand(64, SIZE)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - before, time.thread_time() - cpu_before


def main() -> None:
    torch.set_num_threads(1)
    hooks = Hooks()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    layers = torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE) for _ in range(4)))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = {}  # an iterator for each: the hooks of its worker processes are those of its beginning
    for is_on in (False, True):
        hooks.switch(is_on=is_on)
        batches[is_on] = iter(DataLoader(Samples(), batch_size=1, num_workers=WORKERS))
    pairs = []
    for number in range(WARM_UP + PAIRS):
        pair = {}
        for is_on in (False, True) if number % 2 else (True, False):
            hooks.switch(is_on=is_on)
            step(model, optimizer, batches[is_on])  # Python looks for the replaced functions again
            pair[is_on] = step(model, optimizer, batches[is_on])
        pairs.append([pair[False], pair[True]])
    measurement = emission.start()
    if measurement is None:
        raise SystemExit("the process does not measure")
    before = time.perf_counter()
    measurement.emit()
    print(json.dumps({"pairs": pairs[WARM_UP:], "event": time.perf_counter() - before}))


if __name__ == "__main__":
    main()
