"""Arguments and calls of torchrun, Accelerate, DeepSpeed and FSDP, which the job's own launcher replaces."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.instances import instance
from smdp_launch.diagnostics import Severity
from smdp_launch.request.batch import world_size
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place
from smdp_launch.source.ignore import IGNORE_FILE

_HYPERPARAMETERS = ("script", "hyperparameters")
_RANKS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE"})
#: Options of torchrun, and of `accelerate launch` and `deepspeed`, which people copy from a command line.
_OPTIONS = {
    **dict.fromkeys(
        ("nproc_per_node", "nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "max_restarts"),
        "torchrun",
    ),
    **dict.fromkeys(("standalone", "monitor_interval", "master_addr", "master_port"), "torchrun"),
    **dict.fromkeys(
        ("num_machines", "machine_rank", "main_process_ip", "main_process_port", "multi_gpu"), "accelerate launch"
    ),
    **dict.fromkeys(("num_gpus", "num_nodes", "hostfile"), "deepspeed"),
}
_ZERO_FLAGS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "offload", "auto_wrap")


def _applies(facts: Facts) -> bool:
    return facts.spec.engine in TORCH_DISTRIBUTED


@rule("SMDP451", "engine", "script.hyperparameters", "script.entry", severity=Severity.WARNING)
def options_of_launchers(facts: Facts) -> Iterator[Problem]:
    if not _applies(facts):
        return
    line = facts.command_line
    for name in facts.spec.script.hyperparameters:
        launcher = _OPTIONS.get(name.replace("-", "_"))
        if launcher is None or (line is not None and line.find(f"--{name}")):
            continue  # the script has such an option itself
        message = f"{name} is an option of {launcher}, and hyperparameters go to the script"
        help_ = "remove it: the job starts one worker on each GPU, with the addresses of the hosts"
        yield Problem((*_HYPERPARAMETERS, name), message, help_, on_key=True, remove=True)


@rule("SMDP452", "engine", "script.entry", severity=Severity.WARNING)
def script_starts_workers(facts: Facts) -> Iterator[Problem]:
    read = {one.name for script in facts.scripts.values() for one in script.environment}
    if not _applies(facts) or read & _RANKS:
        return
    for name, file in facts.program.files:
        for one in file.starts:
            span = place(facts, name, one.mark)
            message = f"{one.what} starts workers in every worker of the job, which starts one on each GPU already"
            help_ = "call the training function directly; its rank is in RANK, LOCAL_RANK and WORLD_SIZE"
            text = span.source[one.mark.column - 1 : one.mark.end_column - 1]
            yield Problem((), message, help_, text=text, place=span)
            return


@rule("SMDP453", "engine", "script.hyperparameters", "compute.instance_type", "compute.instance_count")
def deepspeed_configuration(facts: Facts) -> Iterator[Problem]:
    zero = facts.deepspeed
    if zero is None or not _applies(facts):
        return
    if zero.problem is not None:
        yield Problem(_HYPERPARAMETERS, f"{zero.file}: {zero.problem}", "fix the file", on_key=True)
    elif zero.bf16 and zero.fp16:
        message = f"{zero.file} enables bf16 and fp16, and DeepSpeed refuses both together"
        yield Problem(_HYPERPARAMETERS, message, "enable one of them", on_key=True)
    elif None not in (zero.train_batch_size, zero.micro_batch) and instance(facts.spec.compute.instance_type):
        workers, accumulation = world_size(facts.spec), zero.accumulation or 1
        product = (zero.micro_batch or 0) * accumulation * workers
        if facts.local or zero.train_batch_size == product:
            return
        message = (
            f"{zero.file}: train_batch_size is {zero.train_batch_size}, but"
            f" {zero.micro_batch} x {accumulation} accumulation x {workers} GPUs is {product}, so DeepSpeed stops"
        )
        yield Problem(_HYPERPARAMETERS, message, f"write {product}, or leave train_batch_size out", on_key=True)


@rule("SMDP454", "engine", "script.entry", "script.source", "image")
def entry_for_torchrun(facts: Facts) -> Iterator[Problem]:
    named, entry = image_contents.image(facts), facts.spec.script.entry
    is_aws = facts.spec.image is None or (named is not None and named.is_aws)
    if not (_applies(facts) and is_aws) or facts.local:
        return
    if entry.endswith(".py") and facts.source is not None and facts.source.file("setup.py") is not None:
        message = (
            "AWS's toolkit treats a source folder with setup.py as a package, which it does not start with torchrun"
        )
        help_ = f"add the line /setup.py to {IGNORE_FILE}, or move setup.py into a subfolder"
        yield Problem(("script", "source"), message, help_)
    if not entry.endswith(".py"):
        message = f"AWS's toolkit starts torchrun only with a .py file, not with {entry}"
        help_ = "name the Python file that the script starts, with its arguments as `hyperparameters`"
        yield Problem(("script", "entry"), message, help_)


@rule("SMDP455", "engine", "script.hyperparameters", "script.entry")
def fsdp_of_the_trainer(facts: Facts) -> Iterator[Problem]:
    """transformers' TrainingArguments(fsdp=...)."""
    is_trainer = not facts.program.names.isdisjoint({"TrainingArguments", "HfArgumentParser"})
    value = facts.spec.script.hyperparameters.get("fsdp")
    if not _applies(facts) or not is_trainer or not isinstance(value, str):
        return
    at = (*_HYPERPARAMETERS, "fsdp")
    # The shell of older versions of AWS's toolkit removes quotes (SMDP469).
    words = (value[1:-1] if value[:1] in ("'", '"') and value[:1] == value[-1:] else value).split()
    wrong = [one for one in words if one.lower() not in _ZERO_FLAGS]
    modes = [one for one in words if one.lower() in _ZERO_FLAGS[:5]]
    if wrong:
        message = f"fsdp: transformers does not know {wrong[0]}"
        yield Problem(at, message, f"write one of {', '.join(_ZERO_FLAGS[:5])}, with offload or auto_wrap after it")
    elif len(modes) != 1 and words:
        message = f"fsdp: it names {len(modes)} ways to shard, and transformers needs one"
        yield Problem(at, message, f"keep one of {', '.join(_ZERO_FLAGS[:5])}")
    if "deepspeed" in facts.spec.script.hyperparameters and words:
        message = "fsdp and deepspeed are two ways to shard the same model"
        yield Problem(at, message, "remove one of the two", on_key=True)


@rule("SMDP467", "script.hyperparameters", "compute.instance_count", "script.entry", severity=Severity.WARNING)
def nodes_of_lightning(facts: Facts) -> Iterator[Problem]:
    """The ``num_nodes`` of Lightning's Trainer."""
    name = facts.program.nodes_of_lightning
    value, hosts = facts.spec.script.hyperparameters.get(name or ""), facts.spec.compute.instance_count
    if name is not None and isinstance(value, int) and value != hosts:
        message = f"Lightning's num_nodes is {value}, but the job has {hosts} hosts, so Lightning stops at its start"
        help_ = f"write {hosts}, or compute it in the script: docs/how-to/torch/nccl.md"
        yield Problem((*_HYPERPARAMETERS, name), message, help_, replacement=str(hosts))
