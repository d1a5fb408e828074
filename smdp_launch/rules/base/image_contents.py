"""The image of a job and what it contains, as far as the job file and the catalogue say."""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.fabric import NcclStack, nccl_stack
from smdp_launch.catalog.frameworks import (
    TITLES,
    build,
    is_cuda_11,
    minimum,
    native_cuda,
    native_image,
    native_python,
    native_versions,
    parts,
    torchrun_since,
    versions,
)
from smdp_launch.catalog.images import ImageUri, TagFacts, aws_build, parse_image, tag_facts
from smdp_launch.catalog.transformers import Pair, pair
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.rules.base.facts import Facts


class ImageContents(NamedTuple):
    """What one of AWS's images contains.

    Args:
        title: the framework version of the image, for messages.
        library: AWS's data parallel library is in the image.
    """

    title: str
    python: str
    cuda: str
    library: bool

    @property
    def cuda_major(self) -> int:
        return int(self.cuda.split(".")[0])


class Library(NamedTuple):
    """AWS's library in an image: its version, and the framework version of the image, for messages."""

    title: str
    version: str


#: The fields that decide which image a job runs in, and so which version of AWS's library.
IMAGE_FIELDS = ("engine", "image", "framework.name", "framework.version", "framework.transformers")


def library(facts: Facts) -> Library | None:
    """AWS's library that the job runs with; None for another engine, or if the image does not show it."""
    framework, named = facts.spec.framework, image(facts)
    if facts.spec.engine != "smdistributed" or (facts.spec.image is not None and named is None):
        return None
    pair_ = hugging_face(facts)
    known = aws_build(named) if named is not None else build(framework.name, framework.version)
    if known is None or known.smddp is None or (pair_ is not None and not pair_.smddp):
        return None
    if named is None and pair_ is None and framework.transformers is not None:
        return None
    return Library(f"{TITLES[known.framework]} {known.version}", known.smddp)


def aws_image(facts: Facts) -> ImageContents | None:
    """The contents of AWS's image for the job's versions; None if AWS has no such image."""
    framework = facts.spec.framework
    pair_ = hugging_face(facts)
    if pair_ is not None:
        title = f"transformers {pair_.transformers} with {TITLES[pair_.framework]} {pair_.version}"
        return ImageContents(title, pair_.python, pair_.cuda, pair_.smddp)
    known = build(framework.name, framework.version)
    if known is None:
        return None
    return ImageContents(f"{TITLES[framework.name]} {known.version}", known.python, known.cuda, known.smddp is not None)


def hugging_face(facts: Facts) -> Pair | None:
    """AWS's Hugging Face image for the job; None if the job needs none, or if it does not exist."""
    framework = facts.spec.framework
    if facts.spec.image is not None or not facts.has("framework.transformers") or framework.transformers is None:
        return None
    return pair(framework.transformers, framework.name, framework.version)


def image(facts: Facts) -> ImageUri | None:
    """The parts of the image URI in the job file; None without one."""
    if not facts.has("image") or facts.spec.image is None:
        return None
    return parse_image(facts.spec.image)


def tag(facts: Facts) -> TagFacts:
    """What the tag of the job's image says; empty without a tag."""
    named = image(facts)
    return tag_facts(named.tag or "" if named is not None else "")


def python(spec: JobSpec) -> tuple[int, int] | None:
    """The Python version that runs the script; None if it is not known, as for most of a user's own images."""
    framework = spec.framework
    if framework.python is not None:
        version: str | None = framework.python
    elif spec.engine == "native":
        version = _native_python(spec)
    else:
        known = build(framework.name, framework.version) if spec.image is None else None
        version = known.python if known is not None else None
    if version is None:
        return None
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _native_python(spec: JobSpec) -> str | None:
    """What the image's tag says, else the Python of the images that ``image build`` makes for the job's version."""
    named = parse_image(spec.image) if spec.image is not None else None
    of_tag = tag_facts(named.tag or "").python if named is not None else None
    has_recipe = native_image(spec.framework.name, spec.framework.version) is not None
    return of_tag or (native_python() if has_recipe else None)


def cuda(facts: Facts) -> str | None:
    """The CUDA version that the job runs with; None if it cannot be determined."""
    of_tag = tag(facts).cuda
    if of_tag is not None or facts.spec.image is not None:
        return of_tag
    contents = aws_image(facts)
    return contents.cuda if contents is not None else None


def nccl(facts: Facts) -> NcclStack | None:
    """NCCL and its plugin in AWS's image of the job; None for another image, and if they are not documented."""
    framework, named = facts.spec.framework, image(facts)
    if framework.transformers is not None or (facts.spec.image is not None and named is None):
        return None
    known = aws_build(named) if named is not None else build(framework.name, framework.version)
    return nccl_stack(known.framework, known.version, known.cuda) if known is not None else None


def suitable_versions(facts: Facts) -> list[str]:
    """The versions of the job's framework that its engine and policy allow, oldest first.

    If the engine or the policy has a schema error: the versions of all engines with CUDA 11.
    """
    name, engine = facts.spec.framework.name, facts.spec.engine
    strict = facts.spec.policy != "extended" and engine not in TORCH_DISTRIBUTED
    known = native_versions(name) if engine == "native" else versions(name)
    first = torchrun_since() if engine in TORCH_DISTRIBUTED else minimum(name)
    recent = [one for one in known if parts(one) >= parts(first)]
    allowed = [one for one in recent if not strict or _has_cuda_11(name, one, engine == "native")]
    return [one for one in allowed if engine != "smdistributed" or _library(name, one)]


def _has_cuda_11(name: str, version: str, native: bool) -> bool:
    known = build(name, version)
    return is_cuda_11(native_cuda(name, version) if native else known.cuda if known is not None else None)


def _library(name: str, version: str) -> bool:
    known = build(name, version)
    return known is not None and known.smddp is not None
