"""A job file's path to its plan: the one way every command goes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from smdp_launch.diagnostics import Diagnostic, has_errors, in_order
from smdp_launch.errors import JobFileRefused, Refused
from smdp_launch.jobfile.layers import gather, regions_differ
from smdp_launch.jobfile.load import Loaded, load
from smdp_launch.jobfile.spec import JobSpec
from smdp_launch.plan.local import local_request, not_honoured
from smdp_launch.plan.origins import origins
from smdp_launch.plan.plan import LocalRun, Plan
from smdp_launch.request.batch import script_hyperparameters, workers_per_host
from smdp_launch.request.build import training_request
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.request.names import job_name
from smdp_launch.request.ranks import rank_map
from smdp_launch.rules.check import check, check_launch
from smdp_launch.rules.facts import Facts
from smdp_launch.rules.redact import hide
from smdp_launch.source.scan import DEFAULT_LIMIT, SourceTree, scan_data, scan_source

MB = 1_000_000

#: Version of ``validate --json``; raised when a member changes its meaning or goes.
VALIDATION_VERSION = 1


@dataclass(frozen=True)
class LocalRequest:
    """What ``launch --local`` was asked for; ``data`` overrides the file's ``local.channels``."""

    hosts: int | None = None
    workers_per_host: int | None = None
    data: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckedJob:
    """A job file with all that is known to be wrong with it, in the order of the file."""

    path: Path
    loaded: Loaded
    facts: Facts | None
    diagnostics: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "validation": VALIDATION_VERSION,
            "job_file": str(self.path),
            "sound": not has_errors(self.diagnostics),
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
) -> CheckedJob:
    """Read the job file and its layers, look at the folders it names, and find every mistake at once.

    Args:
        settings: what stood after ``--set``, such as ``compute.max_run=3600``.
        environ: variables for ``${NAME}`` and ``SMDP_JOB__*``; the process's own by default.
    """
    environ = os.environ if environ is None else environ
    document, diagnostics = gather(path, settings, environ)
    loaded, found = load(document)
    diagnostics += [*found, *regions_differ(document, environ)]
    facts = None
    if loaded.spec is not None:
        facts = _facts(loaded, loaded.spec, local)
        diagnostics += check(facts)
    return CheckedJob(path, loaded, facts, tuple(in_order(hide(diagnostics, document))))


def placeholders(job: CheckedJob) -> list[Diagnostic]:
    """What has to be filled in before a launch on AWS."""
    return [] if job.facts is None else check_launch(job.facts)


def require_launchable(job: CheckedJob) -> None:
    """Raises:
    Refused: placeholders stand where AWS needs the person's own values.
    """
    missing = placeholders(job)
    if missing:
        raise Refused("fill these in before you launch on AWS; --local runs the job as it is", missing)


def make_plan(job: CheckedJob, now: datetime, suffix: int, local: LocalRun | None = None) -> Plan:
    """The plan of a job without errors.

    Args:
        now, suffix: what makes the job's name its own (``request.names.job_name``).
        local: for a run on this machine; changes the request's instance count and environment.

    Raises:
        JobFileRefused: the job has errors.
    """
    spec, source = job.require()
    name = job_name(spec.name, now, suffix)
    request = training_request(spec, source, name)
    hosts, workers = spec.compute.instance_count, workers_per_host(spec)
    if local is not None:
        hosts, workers = local.hosts, local.workers_per_host
        request = local_request(request, source, local)
    return Plan(
        job=name,
        job_file=str(job.path),
        made=now,
        spec=spec,
        request=request,
        ranks=tuple(rank_map(hosts, workers)),
        source=source,
        script_arguments=tuple(script_arguments(script_hyperparameters(spec))),
        local=local,
        origins=origins(spec, job.loaded.document),
        diagnostics=job.diagnostics,
    )


def local_run(job: CheckedJob, asked: LocalRequest, cores: int) -> LocalRun:
    """How the job runs on a machine of ``cores`` cores: as asked, else as many of its hosts and workers as fit."""
    spec, _ = job.require()
    hosts = asked.hosts or min(spec.compute.instance_count, 4)
    workers = asked.workers_per_host or max(1, min(workers_per_host(spec), cores // hosts))
    return LocalRun(hosts, workers, _local_paths(job.loaded, spec, asked), tuple(not_honoured(spec, hosts, workers)))


def _facts(loaded: Loaded, spec: JobSpec, local: LocalRequest | None) -> Facts:
    document = loaded.document
    source = None
    if loaded.has("script", "source"):
        limit = spec.script.source_limit_mb * MB if loaded.has("script", "source_limit_mb") else DEFAULT_LIMIT
        source = scan_source(document.path(("script", "source"), spec.script.source), limit)
    data = _local_paths(loaded, spec, local or LocalRequest())
    return Facts(
        spec=spec,
        loaded=loaded,
        source=source,
        local_data={name: scan_data(path) for name, path in data.items()},
        data_flags=frozenset(local.data) if local is not None else frozenset(),
        local=local is not None,
    )


def _local_paths(loaded: Loaded, spec: JobSpec, asked: LocalRequest) -> dict[str, Path]:
    written: dict[str, Path] = {}
    if loaded.has("local", "channels"):
        written = {
            name: loaded.document.path(("local", "channels", name), path)
            for name, path in spec.local.channels.items()
            if loaded.has("local", "channels", name)
        }
    return written | dict(asked.data)


def with_note(run: LocalRun, note: str) -> LocalRun:
    """The same run with one more thing it does not honour."""
    return replace(run, not_honoured=(*run.not_honoured, note))
