"""The command line that a script accepts: the arguments that argparse, click or absl declare, read without running it.

A script and its modules say together what is accepted: ``source.parsers`` reads the ``Declarations`` of each module and
``command_line`` joins them. Where an argument, a parser or the words that it reads cannot be known, that is kept too
(``is_open``, ``is_unknown``): a rule may then report less, never something false.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from smdp_launch.source.script.options import Value

Style = Literal["argparse", "click", "absl"]
Reads = Literal["text", "int", "float", "any"]

#: What may be imported beside the source folder's own modules without bringing absl flags of its own.
_FLAGLESS = frozenset(
    [
        "absl",
        "numpy",
        "torch",
        "torchvision",
        "tensorflow",
        "keras",
        "smdistributed",
        "smdp_engine",
        "PIL",
        "pandas",
        "scipy",
    ]
)


#: Flags that absl itself has.
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
        takes: ``value`` (one word), ``flag`` (none), ``several`` (one or more words), ``unknown``; or how many words,
            if more than one.
        choices: as Python values; None where any value is accepted, or it cannot be known.
        is_certain: it is declared beside its parser, in every run.
        is_main: it is declared below ``if __name__ == "__main__"``.
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

    @property
    def is_positional(self) -> bool:
        return not self.spellings[0].startswith("-")

    @property
    def name(self) -> str:
        """The spelling that documents it: the first with two dashes."""
        return next((one for one in self.spellings if one.startswith("--")), self.spellings[0])


class Parser(NamedTuple):
    """A parser that is made, or asked to read the command line; ``function`` is the one that it stands in."""

    function: str | None
    is_main: bool
    line: int = 0


class Declarations(NamedTuple):
    """What one module says of a command line.

    Args:
        parsers: the parsers that are made.
        reading: places where the command line is read.
        borrowed: functions and classes that give a parser, or get one.
        defined: names of the functions and classes of this module.
        used: every name and attribute that stands in it; ``used_in_main`` those below its main guard.
        imports: modules and names as they are imported.
        packages: what it imports, by the first part of the name; empty for the module's own package.
        is_open: there may be arguments that cannot be read here, or unknown ones are accepted.
        is_unknown: nothing can be said of the words that are accepted.
        is_tolerant: words that no argument takes are left alone.
    """

    style: Style | None = None
    arguments: tuple[Argument, ...] = ()
    parsers: tuple[Parser, ...] = ()
    reading: tuple[Parser, ...] = ()
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
    """What the entry and its modules accept together.

    Args:
        is_closed: a name that is not among the arguments is refused.
        is_one: one parser holds all arguments, so that a required one must be given.
        is_tolerant: words that no argument takes, such as the value of a flag, are left alone.
    """

    style: Style
    arguments: tuple[Argument, ...]
    is_closed: bool
    is_one: bool
    is_tolerant: bool
    abbreviates: bool

    def find(self, word: str) -> list[Argument]:
        """The arguments that ``word``, such as ``--lr``, may mean; several where it is an ambiguous abbreviation."""
        spelled = [(one, spelling) for one in self.arguments for spelling in one.spellings if spelling.startswith("-")]
        if self.style == "absl":
            bare = word.lstrip("-")
            if bare in _OF_ABSL:
                return [Argument((word,), 0, reads="any", takes="unknown")]
            return [one for one, spelling in spelled if bare in (spelling[2:], f"no{spelling[2:]}")]
        exact = [one for one, spelling in spelled if spelling == word]
        # allow_abbrev=False forbids no abbreviation with one dash.
        if exact or self.style == "click" or (word.startswith("--") and not self.abbreviates):
            return exact
        return list(dict.fromkeys(one for one, spelling in spelled if spelling.startswith(word)))


def command_line(modules: Mapping[str, Declarations], complete: bool) -> CommandLine | None:
    """The command line of the entry, which is the first of ``modules``; None where none is read, or nothing is known.

    Args:
        complete: every module of the source folder that is imported is among them.
    """
    if any(one.is_unknown for one in modules.values()):
        return None
    entry = next(iter(modules), None)
    styles = {one.style for one in modules.values() if one.style is not None}

    def runs(name: str, is_main: bool, function: str | None) -> bool:
        return name == entry if is_main else function is None or _is_used(function, name, modules)

    reading = [one for name, each in modules.items() for one in each.reading if runs(name, one.is_main, one.function)]
    if len(styles) != 1 or not reading:
        return None
    made = [one for name, each in modules.items() for one in each.parsers if name == entry or not one.is_main]
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
        # Any other package may have flags of its own.
        packages = frozenset[str]().union(*(one.packages for one in modules.values()))
        is_open |= not packages <= _FLAGLESS | sys.stdlib_module_names | _own_packages(modules)
    return CommandLine(
        style=next(iter(styles)),
        arguments=tuple(arguments),
        is_closed=not is_open,
        is_one=len(made) == 1 and borrowed <= defined,
        is_tolerant=any(one.is_tolerant for one in modules.values()),
        abbreviates=all(one.abbreviates for one in modules.values()),
    )


def _is_used(function: str, module: str, modules: Mapping[str, Declarations]) -> bool:
    """Whether a run of the entry, the first of ``modules``, may call ``function`` of ``module``."""
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
