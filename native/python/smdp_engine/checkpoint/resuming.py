"""What a script needs beside checkpoints to resume at the step where it stopped."""

import signal
import sys
from types import FrameType
from typing import Any, Dict, Iterator, Mapping, Optional

from .ranks import agree, world_size


class StopFlag:
    """Makes all ranks stop after the same step, although SIGTERM reaches them at different moments.

    ``every``: only every so many calls of ``agreed`` exchange the flag with the other ranks, by an all_reduce of one
    number. Create the flag in the main thread before training begins; a handler installed before is called too.
    """

    def __init__(self, every: int = 1, group: Any = None) -> None:
        if every < 1:
            raise ValueError(f"every must be 1 or more, found {every}")
        self._every, self._group = every, group
        self._calls = 0
        self._asked = False
        self._before = signal.signal(signal.SIGTERM, self._note)

    @property
    def asked(self) -> bool:
        """Whether this rank has received the signal; other ranks may not have received it yet."""
        return self._asked

    def agreed(self) -> bool:
        """Whether all ranks stop after this step. Every rank calls it after every step."""
        self._calls += 1
        if self._calls % self._every:
            return False
        agreed = bool(agree(int(self._asked), "MAX", self._group))
        if agreed and not callable(self._before):
            # This rank may still receive the signal, which must not end it while it saves or after that.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return agreed

    def _note(self, signum: int, frame: Optional[FrameType]) -> None:
        self._asked = True
        if callable(self._before):
            self._before(signum, frame)


class ResumableSampler:
    """A sampler that can begin within an epoch; it wraps another one such as ``DistributedSampler``.

    The script reports with ``advance`` how many samples it has trained on: a DataLoader reads ahead, so the sampler
    cannot count them. The order of the other sampler must depend only on the epoch: a script that gives it a generator
    seeds the generator by the epoch, before each pass.

    Raises:
        ValueError: a sampler of torch without a generator, which draws a new order in each pass: a resumed epoch would
            repeat and omit samples.
    """

    def __init__(self, sampler: Any, group: Any = None) -> None:
        if _draws_each_order(sampler):
            raise ValueError(
                f"{type(sampler).__name__} draws a new order in each pass, so an epoch cannot be resumed in its order: "
                "use torch.utils.data.DistributedSampler, whose order depends only on its seed and the epoch (on one "
                "rank with num_replicas=1, rank=0), or a subclass whose set_epoch seeds a generator by the epoch"
            )
        self._sampler, self._group = sampler, group
        self.epoch = 0
        self.position = 0  # samples of this rank in this epoch

    def set_epoch(self, epoch: int) -> None:
        """Call it at the beginning of each epoch; the epoch of a loaded state resumes at its position."""
        if epoch != self.epoch:
            self.position = 0
        self.epoch = epoch
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)

    def advance(self, samples: int) -> None:
        self.position += samples

    def __iter__(self) -> Iterator[Any]:
        skip = self.position
        return (index for number, index in enumerate(self._sampler) if number >= skip)

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self.position)

    def state_dict(self) -> Dict[str, int]:
        return {"epoch": self.epoch, "position": self.position, "ranks": world_size(self._group)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Load a saved state. With another number of ranks, each rank begins at the same total number of samples."""
        self.epoch = state["epoch"]
        self.position = state["position"] * state["ranks"] // world_size(self._group)


def _draws_each_order(sampler: Any) -> bool:
    data: Any = sys.modules.get("torch.utils.data")  # loaded, if the sampler is one of torch
    random = (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler) if data is not None else ()
    return type(sampler) in random and getattr(sampler, "generator", None) is None
