"""SageMaker's data parallel library for TensorFlow 2, implemented by smdp-engine."""

from smdp_engine.tensorflow.job import init, is_initialized, local_rank, local_size, rank, shutdown, size
from smdp_engine.tensorflow.keras import BroadcastVariablesCallback, MetricAverageCallback
from smdp_engine.tensorflow.optimizer import DistributedOptimizer
from smdp_engine.tensorflow.reductions import (
    Compression,
    ReduceOp,
    allgather,
    allreduce,
    barrier,
    broadcast,
    oob_allreduce,
    overlap,
)
from smdp_engine.tensorflow.tape import DistributedGradientTape
from smdp_engine.tensorflow.variables import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
    broadcast_variables,
)

__all__ = [
    "BroadcastGlobalVariablesHook",
    "BroadcastVariablesCallback",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "MetricAverageCallback",
    "ReduceOp",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "oob_allreduce",
    "overlap",
    "rank",
    "shutdown",
    "size",
]
