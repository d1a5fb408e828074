"""Checkpoints of a distributed script that survive a stop, a spot interruption and a crash at any moment.

``Checkpoints`` saves one file on rank 0, with any version of torch. ``ShardedCheckpoints`` lets each rank write a
part, also while the training continues. ``TensorFlowCheckpoints`` saves objects of TensorFlow. ``StopFlag`` makes all
ranks stop after the same step, and ``ResumableSampler`` resumes within an epoch. docs/how-to/checkpoints.md shows them
together.
"""

from .errors import CheckpointError
from .marker import MARKER
from .resuming import ResumableSampler, StopFlag
from .sharded import ShardedCheckpoints
from .single_file import LATEST, Checkpoints
from .tensorflow_objects import TensorFlowCheckpoints

__all__ = [
    "LATEST",
    "MARKER",
    "CheckpointError",
    "Checkpoints",
    "ResumableSampler",
    "ShardedCheckpoints",
    "StopFlag",
    "TensorFlowCheckpoints",
]
