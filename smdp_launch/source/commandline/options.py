"""The command line options that a script declares with argparse or click, read from its syntax tree."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from smdp_launch.source.syntax.scopes import Call, Nodes, dotted

#: A value that JSON and YAML can represent.
Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
Kind = Literal["text", "int", "float", "bool", "truthy", "json", "yaml", "python", "flag", "several", "other"]

# A job file allows no more digits, and no deeper nesting.
_MAX_DIGITS = 100
_MAX_DEPTH = 20
#: Types of click.
_KINDS: dict[str, Kind] = {"int": "int", "float": "float", "str": "text", "string": "text", "bool": "bool"}
#: argparse's types and functions that parse a text, such as ``type=json.loads``, with the form that they accept.
CONVERTERS: dict[str, Literal["int", "float", "text", "truthy", "json", "yaml", "python"]] = {
    **{"int": "int", "float": "float", "str": "text", "bool": "truthy"},
    **{"json.loads": "json", "yaml.safe_load": "yaml", "ast.literal_eval": "python"},
}
# Until Python 3.13, and since Python 3.14.
_NEGATIVE_NUMBERS = (re.compile(r"-\d+$|-\d*\.\d+$"), re.compile(r"-\.?\d"))
_FLAGS = {"store_true", "store_false", "count", "store_const", "append_const", "help", "version"}


class Option(NamedTuple):
    """One option.

    Args:
        name: without the leading dashes, as a hyperparameter is named.
        kind: the conversion of the text. ``truthy`` is argparse's ``type=bool``, for which every text except the empty
            text is True. ``json``, ``yaml`` and ``python`` are parsers of text (``CONVERTERS``). A ``flag`` takes no
            value and ``several`` takes a list of values; neither can be a hyperparameter, which has one value.
            ``other`` is a function.
        default: as a JSON value; None if there is none, or if it cannot be read without running the script.
        is_computed: there is a default, and it cannot be read.
        from_environment: the default is read from an environment variable.
    """

    name: str
    line: int
    kind: Kind = "text"
    default: Value = None
    required: bool = False
    from_environment: bool = False
    help: str = ""
    is_computed: bool = False


_READING_METHODS = {"keys", "values", "items", "get", "index", "count", "copy"}
_PLAIN_DECORATORS = {"dataclass", "classmethod", "staticmethod", "property", "cache", "lru_cache", "no_grad", "record"}
_READING_CALLS = {"sorted", "list", "tuple", "set", "frozenset", "dict", "len", "enumerate", "zip", "print", "str"}


def options(nodes: Nodes, known: Mapping[str, Value]) -> list[Option]:
    """The options that a module declares, each name once, in the order of the file."""
    declared: dict[str, Option] = {}
    full_name = full_names(nodes)
    for one in nodes.called("add_argument", "option"):
        option = _option(one, known, full_name)
        if option is not None:
            declared.setdefault(option.name, option)
    return list(declared.values())


def constants(tree: ast.Module, nodes: Nodes) -> dict[str, Value]:
    """The names to which the module assigns one literal value at top level, and which it never changes."""
    values: dict[str, Value] = {}
    for node in tree.body:
        values.update((name, literal(value, {})) for name, value in _assigned(node))
    if not values:
        return values
    stored = Counter(one.id for one in nodes.of(ast.Name) if not isinstance(one.ctx, ast.Load))
    reassigned = {name for name in values if stored[name] > 1}
    reassigned |= {one.arg for one in nodes.of(ast.arg)}
    reassigned |= {name for one in nodes.of(ast.Global) for name in one.names}
    fixed = {name: value for name, value in values.items() if name not in reassigned}
    if any(isinstance(one, list | dict) for one in fixed.values()):
        changed = _changed(nodes)
        if _may_register(nodes):
            changed |= {name for name, one in fixed.items() if isinstance(one, dict)}
        return {name: one for name, one in fixed.items() if not (isinstance(one, list | dict) and name in changed)}
    return fixed


def _may_register(nodes: Nodes) -> bool:
    """Whether a decorator may add something to a mapping."""
    decorated: list[ast.FunctionDef | ast.ClassDef] = [*nodes.of(ast.FunctionDef), *nodes.of(ast.ClassDef)]
    names = (one.func if isinstance(one, ast.Call) else one for each in decorated for one in each.decorator_list)
    return any(dotted(one).rpartition(".")[2] not in _PLAIN_DECORATORS for one in names)


def _changed(nodes: Nodes) -> set[str]:
    """Names of lists and mappings that the module may change."""
    changed = {dotted(one.value) for one in nodes.of(ast.Subscript) if not isinstance(one.ctx, ast.Load)}
    for call, _, _, path in nodes.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr not in _READING_METHODS:
            changed.add(dotted(call.func.value))
        if path not in _READING_CALLS:
            arguments = [*call.args, *(one.value for one in call.keywords if one.arg != "choices")]
            changed |= {dotted(one) for one in arguments}
    return changed


def literal(node: ast.AST, known: Mapping[str, Value]) -> Value:
    """The value of a literal expression or of a ``known`` name; None for others, and if JSON cannot represent it."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isascii():
        return node.value  # the most frequent case
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return _plain(value)


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value


def full_names(nodes: Nodes) -> Callable[[str], str]:
    """A function that returns the full name of a name in the module: ``json.loads`` for ``loads``, if it is imported
    from there; empty if the module defines the name itself, or imports it from several places."""
    origins: dict[str, set[str]] = {}
    for node in nodes.of(ast.Import):
        for one in node.names:
            top = one.name.partition(".")[0]
            origins.setdefault(one.asname or top, set()).add(one.name if one.asname else top)
    for origin in nodes.of(ast.ImportFrom):
        for one in origin.names:
            full = f"{'.' * origin.level}{origin.module or ''}.{one.name}"
            origins.setdefault(one.asname or one.name, set()).add(full)
    methods = {id(each) for one in nodes.of(ast.ClassDef) for each in one.body}
    own = {one.name for one in nodes.of(ast.FunctionDef) if id(one) not in methods}
    own |= {one.name for one in nodes.of(ast.ClassDef)}
    own |= {one.id for one in nodes.of(ast.Name) if not isinstance(one.ctx, ast.Load)}
    own |= {one.arg for one in nodes.of(ast.arg)}

    def full_name(name: str) -> str:
        first, dot, rest = name.partition(".")
        of = origins.get(first, {first})
        return "" if first in own or len(of) > 1 else f"{next(iter(of))}{dot}{rest}"

    return full_name


def _option(declaration: Call, known: Mapping[str, Value], full_name: Callable[[str], str]) -> Option | None:
    call, is_click = declaration.node, declaration.path in ("click.option", "option")
    if not (is_click or (declaration.name == "add_argument" and isinstance(call.func, ast.Attribute))):
        return None
    spelled = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    dashed = [one.split("/")[0].strip() for one in spelled if one.startswith("-")]
    long = [one for one in dashed if one.startswith("--")]
    name = next(iter([*long, *dashed]), "").lstrip("-")
    if not re.fullmatch(r"[^\s=]{1,256}", name) or not name.isprintable():
        return None
    kwargs = {one.arg: one.value for one in call.keywords if one.arg is not None}
    default = kwargs.get("default")
    value = None if default is None else literal(default, known)
    help_ = literal(kwargs["help"], known) if "help" in kwargs else ""
    return Option(
        name=name,
        line=call.lineno,
        kind="flag" if any("/" in one for one in spelled) else _kind(kwargs, known, is_click, full_name),
        default=value,
        required="required" in kwargs and literal(kwargs["required"], known) is True,
        # A literal is not read from the environment, even if it is the name of a variable.
        from_environment=default is not None and value is None and _reads_environment(default),
        help=help_ if isinstance(help_, str) else "",
        is_computed=default is not None and value is None and not _is_none(default),
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _kind(
    kwargs: Mapping[str, ast.expr], known: Mapping[str, Value], is_click: bool, full_name: Callable[[str], str]
) -> Kind:
    action = kwargs.get("action")
    named = literal(action, known) if action is not None else None
    if named in _FLAGS or (action is not None and dotted(action).endswith("BooleanOptionalAction")):
        return "flag"
    if "is_flag" in kwargs and literal(kwargs["is_flag"], known) is True:
        return "flag"
    takes = literal(kwargs["nargs"], known) if "nargs" in kwargs else None
    many = "multiple" in kwargs and literal(kwargs["multiple"], known) is True
    if many or takes not in (None, "?", 1) or named in ("append", "extend"):
        return "several"
    if "type" in kwargs:
        type_ = full_name(dotted(kwargs["type"]))
        kind = CONVERTERS.get(type_) or _KINDS.get(type_.removeprefix("click.").lower(), "other")
        return "bool" if kind == "truthy" and is_click else kind
    return _KINDS[type(literal(kwargs["default"], known)).__name__] if is_click and _guesses(kwargs, known) else "text"


def _guesses(kwargs: Mapping[str, ast.expr], known: Mapping[str, Value]) -> bool:
    """Whether click derives the option's type from its default."""
    return "default" in kwargs and type(literal(kwargs["default"], known)).__name__ in _KINDS


def _reads_environment(node: ast.expr) -> bool:
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return any(re.fullmatch(r"(SM|SMDP|SAGEMAKER)_[A-Z0-9_.-]+", text) for text in texts) or any(
        dotted(one).rpartition(".")[2] in ("environ", "getenv") for one in ast.walk(node)
    )


def _plain(value: object) -> Value:
    """``value`` as a JSON value; None if JSON or a job file cannot represent it."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
    plain: Value = json.loads(text) if _fits(value, _MAX_DEPTH) else None
    return plain


def _fits(value: object, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(key, str) and _fits(one, depth - 1) for key, one in value.items())
    if isinstance(value, list | tuple):
        return depth > 0 and all(_fits(one, depth - 1) for one in value)
    return not isinstance(value, int) or abs(value) < 10**_MAX_DIGITS


def reads_as(kind: str, text: str) -> bool:
    """Whether ``text`` can be converted to ``kind``: ``int``, ``float``, ``json`` or ``python``; others are text."""
    convert: dict[str, Callable[[str], object]] = {
        **{"int": int, "float": float, "json": json.loads, "python": ast.literal_eval}
    }
    try:
        convert.get(kind, str)(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def is_taken_for_an_option(text: str, python: tuple[int, int] | None = None) -> bool:
    """Whether argparse takes ``text`` for an option, so that it cannot be the value of an option.

    Args:
        python: the version that runs the script; None if it is not known.
    """
    if not text.startswith("-") or text == "-" or " " in text:
        return False
    return _NEGATIVE_NUMBERS[python is not None and python >= (3, 14)].match(text) is None
