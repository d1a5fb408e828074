"""Checkpoints of which each rank writes a part, also while the training continues.

A checkpoint is a folder ``checkpoint-<step>``. It contains one file of each rank and ``.metadata``, in the form of
torch.distributed.checkpoint, and the marker (marker.py). The folder is checked and loaded on any number of ranks.
"""

import atexit
import importlib
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Set, Union

from .commit import Outcome, error_of
from .disk import checkpoint_folder
from .errors import CheckpointError
from .marker import checked_step
from .notice import report_save
from .ranks import agree, rank, world_size
from .retention import checked_retention
from .selection import choose_step_of_group

#: Seconds after the deadlines of the writer itself, for a disk that does not answer.
_SLACK = 30.0
_UNDER_WAY: "Set[_Pending]" = set()


class ShardedCheckpoints:
    """A folder of sharded checkpoints, by default SMDP_CHECKPOINT_DIR, which the platform synchronizes with S3.

    The ``keep_last`` newest checkpoints are retained, and those whose step is a multiple of ``keep_every``. ``group``
    is the script's process group, None the default group; without ``torch.distributed`` there is one rank. ``timeout``
    is the number of seconds after which a save fails. Every rank calls every method.

    Raises:
        CheckpointError: this version of torch has no suitable torch.distributed.checkpoint.
    """

    def __init__(
        self,
        folder: Union[str, Path, None] = None,
        keep_last: int = 2,
        group: Any = None,
        keep_every: Optional[int] = None,
        timeout: float = 600.0,
    ) -> None:
        self._saving = _saving()
        self.folder = checkpoint_folder(folder)
        self._retention = checked_retention(keep_last, keep_every)
        self._group, self._timeout = group, timeout
        self._plans = self._saving.Plans(group)
        self._pending: Optional[_Pending] = None
        self._is_first = True

    def save(self, step: int, **state: Any) -> None:
        """Save ``state`` of step ``step``, with the random state of every rank.

        A value is anything that can be pickled, such as a state dict. Its plain tensors must be equal on all ranks, and
        the rest of it is rank 0's; of a DTensor, each rank saves its own part. When this method returns, the checkpoint
        is complete and on the disks of the hosts.

        Raises:
            CheckpointError: on every rank, if a rank could not write its part, or the save before has failed.
            TypeError, ValueError: the step is no integer, or negative.
        """
        self._start(step, state, asynchronous=False)
        self.wait()

    def async_save(self, step: int, **state: Any) -> None:
        """Copy this rank's part of ``state`` to memory and return; a thread saves it. Wait for the save before first.

        Raises:
            CheckpointError: the save before has failed, on every rank; or this state cannot be saved.
        """
        self._start(step, state, asynchronous=True)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Wait until the save under way is complete, at most ``timeout`` seconds.

        Raises:
            CheckpointError: it has failed, or is not complete by then.
        """
        pending = self._pending
        if pending is None:
            return
        pending.wait(self._timeout + _SLACK if timeout is None else timeout)
        self._pending = None
        pending.check()

    def load(self, **into: Any) -> Optional[Dict[str, Any]]:
        """Load the newest complete state, with its ``step``; None if there is no checkpoint to resume from.

        Tensors are loaded in full to the CPU. A state with DTensors in ``into`` is filled in place instead: each rank
        loads its part of them, whatever the number of ranks that saved it. The random state is restored too if that
        number is the same. The files are unpickled: load only from a folder that you trust.

        Raises:
            CheckpointError: a rank has no complete checkpoint and another one has, or a file cannot be read.
        """
        self.wait()
        step = choose_step_of_group(self.folder, self._group)
        if step is None:
            return None
        problem, state = None, {}
        try:
            state = self._saving.read_state(self.folder, step, into, self._group)
        except Exception as error:
            problem = error.with_traceback(None)
        if agree(int(problem is not None), "MAX", self._group):
            why = (
                f"{type(problem).__name__}: {problem}"
                if problem is not None
                else "another rank's error gives the reason"
            )
            raise CheckpointError(f"the checkpoint of step {step} in {self.folder} cannot be read: {why}")
        return {"step": step, **state}

    def _start(self, step: int, state: Dict[str, Any], asynchronous: bool) -> None:
        began, step = time.monotonic(), checked_step(step)
        self.wait()
        context = self._saving.Context(
            folder=self.folder,
            step=step,
            rank=rank(self._group),
            world_size=world_size(self._group),
            began=began,
            deadline=began + self._timeout,
            retention=self._retention,
        )
        save = self._plans.prepare(context, state, copy=asynchronous)
        stalled = time.monotonic() - began if asynchronous else None
        report = partial(report_save, step, stalled=stalled, is_first=self._is_first) if context.rank == 0 else None
        self._is_first = False
        pending = self._pending = _Pending(step, self._timeout, report)
        if asynchronous:
            pending.start(save)
        else:
            pending.run(save)


def _saving() -> Any:
    try:
        return importlib.import_module(".saving", __package__)
    except ImportError as error:
        torch: Any = importlib.import_module("torch")
        raise CheckpointError(
            f"torch {torch.__version__} has no torch.distributed.checkpoint that can be used ({error}): use torch 2.5 "
            "or later, or Checkpoints, which saves one file on rank 0 with any version"
        ) from error


class _Pending:
    """A save under way.

    Args:
        report: is called with the outcome of a save that succeeded, in the script's own thread. Another thread would
            print between the text of a line of the script and its end.
    """

    def __init__(self, step: int, timeout: float, report: Optional[Callable[[Outcome], None]]) -> None:
        self.step, self.timeout, self._report = step, timeout, report
        _UNDER_WAY.add(self)
        self.done = threading.Event()
        self.outcome: Outcome = {}
        self._thread: Optional[threading.Thread] = None

    def start(self, save: Any) -> None:
        # A daemon, so that a disk that does not answer cannot keep the process from exiting.
        self._thread = threading.Thread(target=self.run, args=(save,), name="smdp-checkpoint", daemon=True)
        self._thread.start()

    def run(self, save: Any) -> None:
        try:
            self.outcome = save()
        except BaseException as error:  # the script gets it at its next call
            self.outcome = {"error": f"{type(error).__name__}: {error}"}
            if not isinstance(error, Exception):
                raise
        finally:
            self.done.set()

    def wait(self, timeout: float) -> None:
        if not self.done.wait(timeout):
            raise CheckpointError(f"the checkpoint of step {self.step} is not complete: it is still being written")
        if self._thread is not None:
            self._thread.join(_SLACK)  # it still frees tensors, at which an exit of the interpreter would abort it
        _UNDER_WAY.discard(self)

    def check(self) -> None:
        problem = error_of(self.outcome)
        if problem is not None:
            raise CheckpointError(f"the checkpoint of step {self.step} was not saved: {problem}")
        if self._report is not None:
            self._report(self.outcome)


def _finish_all() -> None:
    """At the exit of a script that did not wait for its last save."""
    for one in list(_UNDER_WAY):
        try:
            one.wait(one.timeout + _SLACK)
            one.check()
        except CheckpointError as error:
            sys.stderr.write(f"smdp: {error}\n")


atexit.register(_finish_all)
