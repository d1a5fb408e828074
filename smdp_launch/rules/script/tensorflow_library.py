"""The names and arguments of ``smdistributed.dataparallel.tensorflow``, and what to write in place of Horovod's."""

from __future__ import annotations

from smdp_launch.diagnostics import closest
from smdp_launch.source.script.library_uses import TENSORFLOW_LIBRARY, Argument

GUIDE = "docs/how-to/tensorflow.md"

_EXCHANGE = ("device_dense", "device_sparse", "compression", "sparse_as_dense", "op")
#: The arguments of the native engine's functions and classes; a test compares them with its code.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "BroadcastGlobalVariablesHook": ("root_rank", "device"),
    "BroadcastVariablesCallback": ("root_rank",),
    "DistributedGradientTape": ("gradtape", *_EXCHANGE),
    "DistributedOptimizer": ("optimizer", "name", "use_locking", *_EXCHANGE, "bucket_cap_mb"),
    "MetricAverageCallback": (),
    "allgather": ("tensor",),
    "allreduce": ("tensor", "param_index", "num_params", "compression", "op", "grad"),
    "barrier": (),
    "broadcast": ("tensor", "root_rank"),
    "broadcast_global_variables": ("root_rank",),
    "broadcast_variables": ("variables", "root_rank"),
    "init": (),
    "is_initialized": (),
    "local_rank": (),
    "local_size": (),
    "oob_allreduce": ("tensor", "compression", "op"),
    "overlap": ("tensor",),
    "rank": (),
    "shutdown": (),
    "size": (),
}
#: All names of the native engine's module; a test compares them with it.
NAMES = frozenset({*ARGUMENTS, "Compression", "ReduceOp"})
#: The functions that only compute averages.
_ONLY_AVERAGE = frozenset({"DistributedGradientTape", "DistributedOptimizer", "oob_allreduce"})
_OTHER_REDUCTIONS = frozenset({"sum", "min", "max"})
#: What to write in place of names that Horovod and torch.distributed have.
_EQUIVALENTS = {
    "callbacks": "BroadcastVariablesCallback(root_rank=0) and MetricAverageCallback() of the module itself",
    "Average": "ReduceOp.AVERAGE",
    "Sum": "ReduceOp.SUM",
    "Min": "ReduceOp.MIN",
    "Max": "ReduceOp.MAX",
    "get_rank": "rank()",
    "get_world_size": "size()",
    "get_local_rank": "local_rank()",
    "grouped_allreduce": "allreduce(tensor, param_index, num_params) for each tensor",
    "grouped_allgather": "allgather(tensor) for each tensor",
    "load_model": "tf.keras.models.load_model(path), and then DistributedOptimizer(model.optimizer)",
}
#: Names of Horovod that the library has no equivalent of.
WITHOUT_EQUIVALENT = frozenset(
    {
        *("broadcast_object", "broadcast_object_fn", "allgather_object", "alltoall", "join", "elastic"),
        *("cross_rank", "cross_size", "is_homogeneous", "reducescatter", "grouped_reducescatter", "Adasum", "Product"),
        *("ProcessSet", "add_process_set", "remove_process_set", "global_process_set", "process_set_included"),
        *("PartialDistributedGradientTape", "PartialDistributedOptimizer", "SyncBatchNormalization"),
        *("mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built", "nccl_built"),
        *("ddl_built", "ccl_built", "cuda_built", "rocm_built", "start_timeline", "stop_timeline"),
    }
)
_INSTEAD_OF_ARGUMENTS = {
    ("DistributedOptimizer", "backward_passes_per_step"): (
        "remove it, or set gradient_accumulation_steps of a Keras 3 optimizer"
    ),
    ("allreduce", "average"): "write op=ReduceOp.AVERAGE or op=ReduceOp.SUM",
}
#: The similarity of two spellings of one name.
_SPELLING = 0.8


def instead_of(name: str) -> str:
    """The help for a name that the library does not have."""
    if name in WITHOUT_EQUIVALENT:
        return f"remove it: the library has no equivalent of Horovod's {name}; {GUIDE} lists its functions"
    equivalent = _EQUIVALENTS.get(name) or closest(name, sorted(NAMES), cutoff=_SPELLING)
    return f"write {equivalent} ({GUIDE})" if equivalent is not None else f"{GUIDE} lists its functions"


def argument_problem(function: str, argument: Argument) -> tuple[str, str] | None:
    """Why the call of ``function`` with this argument fails: the message and the help."""
    known, name = ARGUMENTS.get(function), argument.name
    if known is None:
        return None
    if name not in known:
        near = closest(name, known, cutoff=_SPELLING)
        help_ = _INSTEAD_OF_ARGUMENTS.get((function, name)) or (f"write {near}" if near is not None else "remove it")
        return f"{function}() of {TENSORFLOW_LIBRARY} has no argument {name}", f"{help_} ({GUIDE})"
    if name in ("device_dense", "device_sparse") and argument.text:
        message = f"{function}() of {TENSORFLOW_LIBRARY} does not support {name}"
        return message, f"remove it: the CPUs of the hosts reduce the gradients ({GUIDE})"
    if name == "op" and function in _ONLY_AVERAGE and _reduction(argument) in _OTHER_REDUCTIONS:
        message = f"{function}() of {TENSORFLOW_LIBRARY} supports only op=ReduceOp.AVERAGE"
        return message, f"remove the argument, or use allreduce(), which has the other reductions ({GUIDE})"
    return None


def _reduction(argument: Argument) -> str | None:
    prefix = f"{TENSORFLOW_LIBRARY}.ReduceOp."
    is_member = argument.reference.startswith(prefix)
    return argument.reference.removeprefix(prefix).lower() if is_member else argument.text
