"""The instance types, their number, and the region."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED, WITH_POLICY
from smdp_launch.catalog.frameworks import TITLES, Build, build, last_library_version
from smdp_launch.catalog.instances import (
    Instance,
    LibraryVersions,
    has_no_accelerators,
    instance,
    is_trainium,
    library_versions,
    replacement,
    suggested_instances,
    supported_instances,
)
from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.catalog.placeholders import REGION
from smdp_launch.catalog.regions import closest_region, offering, region_known, regions_offering
from smdp_launch.catalog.transformers import pairs
from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.instance_types import FALLBACK, TYPE, all_located_types, located_types
from smdp_launch.rules.compute.framework import needs_another_cuda
from smdp_launch.rules.request.overlay import GROUPS

#: A help names so many types, the recommended ones first.
_NAMED = 12


@rule("SMDP301", "compute.instance_type", "policy", "engine")
def instance_type(facts: Facts) -> Iterator[Problem]:
    name, allowed = facts.spec.compute.instance_type, _supported(facts)
    if name not in allowed:
        yield Problem(TYPE, _refusal(facts, name), _help(facts, name), replacement=_meant(facts, name))


def _supported(facts: Facts) -> list[str]:
    return supported_instances(facts.spec.policy, facts.spec.engine)


def _suggested(facts: Facts) -> list[str]:
    """Types to name in a help: those that also fit the job's image and region, the recommended one first."""
    supported = suggested_instances(facts.spec.policy, facts.spec.engine)
    library = image_contents.library(facts) if facts.has(*image_contents.IMAGE_FIELDS) else None
    cuda = image_contents.cuda(facts) if facts.has(*image_contents.IMAGE_FIELDS) else None
    region = facts.spec.region if facts.has("region") else ""

    def fits(name: str) -> bool:
        type_, known = instance(name), offering(name, region)
        return (
            (library is None or library_versions(name).include(library.version))
            and (cuda is None or type_ is None or _missed_range(type_, cuda) is None)
            and (known is None or known.offered or not known.certain)
        )

    return [one for one in supported if fits(one)] or supported


def _refusal(facts: Facts, name: str) -> str:
    engine, policy = facts.spec.engine, facts.spec.policy
    if replacement(name) is not None:
        return f"{name} does not exist, though AWS's documents mention it"
    if name not in known_instance_types():
        return f"SageMaker has no instance type {name} for training"
    if instance(name) is None:
        return _without_gpus(engine, name)
    if policy == "strict" and name in supported_instances("extended", engine):
        return f"policy strict allows only the types in the library's documentation, and {name} is not among them"
    if engine == "smdistributed" and name not in supported_instances("extended", engine):
        return f"no version of AWS's library supports {name}; the last version is {last_library_version()}"
    return f"the {engine} engine does not support {name} with policy {policy}"


def _without_gpus(engine: str, name: str) -> str:
    """Why a type that is not in the table is refused."""
    needs = {"nccl": "NCCL needs NVIDIA GPUs", "gloo": "this job trains on CPUs or on NVIDIA GPUs"}
    need = needs.get(engine, "the library needs GPUs")
    if is_trainium(name):
        return f"{name} has Trainium accelerators, which AWS's Neuron SDK uses; {need}"
    if has_no_accelerators(name):
        return f"{name} has no GPUs, and {need}"
    return f"the catalog has no documented facts about {name}"


def _listed(facts: Facts) -> str:
    """The types to write, or the first of them and where the others are."""
    suggested = _suggested(facts)
    more = len(suggested) - _NAMED
    others = f", or one of {more} more (smdp-launch catalog instances --engine {facts.spec.engine})" if more > 0 else ""
    return f"write one of {', '.join(suggested[:_NAMED])}{others}"


def _help(facts: Facts, name: str) -> str:
    engine, policy = facts.spec.engine, facts.spec.policy
    listed = _listed(facts)
    meant = replacement(name)
    if meant is not None:
        return f"write {meant}"
    if policy == "strict" and name in supported_instances("extended", engine):
        return f"{listed}; or write `policy: extended`"
    if engine == "nccl" and has_no_accelerators(name):
        return f"{listed}; or write `engine: gloo` to train on CPUs"
    if name in supported_instances("extended", "native") and engine not in TORCH_DISTRIBUTED:
        return f"{listed}; or write `engine: native` and `policy: extended`; or `engine: nccl`"
    match = _meant(facts, name)
    return f"did you mean {match}?" if match else listed


def _meant(facts: Facts, name: str) -> str | None:
    """The allowed type that the user meant by ``name``; None if that is not certain."""
    allowed = _supported(facts)
    known = replacement(name)
    if known is not None:
        return known if known in allowed else None
    # Instance names are much alike.
    return None if name in known_instance_types() else closest(name, allowed, cutoff=0.8)


@rule("SMDP311")
def groups_have_their_own_fields(facts: Facts) -> Iterator[Problem]:
    for at in (("compute", "instance_groups"), ("overlay", *GROUPS)):
        if not facts.document.is_written(at):
            continue
        message = "the job file has no `instance_groups`: one group trains, and the others are in `other_groups`"
        help_ = "write `instance_type` and `instance_count` of the group that trains, and `other_groups` for the others"
        yield Problem(at, message, help_, on_key=True)


def _is_torch_distributed(facts: Facts) -> bool:
    return facts.has("engine") and facts.spec.engine in TORCH_DISTRIBUTED


@rule("SMDP312", "compute.instance_count", severity=Severity.WARNING)
def several_hosts(facts: Facts) -> Iterator[Problem]:
    if facts.spec.compute.instance_count == 1 and not _is_torch_distributed(facts):
        message = "the job has one host, and the library speeds up only the exchange between hosts"
        yield Problem(("compute", "instance_count"), message, "write 2 or more, or `silence: [SMDP312]`")


@rule("SMDP313", "compute.instance_type", "compute.fallback_types", "policy", "engine")
def fallback_types(facts: Facts) -> Iterator[Problem]:
    compute = facts.spec.compute
    earlier = [compute.instance_type]
    for index, name in enumerate(compute.fallback_types or []):
        at = (*FALLBACK, index)
        if name in earlier:
            where = "is `instance_type`" if name == compute.instance_type else "is in the list already"
            message = f"{name} {where}; each type is tried once"
            yield Problem(at, message, "remove it, or name another type", remove=True)
        elif name not in _supported(facts):
            meant = _meant(facts, name)
            is_new = meant not in (None, *earlier, *(compute.fallback_types or []))
            yield Problem(at, _refusal(facts, name), _help(facts, name), replacement=meant if is_new else None)
        earlier.append(name)


@rule("SMDP313", "compute.instance_type", "compute.fallback_types", severity=Severity.WARNING)
def fallbacks_with_as_many_gpus(facts: Facts) -> Iterator[Problem]:
    first = instance(facts.spec.compute.instance_type)
    for index, name in enumerate(facts.spec.compute.fallback_types or []):
        other = instance(name)
        if first is not None and other is not None and other.gpus != first.gpus:
            message = f"{name} has {other.gpus} GPUs and {first.name} has {first.gpus}: the world size would change"
            yield Problem((*FALLBACK, index), message, f"name a type with {first.gpus} GPUs")


_CUDA = (
    *("compute.instance_type", "compute.fallback_types", "policy", "engine"),
    *("image", "framework.name", "framework.version"),
)


@rule("SMDP314", *_CUDA)
def cuda_supports_gpu(facts: Facts) -> Iterator[Problem]:
    yield from _unsupported_by_cuda(facts, certain=True)


@rule("SMDP314", *_CUDA, severity=Severity.WARNING)
def cuda_may_not_support_gpu(facts: Facts) -> Iterator[Problem]:
    yield from _unsupported_by_cuda(facts, certain=False)


def _unsupported_by_cuda(facts: Facts, *, certain: bool) -> Iterator[Problem]:
    """``certain``: the CUDA versions that support the GPU are documented. Only then it is an error."""
    cuda, where = image_contents.cuda(facts), ("image",) if facts.spec.image is not None else ("framework", "version")
    # With policy strict, other rules report every CUDA version that is not 11.
    is_reported = facts.spec.engine in WITH_POLICY and facts.spec.policy == "strict" and not str(cuda).startswith("11.")
    if cuda is None or is_reported:
        return
    for at, type_ in _types(facts):
        range_ = _missed_range(type_, cuda)
        # The CUDA in the image's tag may be newer than the one of its PyTorch, which may still support the GPU.
        if range_ is None or certain != (range_.field == "cuda_min" and type_.is_documented(range_.field)):
            continue
        message = f"the {type_.gpu} of {type_.name} needs {range_.text}, and the image has {cuda}"
        fitting = _suggested(facts)[:_NAMED]
        types = f", or one of the types {', '.join(fitting)}" if fitting else ""
        yield Problem(where if at == TYPE else at, message, f"use a build with {range_.text}{types}")


class _Range(NamedTuple):
    """CUDA versions that support a GPU, and the field of its type that states them."""

    text: str
    field: str


def _missed_range(type_: Instance, cuda: str) -> _Range | None:
    """The versions that the type's GPU needs, if ``cuda`` is not one of them."""
    if type_.cuda_min is not None and not _is_at_least(cuda, type_.cuda_min):
        return _Range(f"CUDA {type_.cuda_min} or later", "cuda_min")
    if type_.cuda_end is not None and _is_at_least(cuda, type_.cuda_end):
        return _Range(f"a CUDA version before {type_.cuda_end}", "cuda_end")
    return None


def _types(facts: Facts) -> Iterator[tuple[Location, Instance]]:
    """Each type that the job can get and the table has, with its place."""
    for at, name in located_types(facts.spec):
        type_ = instance(name)
        if type_ is not None:
            yield at, type_


def _is_at_least(cuda: str, first: str) -> bool:
    return _version(cuda) >= _version(first)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split("."))


@rule("SMDP324", "compute.instance_type", "compute.fallback_types", "policy", *image_contents.IMAGE_FIELDS)
def library_supports_type(facts: Facts) -> Iterator[Problem]:
    library = image_contents.library(facts)
    if library is None or needs_another_cuda(facts):
        return
    for at, name in located_types(facts.spec):
        versions = library_versions(name)
        if name in _supported(facts) and not versions.include(library.version):
            supports = f"supports {name} since version {versions.since}"
            if not versions.since:
                supports = f"refuses {name} since version {versions.before}"
            message = f"AWS's library {supports}, but the image of {library.title} contains {library.version}"
            yield Problem(at, message, _another_library(facts, versions))


def _another_library(facts: Facts, versions: LibraryVersions) -> str:
    """A help that names types for the job's version of the library, then an image with a version for the type."""
    types = f"use {', '.join(_suggested(facts))}"
    name, title = facts.spec.framework.name, TITLES[facts.spec.framework.name]
    if facts.spec.framework.transformers is not None:
        known = [(one, build(name, one.version)) for one in pairs() if one.framework == name and one.smddp]
        images = [
            f'transformers "{one.transformers}" with {title} "{one.version}"' for one, of in known if _has(of, versions)
        ]
    else:
        suitable = [build(name, one) for one in image_contents.suitable_versions(facts)]
        images = [
            f'{title} "{one.version}", which contains {one.smddp}' for one in suitable if one and _has(one, versions)
        ]
    return f"{types}; or {images[-1]}" if images else types


def _has(build_: Build | None, versions: LibraryVersions) -> bool:
    return build_ is not None and build_.smddp is not None and versions.include(build_.smddp)


_ALL_TYPES = ("compute.instance_type", "compute.fallback_types", "compute.other_groups")


@rule("SMDP315", *_ALL_TYPES, "region")
def region_offers_type(facts: Facts) -> Iterator[Problem]:
    yield from _not_offered(facts, certain=True)


@rule("SMDP315", *_ALL_TYPES, "region", severity=Severity.WARNING)
def region_may_lack_type(facts: Facts) -> Iterator[Problem]:
    yield from _not_offered(facts, certain=False)


def _not_offered(facts: Facts, *, certain: bool) -> Iterator[Problem]:
    region = facts.spec.region
    for at, name in all_located_types(facts.spec):
        known = offering(name, region)
        if known is None or known.offered or known.certain != certain:
            continue
        verb = "does not offer" if certain else "may not offer"
        having = sorted(regions_offering(name) or ())
        help_ = f"choose a region that offers it: {', '.join(having)}" if having else "choose another region or type"
        message = f"{region} {verb} {name} for training, as of {known.as_of}"
        yield Problem(("region",) if at == TYPE else at, message, f"{help_}; AWS may have added regions since")


@rule("SMDP331", "compute.training_plan", "spot")
def no_training_plan_with_spot(facts: Facts) -> Iterator[Problem]:
    if facts.spec.compute.training_plan is not None and facts.spec.spot is not None:
        message = "training_plan and spot exclude each other: a training plan consists of reserved instances"
        yield Problem(("compute", "training_plan"), message, "remove one of the two", on_key=True)


@rule("SMDP317", "compute.keep_alive", "spot")
def no_warm_pool_with_spot(facts: Facts) -> Iterator[Problem]:
    if facts.spec.compute.keep_alive is not None and facts.spec.spot is not None:
        message = "keep_alive and spot exclude each other: a warm pool consists of on-demand instances"
        yield Problem(("compute", "keep_alive"), message, "remove one of the two", on_key=True)


@rule("SMDP320", "region", severity=Severity.WARNING)
def known_region(facts: Facts) -> Iterator[Problem]:
    region = facts.spec.region
    if not region_known(region) and region != REGION:
        near = closest_region(region)
        help_ = f"did you mean {near}?" if near else "see `smdp-launch catalog instances --region REGION`"
        yield Problem(("region",), f"the catalog does not know the region {region}", help_, replacement=near)
