"""The command line that a module declares with argparse."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from smdp_launch.source.commandline.arguments import Argument, Reads, Style, Subcommands
from smdp_launch.source.commandline.options import CONVERTERS, literal
from smdp_launch.source.commandline.reader import Reader, choices_of, keyword_value, parser_at, unpacks
from smdp_launch.source.syntax.scopes import Function, Nodes, Scope, dotted, tail
from smdp_launch.source.syntax.tree import keywords

_FLAG_ACTIONS = frozenset({"store_true", "store_false", "store_const", "append_const", "count", "help", "version"})
#: Attributes of argparse itself, by which a module changes what a parser accepts.
_INNER = frozenset({"_actions", "_option_string_actions", "_negative_number_matcher", "_has_negative_number_optionals"})
_VALUE_ACTIONS = frozenset({"store", "append", "extend"})
#: For hostile scripts, which add options in a function or a loop: each call counts for each value of its name.
_MOST_ARGUMENTS = 10_000


class ArgparseReader(Reader):
    style: Style = "argparse"

    #: Calls that create a group, whose arguments belong to its parser.
    _GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
    _READING = ("parse_args", "parse_intermixed_args", "parse_known_args", "parse_known_intermixed_args")
    #: Calls that are read in a module without parsers of its own.
    _CALLS = ("ArgumentParser", "add_argument", "add_subparsers", *_READING)

    @property
    def adds(self) -> bool:
        return bool(self.arguments or self.subcommands) or self.is_open

    def read(self, nodes: Nodes) -> None:
        self._makers: set[tuple[str | None, bool]] = set()
        self._parameters = {one.arg for one in nodes.of(ast.arg)}
        imported = [alias for one in nodes.of(ast.Import) for alias in one.names]
        imported += [alias for one in nodes.of(ast.ImportFrom) for alias in one.names]
        self._modules = {one.asname or one.name.partition(".")[0] for one in imported}
        self._sources: dict[str, list[ast.expr]] = {}
        #: By the function around the assignment, and the target.
        self._assigned: dict[tuple[int, str], list[ast.Assign]] = {}
        for node, scope in nodes.placed(ast.Assign):
            for target in node.targets:
                self._assigned.setdefault((id(scope.function), dotted(target)), []).append(node)
            if len(node.targets) == 1 and isinstance(node.value, ast.Call) and dotted(node.targets[0]):
                self._sources.setdefault(dotted(node.targets[0]), []).append(node.value)
        self._loops = nodes.of(ast.For)
        self._values: dict[tuple[int, str], list[tuple[str, int]]] = {}
        self._reads_parameter = False
        self._nodes = nodes
        #: Names of parsers, and of groups of their arguments.
        self._names = {name for name, values in self._sources.items() if any(self._is_parser(one) for one in values)}
        #: Those of subcommands.
        self._of_commands = {
            name for name, values in self._sources.items() if any(_called(one) == "add_parser" for one in values)
        }
        has_attributes = any(one.startswith("self.") for one in self._names)
        #: Arguments that give a function access to a parser.
        self._passed_names = self._names | {"self"} if has_attributes else self._names
        for each in nodes.calls if self._names else nodes.called(*self._CALLS):
            self._call(each.node, each.name, each.scope)
        if has_attributes:
            # The methods of a base class that is not read may add arguments.
            known = {one.name for one in nodes.of(ast.ClassDef)} | {"object", "ABC"}
            bases = [dotted(base) for one in nodes.of(ast.ClassDef) for base in one.bases]
            self.is_open |= not known.issuperset(bases)
        if any(one.attr == "required" and not isinstance(one.ctx, ast.Load) for one in nodes.of(ast.Attribute)):
            self.arguments = [one._replace(required=False) for one in self.arguments]
        self._add_subcommands(nodes)
        self.is_unknown |= any(one.attr in _INNER for one in nodes.of(ast.Attribute))
        # After `add = parser.add_argument`, calls of `add` are not read.
        calls = sum(isinstance(one.node.func, ast.Attribute) for one in nodes.called("add_argument"))
        self.is_open |= calls != sum(one.attr == "add_argument" for one in nodes.of(ast.Attribute))

    def _call(self, call: ast.Call, last: str, scope: Scope) -> None:
        if last == "ArgumentParser":
            self._add_parser(call, scope)
        elif last == "add_argument" and self._is_method(call):
            self._add_arguments(call, scope)
        elif last in self._READING and self._is_method(call):
            self._add_reading(call, scope)
            self.is_tolerant |= "known" in last
        elif last != "add_subparsers" or not self._is_method(call):
            self._add_borrower(call, last)

    def _add_subcommands(self, nodes: Nodes) -> None:
        calls = [one for one in nodes.called("add_subparsers") if self._is_method(one.node)]
        added = [one.node for one in nodes.called("add_parser")]
        names = [literal(one.args[0], self.known) if one.args else None for one in added]
        is_known = all(isinstance(one, str) for one in names) and not any("aliases" in keywords(one) for one in added)
        # A parser that lends its arguments to others is not counted.
        lent = {dotted(each) for one in nodes.called("ArgumentParser", "add_parser") for each in _parents(one.node)}
        makers = [name for name, values in self._sources.items() for one in values if _called(one) == "ArgumentParser"]
        own = [one for one in makers if one not in lent]
        is_known &= len(calls) == 1 and len(makers) == len(nodes.called("ArgumentParser"))
        for call in calls:
            is_certain = is_known and own == [_receiver(call.node)]
            place = parser_at(call.node, call.scope)
            is_certain &= not call.scope.is_conditional and (place.function, place.is_main) in self._makers
            # The caller of the function may pass the subcommand.
            is_certain &= not self._reads_parameter
            required = keyword_value(keywords(call.node), "required", self.known) is True
            texts = frozenset(one for one in names if isinstance(one, str))
            self.subcommands.append(Subcommands(call.node.lineno, required, texts, is_certain))

    def _is_method(self, call: ast.Call) -> bool:
        """Whether the call is a method of an object, not a function of a module."""
        return isinstance(call.func, ast.Attribute) and dotted(call.func.value) not in self._modules

    def _is_parser(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call):
            return False
        last = dotted(value.func).rpartition(".")[2] or getattr(value.func, "attr", "")
        return last == "ArgumentParser" or last in self._GROUPS

    def _add_parser(self, call: ast.Call, scope: Scope) -> None:
        kwargs = keywords(call)
        if unpacks(call) or {"prefix_chars", "fromfile_prefix_chars"} & kwargs.keys():
            self.is_unknown = True
        if "allow_abbrev" in kwargs:
            self.abbreviates = literal(kwargs["allow_abbrev"], self.known) is not False
        place = parser_at(call, scope)
        self._makers.add((place.function, place.is_main))
        self.parsers.append(place)
        for one in _parents(call):
            self._add_origin(one)
            if isinstance(one, ast.Call) and place in self.parsers:
                self.parsers.remove(place)  # parent and child together are one parser

    def _add_origin(self, value: ast.expr) -> None:
        """Record where the parser ``value`` comes from, if this module does not create it."""
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

    def _add_reading(self, call: ast.Call, scope: Scope) -> None:
        words = call.args[0] if call.args else keywords(call).get("args")
        if words is not None and not self._is_command_line(words):
            return
        if isinstance(call.func, ast.Attribute):
            self._add_origin(call.func.value)
        self._reads_parameter |= isinstance(words, ast.Name)
        self.reading.append(parser_at(call, scope))

    def _is_command_line(self, words: ast.expr) -> bool:
        if isinstance(words, ast.Constant) and words.value is None:
            return True
        if isinstance(words, ast.Name):
            return words.id in self._parameters
        return isinstance(words, ast.Subscript) and dotted(words.value) == "sys.argv"

    def _add_borrower(self, call: ast.Call, last: str) -> None:
        """Record a function that receives a parser: it may add arguments."""
        if last in self.borrowed or last in ("vars", "print", "id", "repr"):
            return
        waiting: list[ast.expr] = [*call.args, *(one.value for one in call.keywords)]
        for one in waiting:
            if isinstance(one, (ast.Name, ast.Attribute)):
                if dotted(one) in self._passed_names:
                    self.borrowed.add(last)
                    return
            elif isinstance(one, (ast.List, ast.Tuple, ast.Set)):
                waiting += one.elts

    def _add_arguments(self, call: ast.Call, scope: Scope) -> None:
        if len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id not in self.known:
            room = max(0, _MOST_ARGUMENTS - len(self.arguments))
            values = self._values_of(call.args[0].id, call, scope) if room else []
            self.is_open |= len(values) >= room
            for text, line in values[:room]:
                self._add(call, scope, [text], line)
            return
        spelled = [literal(one, self.known) for one in call.args]
        texts = [one for one in spelled if isinstance(one, str)]
        if (unpacks(call) and not call.args) or len(texts) != len(spelled) or not texts:
            self.is_open = True
            return
        self._add(call, scope, texts, call.lineno)

    def _values_of(self, name: str, call: ast.Call, scope: Scope) -> list[tuple[str, int]]:
        """The option names that the variable ``name`` has in a loop, or as a parameter, each with its line.

        Sets ``is_open`` if there may be others.
        """
        around = [one for one in self._loops if one.lineno <= call.lineno <= (one.end_lineno or 0)]
        loop = next((one for one in around if isinstance(one.target, ast.Name) and one.target.id == name), None)
        self.is_open |= loop is None
        source = loop if loop is not None else scope.function
        if source is None:
            return []
        if (id(source), name) not in self._values:
            found = self._looped(source) if isinstance(source, ast.For) else self._passed(source, name)
            self._values[id(source), name] = list(found)
        return self._values[id(source), name]

    def _looped(self, loop: ast.For) -> Iterator[tuple[str, int]]:
        texts = literal(loop.iter, self.known)
        if isinstance(texts, list) and all(isinstance(one, str) for one in texts):
            yield from ((str(one), loop.lineno) for one in texts)
        else:
            self.is_open = True

    def _passed(self, function: Function, name: str) -> Iterator[tuple[str, int]]:
        names = [one.arg for one in function.args.args]
        if name not in names:
            return
        index = names.index(name)
        for one in [each.node for each in self._nodes.called(function.name) if isinstance(each.node.func, ast.Name)]:
            value = keywords(one).get(name, one.args[index] if index < len(one.args) else None)
            text = literal(value, self.known) if value is not None else None
            if isinstance(text, str):
                yield text, one.lineno

    def _add(self, call: ast.Call, scope: Scope, texts: Sequence[str], line: int) -> None:
        if any(isinstance(one, ast.Starred) for one in call.args):
            self.is_open = True
            return
        kwargs = keywords(call)
        has_stars = unpacks(call)
        takes = "unknown" if has_stars else self._takes(kwargs)
        if takes == "remainder":
            self.is_unknown = True
            return
        dashed = [one for one in texts if one.startswith("-")]
        if dotted(kwargs.get("action", call)).endswith("BooleanOptionalAction"):
            dashed += [f"--no-{one[2:]}" for one in dashed if one.startswith("--")]
        place = parser_at(call, scope)
        required = keyword_value(kwargs, "required", self.known) is True
        if not dashed:
            needs_value = takes == "value" or isinstance(takes, int)
            required = needs_value or keyword_value(kwargs, "nargs", self.known) == "+"
            required = required and "default" not in kwargs
        self.arguments.append(
            Argument(
                spellings=tuple(dashed or texts[:1]),
                line=line,
                reads=self._reads(kwargs, has_stars),
                takes=takes,  # type: ignore[arg-type]
                choices=choices_of(kwargs.get("choices"), self.known),
                required=required and not has_stars,
                is_certain=not scope.is_conditional and (place.function, place.is_main) in self._makers,
                is_main=scope.is_main,
                exclusive=self._exclusive(call, scope, kwargs),
                is_of_command=_receiver(call) in self._of_commands,
            )
        )

    def _exclusive(self, call: ast.Call, scope: Scope, kwargs: Mapping[str, ast.expr]) -> int | None:
        """The line that creates the mutually exclusive group to which the call adds an argument; None if none does."""
        # argparse does not count a value that is the default itself, as a small number may be.
        if {"type", "default"} <= kwargs.keys():
            return None
        assigned = self._assigned.get((id(scope.function), _receiver(call)), [])
        made = next((one.value for one in reversed(assigned) if one.lineno < call.lineno), None)
        return made.lineno if made is not None and _called(made) == "add_mutually_exclusive_group" else None

    def _takes(self, kwargs: Mapping[str, ast.expr]) -> str | int:
        action = kwargs.get("action")
        if action is not None:
            named = literal(action, self.known)
            if dotted(action).endswith("BooleanOptionalAction") or named in _FLAG_ACTIONS:
                return "flag"
            if named not in _VALUE_ACTIONS:
                return "unknown"
        if "nargs" not in kwargs:
            return "value"
        count = literal(kwargs["nargs"], self.known)
        if count in ("?", "*", "+", 1):
            return "several"
        if isinstance(count, int) and count > 1:
            return count
        return "remainder"

    def _reads(self, kwargs: Mapping[str, ast.expr], has_stars: bool) -> Reads:
        if "type" not in kwargs:
            return "any" if has_stars else "text"
        return CONVERTERS.get(self.full_name(dotted(kwargs["type"])), "any")


def _called(value: ast.expr) -> str:
    """The last part of the name that ``value`` calls; empty if it is no call."""
    return tail(value.func) if isinstance(value, ast.Call) else ""


def _receiver(call: ast.Call) -> str:
    """``a.b`` for ``a.b.method(...)``."""
    return dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _parents(call: ast.Call) -> list[ast.expr]:
    parents = keywords(call).get("parents")
    return parents.elts if isinstance(parents, ast.List | ast.Tuple) else [parents] if parents is not None else []
