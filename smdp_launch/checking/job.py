"""A job file with everything that is known to be wrong with it: the one way every command checks a job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.checking.inputs import LocalRequest, read_facts
from smdp_launch.checking.redact import hide
from smdp_launch.checking.rules import check, check_launch
from smdp_launch.diagnostics import Diagnostic, has_errors, in_order
from smdp_launch.errors import JobFileRefused, Refused
from smdp_launch.jobfile.layers import around, gather, regions_differ
from smdp_launch.jobfile.load import Loaded, load
from smdp_launch.jobfile.mapping import NAME as MAPPING
from smdp_launch.jobfile.mapping import from_mapping, without_places
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.rules.base.facts import Facts
from smdp_launch.rules.request.placeholders import Placeholder, placeholders_of, to_fill_in
from smdp_launch.source.scan import SourceTree

#: Version of ``validate --json``; raised when a member changes its meaning or goes.
VALIDATION_VERSION = 1


@dataclass(frozen=True)
class CheckedJob:
    """A job file with all that is known to be wrong with it, in the order of the file."""

    path: Path
    loaded: Loaded
    facts: Facts | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """The values to fill in before a launch on AWS."""
        return () if self.facts is None else tuple(placeholders_of(self.facts))

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
) -> CheckedJob:
    """Read the job file and its layers, look at the folders it names, and find every mistake at once.

    Args:
        settings: what stood after ``--set``, such as ``compute.max_run=3600``.
        environ: variables for ``${NAME}`` and ``SMDP_JOB__*``; the process's own by default.
        contents: of the job file and the project's defaults by their paths, in place of what they hold.
    """
    environ = os.environ if environ is None else environ
    return _checked(path, gather(path, settings, environ, contents), environ, local)


def check_mapping(
    data: Mapping[str, Any],
    folder: Path,
    local: LocalRequest | None = None,
    *,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> CheckedJob:
    """The same for a mapping that says what a job file in ``folder`` would say."""
    environ = os.environ if environ is None else environ
    found = around(from_mapping(data, folder, environ), folder, settings, environ)
    return _checked(Path(MAPPING), found, environ, local)


def check_spec(spec: JobSpec, local: LocalRequest | None = None) -> CheckedJob:
    """The same for a spec, as it is: no layer comes to it any more."""
    document = spec.document
    folder = document.folder if document is not None else Path()
    if document is None or JobSpec.model_validate(document.data) != spec:
        # Made in Python, or a copy with other values: no place in a file fits it.
        return _checked(Path(MAPPING), from_mapping(spec.to_mapping(), folder, {}), {}, local)
    return _checked(Path(document.file), (document, []), {}, local)


def _checked(
    path: Path, found: tuple[Document, list[Diagnostic]], environ: Mapping[str, str], local: LocalRequest | None
) -> CheckedJob:
    document, diagnostics = found
    loaded, more = load(document)
    diagnostics = [*diagnostics, *more, *regions_differ(document, environ)]
    facts = None
    if loaded.spec is not None:
        facts = read_facts(loaded, loaded.spec, local)
        diagnostics += check(facts)
    told = without_places(hide(diagnostics, document))
    return CheckedJob(path, loaded, facts, tuple(in_order(told)))


def launch_problems(job: CheckedJob) -> list[Diagnostic]:
    """What keeps a sound job from a launch on AWS: placeholders."""
    return [] if job.facts is None else without_places(hide(check_launch(job.facts), job.loaded.document))


def require_launchable(job: CheckedJob) -> None:
    """Raises:
    Refused: placeholders stand where AWS needs the person's own values.
    """
    missing = launch_problems(job)
    if missing:
        raise Refused(f"{to_fill_in(job.placeholders)}; --local runs the job as it is", missing)
