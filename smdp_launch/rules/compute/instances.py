"""Which instances, how many, and where."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES, Build, build, last_library_version
from smdp_launch.catalog.instances import (
    LibraryVersions,
    instance,
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
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.rules.compute.framework import needs_another_cuda
from smdp_launch.rules.request.overlay import GROUPS

_TYPE = ("compute", "instance_type")
_FALLBACK = ("compute", "fallback_types")
_WITHOUT_GPUS = ("ml.m", "ml.c", "ml.r", "ml.t3")


@rule("SMDP301", "compute.instance_type", "policy", "engine")
def instance_type(facts: Facts) -> Iterator[Finding]:
    name, allowed = facts.spec.compute.instance_type, _served(facts)
    if name not in allowed:
        yield Finding(_TYPE, _refusal(facts, name), _instead(facts, name), replacement=_meant(facts, name))


def _served(facts: Facts) -> list[str]:
    return supported_instances(facts.spec.policy, facts.spec.engine)


def _suggested(facts: Facts) -> list[str]:
    """Types to name in a help: those that also go with the job's image and region, the one to choose today first."""
    served = suggested_instances(facts.spec.policy, facts.spec.engine)
    library = image_contents.library(facts) if facts.has(*image_contents.IMAGE_FIELDS) else None
    cuda = image_contents.cuda(facts) if facts.has(*image_contents.IMAGE_FIELDS) else None
    region = facts.spec.region if facts.has("region") else ""

    def fits(name: str) -> bool:
        found, known = instance(name), offering(name, region)
        return (
            (library is None or library_versions(name).include(library.version))
            and (cuda is None or found is None or _knows(cuda, found.cuda_min))
            and (known is None or known.offered or not known.certain)
        )

    return [one for one in served if fits(one)] or served


def _refusal(facts: Facts, name: str) -> str:
    engine, policy = facts.spec.engine, facts.spec.policy
    if replacement(name) is not None:
        return f"{name} does not exist, though AWS's documents mention it"
    if name not in known_instance_types():
        return f"SageMaker has no instance type {name} for training"
    if name.startswith(_WITHOUT_GPUS):
        return f"{name} has no GPUs, and the library sums gradients of GPUs"
    if policy == "strict" and name in supported_instances("extended", engine):
        return f"policy strict allows what the library's documentation states, which is not {name}"
    if engine == "smdistributed" and name not in supported_instances("extended", engine):
        return f"no version of AWS's library serves {name}; the last one is {last_library_version()}"
    return f"the {engine} engine does not serve {name} under policy {policy}"


def _instead(facts: Facts, name: str) -> str:
    engine, policy = facts.spec.engine, facts.spec.policy
    listed = f"one of {', '.join(_suggested(facts))}"
    meant = replacement(name)
    if meant is not None:
        return f"write {meant}"
    if policy == "strict" and name in supported_instances("extended", engine):
        return f"{listed}; or `policy: extended`"
    if name in supported_instances("extended", "native"):
        return f"{listed}; or `engine: native` with `policy: extended`"
    match = _meant(facts, name)
    return f"did you mean {match}?" if match else listed


def _meant(facts: Facts, name: str) -> str | None:
    """The one type of those allowed that ``name`` stands for, if that is certain."""
    allowed = _served(facts)
    known = replacement(name)
    if known is not None:
        return known if known in allowed else None
    # Instance names are much alike.
    return None if name in known_instance_types() else closest(name, allowed, cutoff=0.8)


@rule("SMDP311")
def one_kind_of_host(facts: Facts) -> Iterator[Finding]:
    for at in (("compute", "instance_groups"), ("overlay", *GROUPS)):
        if not facts.document.written(at):
            continue
        message = "hosts of one job are of one type: the library runs on one instance group, the others would wait"
        yield Finding(at, message, "write `instance_type` and `instance_count` in its place", on_key=True)


@rule("SMDP312", "compute.instance_count", severity=Severity.WARNING)
def several_hosts(facts: Facts) -> Iterator[Finding]:
    if facts.spec.compute.instance_count == 1:
        message = "on one host there is nothing to exchange between hosts, which is what the library speeds up"
        yield Finding(("compute", "instance_count"), message, "write 2 or more, or `silence: [SMDP312]`")


@rule("SMDP313", "compute.instance_type", "compute.fallback_types", "policy", "engine")
def fallback_types(facts: Facts) -> Iterator[Finding]:
    compute = facts.spec.compute
    seen = [compute.instance_type]
    for index, name in enumerate(compute.fallback_types or []):
        if name in seen:
            where = "`instance_type`" if name == compute.instance_type else "the list already"
            message = f"{name} stands in {where}; each type is tried once"
            yield Finding((*_FALLBACK, index), message, "leave it out, or name another type", remove=True)
        elif name not in _served(facts):
            meant = _meant(facts, name)
            is_new = meant not in (None, *seen, *(compute.fallback_types or []))
            at = (*_FALLBACK, index)
            yield Finding(at, _refusal(facts, name), _instead(facts, name), replacement=meant if is_new else None)
        seen.append(name)


@rule("SMDP313", "compute.instance_type", "compute.fallback_types", severity=Severity.WARNING)
def fallbacks_with_as_many_gpus(facts: Facts) -> Iterator[Finding]:
    first = instance(facts.spec.compute.instance_type)
    for index, name in enumerate(facts.spec.compute.fallback_types or []):
        other = instance(name)
        if first is not None and other is not None and other.gpus != first.gpus:
            message = f"{name} has {other.gpus} GPUs and {first.name} {first.gpus}: the world size would vary"
            yield Finding((*_FALLBACK, index), message, f"name a type with {first.gpus} GPUs")


@rule("SMDP314", "compute.instance_type", "policy", "engine", "image", "framework.name", "framework.version")
def cuda_knows_gpu(facts: Facts) -> Iterator[Finding]:
    yield from _cuda_too_old(facts, certain=True)


@rule(
    "SMDP314",
    *("compute.instance_type", "policy", "engine", "image", "framework.name", "framework.version"),
    severity=Severity.WARNING,
)
def cuda_may_not_know_gpu(facts: Facts) -> Iterator[Finding]:
    yield from _cuda_too_old(facts, certain=False)


def _cuda_too_old(facts: Facts, *, certain: bool) -> Iterator[Finding]:
    """``certain``: a document says from which CUDA on the GPU is known; a job is refused for nothing less."""
    found, cuda = instance(facts.spec.compute.instance_type), image_contents.cuda(facts)
    # What is not CUDA 11 under policy strict is told as that.
    if found is None or cuda is None or (facts.spec.policy == "strict" and not cuda.startswith("11.")):
        return
    if _version(cuda) < _version(found.cuda_min) and certain == ("cuda_min" not in found.from_memory):
        message = f"the {found.gpu} of {found.name} needs CUDA {found.cuda_min} or later, and the image has {cuda}"
        older = [one for one in _suggested(facts) if one != found.name]
        instead = f", or one of {', '.join(older)}" if any(_knows(cuda, _cuda_min(one)) for one in older) else ""
        where = ("image",) if facts.spec.image is not None else ("framework", "version")
        yield Finding(where, message, f"take a build with CUDA {found.cuda_min} or later{instead}")


def _cuda_min(name: str) -> str:
    found = instance(name)
    return found.cuda_min if found is not None else "0"


def _knows(cuda: str, first: str) -> bool:
    return _version(cuda) >= _version(first)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split("."))


@rule("SMDP324", "compute.instance_type", "compute.fallback_types", "policy", *image_contents.IMAGE_FIELDS)
def library_serves_type(facts: Facts) -> Iterator[Finding]:
    library, compute = image_contents.library(facts), facts.spec.compute
    if library is None or needs_another_cuda(facts):
        return
    wanted: list[tuple[Location, str]] = [(_TYPE, compute.instance_type)]
    wanted += [((*_FALLBACK, index), name) for index, name in enumerate(compute.fallback_types or ())]
    for at, name in wanted:
        versions = library_versions(name)
        if name in _served(facts) and not versions.include(library.version):
            does = (
                f"serves {name} since {versions.since}" if versions.since else f"refuses {name} since {versions.before}"
            )
            message = f"AWS's library {does}, and the image of {library.title} comes with {library.version}"
            yield Finding(at, message, _another_library(facts, versions))


def _another_library(facts: Facts, versions: LibraryVersions) -> str:
    """Types for the version at hand, then what comes with a version for the type."""
    types = f"take {', '.join(_suggested(facts))}"
    name, title = facts.spec.framework.name, TITLES[facts.spec.framework.name]
    if facts.spec.framework.transformers is not None:
        known = [(one, build(name, one.version)) for one in pairs() if one.framework == name and one.smddp]
        found = [
            f'transformers "{one.transformers}" with {title} "{one.version}"' for one, of in known if _has(of, versions)
        ]
    else:
        suitable = [build(name, one) for one in image_contents.suitable_versions(facts)]
        found = [
            f'{title} "{one.version}", which comes with {one.smddp}' for one in suitable if one and _has(one, versions)
        ]
    return f"{types}; or {found[-1]}" if found else types


def _has(found: Build | None, versions: LibraryVersions) -> bool:
    return found is not None and found.smddp is not None and versions.include(found.smddp)


@rule("SMDP315", "compute.instance_type", "region")
def region_offers_type(facts: Facts) -> Iterator[Finding]:
    yield from _not_offered(facts, certain=True)


@rule("SMDP315", "compute.instance_type", "region", severity=Severity.WARNING)
def region_may_lack_type(facts: Facts) -> Iterator[Finding]:
    yield from _not_offered(facts, certain=False)


def _not_offered(facts: Facts, *, certain: bool) -> Iterator[Finding]:
    name, region = facts.spec.compute.instance_type, facts.spec.region
    known = offering(name, region)
    if known is None or known.offered or known.certain != certain:
        return
    verb = "does not offer" if certain else "may not offer"
    having = sorted(regions_offering(name) or ())
    help_ = f"{', '.join(having)} is known to have it" if having else "choose another region, or another type"
    message = f"{region} {verb} {name} for training, as of {known.as_of}"
    yield Finding(("region",), message, f"{help_}; AWS adds regions with time")


@rule("SMDP317", "compute.keep_alive", "spot")
def warm_pool_of_spot(facts: Facts) -> Iterator[Finding]:
    if facts.spec.compute.keep_alive is not None and facts.spec.spot is not None:
        message = "keep_alive and spot exclude each other: a warm pool is made of on-demand instances"
        yield Finding(("compute", "keep_alive"), message, "leave one of the two out", on_key=True)


@rule("SMDP320", "region", severity=Severity.WARNING)
def known_region(facts: Facts) -> Iterator[Finding]:
    region = facts.spec.region
    if not region_known(region) and region != REGION:
        near = closest_region(region)
        help_ = f"did you mean {near}?" if near else "see `smdp-launch catalog instances --region REGION`"
        yield Finding(("region",), f"{region} is no region that the catalogue knows", help_, replacement=near)
