"""What one Python file does about distributed training: groups, data loaders, samplers, saves, devices, channels.

``program`` puts the files of a script together; the rules say what is wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from smdp_launch.source.script.data_loading import Loader, Sampler, loaders, passes_sampler, samplers, shards
from smdp_launch.source.script.devices import names_other_devices, uses_other_devices
from smdp_launch.source.script.exchanges import may_exchange_gradients
from smdp_launch.source.script.extents import Extents, extents
from smdp_launch.source.script.options import Option, Value, literal
from smdp_launch.source.script.packages import PLAIN
from smdp_launch.source.script.ranks import Ranks
from smdp_launch.source.script.scopes import Nodes, dotted, tail
from smdp_launch.source.script.syntax import Extent, Mark, Position, Spots, Syntax, end, keywords, start, words
from smdp_launch.source.script.world_size import Division, divisions

_DYNAMIC = {
    *("exec", "eval", "__import__", "import_module", "instantiate", "run_module", "run_path", "popen", "Popen"),
    *("execv", "execve", "execvp", "execvpe", "check_call", "check_output", "load_module", "exec_module"),
}
_DYNAMIC_MODULES = ("subprocess.", "os.system", "runpy.", "hydra.", "importlib.util.")
_STRATEGIES = {
    *("MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "CentralStorageStrategy"),
    "CollectiveAllReduceStrategy",
}
_SAVES = {"torch.save", "torch.jit.save", "tensorflow.saved_model.save"}
_MODEL_METHODS = {"save_pretrained", "save_weights"}
#: Nobody writes more; each is held against the conditions around it.
_MOST_SAVES = 50
_SAVED_MODEL = re.compile(r"(^|_)(model|net|network|checkpoint|ckpt)$", re.IGNORECASE)
_BUFFERS = {
    *("BytesIO", "StringIO", "TemporaryFile", "NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory"),
    *("mkdtemp", "mkstemp", "mktemp", "gettempdir"),
}
#: Calls that run a function which they are given.
_RUNNERS = {"spawn", "start_processes", "Process", "Thread", "Fire", "run", "launch", "wraps", "partial"}
_CHANNEL_VARIABLE = re.compile(r"SM_CHANNEL_([A-Z0-9_.-]+)")
CHANNEL_FOLDER = re.compile(r"/opt/ml/input/data/([A-Za-z0-9._-]{1,64})(/.*)?", re.DOTALL)
_ENVIRON = {"os.environ", "environ"}
#: Without one of these names nothing else of a file is of interest.
_SUBJECTS = {"torch", "tensorflow", "keras", "smdistributed"}


class Backend(NamedTuple):
    """A call that starts a process group.

    Args:
        call: its full name, such as ``torch.distributed.init_process_group``.
        values: every backend that the code names for it; empty where one of them is known only at run time.
        option: the command line option that gives the backend.
        choices: what that option takes; empty for any text.
        omitted: the call names none.
    """

    mark: Mark
    call: str
    values: frozenset[str] = frozenset()
    option: Option | None = None
    choices: frozenset[str] = frozenset()
    omitted: bool = False


class Save(NamedTuple):
    """A call that writes a model or checkpoint to a path without a rank in it.

    Args:
        at: in the syntax tree.
        call: as the code has it, such as ``torch.save``.
        options: command line options without which it is left out.
    """

    mark: Mark
    at: Position
    call: str
    options: tuple[Option, ...] = ()


class EpochLoop(NamedTuple):
    """A loop over epochs. ``epochs`` and ``option`` say how many, as far as that can be read."""

    mark: Mark
    epochs: int | None
    option: Option | None


class ChannelUse(NamedTuple):
    """A channel that the code asks for.

    Args:
        channel: as the variable or the path has it, so in upper case for a variable.
        written: the variable or the path.
        needed: the script fails where the variable is missing.
        option: the command line option whose default it is.
    """

    mark: Mark
    channel: str
    written: str
    needed: bool
    option: Option | None


class Named(NamedTuple):
    """Something with its place. ``certain``: it stands at the top of the file, under no condition and no ``try``."""

    mark: Mark
    name: str
    certain: bool = True


class Training(NamedTuple):
    """What one file does.

    Args:
        names: every identifier and every part of an imported name.
        imports: every import with its full name.
        is_dynamic: it runs code or programs that its syntax tree does not show.
        step: the first computation of gradients, for a script that also applies them.
        exchanges_gradients: other calls than those for metrics may carry gradients to other ranks.
        uses_other_devices: something is put on a device that is not the CPU.
        uses_device_variables: the same, or on one that a variable holds.
        names_other_devices: some name or text is about one.
        shards: data is divided by rank without a sampler.
        others: unconditional starts of other libraries, such as ``horovod.torch.init``.
        calls: positions in the syntax tree, by the last part of the called name; without those of known packages.
    """

    names: frozenset[str] = frozenset()
    imports: tuple[Named, ...] = ()
    is_dynamic: bool = False
    step: Mark | None = None
    exchanges_gradients: bool = False
    uses_other_devices: bool = False
    uses_device_variables: bool = False
    names_other_devices: bool = False
    shards: bool = False
    passes_sampler: bool = False
    backends: tuple[Backend, ...] = ()
    others: tuple[Named, ...] = ()
    saves: tuple[Save, ...] = ()
    loaders: tuple[Loader, ...] = ()
    samplers: tuple[Sampler, ...] = ()
    loops: tuple[EpochLoop, ...] = ()
    channels: tuple[ChannelUse, ...] = ()
    divisions: tuple[Division, ...] = ()
    extents: Extents = Extents()
    calls: Mapping[str, tuple[Position, ...]] = MappingProxyType({})


def read_training(
    nodes: Nodes, options: Sequence[Option], constants: Mapping[str, Value], lines: Sequence[str]
) -> Training:
    """What the file with these ``nodes`` and ``lines`` does.

    Args:
        nodes: all of the tree.
        constants: names that have one value, as ``options.constants`` finds them.
    """
    syntax = Syntax(nodes, lines)
    names = _names(syntax)
    ranks = Ranks(syntax)
    around = extents(syntax, ranks.guards())
    facts = Training(
        names=names,
        imports=tuple(_imports(syntax, around)),
        is_dynamic=_is_dynamic(syntax),
        channels=tuple(_channels(syntax, around, options)),
        divisions=tuple(divisions(syntax)),
        exchanges_gradients=may_exchange_gradients(syntax, around),
        extents=around,
        calls=_calls(syntax),
    )
    if names.isdisjoint(_SUBJECTS):
        return facts
    values = _Values(syntax, options, constants)
    on_device = uses_other_devices(syntax, variables=False)
    return facts._replace(
        step=_step(syntax, names),
        uses_other_devices=on_device,
        uses_device_variables=on_device or uses_other_devices(syntax, variables=True),
        names_other_devices=on_device or names_other_devices(syntax),
        shards=shards(syntax, ranks),
        passes_sampler=passes_sampler(syntax),
        backends=tuple(_backends(syntax, values)),
        others=tuple(_others(syntax, around)),
        saves=tuple(_saves(syntax, ranks, values)),
        loaders=tuple(loaders(syntax)),
        samplers=tuple(samplers(syntax)),
        loops=tuple(_loops(syntax, values)),
    )


class _Values:
    """What names of one file may stand for."""

    def __init__(self, syntax: Syntax, options: Sequence[Option], constants: Mapping[str, Value]) -> None:
        self._constants = constants
        self._options = {one.name.replace("-", "_"): one for one in options}
        self._assigned: dict[str, list[ast.expr]] = {}
        for name, value in syntax.assigned:
            self._assigned.setdefault(name, []).append(value)
        functions = syntax.all(ast.FunctionDef, ast.AsyncFunctionDef)
        self._parameters = {each.arg for one in functions for each in (*one.args.args, *one.args.kwonlyargs)}

    def option(self, node: ast.expr) -> Option | None:
        """The command line option that ``node`` holds, if nothing else is ever assigned to it."""
        name = tail(node)
        if name in self._assigned or not isinstance(node, ast.Attribute | ast.Name):
            return None
        is_local = isinstance(node, ast.Name) and name not in self._parameters
        return None if is_local else self._options.get(name)

    def texts(self, node: ast.expr) -> frozenset[str]:
        """Every text that ``node`` may be; none where one of them is not known."""
        if isinstance(node, ast.Constant):
            return frozenset({node.value}) if isinstance(node.value, str) else frozenset()
        if isinstance(node, ast.IfExp):
            return self._together([node.body, node.orelse])
        option = self.option(node)
        if option is not None:
            return frozenset({option.default}) if isinstance(option.default, str) else frozenset()
        if isinstance(node, ast.Name) and node.id not in self._parameters:
            given = self._assigned.get(node.id, [])
            return frozenset() if any(isinstance(one, ast.Name) for one in given) else self._together(given)
        return frozenset()

    def number(self, node: ast.expr) -> int | None:
        value = literal(node, self._constants)
        option = self.option(node)
        value = option.default if option is not None else value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _together(self, nodes: Sequence[ast.expr]) -> frozenset[str]:
        each = [self.texts(one) for one in nodes]
        return frozenset().union(*each) if all(each) else frozenset()


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


def _backends(syntax: Syntax, values: _Values) -> Iterator[Backend]:
    for call, _, name in syntax.calls:
        is_torch = name.startswith("torch.distributed.") and name.endswith(".init_process_group")
        if not is_torch and name not in ("deepspeed.init_distributed", "deepspeed.comm.init_distributed"):
            continue
        given = keywords(call)
        node = given.get("backend" if is_torch else "dist_backend", call.args[0] if call.args else None)
        if node is not None:
            option = values.option(node)
            yield Backend(syntax.mark(call), name, values.texts(node), option, _choices(syntax, option))
        else:
            yield Backend(syntax.mark(call), name, omitted=all(one.arg is not None for one in call.keywords))


def _choices(syntax: Syntax, option: Option | None) -> frozenset[str]:
    declared = [one for one, _, _ in syntax.calls if option is not None and one.lineno == option.line]
    texts = [literal(given["choices"], {}) for one in declared if "choices" in (given := keywords(one))]
    return frozenset(one for listed in texts if isinstance(listed, list) for one in listed if isinstance(one, str))


def _others(syntax: Syntax, around: Extents) -> Iterator[Named]:
    for call, last, name in syntax.calls:
        is_horovod = name.startswith("horovod.") and name.endswith(".init")
        is_strategy = last in _STRATEGIES and name.startswith("tensorflow.")
        if (is_horovod or is_strategy) and not around.is_conditional(start(call)):
            yield Named(syntax.mark(call), name)


def _saves(syntax: Syntax, ranks: Ranks, values: _Values) -> Iterator[Save]:
    alternatives = [] if not any(_is_save(*one) for one in syntax.calls) else list(_alternatives(syntax))
    calls = [one for one in syntax.calls if _is_save(*one)][:_MOST_SAVES]
    calls = [one for one in calls if not _stands_in(alternatives, one.node)]
    if not calls:
        return
    by_rank = ranks.paths()
    makers = _BUFFERS & syntax.uses.keys()
    buffers = {name for name, value in syntax.assigned if makers & words(value)} if makers else set()
    for call, last, full_name in calls:
        path = [*call.args[1:2], *(value for key, value in keywords(call).items() if key != "obj")]
        path = path if full_name in _SAVES else [*call.args[:1], *path]
        if not by_rank.within(*path) and not words(*path) & (buffers | _BUFFERS):
            asked = tuple(_options_around(syntax, call, values))
            yield Save(syntax.mark(call), start(call), dotted(call.func) or last, asked)


def _alternatives(syntax: Syntax) -> Iterator[Extent]:
    """The arms of conditions that save in either way: mostly one with ranks, and one for a script that runs alone."""
    saving = Spots(one.node for one in syntax.calls if one.name.startswith("save"))
    for node in syntax.all(ast.If):
        if node.orelse and saving.within(*node.body) and saving.within(*node.orelse):
            yield start(node.body[0]), end(node.orelse[-1])


def _stands_in(parts: Iterable[Extent], node: ast.Call) -> bool:
    return any(first <= start(node) < last for first, last in parts)


def _options_around(syntax: Syntax, call: ast.Call, values: _Values) -> Iterator[Option]:
    """``save_model`` for a call below ``if args.save_model``."""
    for node in syntax.all(ast.If):
        if start(node.body[0]) <= start(call) < end(node.body[-1]):
            parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            yield from (found for one in parts if (found := values.option(one)) is not None)


def _is_save(call: ast.Call, name: str, full_name: str) -> bool:
    if full_name in _SAVES or not isinstance(call.func, ast.Attribute):
        return full_name in _SAVES
    if full_name.startswith("torch.distributed."):
        return False  # all ranks save together
    saves_model = name == "save" and _SAVED_MODEL.search(tail(call.func.value)) is not None
    return name in _MODEL_METHODS or saves_model


def _loops(syntax: Syntax, values: _Values) -> Iterator[EpochLoop]:
    for node in syntax.all(ast.For):
        about = words(node.target, node.iter)
        if any("epoch" in one.lower() for one in about):
            yield EpochLoop(syntax.mark(node), *_epochs(node.iter, values))


def _epochs(node: ast.expr, values: _Values) -> tuple[int | None, Option | None]:
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


def _channels(syntax: Syntax, around: Extents, options: Sequence[Option]) -> Iterator[ChannelUse]:
    found = [(node, match) for node in syntax.all(ast.Constant) if (match := _channel(node.value)) is not None]
    if not found:
        return
    required = {
        id(one.slice)
        for one in syntax.all(ast.Subscript)
        if isinstance(one.ctx, ast.Load) and dotted(one.value) in _ENVIRON
    }
    ignored = {id(one.value) for one in syntax.all(ast.Expr)}
    ignored |= {id(one) for node in syntax.all(ast.Compare) for one in (node.left, *node.comparators)}
    arguments = [one for one, name, _ in syntax.calls if name in ("add_argument", "option")]
    for node, channel in found:
        if id(node) not in ignored:
            holder = next((one for one in arguments if start(one) <= start(node) < end(one)), None)
            option = next((one for one in options if holder is not None and one.line == holder.lineno), None)
            needed = id(node) in required and not around.is_conditional(start(node))
            yield ChannelUse(syntax.mark(node), channel, str(node.value), needed, option)


def _channel(text: object) -> str | None:
    if not isinstance(text, str) or not text.startswith(("SM_CHANNEL_", "/opt/ml/input/data/")):
        return None
    match = _CHANNEL_VARIABLE.fullmatch(text) or CHANNEL_FOLDER.fullmatch(text)
    return match[1] if match is not None else None


def _calls(syntax: Syntax) -> dict[str, tuple[Position, ...]]:
    found: dict[str, list[Position]] = {}
    for call, name, full_name in syntax.calls:
        if full_name.partition(".")[0] not in PLAIN:
            found.setdefault(name, []).append(start(call))
        for one in [*call.args, *keywords(call).values()] if name in _RUNNERS else ():
            if isinstance(one, ast.Name):
                found.setdefault(one.id, []).append(start(one))
    return {name: tuple(places) for name, places in found.items()}
