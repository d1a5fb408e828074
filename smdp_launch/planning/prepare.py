"""A job file's path to its plan: the one way every command goes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from smdp_launch.catalog.faults import Kind
from smdp_launch.catalog.prices import PriceTable, PriceTableProblem, read_prices
from smdp_launch.diagnostics import Diagnostic, has_errors, in_order
from smdp_launch.errors import JobFileRefused, Refused
from smdp_launch.jobfile.channels import EfsChannel, FsxChannel
from smdp_launch.jobfile.document import Document
from smdp_launch.jobfile.layers import around, gather, regions_differ
from smdp_launch.jobfile.load import Loaded, load
from smdp_launch.jobfile.mapping import NAME as MAPPING
from smdp_launch.jobfile.mapping import from_mapping, without_places
from smdp_launch.jobfile.spec import JobSpec
from smdp_launch.planning.file_systems import LocalFileSystems, look_at_mounted, mounted
from smdp_launch.planning.local import local_request, not_honoured, without_namespaces
from smdp_launch.planning.origins import origins
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.request.batch import script_hyperparameters, workers_per_host
from smdp_launch.request.build import training_request
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.request.names import job_name
from smdp_launch.request.ranks import rank_map
from smdp_launch.rules.account import Placeholder, placeholders_of, to_fill_in
from smdp_launch.rules.check import check, check_launch
from smdp_launch.rules.chosen import python
from smdp_launch.rules.facts import Facts
from smdp_launch.rules.redact import hide
from smdp_launch.source.modules import read_with_imports
from smdp_launch.source.outputs import output_folders
from smdp_launch.source.requirements import REQUIREMENTS_FILE, Requirements, read_requirements
from smdp_launch.source.scan import (
    DEFAULT_LIMIT,
    LocalData,
    SourceTree,
    glance_at_data,
    look_at_folder,
    normal_name,
    scan_data,
    scan_source,
)
from smdp_launch.source.script import EntryKind, Script, entry_kind

MB = 1_000_000

#: Version of ``validate --json``; raised when a member changes its meaning or goes.
VALIDATION_VERSION = 1


@dataclass(frozen=True)
class LocalRequest:
    """What ``launch --local`` was asked for; ``data`` overrides the file's ``local.channels``, ``containers`` runs the
    hosts from the job's image, ``network`` gives each a link of that speed, such as ``1gbit``, ``file_systems`` are
    those for which folders stand in the local cloud that is meant, ``cuda_on_cpu`` imitates CUDA in the workers, and
    ``rehearses`` is the fault that the job is to meet."""

    hosts: int | None = None
    workers_per_host: int | None = None
    data: Mapping[str, Path] = field(default_factory=dict)
    containers: bool = False
    network: str | None = None
    file_systems: LocalFileSystems = field(default_factory=dict)
    cuda_on_cpu: bool = False
    rehearses: Kind | None = None


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
        facts = _facts(loaded, loaded.spec, local)
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
        prices=job.facts.prices if job.facts is not None else None,
        origins=origins(spec, job.loaded.document),
        diagnostics=job.diagnostics,
        placeholders=job.placeholders,
        launch_problems=tuple(launch_problems(job)),
    )


def local_run(job: CheckedJob, asked: LocalRequest, cores: int) -> LocalRun:
    """How the job runs on a machine of ``cores`` cores: as asked, else as many of its hosts and workers as fit."""
    spec, _ = job.require()
    hosts = asked.hosts or min(spec.compute.instance_count, 4)
    workers = asked.workers_per_host or max(1, min(workers_per_host(spec), cores // hosts))
    left_out = tuple(not_honoured(spec, hosts, workers, containers=asked.containers, rehearses=asked.rehearses))
    data = _local_paths(job.loaded, spec, asked)
    return LocalRun(hosts, workers, data, left_out, asked.containers, asked.network, asked.cuda_on_cpu)


def _facts(loaded: Loaded, spec: JobSpec, local: LocalRequest | None) -> Facts:
    document = loaded.document
    source = None
    if loaded.has("script", "source"):
        limit = spec.script.source_limit_mb * MB if loaded.has("script", "source_limit_mb") else DEFAULT_LIMIT
        folder = document.path(("script", "source"), spec.script.source)
        entry = normal_name(spec.script.entry) if loaded.has("script", "entry") else ""
        source = scan_source(folder, limit, output_folders(folder, entry))
    asked = local or LocalRequest()
    named = _local_paths(loaded, spec, asked)
    systems = [one for one in mounted(loaded, spec, asked.file_systems) if one[0] not in named]
    data = {name: look_at_mounted(channel, system) for name, channel, system in systems}
    data |= {name: _look_at(loaded, spec, name, path, through=local is not None) for name, path in named.items()}
    prices, price_problems = _prices(loaded, spec)
    scripts, kind, requirements = _scripts(loaded, spec, source)
    return Facts(
        spec=spec,
        loaded=loaded,
        source=source,
        local_data=data,
        mount_names={name: system.mount_name for name, _, system in systems if system.mount_name is not None},
        data_flags=frozenset(local.data) if local is not None else frozenset(),
        local=local is not None,
        prices=prices,
        price_problems=price_problems,
        scripts=scripts,
        entry_kind=kind,
        requirements=requirements,
    )


def _scripts(
    loaded: Loaded, spec: JobSpec, source: SourceTree | None
) -> tuple[dict[str, Script], EntryKind | None, Requirements]:
    """What the entry point and its modules say, what the entry is, and which packages are asked for."""
    if source is None or not source.exists or source.too_large:
        return {}, None, Requirements()
    required = source.file(REQUIREMENTS_FILE)
    requirements = read_requirements(required.path) if required is not None else Requirements()
    entry = source.file(normal_name(spec.script.entry)) if loaded.has("script", "entry") else None
    if entry is None:
        return {}, None, requirements
    if not entry.name.endswith(".py"):
        is_package = any(source.file(one) is not None for one in ("setup.py", "pyproject.toml"))
        return {}, None if is_package else entry_kind(entry.path), requirements
    known = loaded.has("engine") and loaded.has("image")
    known &= all(loaded.has("framework", one) for one in ("name", "version", "python"))
    return read_with_imports(source, entry.name, python(spec) if known else None), "python", requirements


def _prices(loaded: Loaded, spec: JobSpec) -> tuple[PriceTable | None, tuple[str, ...]]:
    """The table that the job names, or why it cannot be used."""
    if not loaded.has("budget", "prices") or spec.budget.prices is None:
        return None, ()
    try:
        return read_prices(loaded.document.path(("budget", "prices"), spec.budget.prices)), ()
    except PriceTableProblem as problem:
        return None, tuple(problem.problems)


def _local_paths(loaded: Loaded, spec: JobSpec, asked: LocalRequest) -> dict[str, Path]:
    written: dict[str, Path] = {}
    if loaded.has("local", "channels"):
        written = {
            name: loaded.document.path(("local", "channels", name), path)
            for name, path in spec.local.channels.items()
            if loaded.has("local", "channels", name)
        }
    return written | dict(asked.data)


def _look_at(loaded: Loaded, spec: JobSpec, name: str, path: Path, *, through: bool) -> LocalData:
    """``through``: read the whole folder of a channel from S3, as a local run is about to."""
    channel = spec.channels.get(name) if loaded.has("channels") else None
    if isinstance(channel, FsxChannel | EfsChannel):
        return look_at_folder(path, may_be_empty=channel.access == "rw")
    return scan_data(path) if through else glance_at_data(path)


def with_isolation(run: LocalRun, job: CheckedJob, refusal: str | None) -> LocalRun:
    """The same run, with what it does not honour if hosts are refused namespaces here for some reason."""
    spec, _ = job.require()
    left_out = without_namespaces(spec, refusal) if refusal is not None else ()
    return replace(run, not_honoured=(*run.not_honoured, *left_out))
