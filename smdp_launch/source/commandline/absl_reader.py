"""The command line that a module declares with absl."""

from __future__ import annotations

import ast

from smdp_launch.source.commandline.arguments import Argument, Reads, Style
from smdp_launch.source.commandline.options import literal
from smdp_launch.source.commandline.reader import Reader, choices_of, keyword_value, parser_at
from smdp_launch.source.syntax.scopes import Nodes
from smdp_launch.source.syntax.tree import keywords

_ABSL_READS: dict[str, Reads] = {"string": "text", "integer": "int", "float": "float", "enum": "text"}


class AbslReader(Reader):
    style: Style = "absl"

    def read(self, nodes: Nodes) -> None:
        for call, scope, last, name in nodes.calls:
            if not name:
                continue
            if last.startswith("DEFINE"):
                self._add(call, last)
            elif name == "app.run":
                self.is_unknown |= "flags_parser" in keywords(call)
                self.reading.append(parser_at(call, scope))
                self.parsers.append(parser_at(call, scope))
            elif last in ("mark_flag_as_required", "mark_flags_as_required"):
                self._require(call)
            elif last in ("adopt_module_key_flags", "set_gnu_getopt", "run_with_init", "parse_flags_with_usage"):
                self.is_open = True
        self.is_unknown |= any("compat" in one.path and one.path.endswith("app.run") for one in nodes.called("run"))

    def _add(self, call: ast.Call, last: str) -> None:
        name = literal(call.args[0], self.known) if call.args else keyword_value(keywords(call), "name", self.known)
        kind = last.removeprefix("DEFINE_")
        known_kinds = {*_ABSL_READS, "boolean", "bool", "list", "spaceseplist", "multi_string", "multi_integer"}
        if not isinstance(name, str) or kind == "alias" or (kind not in known_kinds and not kind.startswith("multi_")):
            self.is_open = True
            return
        kwargs = keywords(call)
        values = call.args[2] if kind == "enum" and len(call.args) > 2 else kwargs.get("enum_values")

        short = keyword_value(kwargs, "short_name", self.known)
        is_exact = kind == "enum" and "case_sensitive" not in kwargs
        self.arguments.append(
            Argument(
                spellings=(f"--{name}", *((f"--{short}",) if isinstance(short, str) else ())),
                line=call.lineno,
                reads=_ABSL_READS.get(kind, "any"),
                takes="flag" if kind in ("boolean", "bool") else "value",
                choices=choices_of(values, self.known) if is_exact else None,
                required=keyword_value(kwargs, "required", self.known) is True,
                is_certain=True,
            )
        )

    def _require(self, call: ast.Call) -> None:
        value = literal(call.args[0], self.known) if call.args else None
        names = {f"--{one}" for one in (value if isinstance(value, list) else [value])}
        self.arguments = [one._replace(required=True) if one.name in names else one for one in self.arguments]
