"""The command line that a module declares with click."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Literal

from smdp_launch.source.commandline.arguments import Argument, Parser, Reads, Style
from smdp_launch.source.commandline.options import Value, literal
from smdp_launch.source.commandline.reader import Reader, choices_of, keyword_value, unpacks
from smdp_launch.source.syntax.scopes import Nodes, Scope, dotted
from smdp_launch.source.syntax.tree import keywords

#: Settings of a click command that do not change what it accepts.
_HARMLESS_SETTINGS = {"show_default", "help_option_names", "max_content_width", "terminal_width", "color"}


class ClickReader(Reader):
    style: Style = "click"

    def read(self, nodes: Nodes) -> None:
        commands = 0
        decorators: set[int] = set()
        for node, scope in nodes.placed(ast.FunctionDef):
            decorator = next((one for one in node.decorator_list if self._last(one) == "command"), None)
            if decorator is not None:
                commands += 1
                decorators |= {id(one) for one in node.decorator_list}
                self._add_command(node, decorator, scope)
        # The script's own functions that add options to several commands.
        for one in nodes.called("option", "argument"):
            if one.path in ("click.option", "click.argument") and id(one.node) not in decorators:
                self._add(one.node, one.name, is_certain=False)
        without_decorators = ("Option", "Argument", "add_params", "params")
        self.is_open |= any(one.attr in without_decorators for one in nodes.of(ast.Attribute))
        groups = ("group", "Group", "MultiCommand", "CommandCollection")
        self.is_unknown = commands > 1 or any(one.path for one in nodes.called(*groups))

    @staticmethod
    def _last(node: ast.expr) -> str:
        return dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]

    def _add_command(self, function: ast.FunctionDef, decorator: ast.expr, scope: Scope) -> None:
        place = Parser(function.name, scope.is_main, function.lineno)
        self.parsers.append(place)
        self.reading.append(place)
        kwargs = keywords(decorator) if isinstance(decorator, ast.Call) else {}
        settings = literal(kwargs["context_settings"], self.known) if "context_settings" in kwargs else {}
        if isinstance(decorator, ast.Call) and (unpacks(decorator) or {"cls", "params"} & kwargs.keys()):
            self.is_open = True
        if not isinstance(settings, dict) or not _HARMLESS_SETTINGS.issuperset(settings):
            self.is_open = True
        for one in function.decorator_list:
            kind = self._last(one)
            if kind in ("option", "argument") and isinstance(one, ast.Call):
                self._add(one, kind)
            elif kind not in ("command", "version_option", "help_option", "pass_context"):
                # Another decorator may add options.
                self.borrowed.add(kind)

    def _add(self, call: ast.Call, kind: str, *, is_certain: bool = True) -> None:
        words = [literal(one, self.known) for one in call.args]
        texts = [one for one in words if isinstance(one, str)]
        if len(texts) != len(words) or not texts:
            self.is_open = True
            return
        kwargs, has_stars = keywords(call), unpacks(call)
        spellings = [part.strip() for one in texts if one.startswith("-") for part in one.split("/")]
        if kind == "argument":
            spellings = texts[:1]
        required = literal(kwargs["required"], self.known) is True if "required" in kwargs else kind == "argument"
        if kind == "argument" and ("default" in kwargs or keyword_value(kwargs, "nargs", self.known) == -1):
            required = False
        if not spellings:
            self.is_open = True
            return
        self.arguments.append(
            Argument(
                spellings=tuple(spellings),
                line=call.lineno,
                reads=self._reads(kwargs, has_stars),
                takes=self._takes(kwargs, texts, has_stars),
                choices=self._choices(kwargs.get("type")),
                # An environment variable may set it.
                required=required and not has_stars and not {"envvar", "prompt", "callback", "default"} & kwargs.keys(),
                is_certain=is_certain,
            )
        )

    def _takes(
        self, kwargs: Mapping[str, ast.expr], texts: Sequence[str], has_stars: bool
    ) -> Literal["value", "flag", "several", "unknown"]:
        if any("/" in one for one in texts):
            return "flag"
        if has_stars or {"flag_value", "count", "cls", "callback", "nargs", "prompt"} & kwargs.keys():
            return "unknown"
        if "is_flag" in kwargs:
            return "flag" if literal(kwargs["is_flag"], self.known) is True else "unknown"
        # In some versions of click an option with a boolean default is a flag.
        return "unknown" if isinstance(keyword_value(kwargs, "default", self.known), bool) else "value"

    def _reads(self, kwargs: Mapping[str, ast.expr], has_stars: bool) -> Reads:
        names: dict[str, Reads] = {"int": "int", "float": "float", "str": "text", "INT": "int", "FLOAT": "float"}
        if "type" in kwargs:
            is_choice = isinstance(kwargs["type"], ast.Call) and self._last(kwargs["type"]) == "Choice"
            return (
                "text" if is_choice else names.get(self.full_name(dotted(kwargs["type"])).removeprefix("click."), "any")
            )
        default = keyword_value(kwargs, "default", self.known)
        if has_stars or ("default" in kwargs and default is None):
            return "any"
        return names.get(type(default).__name__, "any") if default is not None else "text"

    def _choices(self, node: ast.expr | None) -> tuple[Value, ...] | None:
        if not isinstance(node, ast.Call) or self._last(node) != "Choice" or node.keywords or len(node.args) != 1:
            return None
        choices = choices_of(node.args[0], self.known)
        return choices if choices is not None and all(isinstance(one, str) for one in choices) else None
