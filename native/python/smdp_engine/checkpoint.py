"""Checkpoints of a distributed script that survive a stop, a spot interruption and a crash at any moment.

``Checkpoints`` saves on one rank and loads on all, ``StopFlag`` makes all ranks stop after the same step, and
``ResumableSampler`` resumes within an epoch. docs/how-to/checkpoints.md shows them together.

The folder contains ``checkpoint-<step>.pt``, and ``LATEST``, a JSON object with the name, size and SHA-256 of the
newest one. Each file is written under a temporary name and renamed, so no reader, such as the platform's copy to S3,
gets an incomplete file.
"""

import contextlib
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

LATEST = "LATEST"
_NAME = re.compile(r"checkpoint-(\d+)\.pt")
_DEFAULT_FOLDER = "/opt/ml/checkpoints"


class CheckpointError(Exception):
    """The ranks do not have the same checkpoint, or it cannot be read; the message names the file and the rank."""


class Checkpoints:
    """A folder of checkpoints, by default SMDP_CHECKPOINT_DIR, which the platform synchronizes with S3.

    The ``keep`` newest checkpoints are retained. ``group`` is the script's process group, None the default group;
    without ``torch.distributed`` there is one rank.
    """

    def __init__(self, folder: Union[str, Path, None] = None, keep: int = 2, group: Any = None) -> None:
        if keep < 1:
            raise ValueError(f"keep must be 1 or more, found {keep}")
        self.folder = Path(folder or os.environ.get("SMDP_CHECKPOINT_DIR") or _DEFAULT_FOLDER)
        self._keep = keep
        self._group = group

    def save(self, step: int, **state: Any) -> None:
        """Save ``state`` (any input of ``torch.save``) of step ``step``, with the random state of every rank.

        Every rank calls it; rank 0 writes. When it returns on any rank, the file is on rank 0's disk.

        Raises:
            OSError: on rank 0, if the folder cannot be written.
            CheckpointError: on rank 0 if torch cannot write the file (a full disk, a state that cannot be pickled), and
                on the others whenever rank 0 fails.
        """
        random_states = _gather(_random_state(), self._group)
        problem = None
        if _rank(self._group) == 0:
            problem = self._attempt(step, {"step": step, "random": random_states, "state": state})
        failed = _agree(int(problem is not None), "MAX", self._group)
        if problem is not None:
            raise problem
        if failed:
            raise CheckpointError(
                f"rank 0 could not write the checkpoint of step {step}; rank 0's error gives the reason"
            )

    def load(self, map_location: Any = "cpu") -> Optional[Dict[str, Any]]:
        """Load the newest state that all ranks have, with its ``step``; None if there is no checkpoint to resume from.

        The random state is restored too if the number of ranks is the same as when it was saved. The file is unpickled:
        load only from a folder that you trust.

        Raises:
            CheckpointError: the ranks resume from a checkpoint that one of them does not have.
        """
        own = self._newest()
        step = _agree(own, "MIN", self._group)
        if step < 0:
            return None
        missing = not self._is_whole(step)
        if _agree(int(missing), "MAX", self._group):
            where = f"in {self.folder} on this rank" if missing else "on another rank"
            raise CheckpointError(
                f"all ranks resume from step {step}, but {self._path(step).name} is missing or incomplete {where}"
            )
        content: Dict[str, Any] = _torch_load(self._path(step), map_location)
        self._restore_random(content["random"])
        return {"step": int(content["step"]), **content["state"]}

    def _attempt(self, step: int, content: Mapping[str, Any]) -> Optional[Exception]:
        """Write the file and return the error, if any: the other ranks learn of it before it is raised. The error has
        no traceback, whose frames would keep the unfinished file open and the disk full."""
        try:
            self._write(step, content)
        except OSError as error:
            return error.with_traceback(None)
        except Exception as error:  # torch's error for a full disk, and any error of pickle
            free = shutil.disk_usage(str(self.folder)).free
            what = f"the checkpoint of step {step} could not be written to {self.folder}, where {free} bytes are free"
            return CheckpointError(f"{what}: {type(error).__name__}: {error}")
        return None

    def _write(self, step: int, content: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".*.partial"):
            leftover.unlink()
        path = self._path(step)
        _write_whole(path, lambda partial: _torch().save(dict(content), str(partial)))
        facts = {"name": path.name, "bytes": path.stat().st_size, "sha256": _digest(path)}
        _write_whole(self.folder / LATEST, lambda partial: partial.write_text(json.dumps(facts)))
        for old in sorted(self._steps(), reverse=True)[self._keep :]:
            self._path(old).unlink()

    def _path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step:010d}.pt"

    def _steps(self) -> List[int]:
        names = (_NAME.fullmatch(path.name) for path in self.folder.glob("checkpoint-*.pt"))
        return [int(name[1]) for name in names if name]

    def _newest(self) -> int:
        """The step of the newest complete checkpoint on this host, or -1."""
        return next((step for step in sorted(self._steps(), reverse=True) if self._is_whole(step)), -1)

    def _is_whole(self, step: int) -> bool:
        """Whether a checkpoint has the size and digest in LATEST; whether an older one, not in LATEST, can be read."""
        path, latest = self._path(step), self._latest()
        try:
            if latest.get("name") == path.name:
                return path.stat().st_size == latest.get("bytes") and _digest(path) == latest.get("sha256")
            _torch_load(path, "cpu")
        except Exception:  # torch.load can raise any exception for a damaged pickle
            return False
        return True

    def _latest(self) -> Dict[str, Any]:
        try:
            latest = json.loads((self.folder / LATEST).read_text())
        except (OSError, ValueError):
            return {}
        return latest if isinstance(latest, dict) else {}

    def _restore_random(self, states: List[Any]) -> None:
        if len(states) == _world_size(self._group):
            _set_random_state(states[_rank(self._group)])
        elif _rank(self._group) == 0:
            sys.stderr.write(
                f"smdp: the checkpoint has the random state of {len(states)} ranks, and there are "
                f"{_world_size(self._group)}: the random state is not restored\n"
            )


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
        agreed = bool(_agree(int(self._asked), "MAX", self._group))
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
    cannot count them.
    """

    def __init__(self, sampler: Any, group: Any = None) -> None:
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
        return {"epoch": self.epoch, "position": self.position, "ranks": _world_size(self._group)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Load a saved state. With another number of ranks, each rank begins at the same total number of samples."""
        self.epoch = state["epoch"]
        self.position = state["position"] * state["ranks"] // _world_size(self._group)


def _write_whole(path: Path, write: Any) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        _sync(partial)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _random_state() -> Dict[str, Any]:
    torch: Any = _torch()
    state: Dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        state["numpy"] = sys.modules["numpy"].random.get_state()
    return state


def _set_random_state(state: Mapping[str, Any]) -> None:
    torch: Any = _torch()
    random.setstate(_tuples(state["python"]))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])


def _tuples(value: Any) -> Tuple[Any, ...]:
    version, internal, gauss = value
    return version, tuple(internal), gauss


def _torch() -> Any:
    return importlib.import_module("torch")


def _torch_load(path: Path, map_location: Any) -> Any:
    torch: Any = _torch()
    # Later versions of torch refuse a script's own classes without this argument; earlier ones do not have it.
    has_argument = "weights_only" in torch.load.__code__.co_varnames
    return torch.load(str(path), map_location=map_location, **({"weights_only": False} if has_argument else {}))


def _is_distributed() -> bool:
    dist: Any = importlib.import_module("torch.distributed")
    return bool(dist.is_available() and dist.is_initialized())


def _rank(group: Any) -> int:
    return int(_torch().distributed.get_rank(group)) if _is_distributed() else 0


def _world_size(group: Any) -> int:
    return int(_torch().distributed.get_world_size(group)) if _is_distributed() else 1


def _agree(value: int, operation: str, group: Any) -> int:
    """The smallest or largest (``operation`` MIN or MAX) of the ranks' values, by an all_reduce of one number."""
    if not _is_distributed():
        return value
    torch: Any = _torch()
    on_cuda = torch.distributed.get_backend(group) == "nccl"
    number = torch.tensor([value], dtype=torch.int64, device="cuda" if on_cuda else "cpu")
    torch.distributed.all_reduce(number, op=getattr(torch.distributed.ReduceOp, operation), group=group)
    return int(number.item())


def _gather(value: Any, group: Any) -> List[Any]:
    if not _is_distributed():
        return [value]
    values: List[Any] = [None] * _world_size(group)
    _torch().distributed.all_gather_object(values, value, group=group)
    return values
