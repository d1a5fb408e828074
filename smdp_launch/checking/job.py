"""A job file with all its diagnostics. Every command checks a job with this module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from smdp_launch.checking.inputs import LocalRequest, read_facts
from smdp_launch.checking.redact import redact
from smdp_launch.checking.rules import check, check_launch
from smdp_launch.diagnostics import Diagnostic, has_errors, in_order
from smdp_launch.errors import JobFileRefused, Refused
from smdp_launch.jobfile.config_sources import merge_sources, read_job
from smdp_launch.jobfile.load import Loaded, load
from smdp_launch.jobfile.mapping import NAME as MAPPING
from smdp_launch.jobfile.mapping import from_mapping, without_places
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document, Parsed
from smdp_launch.rules.base.facts import Facts
from smdp_launch.rules.request.placeholders import Placeholder, placeholders_of, to_fill_in
from smdp_launch.sizing.need import MeasuredInput
from smdp_launch.source.scan import SourceTree

#: Version of ``validate --json``; raised when a field changes its meaning or is removed.
VALIDATION_VERSION = 1


@dataclass(frozen=True)
class CheckedJob:
    """A job file with all its diagnostics, in the order of the file."""

    path: Path
    loaded: Loaded
    facts: Facts | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """The values to fill in before a launch on AWS."""
        return () if self.facts is None else tuple(placeholders_of(self.facts))

    @cached_property
    def launch_problems(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that prevent only a launch on AWS: placeholders."""
        if self.facts is None:
            return ()
        return tuple(without_places(redact(check_launch(self.facts), self.loaded.document)))

    def require_launchable(self) -> None:
        """Raises:
        Refused: there are placeholders where AWS needs the user's own values.
        """
        if self.launch_problems:
            message = f"{to_fill_in(self.placeholders)}; --local runs the job as it is"
            raise Refused(message, list(self.launch_problems))

    def to_json(self) -> dict[str, Any]:
        return {
            "validation": VALIDATION_VERSION,
            "job_file": str(self.path),
            "sound": not has_errors(self.diagnostics),
            "to_fill_in": [one.to_json() for one in self.placeholders],
            "diagnostics": [one.to_json() for one in self.diagnostics],
        }

    def require(self) -> tuple[JobSpec, SourceTree]:
        """The complete spec and its source.

        Raises:
            JobFileRefused: there are errors.
        """
        spec, facts = self.loaded.spec, self.facts
        if has_errors(self.diagnostics) or spec is None or facts is None or facts.source is None:
            raise JobFileRefused(self.diagnostics)
        return spec, facts.source


def check_job(
    path: Path,
    local: LocalRequest | None = None,
    *,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    contents: Mapping[str, bytes] | None = None,
    measured: MeasuredInput | None = None,
) -> CheckedJob:
    """Read the job file, its other configuration sources and its folders, and find all errors at once.

    Args:
        settings: the values of ``--set``, such as ``compute.max_run=3600``.
        environ: variables for ``${NAME}`` and ``SMDP_JOB__*``; those of the process by default.
        contents: the bytes of the job file and the project's defaults by path, in place of the files on disk.
        measured: what an earlier run of the job read.
    """
    environ = os.environ if environ is None else environ
    parsed = read_job(path, settings, environ, contents)
    return _check(path, parsed, local, measured)


def check_mapping(
    data: Mapping[str, Any],
    folder: Path,
    local: LocalRequest | None = None,
    *,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> CheckedJob:
    """The same for a mapping with the values of a job file in ``folder``."""
    environ = os.environ if environ is None else environ
    parsed = merge_sources(from_mapping(data, folder, environ), folder, settings, environ)
    return _check(Path(MAPPING), parsed, local)


def check_spec(
    spec: JobSpec, local: LocalRequest | None = None, *, measured: MeasuredInput | None = None
) -> CheckedJob:
    """The same for a spec. Its values are final: no other configuration source is read."""
    document = spec.document
    if document is not None and JobSpec.model_validate(document.data) == spec:
        return _check(Path(document.file), (document, []), local, measured)
    # The spec is made in Python, or is a copy with other values, so it has no places in a file.
    folder = document.folder if document is not None else Path()
    copied, problems = from_mapping(spec.to_mapping(), folder, {})
    if document is not None:
        _keep_folders(copied, document)
    return _check(Path(MAPPING), (copied, problems), local, measured)


def _keep_folders(copied: Document, original: Document) -> None:
    """A relative path that the copy does not change starts from the folder of the file that contains it."""
    for at, entry in copied.entries.items():
        value = copied.value(at)
        if isinstance(value, dict) or value == original.value(at):
            copied.entries[at] = entry._replace(folder=original.entry(at).folder)


def _check(
    path: Path,
    parsed: Parsed,
    local: LocalRequest | None,
    measured: MeasuredInput | None = None,
) -> CheckedJob:
    document, syntax_errors = parsed
    loaded, schema_errors = load(document)
    diagnostics = [*syntax_errors, *schema_errors]
    facts = None
    if loaded.spec is not None:
        facts = read_facts(loaded, loaded.spec, local, measured)
        diagnostics += check(facts)
    return CheckedJob(path, loaded, facts, tuple(in_order(without_places(redact(diagnostics, document)))))
