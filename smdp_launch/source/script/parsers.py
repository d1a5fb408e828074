"""Reads what a module says of a command line from its syntax tree: argparse, click and absl, a reader each."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from smdp_launch.source.script.commandline import Argument, Declarations, Parser, Reads, Style
from smdp_launch.source.script.options import Value, literal
from smdp_launch.source.script.scopes import Nodes, Scope, dotted
from smdp_launch.source.script.syntax import keywords

#: Packages that make or extend a command line in ways of their own.
_OTHER_PARSERS = frozenset(
    [
        "optparse",
        "jsonargparse",
        "configargparse",
        "simple_parsing",
        "tap",
        "hydra",
        "fire",
        "typer",
        "tyro",
        "docopt",
        "docopt_ng",
        "gin",
        "sacred",
        "plac",
        "argh",
        "ml_collections",
        "clize",
        "cyclopts",
    ]
)
_OTHER_CLASSES = ("HfArgumentParser", "LightningCLI", "TrlParser", "ArgParser", "YamlConfigAction")
_FLAG_ACTIONS = frozenset({"store_true", "store_false", "store_const", "append_const", "count", "help", "version"})
_VALUE_ACTIONS = frozenset({"store", "append", "extend"})
_LARGEST_RANGE = 10_000
_ABSL_READS: dict[str, Reads] = {"string": "text", "integer": "int", "float": "float", "enum": "text"}


def declarations(nodes: Nodes, imports: Collection[str], known: Mapping[str, Value]) -> Declarations:
    """What a module says of a command line.

    Args:
        imports: modules and names as they are imported.
        known: names with literal values.
    """
    used: set[str] = set()
    used_in_main: set[str] = set()
    for name, scope in nodes.placed(ast.Name):
        (used_in_main if scope.is_main else used).add(name.id)
    for attribute, scope in nodes.placed(ast.Attribute):
        (used_in_main if scope.is_main else used).add(attribute.attr)
    defined = {one.name for one in nodes.of(ast.FunctionDef)} | {one.name for one in nodes.of(ast.ClassDef)}
    tops = {one.partition(".")[0] for one in imports}
    common = {
        "defined": frozenset(defined),
        "used": frozenset(used),
        "used_in_main": frozenset(used_in_main),
        "packages": frozenset(tops),
        "imports": frozenset(imports),
    }
    last = {one.rpartition(".")[2] for one in imports}
    if tops & _OTHER_PARSERS or last & set(_OTHER_CLASSES) or _is_beyond_reading(nodes):
        return Declarations(is_unknown=True, **common)  # type: ignore[arg-type]
    reader: _Reader | None = None
    if "argparse" in tops:
        reader = _Argparse(nodes, known)
    elif "click" in tops:
        reader = _Click(nodes, known)
    elif "absl" in tops and {"absl", "absl.flags", "absl.app"} & set(imports):
        reader = _Absl(nodes, known)
    if reader is None:
        # Arguments may be added to a parser that another module makes, and such a parser may be asked to read.
        reader = _Argparse(nodes, known)
        if not reader.adds and not reader.reading:
            return Declarations(**common)  # type: ignore[arg-type]
    return reader.made(common)


def _is_beyond_reading(nodes: Nodes) -> bool:
    """Whether the module runs text as code, changes the words of the command line, or makes parsers of its own."""
    names = {one.path for one in nodes.calls}
    if names & {"exec", "runpy.run_path", "runpy.run_module"} or any(one.startswith("sys.argv.") for one in names):
        return True
    targets = [one for one in nodes.of(ast.Attribute) if one.attr == "argv"]
    targets += [one for one in nodes.of(ast.Subscript) if dotted(one.value) == "sys.argv"]  # type: ignore[misc]
    if any(not isinstance(one.ctx, ast.Load) for one in targets):
        return True
    return any(dotted(base).endswith("ArgumentParser") for one in nodes.of(ast.ClassDef) for base in one.bases)


class _Reader:
    """Collects what the calls of one module declare."""

    style: Style

    def __init__(self, nodes: Nodes, known: Mapping[str, Value]) -> None:
        self.known = known
        self.arguments: list[Argument] = []
        self.parsers: list[Parser] = []
        self.reading: list[Parser] = []
        self.borrowed: set[str] = set()
        self.is_open = False
        self.is_unknown = False
        self.is_tolerant = False
        self.abbreviates = True
        self.read(nodes)

    def read(self, nodes: Nodes) -> None:
        raise NotImplementedError

    def made(self, common: Mapping[str, frozenset[str]]) -> Declarations:
        return Declarations(
            style=self.style,
            arguments=tuple(self.arguments),
            parsers=tuple(self.parsers),
            reading=tuple(self.reading),
            borrowed=frozenset(self.borrowed),
            is_open=self.is_open,
            is_unknown=self.is_unknown,
            is_tolerant=self.is_tolerant,
            abbreviates=self.abbreviates,
            defined=common["defined"],
            used=common["used"],
            used_in_main=common["used_in_main"],
            packages=common["packages"],
            imports=common["imports"],
        )


def _place(call: ast.Call, scope: Scope) -> Parser:
    return Parser(scope.function.name if scope.function is not None else None, scope.is_main, call.lineno)


def _has_stars(call: ast.Call) -> bool:
    return any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args)


class _Argparse(_Reader):
    style: Style = "argparse"

    #: Calls that give something which takes arguments for its parser.
    _GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
    _READING = ("parse_args", "parse_intermixed_args", "parse_known_args", "parse_known_intermixed_args")
    #: Calls that say something by themselves; others do by a parser that they are given.
    _CALLS = ("ArgumentParser", "add_argument", "add_subparsers", *_READING)

    @property
    def adds(self) -> bool:
        return bool(self.arguments) or self.is_open

    def read(self, nodes: Nodes) -> None:
        self._makers: set[tuple[str | None, bool]] = set()
        self._parameters = {one.arg for one in nodes.of(ast.arg)}
        imported = [alias for one in nodes.of(ast.Import) for alias in one.names]
        imported += [alias for one in nodes.of(ast.ImportFrom) for alias in one.names]
        self._modules = {one.asname or one.name.partition(".")[0] for one in imported}
        self._sources: dict[str, list[ast.expr]] = {}
        for node in nodes.of(ast.Assign):
            if len(node.targets) == 1 and isinstance(node.value, ast.Call) and dotted(node.targets[0]):
                self._sources.setdefault(dotted(node.targets[0]), []).append(node.value)
        self._loops = nodes.of(ast.For)
        self._nodes = nodes
        #: Names of parsers, and of groups of their arguments.
        self._names = {name for name, values in self._sources.items() if any(self._is_parser(one) for one in values)}
        of_objects = any(one.startswith("self.") for one in self._names)
        self._given = self._names | {"self"} if of_objects else self._names
        for each in nodes.calls if self._names else nodes.called(*self._CALLS):
            self._call(each.node, each.name, each.scope)
        if of_objects:
            # The methods of a class that is not read may add arguments.
            known = {one.name for one in nodes.of(ast.ClassDef)} | {"object", "ABC"}
            bases = [dotted(base) for one in nodes.of(ast.ClassDef) for base in one.bases]
            self.is_open |= not known.issuperset(bases)
        if any(one.attr == "required" and not isinstance(one.ctx, ast.Load) for one in nodes.of(ast.Attribute)):
            self.arguments = [one._replace(required=False) for one in self.arguments]
        self.is_unknown |= any(one.attr in ("_actions", "_option_string_actions") for one in nodes.of(ast.Attribute))
        # An `add = parser.add_argument` adds arguments that are not seen.
        seen = sum(isinstance(one.node.func, ast.Attribute) for one in nodes.called("add_argument"))
        self.is_open |= seen != sum(one.attr == "add_argument" for one in nodes.of(ast.Attribute))

    def _call(self, call: ast.Call, last: str, scope: Scope) -> None:
        if last == "ArgumentParser":
            self._made(call, scope)
        elif last == "add_argument" and self._is_method(call):
            self._added(call, scope)
        elif last in self._READING and self._is_method(call):
            self._read(call, scope)
            self.is_tolerant |= "known" in last
        elif last == "add_subparsers":
            self.is_unknown = True
        else:
            self._passed(call, last)

    def _is_method(self, call: ast.Call) -> bool:
        """Whether a method of an object is called, not a function of a module."""
        return isinstance(call.func, ast.Attribute) and dotted(call.func.value) not in self._modules

    def _is_parser(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call):
            return False
        last = dotted(value.func).rpartition(".")[2] or getattr(value.func, "attr", "")
        return last == "ArgumentParser" or last in self._GROUPS

    def _made(self, call: ast.Call, scope: Scope) -> None:
        given = keywords(call)
        if _has_stars(call) or {"prefix_chars", "fromfile_prefix_chars"} & given.keys():
            self.is_unknown = True
        if "allow_abbrev" in given:
            self.abbreviates = literal(given["allow_abbrev"], self.known) is not False
        place = _place(call, scope)
        self._makers.add((place.function, place.is_main))
        self.parsers.append(place)
        parents = given.get("parents")
        for one in parents.elts if isinstance(parents, ast.List | ast.Tuple) else [parents] if parents else []:
            self._from(one)
            if isinstance(one, ast.Call) and place in self.parsers:
                self.parsers.remove(place)  # the parent's arguments become this parser's: one parser in effect

    def _from(self, value: ast.expr) -> None:
        """A parser comes from ``value``."""
        name = dotted(value)
        if name and name in self._names:
            return
        if isinstance(value, ast.Call) and self._is_parser(value):
            return
        if isinstance(value, ast.Call) and dotted(value.func):
            self.borrowed.add(dotted(value.func).rpartition(".")[2])
        elif name and name in self._sources:
            for one in self._sources[name]:
                if isinstance(one, ast.Call) and dotted(one.func):
                    self.borrowed.add(dotted(one.func).rpartition(".")[2])
                else:
                    self.is_unknown = True
        elif not (name and (name in self._parameters or name.startswith("self."))):
            self.is_unknown = True

    def _read(self, call: ast.Call, scope: Scope) -> None:
        words = call.args[0] if call.args else keywords(call).get("args")
        if words is not None and not self._is_command_line(words):
            return
        if isinstance(call.func, ast.Attribute):
            self._from(call.func.value)
        self.reading.append(_place(call, scope))

    def _is_command_line(self, words: ast.expr) -> bool:
        if isinstance(words, ast.Constant) and words.value is None:
            return True
        if isinstance(words, ast.Name):
            return words.id in self._parameters
        return isinstance(words, ast.Subscript) and dotted(words.value) == "sys.argv"

    def _passed(self, call: ast.Call, last: str) -> None:
        """A function that gets a parser may add to it."""
        if last in self.borrowed or last in ("vars", "print", "id", "repr"):
            return
        waiting: list[ast.expr] = [*call.args, *(one.value for one in call.keywords)]
        for one in waiting:
            if isinstance(one, (ast.Name, ast.Attribute)):
                if dotted(one) in self._given:
                    self.borrowed.add(last)
                    return
            elif isinstance(one, (ast.List, ast.Tuple, ast.Set)):
                waiting += one.elts

    def _added(self, call: ast.Call, scope: Scope) -> None:
        if len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id not in self.known:
            for text, line in self._stands_for(call.args[0].id, call, scope):
                self._add(call, scope, [text], line)
            return
        spelled = [literal(one, self.known) for one in call.args]
        texts = [one for one in spelled if isinstance(one, str)]
        if (_has_stars(call) and not call.args) or len(texts) != len(spelled) or not texts:
            self.is_open = True
            return
        self._add(call, scope, texts, call.lineno)

    def _stands_for(self, name: str, call: ast.Call, scope: Scope) -> Iterator[tuple[str, int]]:
        """The names of options that ``name`` has, each with its line: in a loop over them, or in a function that is
        called with them. There may be others."""
        loops = [one for one in self._loops if one.lineno <= call.lineno <= (one.end_lineno or 0)]
        for loop in loops:
            if isinstance(loop.target, ast.Name) and loop.target.id == name:
                texts = literal(loop.iter, self.known)
                is_whole = isinstance(texts, list) and all(isinstance(one, str) for one in texts)
                self.is_open |= not is_whole
                yield from ((str(one), loop.lineno) for one in (texts if is_whole and isinstance(texts, list) else ()))
                return
        self.is_open = True
        function = scope.function
        names = [one.arg for one in function.args.args] if function is not None else []
        if function is None or name not in names:
            return
        index = names.index(name)
        for one in [each.node for each in self._nodes.called(function.name) if isinstance(each.node.func, ast.Name)]:
            given = keywords(one).get(name)
            given = one.args[index] if given is None and index < len(one.args) else given
            text = literal(given, self.known) if given is not None else None
            if isinstance(text, str):
                yield text, one.lineno

    def _add(self, call: ast.Call, scope: Scope, texts: Sequence[str], line: int) -> None:
        if any(isinstance(one, ast.Starred) for one in call.args):
            self.is_open = True
            return
        given = keywords(call)
        has_stars = _has_stars(call)
        takes = "unknown" if has_stars else self._takes(given)
        if takes == "remainder":
            self.is_unknown = True
            return
        dashed = [one for one in texts if one.startswith("-")]
        if dotted(given.get("action", call)).endswith("BooleanOptionalAction"):
            dashed += [f"--no-{one[2:]}" for one in dashed if one.startswith("--")]
        place = _place(call, scope)
        required = "required" in given and literal(given["required"], self.known) is True
        if not dashed:
            required = takes in ("value",) or isinstance(takes, int) or _word(given, "nargs", self.known) == "+"
            required = required and "default" not in given
        self.arguments.append(
            Argument(
                spellings=tuple(dashed or texts[:1]),
                line=line,
                reads=self._reads(given, has_stars),
                takes=takes,  # type: ignore[arg-type]
                choices=_choices(given.get("choices"), self.known),
                required=required and not has_stars,
                is_certain=not scope.is_conditional and (place.function, place.is_main) in self._makers,
                is_main=scope.is_main,
            )
        )

    def _takes(self, given: Mapping[str, ast.expr]) -> str | int:
        action = given.get("action")
        if action is not None:
            named = literal(action, self.known)
            if dotted(action).endswith("BooleanOptionalAction") or named in _FLAG_ACTIONS:
                return "flag"
            if named not in _VALUE_ACTIONS:
                return "unknown"
        if "nargs" not in given:
            return "value"
        count = literal(given["nargs"], self.known)
        if count in ("?", "*", "+", 1):
            return "several"
        if isinstance(count, int) and count > 1:
            return count
        return "remainder"

    def _reads(self, given: Mapping[str, ast.expr], has_stars: bool) -> Reads:
        if "type" not in given:
            return "any" if has_stars else "text"
        names: dict[str, Reads] = {"int": "int", "float": "float", "str": "text"}
        return names.get(dotted(given["type"]), "any")


def _word(given: Mapping[str, ast.expr], name: str, known: Mapping[str, Value]) -> Value:
    return literal(given[name], known) if name in given else None


def _choices(node: ast.expr | None, known: Mapping[str, Value]) -> tuple[Value, ...] | None:
    """What an argument may be; None where it cannot be read."""
    if isinstance(node, ast.Call) and dotted(node.func) == "range":
        return _range([literal(one, known) for one in node.args])
    if isinstance(node, ast.Call) and _lists(node):
        return _choices(node.args[0] if node.args else node.func.value, known)  # type: ignore[attr-defined]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        values: list[Value] = [literal(one, known) for one in node.elts]
    elif isinstance(node, ast.Dict):
        values = [None if one is None else literal(one, known) for one in node.keys]
    else:
        named = literal(node, known) if node is not None else None
        values = list(named) if isinstance(named, list | dict) else [None]
    return None if None in values else tuple(values)


def _lists(call: ast.Call) -> bool:
    """``sorted(NAMES)``, ``list(NAMES)``, ``NAMES.keys()``, and the like."""
    if call.keywords:
        return False
    is_copy = dotted(call.func) in ("sorted", "list", "tuple", "set", "frozenset") and len(call.args) == 1
    return is_copy or (isinstance(call.func, ast.Attribute) and call.func.attr == "keys" and not call.args)


def _range(bounds: Sequence[Value]) -> tuple[Value, ...] | None:
    whole = [one for one in bounds if isinstance(one, int)]
    if len(whole) != len(bounds) or not whole or 0 in whole[2:]:
        return None
    numbers = range(*whole)
    return tuple(numbers) if len(numbers) <= _LARGEST_RANGE else None


#: Settings of a click command that do not change what it accepts.
_HARMLESS_SETTINGS = {"show_default", "help_option_names", "max_content_width", "terminal_width", "color"}


class _Click(_Reader):
    style: Style = "click"

    def read(self, nodes: Nodes) -> None:
        commands = 0
        decorators: set[int] = set()
        for node, scope in nodes.placed(ast.FunctionDef):
            made = [one for one in node.decorator_list if self._last(one) == "command"]
            if made:
                commands += 1
                decorators |= {id(one) for one in node.decorator_list}
                self._command(node, made[0], scope)
        # Functions of the person's own that add options, for several commands.
        for one in nodes.called("option", "argument"):
            if one.path in ("click.option", "click.argument") and id(one.node) not in decorators:
                self._declared(one.node, one.name, is_certain=False)
        made_otherwise = ("Option", "Argument", "add_params", "params")
        self.is_open |= any(one.attr in made_otherwise for one in nodes.of(ast.Attribute))
        groups = ("group", "Group", "MultiCommand", "CommandCollection")
        self.is_unknown = commands > 1 or any(one.path for one in nodes.called(*groups))

    @staticmethod
    def _last(node: ast.expr) -> str:
        return dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]

    def _command(self, function: ast.FunctionDef, made: ast.expr, scope: Scope) -> None:
        place = Parser(function.name, scope.is_main, function.lineno)
        self.parsers.append(place)
        self.reading.append(place)
        given = keywords(made) if isinstance(made, ast.Call) else {}
        settings = literal(given["context_settings"], self.known) if "context_settings" in given else {}
        if isinstance(made, ast.Call) and (_has_stars(made) or {"cls", "params"} & given.keys()):
            self.is_open = True
        if not isinstance(settings, dict) or not _HARMLESS_SETTINGS.issuperset(settings):
            self.is_open = True
        for one in function.decorator_list:
            kind = self._last(one)
            if kind in ("option", "argument") and isinstance(one, ast.Call):
                self._declared(one, kind)
            elif kind not in ("command", "version_option", "help_option", "pass_context"):
                # One that may add options, as those of another package do.
                self.borrowed.add(kind)

    def _declared(self, call: ast.Call, kind: str, *, is_certain: bool = True) -> None:
        words = [literal(one, self.known) for one in call.args]
        texts = [one for one in words if isinstance(one, str)]
        if len(texts) != len(words) or not texts:
            self.is_open = True
            return
        given, has_stars = keywords(call), _has_stars(call)
        spellings = [part.strip() for one in texts if one.startswith("-") for part in one.split("/")]
        if kind == "argument":
            spellings = texts[:1]
        required = literal(given["required"], self.known) is True if "required" in given else kind == "argument"
        if kind == "argument" and ("default" in given or literal(given.get("nargs", call), self.known) == -1):
            required = False
        if not spellings:
            self.is_open = True
            return
        self.arguments.append(
            Argument(
                spellings=tuple(spellings),
                line=call.lineno,
                reads=self._reads(given, has_stars),
                takes=self._takes(given, texts, has_stars),
                choices=self._choices(given.get("type")),
                # An environment variable may give it.
                required=required and not has_stars and not {"envvar", "prompt", "callback", "default"} & given.keys(),
                is_certain=is_certain,
            )
        )

    def _takes(
        self, given: Mapping[str, ast.expr], texts: Sequence[str], has_stars: bool
    ) -> Literal["value", "flag", "several", "unknown"]:
        if any("/" in one for one in texts):
            return "flag"
        if has_stars or {"flag_value", "count", "cls", "callback", "nargs", "prompt"} & given.keys():
            return "unknown"
        if "is_flag" in given:
            return "flag" if literal(given["is_flag"], self.known) is True else "unknown"
        # An option whose default is true or false is a flag in some of click's versions.
        default = literal(given["default"], self.known) if "default" in given else None
        return "unknown" if isinstance(default, bool) else "value"

    def _reads(self, given: Mapping[str, ast.expr], has_stars: bool) -> Reads:
        names: dict[str, Reads] = {"int": "int", "float": "float", "str": "text", "INT": "int", "FLOAT": "float"}
        if "type" in given:
            is_choice = isinstance(given["type"], ast.Call) and self._last(given["type"]) == "Choice"
            return "text" if is_choice else names.get(dotted(given["type"]).rpartition(".")[2], "any")
        default = literal(given["default"], self.known) if "default" in given else None
        if has_stars or ("default" in given and default is None):
            return "any"
        kind = type(default).__name__
        return names.get(kind, "any") if default is not None else "text"

    def _choices(self, node: ast.expr | None) -> tuple[Value, ...] | None:
        if not isinstance(node, ast.Call) or self._last(node) != "Choice" or node.keywords or len(node.args) != 1:
            return None
        found = _choices(node.args[0], self.known)
        return found if found is not None and all(isinstance(one, str) for one in found) else None


class _Absl(_Reader):
    style: Style = "absl"

    def read(self, nodes: Nodes) -> None:
        for call, scope, last, name in nodes.calls:
            if not name:
                continue
            if last.startswith("DEFINE"):
                self._defined(call, last)
            elif name == "app.run":
                self.is_unknown |= "flags_parser" in keywords(call)
                self.reading.append(_place(call, scope))
                self.parsers.append(_place(call, scope))
            elif last in ("mark_flag_as_required", "mark_flags_as_required"):
                self._required(call)
            elif last in ("adopt_module_key_flags", "set_gnu_getopt", "run_with_init", "parse_flags_with_usage"):
                self.is_open = True
        self.is_unknown |= any("compat" in one.path and one.path.endswith("app.run") for one in nodes.called("run"))

    def _defined(self, call: ast.Call, last: str) -> None:
        name = literal(call.args[0], self.known) if call.args else _word(keywords(call), "name", self.known)
        kind = last.removeprefix("DEFINE_")
        known_kinds = {*_ABSL_READS, "boolean", "bool", "list", "spaceseplist", "multi_string", "multi_integer"}
        if not isinstance(name, str) or kind == "alias" or (kind not in known_kinds and not kind.startswith("multi_")):
            self.is_open = True
            return
        given = keywords(call)
        values = call.args[2] if kind == "enum" and len(call.args) > 2 else given.get("enum_values")
        required = literal(given["required"], self.known) is True if "required" in given else False
        short = _word(given, "short_name", self.known)
        is_exact = kind == "enum" and "case_sensitive" not in given
        self.arguments.append(
            Argument(
                spellings=(f"--{name}", *((f"--{short}",) if isinstance(short, str) else ())),
                line=call.lineno,
                reads=_ABSL_READS.get(kind, "any"),
                takes="flag" if kind in ("boolean", "bool") else "value",
                choices=_choices(values, self.known) if is_exact else None,
                required=required,
                is_certain=True,
            )
        )

    def _required(self, call: ast.Call) -> None:
        value = literal(call.args[0], self.known) if call.args else None
        names = {f"--{one}" for one in (value if isinstance(value, list) else [value])}
        self.arguments = [one._replace(required=True) if one.name in names else one for one in self.arguments]
