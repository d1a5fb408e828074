"""The command line that a module declares with argparse, click or absl."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from smdp_launch.source.commandline.absl_reader import AbslReader
from smdp_launch.source.commandline.argparse_reader import ArgparseReader
from smdp_launch.source.commandline.arguments import Declarations
from smdp_launch.source.commandline.click_reader import ClickReader
from smdp_launch.source.commandline.options import Value
from smdp_launch.source.syntax.scopes import Nodes, dotted

#: Other packages that define or extend a command line, which are not supported.
_OTHER_PARSERS = frozenset(
    {
        *("optparse", "jsonargparse", "configargparse", "simple_parsing", "tap", "hydra", "fire", "typer", "tyro"),
        *("docopt", "docopt_ng", "gin", "sacred", "plac", "argh", "ml_collections", "clize", "cyclopts"),
    }
)
_OTHER_CLASSES = frozenset({"HfArgumentParser", "LightningCLI", "TrlParser", "ArgParser", "YamlConfigAction"})


def declarations(nodes: Nodes, imports: Collection[str], known: Mapping[str, Value]) -> Declarations:
    """The declarations of a module.

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
    packages = {one.partition(".")[0] for one in imports}
    names = {one.rpartition(".")[2] for one in imports}
    module = Declarations(
        defined=frozenset(defined),
        used=frozenset(used),
        used_in_main=frozenset(used_in_main),
        packages=frozenset(packages),
        imports=frozenset(imports),
    )
    if packages & _OTHER_PARSERS or names & _OTHER_CLASSES or _is_dynamic(nodes):
        return module._replace(is_unknown=True)
    if "argparse" in packages:
        return ArgparseReader(nodes, known).add_to(module)
    if "click" in packages:
        return ClickReader(nodes, known).add_to(module)
    if "absl" in packages and {"absl", "absl.flags", "absl.app"} & set(imports):
        return AbslReader(nodes, known).add_to(module)
    # The module may use a parser of argparse that another module creates.
    reader = ArgparseReader(nodes, known)
    return reader.add_to(module) if reader.adds or reader.reading else module


def _is_dynamic(nodes: Nodes) -> bool:
    """Whether the module runs text as code, changes ``sys.argv``, or defines parser classes."""
    names = {one.path for one in nodes.calls}
    if names & {"exec", "runpy.run_path", "runpy.run_module"} or any(one.startswith("sys.argv.") for one in names):
        return True
    targets = [one for one in nodes.of(ast.Attribute) if one.attr == "argv"]
    targets += [one for one in nodes.of(ast.Subscript) if dotted(one.value) == "sys.argv"]  # type: ignore[misc]
    if any(not isinstance(one.ctx, ast.Load) for one in targets):
        return True
    return any(dotted(base).endswith("ArgumentParser") for one in nodes.of(ast.ClassDef) for base in one.bases)
