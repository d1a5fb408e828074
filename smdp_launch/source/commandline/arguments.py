"""The command line that a script accepts: the arguments that it declares with argparse, click or absl.

The script is not run. ``declarations`` reads the ``Declarations`` of each module, and ``command_line`` joins
those of the script and its modules. If something cannot be determined, ``is_open`` or ``is_unknown`` is set. The rules
then report less, but nothing false.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from smdp_launch.source.commandline.options import Value

Style = Literal["argparse", "click", "absl"]
Reads = Literal["text", "int", "float", "truthy", "json", "yaml", "python", "any"]

#: Packages that define no absl flags.
_FLAGLESS = frozenset(
    {
        *("absl", "numpy", "torch", "torchvision", "tensorflow", "keras", "smdistributed", "smdp_engine", "PIL"),
        *("pandas", "scipy"),
    }
)

#: Flags that absl itself defines.
_OF_ABSL = frozenset(
    [
        *("help", "helpfull", "helpshort", "helpxml", "flagfile", "undefok", "only_check_args", "run_with_pdb", "pdb"),
        *("pdb_post_mortem", "run_with_profiling", "profile_file", "use_cprofile_for_profiling", "logtostderr"),
        *("alsologtostderr", "log_dir", "verbosity", "v", "logger_levels", "stderrthreshold", "showprefixforinfo"),
    ]
)


class Argument(NamedTuple):
    """One argument of a command line.

    Args:
        spellings: with their dashes, such as ``("--learning-rate", "--lr")``; a positional's name has none.
        reads: the conversion of the text, as ``options.Option.kind``; ``any`` if it is not known.
        takes: ``value`` (one word), ``flag`` (none), ``several`` (one or more words), ``unknown``; or the number of
            words, if it is more than one.
        choices: as Python values; None if any value is accepted, or if they cannot be determined.
        is_certain: every run declares it, in the function that creates its parser.
        is_main: it is declared below ``if __name__ == "__main__"``.
        module: the file that declares it.
        exclusive: the line of its mutually exclusive group; None without such a group.
        is_of_command: it belongs to the parser of a subcommand.
    """

    spellings: tuple[str, ...]
    line: int
    reads: Reads = "text"
    takes: Literal["value", "flag", "several", "unknown"] | int = "value"
    choices: tuple[Value, ...] | None = None
    required: bool = False
    is_certain: bool = False
    is_main: bool = False
    module: str = ""
    exclusive: int | None = None
    is_of_command: bool = False

    @property
    def is_positional(self) -> bool:
        return not self.spellings[0].startswith("-")

    @property
    def name(self) -> str:
        """The first spelling with two dashes, else the first spelling."""
        return next((one for one in self.spellings if one.startswith("--")), self.spellings[0])


class Parser(NamedTuple):
    """A call that creates a parser or parses the command line; ``function`` is the function around it."""

    function: str | None
    is_main: bool
    line: int = 0


class Subcommands(NamedTuple):
    """A call of ``add_subparsers``.

    Args:
        names: of the subcommands.
        is_certain: every run adds exactly these to the only parser of the module, which parses the command line.
    """

    line: int
    required: bool
    names: frozenset[str]
    is_certain: bool
    module: str = ""


class Declarations(NamedTuple):
    """What one module declares about the command line.

    Args:
        parsers: the calls that create a parser.
        reading: the calls that parse the command line.
        borrowed: functions and classes that return a parser, or receive one.
        defined: names of the functions and classes of this module.
        used: all names and attributes outside the main guard.
        used_in_main: all names and attributes below the main guard.
        imports: modules and names as they are imported.
        packages: the top-level packages that it imports; empty for the module's own package.
        is_open: there may be arguments that cannot be read, or unknown arguments are accepted.
        is_unknown: the accepted arguments cannot be determined.
        is_tolerant: words that match no argument are ignored.
        abbreviates: options can be abbreviated.
    """

    style: Style | None = None
    arguments: tuple[Argument, ...] = ()
    parsers: tuple[Parser, ...] = ()
    reading: tuple[Parser, ...] = ()
    subcommands: tuple[Subcommands, ...] = ()
    borrowed: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    used_in_main: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    is_open: bool = False
    is_unknown: bool = False
    is_tolerant: bool = False
    abbreviates: bool = True


class CommandLine(NamedTuple):
    """The command line that the entry point and its modules accept together.

    Args:
        is_closed: a name that is not among the arguments is refused.
        is_one: one parser has all arguments, so that required arguments must be set.
        is_tolerant: words that match no argument, such as the value of a flag, are ignored.
        subcommands: if there are any, ``arguments`` has theirs too, and the other fields describe none of them.
    """

    style: Style
    arguments: tuple[Argument, ...]
    is_closed: bool
    is_one: bool
    is_tolerant: bool
    abbreviates: bool
    subcommands: tuple[Subcommands, ...] = ()

    def find(self, word: str) -> list[Argument]:
        """The arguments that ``word``, such as ``--lr``, may mean; several if it is an ambiguous abbreviation."""
        spelled = [(one, spelling) for one in self.arguments for spelling in one.spellings if spelling.startswith("-")]
        if self.style == "absl":
            bare = word.lstrip("-")
            if bare in _OF_ABSL:
                return [Argument((word,), 0, reads="any", takes="unknown")]
            return [one for one, spelling in spelled if bare in (spelling[2:], f"no{spelling[2:]}")]
        exact = [one for one, spelling in spelled if spelling == word]
        # allow_abbrev=False still allows abbreviations with one dash.
        if exact or self.style == "click" or (word.startswith("--") and not self.abbreviates):
            return exact
        return list(dict.fromkeys(one for one, spelling in spelled if spelling.startswith(word)))


def command_line(modules: Mapping[str, Declarations], complete: bool) -> CommandLine | None:
    """The command line of the entry point, the first of ``modules``; None if it has none or it cannot be determined.

    Args:
        complete: ``modules`` has all modules of the source folder that are imported.
    """
    if any(one.is_unknown for one in modules.values()):
        return None
    modules = {name: modules[name] for name in parsing_modules(modules)}
    entry = next(iter(modules), None)
    styles = {one.style for one in modules.values() if one.style is not None}
    reading = [one for name, each in modules.items() for one in each.reading if _runs(one, name, modules)]
    if len(styles) != 1 or not reading:
        return None
    parsers = [one for name, each in modules.items() for one in each.parsers if name == entry or not one.is_main]
    arguments = [
        one._replace(module=name)
        for name, each in modules.items()
        for one in each.arguments
        if name == entry or not one.is_main
    ]
    defined = frozenset[str]().union(*(one.defined for one in modules.values()))
    borrowed = frozenset[str]().union(*(one.borrowed for one in modules.values()))
    is_open = any(one.is_open or one.is_tolerant for one in modules.values()) or not complete or not borrowed <= defined
    if styles == {"absl"}:
        # Any other package may define flags.
        packages = frozenset[str]().union(*(one.packages for one in modules.values()))
        is_open |= not packages <= _FLAGLESS | sys.stdlib_module_names | _own_packages(modules)
    return CommandLine(
        style=next(iter(styles)),
        arguments=tuple(arguments),
        is_closed=not is_open,
        is_one=len(parsers) == 1 and borrowed <= defined,
        is_tolerant=any(one.is_tolerant for one in modules.values()),
        abbreviates=all(one.abbreviates for one in modules.values()),
        subcommands=tuple(
            one._replace(module=name, is_certain=one.is_certain and complete and len(parsers) == len(each.parsers))
            for name, each in modules.items()
            for one in each.subcommands
        ),
    )


def parsing_modules(modules: Mapping[str, Declarations]) -> list[str]:
    """The names of ``modules``, without those with a parser of their own that a run of the entry point, the first of
    them, never lets parse the command line."""
    return [
        name
        for number, (name, one) in enumerate(modules.items())
        if number == 0 or not (one.parsers and one.reading) or any(_runs(each, name, modules) for each in one.reading)
    ]


def _runs(one: Parser, module: str, modules: Mapping[str, Declarations]) -> bool:
    if one.is_main:
        return module == next(iter(modules))
    return one.function is None or _is_used(one.function, module, modules)


def _is_used(function: str, module: str, modules: Mapping[str, Declarations]) -> bool:
    """Whether a run of the entry point, the first of ``modules``, may call ``function`` of ``module``."""
    entry = next(iter(modules))
    parts = module.removesuffix(".py").removesuffix("/__init__").split("/")
    for name, one in modules.items():
        used = one.used | one.used_in_main if name == entry else one.used
        is_known = name == module or any(
            each.endswith((f".{function}", ".*"))
            or (each.rpartition(".")[2] == parts[-1] and function not in one.defined)
            for each in one.imports
        )
        if function in used and is_known:
            return True
    return False


def _own_packages(modules: Collection[str]) -> frozenset[str]:
    parts = (part for name in modules for part in name.removesuffix(".py").split("/"))
    return frozenset({"", *parts})
