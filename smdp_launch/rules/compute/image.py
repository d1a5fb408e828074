"""The training image that a job names: its registry, and what its tag says about its contents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog.engines import IN_AWS_IMAGES, WITH_POLICY
from smdp_launch.catalog.frameworks import TITLES, Build, build, builds, frameworks, parts
from smdp_launch.catalog.images import ImageUri, aws_build, parse_image, tag_facts
from smdp_launch.catalog.placeholders import REGION
from smdp_launch.catalog.regions import dns_suffix, region_known, registry_account
from smdp_launch.catalog.registries import training_image
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.yaml.document import value_at
from smdp_launch.request.batch import on_cpus
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.vpc import NETWORK, is_in_vpc
from smdp_launch.rules.compute.framework import cuda_11, framework_version, native_build

_IMAGE = ("image",)
_VERSIONS = ("framework.name", "framework.version", "framework.transformers")


@rule("SMDP305", "engine", "image")
def native_image(facts: Facts) -> Iterator[Problem]:
    if facts.spec.engine == "native" and facts.spec.image is None:
        message = "engine native runs in an image that you build and push, but `image` is not set"
        help_ = "add `image:` with its URI, or choose `engine: smdistributed` to use AWS's image"
        yield Problem(("engine",), message, help_)


@rule("SMDP306", "engine", "image")
def named_image_contains_library(facts: Facts) -> Iterator[Problem]:
    named = image_contents.image(facts)
    if named is None or not named.is_aws or _is_other_kind(named):
        return
    if facts.spec.engine not in WITH_POLICY:
        return
    if facts.spec.engine == "native":
        message = "engine native needs an image that contains it, and AWS's images do not"
        help_ = "name an image that is built on this one and contains the engine, or choose `engine: smdistributed`"
        yield Problem(_IMAGE, message, help_)
        return
    build_ = aws_build(named)
    if build_ is not None and build_.smddp is None:
        what = f"{TITLES[build_.framework]} {build_.version} with CUDA {build_.cuda}"
        message = f"AWS's image of {what} does not contain the data parallel library"
        yield Problem(_IMAGE, message, _with_library(build_), remove=_is_of_framework(facts, build_))


def _is_of_framework(facts: Facts, build_: Build) -> bool:
    """Whether the job gets the same version, with the library, if it names no image."""
    names = ("framework.name", "framework.version", "framework.transformers")
    framework = facts.spec.framework
    if not facts.has(*names, "engine") or framework.transformers is not None or framework.name != build_.framework:
        return False
    same = build(framework.name, framework.version)
    return same is not None and same.version == build_.version and same.smddp is not None


def _with_library(without: Build) -> str:
    """A help that names the image of the same version with the library, else the last version with the library."""
    same = build(without.framework, without.version)
    if same is not None and same.smddp is not None:
        return f"remove `image:` to use the image with CUDA {same.cuda}, which contains it"
    last = next(one.version for one in reversed(builds(without.framework)) if one.smddp is not None)
    return f'use version "{last}", the last that contains it'


@rule("SMDP308", "policy", "image", *_VERSIONS, "engine")
def image_cuda(facts: Facts) -> Iterator[Problem]:
    cuda = image_contents.tag(facts).cuda if facts.spec.engine in WITH_POLICY else None
    others = (cuda_11, framework_version, named_image_contains_library)
    if cuda is None or any(any(one.check(facts)) for one in others):
        return
    contents = image_contents.aws_image(facts)
    if facts.spec.policy == "strict" and not cuda.startswith("11."):
        fitting = contents.cuda if contents is not None and contents.cuda_major == 11 else None
        tag = f"an image whose tag says cu{fitting.replace('.', '')}" if fitting else "an image with CUDA 11"
        message = f"the image's tag says CUDA {cuda}; policy strict needs CUDA 11"
        yield Problem(_IMAGE, message, f"name {tag}, or write `policy: extended`")


@rule("SMDP309", "region", "image")
def image_region(facts: Facts) -> Iterator[Problem]:
    named, region = image_contents.image(facts), facts.spec.region
    if named is None or named.region is None or not region_known(region) or named.region == REGION:
        return
    if named.region != region:
        message = (
            f"the image is in {named.region} and the job runs in {region};"
            " SageMaker pulls images only from the job's region"
        )
        what = "write" if named.is_aws else "push it to"
        there = _in_region(named, region)
        # Whether a copy of the user's own image exists there is not known.
        yield Problem(_IMAGE, message, f"{what} {there}", replacement=there if named.is_aws else None)
    elif named.is_aws and registry_account(region) not in (None, named.account):
        message = f"AWS's images in {region} are in account {registry_account(region)}, not {named.account}"
        there = _in_region(named, region)
        yield Problem(_IMAGE, message, f"write {there}", replacement=there)


def _in_region(named: ImageUri, region: str) -> str:
    account = registry_account(region) if named.is_aws else named.account
    end = f":{named.tag}" if named.tag else f"@{named.digest}" if named.digest else ""
    return f"{account}.dkr.ecr.{region}.{dns_suffix(region)}/{named.repository}{end}"


@rule("SMDP321", "region", "image")
def image_host(facts: Facts) -> Iterator[Problem]:
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
        message = f"the host {named.registry} does not exist: in {named.region}, names in Amazon ECR end in {suffix}"
        yield Problem(_IMAGE, message, f"write {there}", replacement=there)


@rule("SMDP310", "image")
def image_kind(facts: Facts) -> Iterator[Problem]:
    named = image_contents.image(facts)
    if named is None:
        return
    if named.purpose == "inference":
        fix = named.repository.replace("inference", "training")
        uri = _of_aws(facts) if named.is_aws else None
        help_ = f"write {uri}" if uri else f"use the image for training, {fix}"
        yield Problem(_IMAGE, f"{named.repository} is an image for inference", help_, replacement=uri)
    elif tag_facts(named.tag or "").processor == "cpu" and not facts.local and not _trains_on_cpus(facts):
        # A local run trains on CPUs.
        message = "the image's tag says cpu, and the job trains on GPUs"
        uri = _of_aws(facts) if named.is_aws else None
        help_ = f"write {uri}" if uri else "name the build of the image for GPUs"
        yield Problem(_IMAGE, message, help_, replacement=uri)


def _trains_on_cpus(facts: Facts) -> bool:
    return facts.has("engine", "compute.instance_type") and on_cpus(facts.spec)


def _of_aws(facts: Facts) -> str | None:
    """AWS's image, with what the engine needs, for the job's framework and region; None if there is none."""
    names = ("engine", "framework.name", "framework.version", "framework.transformers", "region")
    framework, engine = facts.spec.framework, facts.spec.engine
    if not facts.has(*names) or engine not in IN_AWS_IMAGES or framework.transformers is not None:
        return None
    build_ = build(framework.name, framework.version)
    fits = build_ is not None and (build_.smddp is not None or engine != "smdistributed")
    known = fits and region_known(facts.spec.region)
    return training_image(build_, facts.spec.region) if build_ is not None and known else None


@rule("SMDP310", "image", "framework.name")
def image_of_another_framework(facts: Facts) -> Iterator[Problem]:
    named, name = image_contents.image(facts), facts.spec.framework.name
    if named is None or not named.is_aws or _is_other_kind(named):
        return
    other = next((one for one in frameworks() if one in named.repository and name not in named.repository), None)
    if other is not None:
        message = f"{named.repository} is an image of {TITLES[other]}, and `framework` says {TITLES[name]}"
        uri = _of_aws(facts)
        help_ = f"write {uri}" if uri else f"use the image of {TITLES[name]}, {named.repository.replace(other, name)}"
        yield Problem(_IMAGE, message, help_, replacement=uri)


@rule("SMDP310", "image", "engine", "policy", *_VERSIONS, severity=Severity.WARNING)
def image_version(facts: Facts) -> Iterator[Problem]:
    named, framework = image_contents.image(facts), facts.spec.framework
    tag = image_contents.tag(facts)
    if named is None or tag.version is None or framework.name not in named.repository:
        return
    if tag.cuda is None and tag.processor is None and not named.is_aws:
        return  # a version of the image itself
    is_reported = any(any(one.check(facts)) for one in (framework_version, cuda_11, native_build))
    wanted = parts(framework.version)
    if not is_reported and parts(tag.version)[: len(wanted)] != wanted[: len(parts(tag.version))]:
        message = f"the image's tag says {TITLES[framework.name]} {tag.version}, `framework` says {framework.version}"
        yield Problem(_IMAGE, message, f'name an image of {framework.version}, or write `version: "{tag.version}"`')


def _is_other_kind(named: ImageUri) -> bool:
    return named.purpose == "inference" or tag_facts(named.tag or "").processor == "cpu"


@rule("SMDP318", "image", "overlay")
def image_reference(facts: Facts) -> Iterator[Problem]:
    uri, named = facts.spec.image, image_contents.image(facts)
    if uri is None:
        return
    if named is None:
        yield _not_a_reference(uri)
    elif named.account is None and not facts.local and not _is_registry_named(facts):
        # A local run uses local images.
        where = named.registry or "Docker Hub"
        message = f"the image is at {where}, but SageMaker pulls only from private repositories of Amazon ECR"
        own = "overlay: {AlgorithmSpecification: {TrainingImageConfig: {TrainingRepositoryAccessMode: Vpc}}}"
        push = "push it to ECR: ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG"
        yield Problem(_IMAGE, message, f"{push}; for a registry in your VPC add {NETWORK}, and `{own}`")


def _not_a_reference(uri: str) -> Problem:
    message = f"{uri} is not the URI of an image"
    # Only a tag may have capital letters.
    name, colon, tag = uri.rpartition(":") if re.search(r":[^/]*$", uri) else (uri, "", "")
    lower = f"{name.lower()}{colon}{tag}"
    if parse_image(lower) is not None:
        return Problem(_IMAGE, message, f"write the name in lower case: {lower}", replacement=lower)
    return Problem(_IMAGE, message, "write ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG")


def _is_registry_named(facts: Facts) -> bool:
    algorithm = facts.spec.overlay.get("AlgorithmSpecification")
    return isinstance(algorithm, dict) and "TrainingImageConfig" in algorithm


@rule("SMDP318", "overlay", "network.subnets", "network.security_groups")
def registry_is_in_the_vpc(facts: Facts) -> Iterator[Problem]:
    at = ("overlay", "AlgorithmSpecification", "TrainingImageConfig", "TrainingRepositoryAccessMode")
    if value_at(facts.spec.overlay, at[1:]) == "Vpc" and not is_in_vpc(facts.spec):
        message = "the image is in a registry of a VPC, but the job has no VPC"
        yield Problem(at, message, f"add {NETWORK}")


@rule("SMDP318", "image", severity=Severity.WARNING)
def image_tag(facts: Facts) -> Iterator[Problem]:
    named = image_contents.image(facts)
    if named is not None and named.is_aws and named.tag is None and named.digest is None:
        message = "the image has no tag, and AWS's images have no tag `latest`"
        full = _of_aws(facts)
        same = full if full is not None and full.startswith(f"{facts.spec.image}:") else None
        help_ = f"write {same}" if same else "add the tag, or remove `image:` to use AWS's image for `framework`"
        yield Problem(_IMAGE, message, help_, replacement=same)
