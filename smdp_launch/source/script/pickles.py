"""Calls that write and read pickles, and the classes and functions that the reader of a pickle has to import.

A pickle has the values of an object, and of its class only the module and the name. Values are followed through
variables, parameters and functions of the same file. What cannot be followed is left out.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.source.syntax.scopes import Function, Nodes, dotted, tail
from smdp_launch.source.syntax.tree import Mark, Syntax, keywords

#: The calls that write pickles, each with the calls that read them.
FAMILIES = {
    "torch.save": ("torch.load",),
    "torch.jit.save": ("torch.jit.load",),
    "pickle.dump": ("pickle.load", "pickle.loads"),
    "joblib.dump": ("joblib.load",),
}
_READS = frozenset(one for reads in FAMILIES.values() for one in reads)
#: Methods that return the object itself.
_SAME = {
    *("to", "cuda", "cpu", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "share_memory"),
    "fit",
}
#: Functions that return their first argument, or a copy of it.
_PASSES = {"deepcopy", "copy", "compile", "unwrap_model", "DataParallel"}
#: Objects with parts that are pickled too.
_CONTAINERS = ("torch.nn.", "sklearn.", "functools.partial", "imblearn.", "collections.")
#: Names under which the reader finds them: each needs a process group.
WRAPPERS = frozenset({"DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"})
_FILE = re.compile(r"([\w.-]*\w\.[A-Za-z]\w*)$")
_MODEL_FOLDER = re.compile(r"SM_MODEL_DIR|/opt/ml/model\b|model[_-]?dir|output[_-]dir", re.IGNORECASE)
#: Limits for hostile scripts, in which each name has many values that have many names: calls, the names, values and
#: parts of expressions that are followed for all calls of a file, and the names from a call to a value.
_MOST_CALLS, _MOST_FOLLOWED, _DEEPEST = 50, 50_000, 12


class Pickle(NamedTuple):
    """A call that writes a pickle.

    Args:
        call: one of ``FAMILIES``.
        needs: what the reader imports: full names, and names without a module for what this file defines.
        files: the names that the file may have; empty if they cannot be determined.
        in_model_folder: the path is in the folder of the trained model.
    """

    mark: Mark
    call: str
    needs: tuple[str, ...]
    files: frozenset[str]
    in_model_folder: bool


class Unpickle(NamedTuple):
    """A call that reads a pickle, or a TorchScript model.

    Args:
        arguments: the names of its keyword arguments; ``**`` for those that cannot be determined. A second argument by
            position is ``map_location``.
    """

    mark: Mark
    call: str
    arguments: frozenset[str]
    files: frozenset[str]


def pickles(nodes: Nodes, syntax: Syntax) -> Iterator[Pickle]:
    calls = [(call, _family(name)) for call, _, name in syntax.calls if _family(name) in FAMILIES][:_MOST_CALLS]
    if not calls:
        return
    names = _Values(nodes, syntax)
    for call, family in calls:
        function = names.around[id(call)]
        named = keywords(call)
        value = call.args[0] if call.args else named.get("obj", named.get("value", named.get("m")))
        path = call.args[1] if len(call.args) > 1 else named.get("f", named.get("filename", named.get("file")))
        if value is None or path is None:
            continue
        needs = () if family == "torch.jit.save" else tuple(dict.fromkeys(names.needed(value, function)))
        texts = list(names.texts(path, function))
        in_model_folder = any(_MODEL_FOLDER.search(one) for one in texts)
        yield Pickle(syntax.mark(call), family, needs, _files(texts), in_model_folder)


def unpickles(nodes: Nodes, syntax: Syntax) -> Iterator[Unpickle]:
    calls = [(call, _family(name)) for call, _, name in syntax.calls if _family(name) in _READS][:_MOST_CALLS]
    names = _Values(nodes, syntax) if calls else None
    for call, family in calls:
        if names is None:
            return
        path = call.args[:1] or [value for key, value in keywords(call).items() if key in ("f", "filename", "file")]
        texts = [text for one in path for text in names.texts(one, names.around[id(call)])]
        arguments = {one.arg or "**" for one in call.keywords} | ({"map_location"} if len(call.args) > 1 else set())
        yield Unpickle(syntax.mark(call), family, frozenset(arguments), _files(texts))


def _family(name: str) -> str:
    """``joblib.dump`` for the ``sklearn.externals.joblib.dump`` of old scripts."""
    return name[name.index("joblib.") :] if "joblib." in name else name


def _files(texts: list[str]) -> frozenset[str]:
    return frozenset(match[1] for one in texts if (match := _FILE.search(one)))


class _Values:
    """The values that the names of a file may have, each in its function.

    Attributes:
        around: the function around each call, by the id of its node.
    """

    def __init__(self, nodes: Nodes, syntax: Syntax) -> None:
        self._nodes = nodes
        self._syntax = syntax
        self._left = _MOST_FOLLOWED
        # Whether the file takes models out of their wrappers, often only with several workers.
        self._unwraps = "module" in syntax.uses or "unwrap_model" in syntax.uses
        self._assigned: dict[tuple[int | None, str], list[ast.expr]] = {}
        self._returned: dict[int, list[ast.expr]] = {}
        self.around = {id(one.node): one.scope.function for one in nodes.calls}
        classes = [node for node, scope in nodes.placed(ast.ClassDef) if scope.function is None]
        self._classes = {one.name for one in classes if not _has_own_pickling(one)}
        self._functions = {node.name: node for node, scope in nodes.placed(ast.FunctionDef) if scope.function is None}
        self._imported = {
            one.asname or one.name.partition(".")[0]
            for node in syntax.all(ast.Import, ast.ImportFrom)
            for one in node.names
        }
        for assign, scope in nodes.placed(ast.Assign):
            for target in assign.targets:
                self._assign(target, assign.value, scope.function)
        for annotated, scope in nodes.placed(ast.AnnAssign):
            if annotated.value is not None:
                self._assign(annotated.target, annotated.value, scope.function)
        for opened, scope in nodes.placed(ast.With):
            for item in opened.items:
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, item.context_expr, scope.function)
        for returned, scope in nodes.placed(ast.Return):
            if returned.value is not None and scope.function is not None:
                self._returned.setdefault(id(scope.function), []).append(returned.value)

    def _assign(self, target: ast.expr, value: ast.expr, function: Function | None) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            if len(values) == len(target.elts):
                for one, each in zip(target.elts, values, strict=True):
                    self._assign(one, each, function)
            return
        name = dotted(target)
        if not name:
            return
        scope = None if name.startswith("self.") else id(function) if function is not None else None
        self._assigned.setdefault((scope, name), []).append(value)
        owner, dot, _ = name.partition(".")
        if dot and owner != "self":  # the object is pickled with its attributes
            self._assigned.setdefault((scope, f"{owner}."), []).append(value)

    def needed(self, node: ast.expr, function: Function | None, depth: int = 0) -> Iterator[str]:
        """What the reader of the pickled ``node`` imports."""
        if depth > _DEEPEST:
            return
        if isinstance(node, ast.Call):
            yield from self._made(node, function, depth + 1)
            return
        values = list(self._values_of(node, function))
        for value, where in values:
            yield from self.needed(value, where, depth + 1)
        if values:
            return
        if isinstance(node, ast.Name) and node.id in self._functions:
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr == "module":
            yield from self.needed(node.value, function, depth + 1)

    def _values_of(self, node: ast.expr, function: Function | None) -> Iterator[tuple[ast.expr, Function | None]]:
        """The values that a name may have, or the parts of an object."""
        if isinstance(node, ast.Name | ast.Attribute):
            yield from self._of(dotted(node), function)
        elif isinstance(node, ast.IfExp):
            yield from ((node.body, function), (node.orelse, function))
        else:
            parts = node.values if isinstance(node, ast.Dict | ast.BoolOp) else getattr(node, "elts", [])
            yield from ((one, function) for one in parts)

    def _made(self, call: ast.Call, function: Function | None, depth: int) -> Iterator[str]:
        name, full_name = tail(call.func), self._syntax.full_name(call.func)
        is_imported = dotted(call.func).partition(".")[0] in self._imported
        arguments = [*call.args, *keywords(call).values()]
        if isinstance(call.func, ast.Attribute) and name in _SAME and not is_imported:
            yield from self.needed(call.func.value, function, depth)
        elif name in WRAPPERS and (is_imported or full_name == name) and name not in self._classes:
            if not self._unwraps:
                yield name
            yield from (need for one in arguments[:1] for need in self.needed(one, function, depth))
        elif name in _PASSES:
            yield from (need for one in arguments[:1] for need in self.needed(one, function, depth))
        elif full_name in self._classes:
            yield full_name
        elif full_name in self._functions:
            made = self._functions[full_name]
            for value in self._returned.get(id(made), []):
                yield from self.needed(value, made, depth)
        elif is_imported:
            yield full_name
            if full_name.startswith(_CONTAINERS):
                yield from (need for one in arguments for need in self.needed(one, function, depth))

    def texts(self, node: ast.expr, function: Function | None, depth: int = 0) -> Iterator[str]:
        """The texts and names of which a path consists."""
        for part in itertools.islice(ast.walk(node), max(0, self._left)):
            self._left -= 1
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value
            elif isinstance(part, ast.Attribute):
                yield part.attr
            if isinstance(part, ast.Name):
                yield part.id
            if isinstance(part, ast.Name | ast.Attribute) and depth < _DEEPEST:
                for value, where in self._of(dotted(part), function):
                    yield from self.texts(value, where, depth + 1)

    def _of(self, name: str, function: Function | None) -> list[tuple[ast.expr, Function | None]]:
        """The values of a name where ``function`` uses it, each with the function around it."""
        if not name or self._left <= 0:
            return []
        found = self._all_of(name, function)[: self._left]
        self._left -= 1 + len(found)
        return found

    def _all_of(self, name: str, function: Function | None) -> list[tuple[ast.expr, Function | None]]:
        if function is not None:
            found = self._values(id(function), name)
            parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
            if name in parameters or name in (one.arg for one in function.args.kwonlyargs):
                passed = list(self._passed(function, parameters, name))
                return [*((one, function) for one in found), *passed]
            if found:
                return [(one, function) for one in found]
        return [(one, None) for one in self._values(None, name)]

    def _values(self, scope: int | None, name: str) -> list[ast.expr]:
        return [*self._assigned.get((scope, name), []), *self._assigned.get((scope, f"{name}."), [])]

    def _passed(
        self, function: Function, parameters: list[str], name: str
    ) -> Iterator[tuple[ast.expr, Function | None]]:
        """The arguments of the calls of ``function`` in this file."""
        is_method = bool(parameters) and parameters[0] in ("self", "cls")
        for call in self._nodes.called(function.name)[:_MOST_CALLS]:
            named = keywords(call.node)
            position = parameters.index(name) - is_method if name in parameters else len(call.node.args)
            if name in named:
                yield named[name], call.scope.function
            elif 0 <= position < len(call.node.args):
                yield call.node.args[position], call.scope.function


def _has_own_pickling(node: ast.ClassDef) -> bool:
    """Whether the class says itself how its objects are pickled, or in which module it is."""
    names = {getattr(one, "name", "") for one in node.body}
    names |= {tail(target) for one in node.body if isinstance(one, ast.Assign) for target in one.targets}
    return not names.isdisjoint({"__reduce__", "__reduce_ex__", "__module__"})
