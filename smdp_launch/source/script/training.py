"""The parts of one Python file that matter for distributed training: process groups, data, checkpoints, devices.

``program`` combines the files of a script; the rules check the result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from smdp_launch.source.commandline.options import Option, Value, literal
from smdp_launch.source.script.channels import ChannelUse, channels
from smdp_launch.source.script.data_loading import Loader, Sampler, loaders, passes_sampler, samplers, shards
from smdp_launch.source.script.devices import names_other_devices, uses_other_devices
from smdp_launch.source.script.exchanges import may_exchange_gradients
from smdp_launch.source.script.launching import Precision, Start, nodes_of_lightning, precisions, starts
from smdp_launch.source.script.library_uses import LibraryCall, LibraryUse, library_calls, library_uses
from smdp_launch.source.script.model_saves import ModelSave, model_saves
from smdp_launch.source.script.packages import PLAIN
from smdp_launch.source.script.pickles import Pickle, Unpickle, pickles, unpickles
from smdp_launch.source.script.ranks import Ranks
from smdp_launch.source.script.saves import Save, saves, saves_of_engine
from smdp_launch.source.script.values import Values
from smdp_launch.source.script.world_size import Division, divisions, scales_learning_rate
from smdp_launch.source.syntax.extents import Extents, extents
from smdp_launch.source.syntax.scopes import Nodes, tail
from smdp_launch.source.syntax.tree import Mark, Position, Syntax, keywords, start, words

_DYNAMIC = {
    *("exec", "eval", "__import__", "import_module", "instantiate", "run_module", "run_path", "popen", "Popen"),
    *("execv", "execve", "execvp", "execvpe", "check_call", "check_output", "load_module", "exec_module"),
}
_DYNAMIC_MODULES = ("subprocess.", "os.system", "runpy.", "hydra.", "importlib.util.")
_STRATEGIES = {
    *("MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "CentralStorageStrategy"),
    "CollectiveAllReduceStrategy",
}
#: Calls that run a function from their arguments.
_RUNNERS = {"spawn", "start_processes", "Process", "Thread", "Fire", "run", "launch", "wraps", "partial"}
#: A file without these names is not read further.
_SUBJECTS = {"torch", "tensorflow", "keras", "smdistributed"}


class Backend(NamedTuple):
    """A call that starts a process group.

    Args:
        call: its full name, such as ``torch.distributed.init_process_group``.
        values: all backends that the code may use; empty if one of them is known only at run time.
        option: the command line option that sets the backend.
        choices: the choices of that option; empty for any text.
        omitted: the call names no backend.
    """

    mark: Mark
    call: str
    values: frozenset[str] = frozenset()
    option: Option | None = None
    choices: frozenset[str] = frozenset()
    omitted: bool = False


class EpochLoop(NamedTuple):
    """A loop over epochs, with their number or the command line option that sets it, if these can be read."""

    mark: Mark
    epochs: int | None
    option: Option | None


class Named(NamedTuple):
    """A name with its place. ``certain``: it is at the top level of the file, outside of ``if`` and ``try``."""

    mark: Mark
    name: str
    certain: bool = True


class Training(NamedTuple):
    """The calls and names of one file that matter for distributed training.

    Args:
        names: all identifiers and all parts of imported names.
        imports: all imports with their full names.
        is_dynamic: it runs code or programs that its syntax tree does not show.
        step: the first computation of gradients, if the file also applies them.
        fit: the first call of ``fit`` of a Keras model that the file compiles.
        library_uses: uses of AWS's library for TensorFlow, in the order of the file; ``library_calls`` are its calls
            with keyword arguments.
        exchanges_gradients: its own calls may send gradients to other ranks.
        uses_other_devices: it moves something to a device other than the CPU.
        uses_device_variables: the same, or to a device in a variable.
        names_other_devices: a name or a text is about a device other than the CPU.
        shards: its own code divides data by rank, without a sampler.
        passes_sampler: a call receives a sampler, or arguments that cannot be determined.
        others: unconditional starts of other libraries, such as ``horovod.torch.init``.
        calls: positions in the syntax tree, by the last part of the called name; without those of known packages.
        kept: saves to the checkpoint folder of the job with ``smdp_engine.checkpoint``.
        starts: calls that start workers.
        nodes_of_lightning: the option for the number of hosts of Lightning's Trainer.
        scales_learning_rate: it may compute the learning rate from the number of workers or the batch size.
        model_saves: calls that save a model; ``saves`` are those with a path that is the same on all ranks.
        precisions: calls that ask for bf16 or fp8.
        pickles: calls that write pickles, of checkpoints too; ``unpickles`` read them.
    """

    names: frozenset[str] = frozenset()
    imports: tuple[Named, ...] = ()
    is_dynamic: bool = False
    step: Mark | None = None
    fit: Mark | None = None
    library_uses: tuple[LibraryUse, ...] = ()
    library_calls: tuple[LibraryCall, ...] = ()
    exchanges_gradients: bool = False
    uses_other_devices: bool = False
    uses_device_variables: bool = False
    names_other_devices: bool = False
    shards: bool = False
    passes_sampler: bool = False
    backends: tuple[Backend, ...] = ()
    others: tuple[Named, ...] = ()
    saves: tuple[Save, ...] = ()
    kept: tuple[Mark, ...] = ()
    loaders: tuple[Loader, ...] = ()
    samplers: tuple[Sampler, ...] = ()
    loops: tuple[EpochLoop, ...] = ()
    channels: tuple[ChannelUse, ...] = ()
    divisions: tuple[Division, ...] = ()
    extents: Extents = Extents()
    calls: Mapping[str, tuple[Position, ...]] = MappingProxyType({})
    starts: tuple[Start, ...] = ()
    nodes_of_lightning: Option | None = None
    scales_learning_rate: bool = False
    model_saves: tuple[ModelSave, ...] = ()
    precisions: tuple[Precision, ...] = ()
    pickles: tuple[Pickle, ...] = ()
    unpickles: tuple[Unpickle, ...] = ()


def read_training(
    nodes: Nodes, options: Sequence[Option], constants: Mapping[str, Value], lines: Sequence[str]
) -> Training:
    """Read the file with these ``nodes`` and ``lines``.

    Args:
        constants: names with one value, from ``options.constants``.
    """
    syntax = Syntax(nodes, lines)
    names = _names(syntax)
    ranks = Ranks(syntax)
    around = extents(syntax, ranks.guards())
    values = Values(syntax, options, constants)
    facts = Training(
        names=names,
        imports=tuple(_imports(syntax, around)),
        is_dynamic=_is_dynamic(syntax),
        channels=tuple(channels(syntax, around, options)),
        divisions=tuple(divisions(syntax)),
        exchanges_gradients=may_exchange_gradients(syntax, around),
        extents=around,
        calls=_calls(syntax),
        starts=tuple(starts(syntax, around)),
        nodes_of_lightning=nodes_of_lightning(syntax, around, values),
        scales_learning_rate=scales_learning_rate(syntax),
        model_saves=tuple(model_saves(syntax, values)),
        precisions=tuple(precisions(syntax, around)),
        pickles=tuple(pickles(nodes, syntax)),
        unpickles=tuple(unpickles(nodes, syntax)),
    )
    if names.isdisjoint(_SUBJECTS):
        return facts
    on_device = uses_other_devices(syntax, variables=False)
    return facts._replace(
        step=_step(syntax, names),
        fit=_fit(syntax, names),
        library_uses=tuple(library_uses(syntax, around)) if "smdistributed" in names else (),
        library_calls=tuple(library_calls(syntax, around)) if "smdistributed" in names else (),
        uses_other_devices=on_device,
        uses_device_variables=on_device or uses_other_devices(syntax, variables=True),
        names_other_devices=on_device or names_other_devices(syntax),
        shards=shards(syntax, ranks),
        passes_sampler=passes_sampler(syntax),
        backends=tuple(_backends(syntax, values)),
        others=tuple(_others(syntax, around)),
        saves=tuple(saves(syntax, ranks, values)),
        kept=tuple(saves_of_engine(syntax)),
        loaders=tuple(loaders(syntax)),
        samplers=tuple(samplers(syntax)),
        loops=tuple(_loops(syntax, values)),
    )


def _names(syntax: Syntax) -> frozenset[str]:
    imported = [one.name for node in syntax.all(ast.Import, ast.ImportFrom) for one in node.names]
    imported += [node.module or "" for node in syntax.all(ast.ImportFrom)]
    parts = (part for name in imported for part in name.split("."))
    return frozenset(parts).union(syntax.uses)


def _imports(syntax: Syntax, around: Extents) -> Iterator[Named]:
    for node in syntax.all(ast.Import, ast.ImportFrom):
        certain = around.function(start(node)) is None and not around.is_conditional(start(node))
        base = "." * node.level + (node.module or "") + "." if isinstance(node, ast.ImportFrom) else ""
        base = base[:-1] if base.endswith("..") and not (isinstance(node, ast.ImportFrom) and node.module) else base
        yield from (Named(syntax.mark(node), f"{base}{one.name}", certain) for one in node.names)


def _is_dynamic(syntax: Syntax) -> bool:
    for call, name, full_name in syntax.calls:
        if name in _DYNAMIC and not (name == "eval" and isinstance(call.func, ast.Attribute)):
            return True
        if full_name.startswith(_DYNAMIC_MODULES):
            return True
    return False


def _step(syntax: Syntax, names: frozenset[str]) -> Mark | None:
    called: dict[str, ast.Call] = {}
    for call, name, _ in syntax.calls:
        called.setdefault(name, call)
    if "torch" in names and {"backward", "step"} <= called.keys():
        return syntax.mark(called["backward"])
    if not names.isdisjoint({"tensorflow", "keras"}):
        names_of_steps = ["apply_gradients", "minimize", *(["fit"] if "compile" in called else [])]
        first = next((one for one in names_of_steps if one in called), None)
        return syntax.mark(called[first]) if first is not None else None
    return None


def _fit(syntax: Syntax, names: frozenset[str]) -> Mark | None:
    compiled = any(
        name == "compile" and not {"optimizer", "loss"}.isdisjoint(keywords(call)) for call, name, _ in syntax.calls
    )
    if not compiled or names.isdisjoint({"tensorflow", "keras"}):
        return None
    return next((syntax.mark(call) for call, name, _ in syntax.calls if name == "fit"), None)


def _backends(syntax: Syntax, values: Values) -> Iterator[Backend]:
    for call, _, name in syntax.calls:
        is_torch = name.startswith("torch.distributed.") and name.endswith(".init_process_group")
        if not is_torch and name not in ("deepspeed.init_distributed", "deepspeed.comm.init_distributed"):
            continue
        node = keywords(call).get("backend" if is_torch else "dist_backend", call.args[0] if call.args else None)
        if node is not None:
            option = values.option(node)
            yield Backend(syntax.mark(call), name, values.texts(node), option, _choices(syntax, option))
        else:
            yield Backend(syntax.mark(call), name, omitted=all(one.arg is not None for one in call.keywords))


def _choices(syntax: Syntax, option: Option | None) -> frozenset[str]:
    declared = [one for one, _, _ in syntax.calls if option is not None and one.lineno == option.line]
    texts = [literal(kwargs["choices"], {}) for one in declared if "choices" in (kwargs := keywords(one))]
    return frozenset(one for listed in texts if isinstance(listed, list) for one in listed if isinstance(one, str))


def _others(syntax: Syntax, around: Extents) -> Iterator[Named]:
    for call, last, name in syntax.calls:
        is_horovod = name.startswith("horovod.") and name.endswith(".init")
        is_strategy = last in _STRATEGIES and name.startswith("tensorflow.")
        if (is_horovod or is_strategy) and not around.is_conditional(start(call)):
            yield Named(syntax.mark(call), name)


def _loops(syntax: Syntax, values: Values) -> Iterator[EpochLoop]:
    for node in syntax.all(ast.For):
        about = words(node.target, node.iter)
        if any("epoch" in one.lower() for one in about):
            yield EpochLoop(syntax.mark(node), *_epochs(node.iter, values))


def _epochs(node: ast.expr, values: Values) -> tuple[int | None, Option | None]:
    while isinstance(node, ast.Call) and tail(node.func) in ("tqdm", "trange", "enumerate", "master_bar") and node.args:
        if tail(node.func) == "trange":
            break
        node = node.args[0]
    if not (isinstance(node, ast.Call) and tail(node.func) in ("range", "trange") and node.args):
        return None, None
    stop = node.args[0] if len(node.args) == 1 else node.args[1]
    first = values.number(node.args[0]) if len(node.args) > 1 else 0
    last = values.number(stop)
    return (last - first if last is not None and first is not None else None), values.option(stop)


def _calls(syntax: Syntax) -> dict[str, tuple[Position, ...]]:
    positions: dict[str, list[Position]] = {}
    for call, name, full_name in syntax.calls:
        if full_name.partition(".")[0] not in PLAIN:
            positions.setdefault(name, []).append(start(call))
        for one in [*call.args, *keywords(call).values()] if name in _RUNNERS else ():
            if isinstance(one, ast.Name):
                positions.setdefault(one.id, []).append(start(one))
    return {name: tuple(places) for name, places in positions.items()}
