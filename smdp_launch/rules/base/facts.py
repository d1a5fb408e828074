"""What rules are given, and how one is written.

A rule is a function from ``Facts`` to findings, with one code. It names the fields it reads; where one of them already
has a schema error the rule is left out, so every mistake is told once and none hides another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from smdp_launch.catalog.prices import PriceTable
from smdp_launch.diagnostics import Diagnostic, Edit, Severity, Span
from smdp_launch.jobfile.load import Loaded
from smdp_launch.jobfile.model.channels import Channel, S3Channel
from smdp_launch.jobfile.model.fixes import edits_for
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.source.requirements import Requirements
from smdp_launch.source.scan import LocalData, SourceTree
from smdp_launch.source.script.commandline import CommandLine
from smdp_launch.source.script.modules import command_line_of
from smdp_launch.source.script.program import Program
from smdp_launch.source.script.script import EntryKind, Script


@dataclass(frozen=True)
class Facts:
    """Plain values only: whoever made them has done the I/O.

    Args:
        spec: the fields that a rule needs are sound; others may be None.
        source: the scanned source folder; None if script.source has a schema error.
        local_data: channel name to what lies at its local path.
        mount_names: of the FSx file systems that the local cloud mounts, by the channel's name.
        data_flags: the names given by ``--data``, which have no place in the file.
        local: the job is about to run on this machine.
        prices: the table that ``budget.prices`` names; ``price_problems`` says why there is none.
        scripts: the entry point and the modules of the source folder that it imports, by their names in the folder;
            the entry is the first. Empty where the entry is missing or is no Python file.
        entry_kind: what the entry is to the container (``source.script.entry_kind``); None where there is none, or an
            installed package is run in place of the file.
        requirements: requirements.txt at the top of the source folder.
    """

    spec: JobSpec
    loaded: Loaded
    source: SourceTree | None = None
    local_data: Mapping[str, LocalData] = field(default_factory=dict)
    mount_names: Mapping[str, str] = field(default_factory=dict)
    data_flags: frozenset[str] = frozenset()
    local: bool = False
    prices: PriceTable | None = None
    price_problems: tuple[str, ...] = ()
    scripts: Mapping[str, Script] = field(default_factory=dict)
    entry_kind: EntryKind | None = None
    requirements: Requirements = field(default_factory=Requirements)

    @cached_property
    def program(self) -> Program:
        """The scripts together."""
        return Program(self.scripts)

    @cached_property
    def command_line(self) -> CommandLine | None:
        """What the script accepts; None where it cannot be known."""
        if self.source is None or not self.scripts:
            return None
        return command_line_of(self.source, self.scripts)

    @property
    def document(self) -> Document:
        return self.loaded.document

    def has(self, *names: str) -> bool:
        """Are these fields, such as ``"compute.max_run"``, free of schema errors?"""
        return all(self.loaded.has(*one.split(".")) for one in names)

    def channels(self) -> Iterator[tuple[str, Channel]]:
        """Those that are written; each may have faulty fields."""
        yield from self.spec.channels.items() if self.loaded.has("channels") else ()

    def s3_channels(self, *fields: str) -> Iterator[tuple[str, S3Channel]]:
        """The channels from S3 of which all ``fields`` are free of schema errors."""
        for name, channel in self.channels():
            if isinstance(channel, S3Channel) and all(self.loaded.has("channels", name, one) for one in fields):
                yield name, channel


class Finding(NamedTuple):
    """What a rule has to say; its code and severity are the rule's.

    Args:
        at: the field; the nearest parent that was written is shown where it was not.
        message: one sentence on what is wrong.
        help: what to write instead.
        on_key: the key is meant, not its value.
        text: in place of what stands there; for what has no place in a file, such as a flag, ``at`` is empty.
        place: where, if not in the job's own files; ``at`` is empty.
        replacement: one line of YAML to write in place of the marked value (with ``on_key``: of the key).
        remove: the entry at ``at`` goes, as a whole.
        write: values to write, as YAML, by their locations; each is replaced where it is written and added where not.
        also: further fields of which the same is true; ``replacement`` and ``remove`` are meant for them as well.

    ``replacement``, ``remove`` and ``write`` make the finding's edits, which have to fix it without a decision by a
    person. They may stand together. Without them the help says what to decide.
    """

    at: Location
    message: str
    help: str = ""
    on_key: bool = False
    text: str | None = None
    place: Span | None = None
    replacement: str | None = None
    remove: bool = False
    write: Mapping[Location, str] = MappingProxyType({})
    also: tuple[Location, ...] = ()


Check = Callable[[Facts], Iterable[Finding]]

_RULES: list[Rule] = []


class Rule(NamedTuple):
    """One code's function with what it needs.

    Args:
        on_launch: asked only before a launch on AWS.
        last: asked only when nothing else is an error.
    """

    code: str
    needs: tuple[Location, ...]
    check: Check
    severity: Severity = Severity.ERROR
    on_launch: bool = False
    last: bool = False

    def diagnostics(self, facts: Facts) -> Iterator[Diagnostic]:
        """What is wrong; nothing where a field that the rule reads has a schema error."""
        if all(facts.loaded.has(*map(str, need)) for need in self.needs):
            for one in self.check(facts):
                yield placed(facts.document, self.code, one, self.severity)


def placed(document: Document | None, code: str, one: Finding, severity: Severity = Severity.ERROR) -> Diagnostic:
    """The finding at its place in the job file; without a place if there is no file."""
    if not one.at or document is None:
        return Diagnostic(code, one.message, one.place, one.text or "", one.help, severity)
    entry, written = document.entry(one.at), document.written(one.at)
    text = str(one.at[-1]) if one.on_key and written else entry.text if written else ""
    span, *also = (_place(document, each, on_key=one.on_key) for each in (one.at, *one.also))
    told = text if one.text is None else one.text
    return Diagnostic(code, one.message, span, told, one.help, severity, _edits(document, one), tuple(also))


def _place(document: Document, at: Location, *, on_key: bool) -> Span:
    entry = document.entry(at)
    return entry.key if on_key or not document.written(at) else entry.value


def _edits(document: Document, one: Finding) -> tuple[Edit, ...]:
    """Those of every place of the finding; none where one of them cannot be edited."""
    each = [
        edits_for(document, at, replacement=one.replacement, remove=one.remove, write=write, on_key=one.on_key)
        for at, write in ((one.at, one.write), *((other, None) for other in one.also))
    ]
    return tuple(dict.fromkeys(edit for edits in each for edit in edits)) if all(each) else ()


def rule(
    code: str, *needs: str, severity: Severity = Severity.ERROR, on_launch: bool = False, last: bool = False
) -> Callable[[Check], Rule]:
    """Make a function a rule; ``needs`` are the fields it reads, such as ``"compute.instance_type"``."""

    def make(check: Check) -> Rule:
        made = Rule(code, tuple(tuple(one.split(".")) for one in needs), check, severity, on_launch, last)
        _RULES.append(made)
        return made

    return make


def imported_rules() -> tuple[Rule, ...]:
    """The rules of all modules imported so far, by their codes."""
    return tuple(sorted(_RULES, key=lambda one: one.code))
