"""The inputs of the rules: a job's source folder, script and local data, read from the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from smdp_launch.catalog.prices import PriceTable, PriceTableProblem, fetched_prices, read_prices
from smdp_launch.checking.file_systems import LocalFileSystems, look_at_mounted, mounted
from smdp_launch.jobfile.load import Loaded
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.rules.base.facts import Facts
from smdp_launch.rules.base.image_contents import python
from smdp_launch.sizing.need import MeasuredInput
from smdp_launch.source.deepspeed import OPTIONS as DEEPSPEED_OPTIONS
from smdp_launch.source.deepspeed import DeepSpeed, read_deepspeed
from smdp_launch.source.requirements import REQUIREMENTS_FILE, Requirements, read_requirements
from smdp_launch.source.scan import (
    DEFAULT_LIMIT,
    LocalData,
    SourceTree,
    check_folder,
    normal_name,
    sample_data,
    scan_data,
    scan_source,
)
from smdp_launch.source.script.modules import read_with_imports
from smdp_launch.source.script.outputs import names_output_folder, output_folders
from smdp_launch.source.script.script import EntryKind, Script, entry_kind

if TYPE_CHECKING:
    from smdp_launch.catalog.faults import Kind

MB = 1_000_000


class LocalRequest(NamedTuple):
    """The options of ``launch --local``.

    Args:
        data: channel to its data; overrides the job file's ``local.channels``.
        containers: run the hosts from the job's image.
        network: the speed of each host's link, such as ``1gbit``.
        file_systems: those that the local cloud has folders for.
        cuda_on_cpu: emulate CUDA in the workers.
        rehearses: the fault that a rehearsal injects.
    """

    hosts: int | None = None
    workers_per_host: int | None = None
    data: Mapping[str, Path] = MappingProxyType({})
    containers: bool = False
    network: str | None = None
    file_systems: LocalFileSystems = MappingProxyType({})
    cuda_on_cpu: bool = False
    rehearses: Kind | None = None


def read_facts(
    loaded: Loaded, spec: JobSpec, local: LocalRequest | None, measured: MeasuredInput | None = None
) -> Facts:
    """Read the files that the job names.

    Args:
        measured: what an earlier run of the job read.
    """
    options = local or LocalRequest()
    paths = local_paths(loaded, spec, options)
    prices, price_problems = _prices(loaded, spec)
    document, source = loaded.document, None
    if loaded.has("script", "source"):
        limit = spec.script.source_limit_mb * MB if loaded.has("script", "source_limit_mb") else DEFAULT_LIMIT
        folder = document.path(("script", "source"), spec.script.source)
        entry = normal_name(spec.script.entry) if loaded.has("script", "entry") else ""
        source = scan_source(folder, limit, output_folders(folder, entry))
    systems = [one for one in mounted(loaded, spec, options.file_systems) if one[0] not in paths]
    data = {name: look_at_mounted(channel, system) for name, channel, system in systems}
    data |= {name: _read_data(loaded, spec, name, path, whole=local is not None) for name, path in paths.items()}
    deepspeed, serve_scripts = _deepspeed(loaded, spec, source), _serve_scripts(loaded, spec, source)
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
        serve_scripts=serve_scripts,
        entry_kind=kind,
        requirements=requirements,
        deepspeed=deepspeed,
        names_output_folder=bool(scripts) and source is not None and names_output_folder(source),
        measured=measured,
    )


def _deepspeed(loaded: Loaded, spec: JobSpec, source: SourceTree | None) -> DeepSpeed | None:
    """The configuration that a hyperparameter names; None if it names none in the source folder."""
    if source is None or not loaded.has("script", "hyperparameters"):
        return None
    for name, value in spec.script.hyperparameters.items():
        if name.replace("-", "_") in DEEPSPEED_OPTIONS and isinstance(value, str) and value.endswith(".json"):
            file = source.file(normal_name(value))
            return read_deepspeed(file.path, file.name) if file is not None else None
    return None


def _scripts(
    loaded: Loaded, spec: JobSpec, source: SourceTree | None
) -> tuple[dict[str, Script], EntryKind | None, Requirements]:
    """The entry point with its modules, the kind of the entry, and the required packages."""
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


def _serve_scripts(loaded: Loaded, spec: JobSpec, source: SourceTree | None) -> dict[str, Script]:
    """The serving script with its modules."""
    if source is None or not source.exists or source.too_large or not loaded.has("serve", "entry"):
        return {}
    if spec.serve is None or spec.serve.entry is None:
        return {}
    return read_with_imports(source, normal_name(spec.serve.entry))


def _prices(loaded: Loaded, spec: JobSpec) -> tuple[PriceTable | None, tuple[str, ...]]:
    """The price table of the job, else that of `catalog prices --update`, or the reasons why it is unusable."""
    if not loaded.has("budget", "prices"):
        return None, ()
    try:
        if spec.budget.prices is None:
            return fetched_prices(spec.region) if loaded.has("region") else None, ()
        return read_prices(loaded.document.path(("budget", "prices"), spec.budget.prices)), ()
    except PriceTableProblem as problem:
        return None, tuple(problem.problems)


def local_paths(loaded: Loaded, spec: JobSpec, options: LocalRequest) -> dict[str, Path]:
    """Channel to its local data, from the job file and the options."""
    in_file: dict[str, Path] = {}
    if loaded.has("local", "channels"):
        in_file = {
            name: loaded.document.path(("local", "channels", name), path)
            for name, path in spec.local.channels.items()
            if loaded.has("local", "channels", name)
        }
    return in_file | dict(options.data)


def _read_data(loaded: Loaded, spec: JobSpec, name: str, path: Path, *, whole: bool) -> LocalData:
    """``whole``: scan the whole folder of an S3 channel, because a local run reads all of it."""
    channel = spec.channels.get(name) if loaded.has("channels") else None
    if isinstance(channel, FsxChannel | EfsChannel):
        return check_folder(path, may_be_empty=channel.access == "rw")
    return scan_data(path) if whole else sample_data(path)
