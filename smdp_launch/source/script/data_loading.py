"""How a file divides its training data among the ranks: torch's data loaders and samplers, or code of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.source.script.ranks import Ranks
from smdp_launch.source.syntax.scopes import tail
from smdp_launch.source.syntax.tree import Mark, Syntax, end, keywords, start, words

_LOADERS = {"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"}
_SAMPLERS = {"torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"}
# Arguments of DataLoader are dataset, batch_size, shuffle, sampler; of DistributedSampler dataset, num_replicas, rank,
# shuffle.
_LOADER_SHUFFLE, _LOADER_SAMPLER, _SAMPLER_SHUFFLE = 2, 3, 3
_HELD_OUT = re.compile(r"val|test|eval|dev(?!ice)|infer|predict|hold_?out|held|calib|query|gallery", re.IGNORECASE)
_TRAINING = re.compile(r"train", re.IGNORECASE)
_WORLD = re.compile(r"world|replicas|num_proc|n_?procs?$|^size$", re.IGNORECASE)
#: Names of calls that may divide data, or select other data, if they receive a rank.
_DIVIDES = re.compile(r"data|load|shard|split|part|subset|chunk|seed|iter|^use$|batch", re.IGNORECASE)
_OWN_ARGUMENTS = {"num_shards", "shard_id", "shard_index", "num_input_pipelines", "input_pipeline_id"}


class Loader(NamedTuple):
    """A DataLoader of training data without a sampler."""

    mark: Mark


class Sampler(NamedTuple):
    """A DistributedSampler of training data that shuffles; ``name`` is an expression for it, or empty."""

    mark: Mark
    name: str


def loaders(syntax: Syntax) -> Iterator[Loader]:
    for call, _, full_name in syntax.calls:
        if full_name in _LOADERS and not _takes_sampler(call):
            dataset = call.args[0] if call.args else keywords(call).get("dataset")
            about = words(dataset) | _around(syntax, call)
            shuffles = _literal(call, "shuffle", _LOADER_SHUFFLE) is True
            if _is_training(about, shuffles):
                yield Loader(syntax.mark(call))


def samplers(syntax: Syntax) -> Iterator[Sampler]:
    for call, _, full_name in syntax.calls:
        if full_name not in _SAMPLERS:
            continue
        about = words(*call.args, *keywords(call).values()) | _around(syntax, call)
        if _literal(call, "shuffle", _SAMPLER_SHUFFLE) is not False and not any(map(_HELD_OUT.search, about)):
            yield Sampler(syntax.mark(call), _target(syntax, call))


def passes_sampler(syntax: Syntax) -> bool:
    """Whether a call receives a sampler, or arguments that cannot be determined."""
    return any(_takes_sampler(call) for call, name, _ in syntax.calls if _may_take_sampler(call, name))


def shards(syntax: Syntax, ranks: Ranks) -> bool:
    """Whether the file's own code gives each rank a share of the data."""
    indices = [one.slice for one in syntax.all(ast.Subscript) if not isinstance(one.slice, ast.Constant)]
    if any(ranks.spots.within(one) for one in indices):
        return True
    if any(isinstance(one.op, ast.Mod) and any(map(_WORLD.search, words(one.right))) for one in syntax.all(ast.BinOp)):
        return True
    if any(one.arg in _OWN_ARGUMENTS for call, _, _ in syntax.calls for one in call.keywords):
        return True
    # A class that receives rank and world size may select its share. With the rank alone it may select a device.
    several = [one for one in syntax.calls if len(one.node.args) + len(one.node.keywords) > 1]
    if any(_has_rank_and_size(one.node, ranks) for one in several if one.full_name not in _SAMPLERS):
        return True
    dividing = {name for name in {one.name for one in syntax.calls} if _DIVIDES.search(name) and "arallel" not in name}
    return any(
        ranks.spots.within(*call.args, *keywords(call).values())
        for call, name, full_name in syntax.calls
        if name in dividing and full_name not in _SAMPLERS and full_name not in _LOADERS
    )


def _has_rank_and_size(call: ast.Call, ranks: Ranks) -> bool:
    values = [*call.args, *keywords(call).values()]
    return (
        tail(call.func) != "init_process_group"
        and any(_WORLD.search(word) for word in words(*values))
        and ranks.spots.within(*values)
    )


def _may_take_sampler(call: ast.Call, name: str) -> bool:
    return name == "DataLoader" or any(one.arg in ("sampler", "batch_sampler") for one in call.keywords)


def _takes_sampler(call: ast.Call) -> bool:
    by_name = keywords(call)
    if any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
        return True
    named = [by_name[one] for one in ("sampler", "batch_sampler") if one in by_name]
    if tail(call.func) == "DataLoader":
        named += call.args[_LOADER_SAMPLER : _LOADER_SAMPLER + 2]
    return any(not (isinstance(one, ast.Constant) and one.value is None) for one in named)


def _literal(call: ast.Call, name: str, index: int) -> object:
    node = keywords(call).get(name, call.args[index] if len(call.args) > index else None)
    return node.value if isinstance(node, ast.Constant) else None


def _is_training(about: set[str], shuffles: bool) -> bool:
    return (shuffles or any(map(_TRAINING.search, about))) and not any(map(_HELD_OUT.search, about))


def _around(syntax: Syntax, call: ast.Call) -> set[str]:
    """The names to which the call's value is assigned, and the name of the function around the call."""
    names: set[str] = set()
    for one in syntax.all(ast.Assign, ast.AnnAssign):
        if start(one) <= start(call) < end(one):
            names |= words(*(one.targets if isinstance(one, ast.Assign) else [one.target]))
    functions = [one for one in syntax.all(ast.FunctionDef) if start(one) <= start(call) < end(one)]
    return names | ({functions[-1].name} if functions else set())


def _target(syntax: Syntax, call: ast.Call) -> str:
    assignments = [
        one for one in syntax.all(ast.Assign) if start(one) <= start(call) < end(one) and len(one.targets) == 1
    ]
    if not assignments or not tail(assignments[-1].targets[0]):
        return ""
    target, value = ast.unparse(assignments[-1].targets[0]), assignments[-1].value
    if not isinstance(value, ast.Call) or value is call:
        return target
    return f"{target}.sampler" if keywords(value).get("sampler") is call else ""
