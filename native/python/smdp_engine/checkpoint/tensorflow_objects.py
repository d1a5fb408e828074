"""Checkpoints of TensorFlow, by ``tf.train.Checkpoint`` on rank 0, with the marker of a sharded checkpoint.

A checkpoint is a folder ``checkpoint-<step>`` with the files of ``tf.train.Checkpoint.write`` and the marker
(marker.py), which is written last. Their names begin with ``state``; those of a step that is saved again with
``state.new``, and the files from before remain until the marker is written.
"""

import importlib
import os
import socket
import time
from pathlib import Path
from typing import Any, Dict, Optional, Union

from .disk import checkpoint_folder, digest, sync
from .errors import CheckpointError, different_steps
from .marker import MARKER, checked_step, marked_files, path_of, steps_in, write_marker
from .notice import report_save
from .retention import checked_retention, remove_checkpoint, remove_unmarked, retained
from .selection import choose_step

_PREFIX = "state"


class TensorFlowCheckpoints:
    """A folder of checkpoints of TensorFlow objects, by default SMDP_CHECKPOINT_DIR.

    ``objects`` are those of ``tf.train.Checkpoint``, such as ``model=model, optimizer=optimizer``. The ranks are those
    of ``smdistributed.dataparallel.tensorflow``; before its ``init`` there is one. The ``keep_last`` newest checkpoints
    are retained, and those whose step is a multiple of ``keep_every``. Every rank calls every method.

    Raises:
        ImportError: there is no TensorFlow.
    """

    def __init__(
        self,
        folder: Union[str, Path, None] = None,
        keep_last: int = 2,
        keep_every: Optional[int] = None,
        **objects: Any,
    ) -> None:
        self.folder = checkpoint_folder(folder)
        self._keep_last, self._keep_every = checked_retention(keep_last, keep_every)
        self._tf: Any = importlib.import_module("tensorflow")
        self._checkpoint = self._tf.train.Checkpoint(**objects)
        self._is_first = True

    def save(self, step: int) -> None:
        """Save the variables of the objects as those of step ``step``. Rank 0 writes, and the variables must be equal
        on all ranks. When this method returns on any rank, the checkpoint is on rank 0's disk.

        Raises:
            CheckpointError: on every rank, if rank 0 could not write it, or the ranks save different steps.
            RuntimeError: it is called in a ``tf.function``.
            TypeError, ValueError: the step is no integer, or negative.
        """
        self._require_eager("save")
        step, problem = checked_step(step), None
        first, last = self._agreed(step, "MIN"), self._agreed(step, "MAX")
        if first != last:
            raise CheckpointError(different_steps(first, last))
        if self._rank() == 0:
            try:
                self._write(step)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                remove_unmarked(path_of(self.folder, step))
        if self._agreed(int(problem is not None), "MAX"):
            why = problem or "rank 0's error gives the reason"
            raise CheckpointError(f"the checkpoint of step {step} was not saved in {self.folder}: {why}")
        self._is_first = False

    def load(self) -> Optional[int]:
        """Restore the newest complete checkpoint that all ranks have. Return its step; None if there is none.

        Variables that are created later, such as an optimizer's, are restored when they are created.

        Raises:
            CheckpointError: a rank has no complete checkpoint and another one has, or it has other variables.
            RuntimeError: it is called in a ``tf.function``.
        """
        self._require_eager("load")
        job = self._job()
        part, parts = (job.local_rank(), job.local_size()) if job is not None else (0, 1)
        step = choose_step(self.folder, self._rank(), part, parts, self._agreed)
        if step is None:
            return None
        problem = None
        try:
            path = path_of(self.folder, step)
            (index,) = [name for name in marked_files(path) if name.endswith(".index")]
            status = self._checkpoint.read(str(path / index[: -len(".index")]))
            status.assert_existing_objects_matched()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if self._agreed(int(problem is not None), "MAX"):
            why = problem or "another rank's error gives the reason"
            raise CheckpointError(f"the checkpoint of step {step} in {self.folder} cannot be read: {why}")
        return step

    def _require_eager(self, method: str) -> None:
        """A graph would only describe how to write or read: no file is complete when the method returns."""
        if not self._tf.executing_eagerly():
            raise RuntimeError(f"call {method}() of TensorFlowCheckpoints outside of tf.function, in eager mode")

    def _write(self, step: int) -> None:
        began, path = time.monotonic(), path_of(self.folder, step)
        remove_unmarked(path)
        path.mkdir(parents=True, exist_ok=True)
        before = set(path.iterdir())
        is_taken = f"{_PREFIX}.index" in marked_files(path)
        self._checkpoint.write(str(path / (f"{_PREFIX}.new" if is_taken else _PREFIX)))
        files: Dict[str, Dict[str, Any]] = {}
        for one in sorted(set(path.iterdir()) - before):
            sync(one)
            files[one.name] = {"bytes": one.stat().st_size, "sha256": digest(one)}
        sync(path)
        seconds, size = round(time.monotonic() - began, 3), sum(one["bytes"] for one in files.values())
        facts = {"step": step, "world_size": self._world_size(), "hosts": 1, "time": round(time.time(), 3)}
        host = os.environ.get("SMDP_HOST_ID") or socket.gethostname()
        write_marker(path, {**facts, "seconds": seconds, "bytes": size, "host": host, "files": files})
        remove_unmarked(path)
        self._retain(step)
        report_save(step, {**facts, "seconds": seconds, "bytes": size, "host_bytes": size}, None, self._is_first)

    def _retain(self, step: int) -> None:
        """Delete older checkpoints, torn ones too."""
        steps = [one for one in steps_in(self.folder) if one <= step]
        whole = [one for one in steps if (path_of(self.folder, one) / MARKER).exists()]
        for one in set(steps) - retained(whole, self._keep_last, self._keep_every):
            remove_checkpoint(path_of(self.folder, one))

    @staticmethod
    def _job() -> Any:
        """The library's module for this process as a rank; None before its ``init``."""
        job: Any = importlib.import_module("smdp_engine.tensorflow.job")
        return job if job.is_initialized() else None

    def _rank(self) -> int:
        job = self._job()
        return int(job.rank()) if job is not None else 0

    def _world_size(self) -> int:
        job = self._job()
        return int(job.size()) if job is not None else 1

    def _agreed(self, value: int, operation: str) -> int:
        if self._world_size() == 1:
            return value
        operations: Any = importlib.import_module("smdp_engine.tensorflow.operations")
        reduction = operation.lower()
        tensor = self._tf.constant([value], self._tf.int64)
        (reduced,) = operations.all_reduce([tensor], lane=f"checkpoint/{reduction}", reduction=reduction)
        return int(reduced[0])
