"""Distributed training in the script: process group, backend, devices, data, checkpoints.

The rules report warnings, or errors if the script cannot run. If the files do not show the whole program, as with
Lightning or ``exec``, the rules report nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.engines import IN_AWS_IMAGES, TORCH_DISTRIBUTED
from smdp_launch.catalog.frameworks import TITLES
from smdp_launch.catalog.instances import instance
from smdp_launch.diagnostics import Severity, closest
from smdp_launch.request.batch import on_cpus, world_size
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.channel_uses import unread_channels
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.instance_types import workers_are_known
from smdp_launch.rules.base.script_places import place, whole_line
from smdp_launch.rules.script.tensorflow import help_to_average
from smdp_launch.rules.script.tensorflow_library import GUIDE
from smdp_launch.source.commandline.options import Option
from smdp_launch.source.script.channels import ChannelUse
from smdp_launch.source.script.library_uses import TENSORFLOW_LIBRARY
from smdp_launch.source.script.training import Backend
from smdp_launch.source.syntax.tree import Mark

_HYPERPARAMETERS = ("script", "hyperparameters")
_WORLD = ("compute.instance_type", "compute.instance_count")
_REGISTERS = "smdistributed.dataparallel.torch"
_IMPORT = "import smdistributed.dataparallel.torch.torch_smddp"

#: Names that start a process group of torch.
_STARTS = frozenset({"init_process_group", "init_distributed", "init_device_mesh"})
#: Names that show another way to connect the ranks.
_OTHER_STARTS = frozenset(
    {"horovod", "distribute", "init_rpc", "mpi4py", "MPI", "ProcessGroup", "TCPStore", "parameter_server"}
)
_WRAPPERS = frozenset(
    {
        *("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard", "replicate"),
        *("ZeroRedundancyOptimizer", "PostLocalSGDOptimizer", "DistributedOptimizer", "DistributedGradientTape"),
        *("parallelize_module", "distribute_module", "distribute_tensor", "DTensor", "PipelineStage", "Pipe", "Join"),
    }
)
_ALL_BACKENDS = frozenset({"smddp", "nccl", "gloo", "mpi", "ucc", "ccl", "xla", "hccl"})
_OTHER_SAMPLERS = frozenset({"RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler"})
_PLAIN_SAMPLERS = _OTHER_SAMPLERS | {"BatchSampler", "DistributedSampler", "Sampler"}
_DIVIDED = frozenset(
    {"IterableDataset", "split_dataset_by_node", "prepare_data_loader", "webdataset", "StatefulDataLoader"}
)


def _starts_group(facts: Facts) -> bool:
    if not facts.program.names.isdisjoint(_STARTS):
        return not _lacks_backend(facts)
    return any(_is_of(one.name, TENSORFLOW_LIBRARY) for _, file in facts.program.files for one in file.imports)


def _lacks_backend(facts: Facts) -> bool:
    """Whether the backend is an option without a default. Such scripts train on one GPU if it is not set."""
    options = [one.option for _, file in facts.program.files for one in file.backends]
    return bool(options) and all(
        one is not None and one.default is None and _hyperparameter(facts, one) is None for one in options
    )


def _backend(facts: Facts) -> str:
    """The backend of torch.distributed that is the job's engine."""
    engine = facts.spec.engine if facts.has("engine") else "native"
    return engine if engine in TORCH_DISTRIBUTED else "smddp"


def _problem(facts: Facts, name: str, mark: Mark, message: str, help_: str) -> Problem:
    span = place(facts, name, mark)
    return Problem((), message, help_, text=span.source[mark.column - 1 : mark.end_column - 1], place=span)


@rule("SMDP440", "script.entry", "framework.name", *_WORLD, severity=Severity.WARNING)
def workers_train_one_model(facts: Facts) -> Iterator[Problem]:
    program, names = facts.program, facts.program.names
    workers = world_size(facts.spec) if workers_are_known(facts) else 1
    steps = [(name, one.step) for name, one in program.files if one.step is not None]
    if workers < 2 or not steps or len(program.frameworks) != 1 or not program.is_understood:
        return
    starts = _starts_group(facts)
    if _lacks_backend(facts):
        return
    if not names.isdisjoint(_WRAPPERS | _OTHER_STARTS):
        return
    if starts and any(one.exchanges_gradients for _, one in program.files):
        return
    is_tensorflow = program.frameworks == ["tensorflow"]
    does_not = "does not join the job" if is_tensorflow else "does not start a process group"
    what = "does not average the gradients" if starts else does_not
    name, mark = steps[0]
    message = f"the script {what}, so its {workers} workers train {workers} separate models"
    if is_tensorflow:
        help_ = help_to_average(facts, is_fit=mark == facts.scripts[name].training.fit)
    elif starts:
        help_ = "wrap the model in torch.nn.parallel.DistributedDataParallel"
    else:
        start = f'torch.distributed.init_process_group("{_backend(facts)}")'
        help_ = f"call {start}, and wrap the model in DistributedDataParallel"
    yield _problem(facts, name, mark, message, help_)


def _needs_gpus(facts: Facts) -> list[Problem]:
    """The process groups that certainly use NCCL, in a job on CPUs."""
    if not facts.has("compute.instance_type") or facts.local or not on_cpus(facts.spec):
        return []
    backends = [(name, one) for name, file in facts.program.files for one in file.backends]
    each = [_other_backend(facts, name, one) for name, one in backends]
    is_nccl = all(_asked_for(facts, one) == {"nccl"} for _, one in backends)
    return [one for one in each if one is not None] if each and all(each) and is_nccl else []


@rule("SMDP441", "script.entry", "framework.name", "engine", "script.hyperparameters")
def nccl_needs_gpus(facts: Facts) -> Iterator[Problem]:
    for one in _needs_gpus(facts):
        yield one._replace(message=f"{one.message}, and NCCL needs GPUs")


@rule("SMDP441", "script.entry", "framework.name", "engine", "script.hyperparameters", severity=Severity.WARNING)
def backend_of_the_engine(facts: Facts) -> Iterator[Problem]:
    if any(one.library in ("module", "tensorflow") for one in facts.scripts.values()) or _needs_gpus(facts):
        return
    backends = [(name, one) for name, file in facts.program.files for one in file.backends]
    problems = [_other_backend(facts, name, one) for name, one in backends]
    if all(one is not None for one in problems):
        yield from (one for one in problems if one is not None)
    others = [(name, one) for name, file in facts.program.files for one in file.others]
    if others and not backends:
        name, other = others[0]
        short = other.name.rpartition(".")[2]
        what = "Horovod" if other.name.startswith("horovod.") else f"tf.distribute.{short}"
        message = f"{what} exchanges the gradients, so the job's engine is not used"
        is_tensorflow = "tensorflow" in facts.program.frameworks
        library = f"torch.distributed with the backend {_backend(facts)}"
        if is_tensorflow:
            differs = ", some of whose functions have other names" if what == "Horovod" else ""
            library = f"{TENSORFLOW_LIBRARY}{differs} ({GUIDE})"
        yield _problem(facts, name, other.mark, message, f"replace it with {library}")


def _asked_for(facts: Facts, one: Backend) -> frozenset[str]:
    """The backends that the call may use in this job; empty if that is not known."""
    key = _hyperparameter(facts, one.option)
    return frozenset({str(facts.spec.script.hyperparameters[key])}) if key is not None else one.values


def _other_backend(facts: Facts, name: str, one: Backend) -> Problem | None:
    """The problem, if the call certainly uses another backend than the engine's."""
    start, backend = one.call.rpartition(".")[2], _backend(facts)
    named = f'"{backend}"' if one.call.startswith("torch.") else f'dist_backend="{backend}"'
    help_ = f"write {start}({named})"
    help_ += f", and {_IMPORT} above it" if facts.spec.engine == "smdistributed" else ""
    help_ += ", or `engine: nccl`" if backend == "smddp" and _asked_for(facts, one) == {"nccl"} else ""
    if one.omitted and backend != "smddp":
        return None  # torch chooses nccl for GPUs and gloo for CPUs
    if one.omitted:
        message = f"{start}() names no backend and uses nccl for GPUs; the job's engine is the backend smddp"
        return _problem(facts, name, one.mark, message, help_)
    key, values = _hyperparameter(facts, one.option), _asked_for(facts, one)
    if not values or not values <= _ALL_BACKENDS - {backend}:
        return None
    names = " or ".join(sorted(values))
    message = f"the process group uses the backend {names}; the job's engine is the backend {backend}"
    if key is not None:
        is_registered = facts.spec.engine != "smdistributed"
        is_enough = is_registered and (not one.choices or backend in one.choices)
        help_ = f"write {backend}" if is_enough else f"write {backend}, and change {name} to accept and import it"
        return Problem((*_HYPERPARAMETERS, key), message, help_, replacement=backend if is_enough else None)
    if one.option is not None:
        mark = whole_line(facts, name, one.option.line)
        help_ = f"write {backend} as the default, or `{one.option.name}: {backend}` in the job file"
        return _problem(facts, name, mark, message, help_)
    return _problem(facts, name, one.mark, message, help_)


def _hyperparameter(facts: Facts, option: Option | None) -> str | None:
    """The name of the job's hyperparameter that sets the option; None if there is none."""
    if option is None:
        return None
    wanted = option.name.replace("-", "_")
    return next((one for one in facts.spec.script.hyperparameters if one.replace("-", "_") == wanted), None)


def _unregistered(facts: Facts) -> Iterator[Problem]:
    program, spec = facts.program, facts.spec
    imports = [one.name for _, file in program.files for one in file.imports]
    registered = any(one.startswith(_REGISTERS) or one == "smdistributed.dataparallel" for one in imports)
    if spec.engine != "smdistributed" or registered or not program.is_understood:
        return
    for name, file in program.files:
        for one in file.backends:
            if one.values == {"smddp"} and (one.option is None or _hyperparameter(facts, one.option) is None):
                message = "the backend smddp is not registered with torch, so this call fails"
                yield _problem(facts, name, one.mark, message, f"write {_IMPORT} above it")


@rule("SMDP442", "script.entry", "engine", "script.hyperparameters")
def backend_is_registered(facts: Facts) -> Iterator[Problem]:
    if not facts.local:  # locally the engine registers the backend by itself
        yield from _unregistered(facts)


@rule("SMDP442", "script.entry", "engine", "script.hyperparameters", severity=Severity.WARNING)
def backend_is_registered_on_aws(facts: Facts) -> Iterator[Problem]:
    if facts.local:
        yield from _unregistered(facts)


def _of_another_framework(facts: Facts, *, certain: bool) -> Iterator[Problem]:
    name = facts.spec.framework.name
    package = {"pytorch": "tensorflow", "tensorflow": "torch"}[name]
    other = {"pytorch": "tensorflow", "tensorflow": "pytorch"}[name]
    if facts.program.frameworks != [other] or _installs(facts, package):
        return
    image = image_contents.image(facts)
    is_aws = image.is_aws if image is not None else facts.spec.image is None and facts.spec.engine in IN_AWS_IMAGES
    imports = [
        (file, one) for file, training in facts.program.files for one in training.imports if _is_of(one.name, package)
    ]
    if not imports:
        return
    file, one = imports[0]
    if certain != (is_aws and one.certain):
        return
    message = f"the script imports {TITLES[other]}, but the job's framework is {TITLES[name]}"
    message += f", and its image does not contain {TITLES[other]}" if certain else ""
    yield _problem(facts, file, one.mark, message, f"write `name: {other}` and its version in `framework`")


def _is_of(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _installs(facts: Facts, package: str) -> bool:
    required = facts.requirements
    return bool(required.includes or required.problems) or any(
        one.name.startswith(package) for one in required.packages
    )


@rule("SMDP443", "script.entry", "framework.name", "engine", "image")
def framework_is_in_the_image(facts: Facts) -> Iterator[Problem]:
    yield from _of_another_framework(facts, certain=True)


@rule("SMDP443", "script.entry", "framework.name", "engine", "image", severity=Severity.WARNING)
def framework_of_the_job(facts: Facts) -> Iterator[Problem]:
    yield from _of_another_framework(facts, certain=False)


@rule("SMDP444", "script.entry", "channels", "script.hyperparameters", "environment", severity=Severity.WARNING)
def channels_of_the_script(facts: Facts) -> Iterator[Problem]:
    written = facts.document.data.get("channels")  # includes channels with schema errors
    channels = {str(one).upper(): str(one) for one in (written if isinstance(written, dict) else facts.spec.channels)}
    uses = [(name, one) for name, file in facts.program.files for one in file.channels]
    unread = unread_channels(facts, channels)
    reported: set[str] = set()
    for name, one in uses:
        wanted = one.channel.upper()
        if wanted in channels or wanted in reported or f"SM_CHANNEL_{wanted}" in facts.spec.environment:
            continue
        if one.needed or (unread and _hyperparameter(facts, one.option) is None):
            reported.add(wanted)
            yield _problem(facts, name, one.mark, *_channel_texts(one, list(channels.values()), unread))


def _channel_texts(one: ChannelUse, channels: list[str], unread: list[str]) -> tuple[str, str]:
    wanted = one.channel.lower() if one.written.startswith("SM_CHANNEL_") else one.channel
    near = closest(wanted, unread or channels) or next(iter(unread), None)
    message = f"{one.written} needs a channel {wanted}, which the job does not have"
    if not channels:
        return message, f"add `channels: {{{wanted}: ...}}`"
    message += f"; it has {', '.join(channels)}"
    if near is None:
        return message, f"add a channel {wanted}"
    variable = f"SM_CHANNEL_{near.upper()}" if one.written.startswith("SM_CHANNEL_") else f"/opt/ml/input/data/{near}"
    return message, f"write {variable} in the script, or rename the channel to {wanted} in the job file"


@rule("SMDP445", "script.entry", "framework.name", *_WORLD, severity=Severity.WARNING)
def uses_the_gpus(facts: Facts) -> Iterator[Problem]:
    program, type_ = facts.program, instance(facts.spec.compute.instance_type)
    if type_ is None or program.frameworks != ["pytorch"] or not program.is_understood:
        return
    files = [file for _, file in program.files]
    names_one = any(one.names_other_devices for one in files)
    if any(one.uses_other_devices or (one.uses_device_variables and names_one) for one in files):
        return
    steps = [(name, one.step) for name, one in program.files if one.step is not None]
    if steps:
        name, mark = steps[0]
        message = f"the script does not use GPUs, so it trains on the CPUs of hosts with {type_.gpus} {type_.gpu} each"
        help_ = 'move model and batches to torch.device("cuda", int(os.environ["LOCAL_RANK"])) with .to(device)'
        yield _problem(facts, name, mark, message, help_)


@rule("SMDP446", "script.entry", "framework.name", severity=Severity.WARNING)
def data_is_divided(facts: Facts) -> Iterator[Problem]:
    program = facts.program
    if not (_starts_group(facts) and program.is_understood and program.names.isdisjoint(_DIVIDED | _OTHER_STARTS)):
        return
    if any(file.shards or file.passes_sampler for _, file in program.files) or _has_own_sampler(program.names):
        return
    for name, file in program.files:
        for one in file.loaders:
            message = "this DataLoader has no DistributedSampler: every worker trains on all of the data"
            help_ = "pass sampler=DistributedSampler(dataset) instead of shuffle=True"
            yield _problem(facts, name, one.mark, message, help_)


def _has_own_sampler(names: frozenset[str]) -> bool:
    return any(one.endswith("Sampler") and one not in _PLAIN_SAMPLERS for one in names)


@rule("SMDP447", "script.entry", "framework.name", *_WORLD, severity=Severity.WARNING)
def one_rank_saves(facts: Facts) -> Iterator[Problem]:
    program = facts.program
    if not (_starts_group(facts) and program.is_understood):
        return
    for name, file in program.files:
        for one in file.saves:
            if program.is_run_by_all(name, one.at) and all(_is_on(facts, each) for each in one.options):
                message = f"every rank calls {one.call} with the same path, so the ranks overwrite each other's file"
                condition = "rank() == 0" if "tensorflow" in program.frameworks else "torch.distributed.get_rank() == 0"
                yield _problem(facts, name, one.mark, message, f"call it only on one rank: `if {condition}:`")


@rule("SMDP448", "script.entry", "framework.name", "script.hyperparameters", severity=Severity.WARNING)
def epochs_differ(facts: Facts) -> Iterator[Problem]:
    program = facts.program
    samplers = [(name, one) for name, file in program.files for one in file.samplers]
    if not samplers or "set_epoch" in program.names or not (_starts_group(facts) and program.is_understood):
        return
    for name, file in program.files:
        for loop in file.loops:
            if _epochs(facts, loop.option, loop.epochs) > 1:
                message = "the loop does not call set_epoch, so DistributedSampler uses the same order in every epoch"
                holder, sampler = samplers[0]
                help_ = f"call {sampler.name}.set_epoch(epoch) at the start of the loop"
                if not sampler.name or holder != name:
                    help_ = (
                        "assign the DistributedSampler to a variable,"
                        " and call its set_epoch(epoch) at the start of the loop"
                    )
                yield _problem(facts, name, loop.mark, message, help_)
                return


def _is_on(facts: Facts, option: Option) -> bool:
    key = _hyperparameter(facts, option)
    return bool(facts.spec.script.hyperparameters[key] if key is not None else option.default)


def _epochs(facts: Facts, option: Option | None, written: int | None) -> float:
    key = _hyperparameter(facts, option)
    value = facts.spec.script.hyperparameters[key] if key is not None else written
    return value if isinstance(value, int | float) else float("inf")


@rule("SMDP450", "script.hyperparameters", "engine", severity=Severity.WARNING)
def model_parallel_parameters(facts: Facts) -> Iterator[Problem]:
    if "mp_parameters" in facts.spec.script.hyperparameters:
        message = "mp_parameters belongs to AWS's model parallel library, which a data parallel job does not start"
        yield Problem((*_HYPERPARAMETERS, "mp_parameters"), message, "remove it", on_key=True)


@rule("SMDP450", "script.entry", "engine", severity=Severity.WARNING)
def model_parallel_library(facts: Facts) -> Iterator[Problem]:
    for name, file in facts.program.files:
        for one in file.imports:
            if _is_of(one.name, "smdistributed.modelparallel") and one.certain:
                message = "the script uses AWS's model parallel library, which a data parallel job does not start"
                help_ = "use torch.distributed with the backend smddp; for a model too large for one GPU, use FSDP"
                yield _problem(facts, name, one.mark, message, help_)
                return
