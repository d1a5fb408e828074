"""The input of rules, ``Facts``, and the ``rule`` decorator.

A rule is a function from ``Facts`` to problems, with one code. It names the fields that it reads. If one of these
fields has a schema error, the rule does not run: every error is reported once.
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
from smdp_launch.jobfile.model.fixes import Fix, edits_for
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.sizing.need import MeasuredInput
from smdp_launch.source.commandline.arguments import CommandLine
from smdp_launch.source.deepspeed import DeepSpeed
from smdp_launch.source.requirements import Requirements
from smdp_launch.source.scan import LocalData, SourceTree
from smdp_launch.source.script.modules import command_line_of, command_line_with_subcommands
from smdp_launch.source.script.program import Program
from smdp_launch.source.script.script import EntryKind, Script


@dataclass(frozen=True)
class Facts:
    """Everything that rules know about a job. Plain values: rules do no I/O.

    Args:
        spec: the fields that a rule needs are valid; others may be None.
        source: the scanned source folder; None if script.source has a schema error.
        local_data: the local data of each channel, by channel name.
        mount_names: mount names of the FSx file systems in the local cloud, by channel name.
        data_flags: the channel names given by ``--data``, which have no place in the file.
        local: the job is checked for a local run.
        prices: the table that ``budget.prices`` names, else the one that was fetched for the region; None if there is
            none, with the reasons in ``price_problems``.
        scripts: the entry point and the modules of the source folder that it imports, by file name; the entry point
            is the first. Empty if the entry point is missing or is not a Python file.
        serve_scripts: the serving script and the modules that it imports, as ``scripts``.
        entry_kind: how the container starts the entry point (``source.script.entry_kind``); None if there is no entry
            point, or if the job runs an installed package instead of the file.
        requirements: requirements.txt at the top of the source folder.
        deepspeed: the configuration of DeepSpeed that a hyperparameter names; None without one.
        names_output_folder: a configuration file of the source folder names a path below /opt/ml.
        measured: what an earlier run of the job read; None if none is known.
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
    serve_scripts: Mapping[str, Script] = field(default_factory=dict)
    entry_kind: EntryKind | None = None
    requirements: Requirements = field(default_factory=Requirements)
    deepspeed: DeepSpeed | None = None
    names_output_folder: bool = False
    measured: MeasuredInput | None = None

    @cached_property
    def program(self) -> Program:
        """The scripts as one program."""
        return Program(self.scripts)

    @cached_property
    def command_line(self) -> CommandLine | None:
        """The command line that the script accepts; None if it cannot be determined."""
        if self.source is None or not self.scripts:
            return None
        return command_line_of(self.source, self.scripts)

    @cached_property
    def subcommand_line(self) -> CommandLine | None:
        """The command line of a script with subcommands; None for any other script."""
        if self.source is None or not self.scripts:
            return None
        line = command_line_with_subcommands(self.source, self.scripts)
        return line if line is not None and line.subcommands else None

    @property
    def document(self) -> Document:
        return self.loaded.document

    def has(self, *names: str) -> bool:
        """Whether these fields, such as ``"compute.max_run"``, are free of schema errors."""
        return all(self.loaded.has(*one.split(".")) for one in names)

    def channels(self) -> Iterator[tuple[str, Channel]]:
        """The channels of the job file. Each may have fields with schema errors."""
        yield from self.spec.channels.items() if self.loaded.has("channels") else ()

    def s3_channels(self, *fields: str) -> Iterator[tuple[str, S3Channel]]:
        """The channels from S3 of which all ``fields`` are free of schema errors."""
        for name, channel in self.channels():
            if isinstance(channel, S3Channel) and all(self.loaded.has("channels", name, one) for one in fields):
                yield name, channel


class Problem(NamedTuple):
    """A problem that a rule reports. The rule adds its code and severity, which makes a ``Diagnostic``.

    Args:
        at: the field. If it is not in the file, its nearest parent is shown.
        message: one sentence on what is wrong.
        help: what to write instead.
        on_key: mark the key, not its value.
        text: the text to show instead of the text at ``at``. For what is in no file, such as a flag, ``at`` is empty.
        place: a place outside the job file; ``at`` is empty.
        replacement: one line of YAML that replaces the marked value (with ``on_key``: the key).
        remove: remove the whole entry at ``at``.
        write: values to write, as YAML, by location. Existing values are replaced, others are added.
        also: other fields with the same problem. ``replacement`` and ``remove`` apply to them too.

    ``replacement``, ``remove`` and ``write`` are the edits that fix the problem without a decision of the user. They
    can be combined. Without them the help says what the user has to decide.
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


#: The fields of a job file from which the environment of the containers is made.
ENVIRONMENT_FIELDS = (
    *("environment", "engine", "engine_options", "amp", "network.require", "hang", "retries", "retries.on"),
    *("tracking.tensorboard", "tracking.mlflow", "tracking.wandb"),
)

Check = Callable[[Facts], Iterable[Problem]]

_RULES: list[Rule] = []


class Rule(NamedTuple):
    """A check function with its code and the fields that it needs.

    Args:
        on_launch: runs only before a launch on AWS.
        last: runs only if no other rule reports an error.
    """

    code: str
    needs: tuple[Location, ...]
    check: Check
    severity: Severity = Severity.ERROR
    on_launch: bool = False
    last: bool = False

    def diagnostics(self, facts: Facts) -> Iterator[Diagnostic]:
        """What is wrong; empty if a field that the rule reads has a schema error."""
        if all(facts.loaded.has(*map(str, need)) for need in self.needs):
            for problem in self.check(facts):
                yield diagnostic_of(facts.document, self.code, problem, self.severity)


def diagnostic_of(
    document: Document | None, code: str, problem: Problem, severity: Severity = Severity.ERROR
) -> Diagnostic:
    """The problem with its place in the job file; without a place if there is no file."""
    if not problem.at or document is None:
        return Diagnostic(code, problem.message, problem.place, problem.text or "", problem.help, severity)
    edits = _edits(document, problem)
    entry, written = document.entry(problem.at), document.is_written(problem.at)
    text = str(problem.at[-1]) if problem.on_key and written else entry.text if written else ""
    if problem.text is not None:
        text = problem.text
    span, *also = (document.place(each, of_key=problem.on_key) for each in (problem.at, *problem.also))
    return Diagnostic(code, problem.message, span, text, problem.help, severity, edits, tuple(also))


def _edits(document: Document, problem: Problem) -> tuple[Edit, ...]:
    """The edits of all places of the problem; empty if one of the places cannot be edited."""
    each = [
        edits_for(document, Fix(at, problem.replacement, problem.remove, write, problem.on_key))
        for at, write in ((problem.at, problem.write or {}), *((other, {}) for other in problem.also))
    ]
    return tuple(dict.fromkeys(edit for edits in each for edit in edits)) if all(each) else ()


def rule(
    code: str, *needs: str, severity: Severity = Severity.ERROR, on_launch: bool = False, last: bool = False
) -> Callable[[Check], Rule]:
    """Make a function a rule; ``needs`` are the fields it reads, such as ``"compute.instance_type"``."""

    def make(check: Check) -> Rule:
        new = Rule(code, tuple(tuple(one.split(".")) for one in needs), check, severity, on_launch, last)
        _RULES.append(new)
        return new

    return make


def imported_rules() -> tuple[Rule, ...]:
    """The rules of all modules imported so far, sorted by code."""
    return tuple(sorted(_RULES, key=lambda one: one.code))
