"""Checkpoints of one file, written by rank 0 with ``torch.save``; any version of torch.

The folder contains ``checkpoint-<step>.pt``, and ``LATEST``, a JSON object with the name, size and SHA-256 of the
newest one. Each file is written under a temporary name and renamed, so no reader, such as the platform's copy to S3,
gets an incomplete file.
"""

import importlib
import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar, Union

from .disk import checkpoint_folder, digest, write_whole
from .errors import CheckpointError, different_steps
from .marker import checked_step
from .random_state import random_state, restore_random_state
from .ranks import agree, gather, rank, world_size
from .retention import checked_retention, retained
from .selection import own_part, report_not_loaded

LATEST = "LATEST"
_NAME = re.compile(r"checkpoint-(\d+)\.pt")
#: What torch.load raises for a file that was cut off or overwritten. Other errors are those of a script, such as a
#: class that it no longer has.
_DAMAGE = (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError)

_T = TypeVar("_T")


class Checkpoints:
    """A folder of checkpoints, by default SMDP_CHECKPOINT_DIR, which the platform synchronizes with S3.

    The ``keep_last`` newest checkpoints are retained, and those whose step is a multiple of ``keep_every``. ``group``
    is the script's process group, None the default group; without ``torch.distributed`` there is one rank. ``keep`` is
    the former name of ``keep_last``.
    """

    def __init__(
        self,
        folder: Union[str, Path, None] = None,
        keep_last: int = 2,
        group: Any = None,
        keep_every: Optional[int] = None,
        keep: Optional[int] = None,
    ) -> None:
        self.folder = checkpoint_folder(folder)
        self._keep_last, self._keep_every = checked_retention(keep if keep is not None else keep_last, keep_every)
        self._group = group

    def save(self, step: int, **state: Any) -> None:
        """Save ``state`` (any input of ``torch.save``) of step ``step``, with the random state of every rank.

        Every rank calls it; rank 0 writes. When it returns on any rank, the file is on rank 0's disk.

        Raises:
            OSError: on rank 0, if the folder cannot be written.
            CheckpointError: on rank 0 if torch cannot write the file (a full disk, a state that cannot be pickled), and
                on the others whenever rank 0 fails; on every rank, if the ranks save different steps.
            TypeError, ValueError: the step is no integer, or negative.
        """
        step = checked_step(step)
        steps, random_states = zip(*gather((step, random_state()), self._group))
        if min(steps) != max(steps):
            raise CheckpointError(different_steps(min(steps), max(steps)))
        problem = None
        if rank(self._group) == 0:
            problem = self._attempt(step, {"step": step, "random": list(random_states), "state": state})
        failed = agree(int(problem is not None), "MAX", self._group)
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
            CheckpointError: the ranks resume from a checkpoint that one of them does not have, or the script cannot
                read a file.
        """
        own = self._together(self._newest)
        step = agree(own, "MIN", self._group)
        if step < 0:
            return None
        missing = step != own and not self._is_whole(step)
        if agree(int(missing), "MAX", self._group):
            where = f"in {self.folder} on this rank" if missing else "on another rank"
            raise CheckpointError(
                f"all ranks resume from step {step}, but {self._path(step).name} is missing or incomplete {where}"
            )
        content: Dict[str, Any] = self._together(lambda: self._read(step, map_location))
        states = content["random"]
        of_rank = states[rank(self._group)] if len(states) == world_size(self._group) else None
        restore_random_state(of_rank, len(states), self._group)
        return {"step": int(content["step"]), **content["state"]}

    def _together(self, read: Callable[[], _T]) -> _T:
        """What ``read`` returns; if it raises CheckpointError on a rank, every rank raises it."""
        problem = None
        try:
            result = read()
        except CheckpointError as error:
            problem = error
        failed = agree(int(problem is not None), "MAX", self._group)
        if problem is not None:
            raise problem
        if failed:
            raise CheckpointError("another rank cannot read a checkpoint; its error gives the reason")
        return result

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
        write_whole(path, lambda partial: importlib.import_module("torch").save(dict(content), str(partial)))
        facts = {"name": path.name, "bytes": path.stat().st_size, "sha256": digest(path)}
        write_whole(self.folder / LATEST, lambda partial: partial.write_text(json.dumps(facts)))
        steps = [one for one in self._steps() if one <= step]  # a later one is of another run, or damaged
        for old in set(steps) - retained(steps, self._keep_last, self._keep_every):
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
        why = self._damage(step)
        if why and own_part(self._group)[0] == 0:
            report_not_loaded(self._path(step), why)
        return not why

    def _damage(self, step: int) -> str:
        """How a checkpoint differs from the size and digest in LATEST; why another one cannot be read. Empty if whole.

        Raises:
            CheckpointError: the script cannot read it.
        """
        path, latest = self._path(step), self._latest()
        try:
            if latest.get("name") == path.name:
                same = path.stat().st_size == latest.get("bytes") and digest(path) == latest.get("sha256")
                return "" if same else f"it differs from what was written, according to {LATEST}"
            _torch_load(path, "cpu")
        except _DAMAGE as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:
            raise self._unreadable(step, error) from error
        return ""

    def _read(self, step: int, map_location: Any) -> Dict[str, Any]:
        try:
            content: Dict[str, Any] = _torch_load(self._path(step), map_location)
        except Exception as error:
            raise self._unreadable(step, error) from error
        return content

    def _unreadable(self, step: int, error: Exception) -> CheckpointError:
        help = "correct the script, or delete the file if it is damaged"
        return CheckpointError(f"{self._path(step)} cannot be read: {type(error).__name__}: {error}; {help}")

    def _latest(self) -> Dict[str, Any]:
        try:
            latest = json.loads((self.folder / LATEST).read_text())
        except (OSError, ValueError):
            return {}
        return latest if isinstance(latest, dict) else {}


def _torch_load(path: Path, map_location: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    # Later versions of torch refuse a script's own classes without this argument; those before 1.13 do not have it.
    # torch.load itself may be replaced by the script.
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    return torch.load(str(path), map_location=map_location, **({"weights_only": False} if version >= (1, 13) else {}))
