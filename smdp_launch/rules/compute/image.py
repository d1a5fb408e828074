"""The training image that a job names: where it lies, and what its tag says is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES, Build, build, builds, frameworks, parts
from smdp_launch.catalog.images import ImageUri, aws_build, parse_image, tag_facts
from smdp_launch.catalog.placeholders import REGION
from smdp_launch.catalog.regions import dns_suffix, region_known, registry_account
from smdp_launch.catalog.registries import training_image
from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.rules.compute.framework import cuda_11, framework_version, native_build

_IMAGE = ("image",)
_VERSIONS = ("framework.name", "framework.version", "framework.transformers")


@rule("SMDP305", "engine", "image")
def native_image(facts: Facts) -> Iterator[Finding]:
    if facts.spec.engine == "native" and facts.spec.image is None:
        message = "engine native runs in an image that you build and push, and none is named"
        help_ = "add `image:` with its URI, or choose `engine: smdistributed` for AWS's own"
        yield Finding(("engine",), message, help_)


@rule("SMDP306", "engine", "image")
def named_image_holds_library(facts: Facts) -> Iterator[Finding]:
    named = image_contents.image(facts)
    if named is None or not named.is_aws or _is_other_kind(named):
        return
    if facts.spec.engine == "native":
        message = "engine native needs an image with our engine in it, and this one is AWS's own"
        yield Finding(_IMAGE, message, "name an image built on it with the engine, or choose `engine: smdistributed`")
        return
    found = aws_build(named)
    if found is not None and found.smddp is None:
        what = f"{TITLES[found.framework]} {found.version} with CUDA {found.cuda}"
        message = f"AWS's image of {what} comes without the data parallel library"
        yield Finding(_IMAGE, message, _with_library(found), remove=_is_of_framework(facts, found))


def _is_of_framework(facts: Facts, found: Build) -> bool:
    """Whether the job gets the same version with the library where it names no image."""
    names = ("framework.name", "framework.version", "framework.transformers")
    framework = facts.spec.framework
    if not facts.has(*names, "engine") or framework.transformers is not None or framework.name != found.framework:
        return False
    same = build(framework.name, framework.version)
    return same is not None and same.version == found.version and same.smddp is not None


def _with_library(without: Build) -> str:
    """The image of the same version that holds it, else the last version that does."""
    same = build(without.framework, without.version)
    if same is not None and same.smddp is not None:
        return f"the one with CUDA {same.cuda} holds it, and is taken where `image:` is left out"
    last = next(one.version for one in reversed(builds(without.framework)) if one.smddp is not None)
    return f'the last version that holds it is "{last}"'


@rule("SMDP308", "policy", "image", *_VERSIONS, "engine")
def image_cuda(facts: Facts) -> Iterator[Finding]:
    told = image_contents.tag(facts).cuda
    others = (cuda_11, framework_version, named_image_holds_library)
    if told is None or any(any(one.check(facts)) for one in others):
        return
    held = image_contents.held(facts)
    if facts.spec.policy == "strict" and not told.startswith("11."):
        fitting = held.cuda if held is not None and held.cuda_major == 11 else None
        tag = f"one whose tag says cu{fitting.replace('.', '')}" if fitting else "one with CUDA 11"
        message = f"the image's tag says CUDA {told}; policy strict needs CUDA 11"
        yield Finding(_IMAGE, message, f"name {tag}, or write `policy: extended`")


@rule("SMDP309", "region", "image")
def image_region(facts: Facts) -> Iterator[Finding]:
    named, region = image_contents.image(facts), facts.spec.region
    if named is None or named.region is None or not region_known(region) or named.region == REGION:
        return
    if named.region != region:
        message = f"the image lies in {named.region} and the job runs in {region}; SageMaker pulls from its own region"
        what = "AWS has it at" if named.is_aws else "push it to"
        there = _in_region(named, region)
        # Whether a copy of the person's own image is there already is not known.
        yield Finding(_IMAGE, message, f"{what} {there}", replacement=there if named.is_aws else None)
    elif named.is_aws and registry_account(region) not in (None, named.account):
        message = f"AWS's images in {region} are in account {registry_account(region)}, not {named.account}"
        there = _in_region(named, region)
        yield Finding(_IMAGE, message, f"write {there}", replacement=there)


def _in_region(named: ImageUri, region: str) -> str:
    account = registry_account(region) if named.is_aws else named.account
    end = f":{named.tag}" if named.tag else f"@{named.digest}" if named.digest else ""
    return f"{account}.dkr.ecr.{region}.{dns_suffix(region)}/{named.repository}{end}"


@rule("SMDP321", "region", "image")
def image_host(facts: Facts) -> Iterator[Finding]:
    named = image_contents.image(facts)
    if (
        named is None
        or named.region in (None, REGION)
        or ".dkr-ecr" in named.registry
        or any(image_region.check(facts))
    ):
        return
    suffix = dns_suffix(named.region or "")
    if named.dns_suffix != suffix:
        right = f"{named.registry.removesuffix(named.dns_suffix or '')}{suffix}"
        there = str(facts.spec.image).replace(named.registry, right, 1)
        message = f"there is no host {named.registry}: Amazon ECR's names end in {suffix} in {named.region}"
        yield Finding(_IMAGE, message, f"write {there}", replacement=there)


@rule("SMDP310", "image")
def image_kind(facts: Facts) -> Iterator[Finding]:
    named = image_contents.image(facts)
    if named is None:
        return
    if named.purpose == "inference":
        fix = named.repository.replace("inference", "training")
        uri = _of_aws(facts) if named.is_aws else None
        help_ = f"the one for training is {uri or fix}"
        yield Finding(_IMAGE, f"{named.repository} is an image for inference", help_, replacement=uri)
    elif tag_facts(named.tag or "").processor == "cpu" and not facts.local:  # here it trains on CPUs
        message = "the image's tag says cpu, and the job trains on GPUs"
        uri = _of_aws(facts) if named.is_aws else None
        help_ = f"write {uri}" if uri else "name the image's build for GPUs"
        yield Finding(_IMAGE, message, help_, replacement=uri)


def _of_aws(facts: Facts) -> str | None:
    """AWS's image for the job's framework and region, which holds the library if the engine asks for it."""
    names = ("engine", "framework.name", "framework.version", "framework.transformers", "region")
    if not facts.has(*names) or facts.spec.engine == "native" or facts.spec.framework.transformers is not None:
        return None
    found = build(facts.spec.framework.name, facts.spec.framework.version)
    known = found is not None and found.smddp is not None and region_known(facts.spec.region)
    return training_image(found, facts.spec.region) if found is not None and known else None


@rule("SMDP310", "image", "framework.name")
def image_of_another_framework(facts: Facts) -> Iterator[Finding]:
    named, name = image_contents.image(facts), facts.spec.framework.name
    if named is None or not named.is_aws or _is_other_kind(named):
        return
    other = next((one for one in frameworks() if one in named.repository and name not in named.repository), None)
    if other is not None:
        message = f"{named.repository} is an image of {TITLES[other]}, and `framework` says {TITLES[name]}"
        uri = _of_aws(facts)
        help_ = f"the one of {TITLES[name]} is {uri or named.repository.replace(other, name)}"
        yield Finding(_IMAGE, message, help_, replacement=uri)


@rule("SMDP310", "image", "engine", "policy", *_VERSIONS, severity=Severity.WARNING)
def image_version(facts: Facts) -> Iterator[Finding]:
    named, framework = image_contents.image(facts), facts.spec.framework
    told = image_contents.tag(facts)
    if named is None or told.version is None or framework.name not in named.repository:
        return
    if told.cuda is None and told.processor is None and not named.is_aws:
        return  # a version of the image itself
    version_told = any(any(one.check(facts)) for one in (framework_version, cuda_11, native_build))
    wanted = parts(framework.version)
    if not version_told and parts(told.version)[: len(wanted)] != wanted[: len(parts(told.version))]:
        message = f"the image's tag says {TITLES[framework.name]} {told.version}, `framework` says {framework.version}"
        yield Finding(_IMAGE, message, f'name an image of {framework.version}, or write `version: "{told.version}"`')


def _is_other_kind(named: ImageUri) -> bool:
    return named.purpose == "inference" or tag_facts(named.tag or "").processor == "cpu"


@rule("SMDP318", "image", "overlay")
def image_reference(facts: Facts) -> Iterator[Finding]:
    uri, named = facts.spec.image, image_contents.image(facts)
    if uri is None:
        return
    if named is None:
        yield _no_reference(uri)
    elif named.account is None and not facts.local and not _is_registry_named(facts):
        # A local run takes an image of this machine's own.
        where = named.registry or "Docker Hub"
        message = f"the image lies at {where}, and SageMaker pulls from private repositories of Amazon ECR"
        own = "overlay: {AlgorithmSpecification: {TrainingImageConfig: {TrainingRepositoryAccessMode: Vpc}}}"
        push = "push it to ECR: ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG"
        yield Finding(_IMAGE, message, f"{push}; for a registry in your VPC add `{own}`")


def _no_reference(uri: str) -> Finding:
    message = f"{uri} is no reference to an image"
    # Only a tag may have capitals, so they stay in it.
    name, colon, tag = uri.rpartition(":") if re.search(r":[^/]*$", uri) else (uri, "", "")
    lower = f"{name.lower()}{colon}{tag}"
    if parse_image(lower) is not None:
        return Finding(_IMAGE, message, f"a name has small letters only: write {lower}", replacement=lower)
    return Finding(_IMAGE, message, "write ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG")


def _is_registry_named(facts: Facts) -> bool:
    algorithm = facts.spec.overlay.get("AlgorithmSpecification")
    return isinstance(algorithm, dict) and "TrainingImageConfig" in algorithm


@rule("SMDP318", "image", severity=Severity.WARNING)
def image_tag(facts: Facts) -> Iterator[Finding]:
    named = image_contents.image(facts)
    if named is not None and named.is_aws and named.tag is None and named.digest is None:
        message = "the image has no tag, and AWS's images have none that is called latest"
        full = _of_aws(facts)
        same = full if full is not None and full.startswith(f"{facts.spec.image}:") else None
        help_ = f"write {same}" if same else "add the tag, or leave `image:` out and that of `framework` is taken"
        yield Finding(_IMAGE, message, help_, replacement=same)
