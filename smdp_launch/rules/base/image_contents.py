"""Which image a job will run in, as far as its file says so. Rules about frameworks and images start from here."""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.catalog.frameworks import (
    TITLES,
    build,
    is_cuda_11,
    minimum,
    native_builds,
    native_cuda,
    parts,
    versions,
)
from smdp_launch.catalog.images import ImageUri, TagFacts, aws_build, parse_image, tag_facts
from smdp_launch.catalog.transformers import Pair, pair
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.rules.base.facts import Facts


class Held(NamedTuple):
    """What AWS's image of a framework version holds."""

    title: str
    python: str
    cuda: str
    library: bool

    @property
    def cuda_major(self) -> int:
        return int(self.cuda.split(".")[0])


class Library(NamedTuple):
    """AWS's library in an image: its version, and what the image is one of."""

    title: str
    version: str


#: What decides which image a job runs in, and so which library.
IMAGE_FIELDS = ("engine", "image", "framework.name", "framework.version", "framework.transformers")


def library(facts: Facts) -> Library | None:
    """AWS's library that the job will run with; None for another engine, and where the image does not say."""
    framework, named = facts.spec.framework, image(facts)
    if facts.spec.engine != "smdistributed" or (facts.spec.image is not None and named is None):
        return None
    pair_ = hugging_face(facts)
    found = aws_build(named) if named is not None else build(framework.name, framework.version)
    if found is None or found.smddp is None or (pair_ is not None and not pair_.smddp):
        return None
    if named is None and pair_ is None and framework.transformers is not None:
        return None
    return Library(f"{TITLES[found.framework]} {found.version}", found.smddp)


def held(facts: Facts) -> Held | None:
    """What AWS's image for the job's versions holds; None where there is no such image."""
    framework = facts.spec.framework
    chosen = hugging_face(facts)
    if chosen is not None:
        title = f"transformers {chosen.transformers} with {TITLES[chosen.framework]} {chosen.version}"
        return Held(title, chosen.python, chosen.cuda, chosen.smddp)
    found = build(framework.name, framework.version)
    if found is None:
        return None
    return Held(f"{TITLES[framework.name]} {found.version}", found.python, found.cuda, found.smddp is not None)


def hugging_face(facts: Facts) -> Pair | None:
    """AWS's Hugging Face image, if the job asks for one that exists."""
    framework = facts.spec.framework
    if facts.spec.image is not None or not facts.has("framework.transformers") or framework.transformers is None:
        return None
    return pair(framework.transformers, framework.name, framework.version)


def image(facts: Facts) -> ImageUri | None:
    """The parts of the image that the job names itself."""
    if not facts.has("image") or facts.spec.image is None:
        return None
    return parse_image(facts.spec.image)


def tag(facts: Facts) -> TagFacts:
    """What that image's tag says; nothing where there is none."""
    named = image(facts)
    return tag_facts(named.tag or "" if named is not None else "")


def python(spec: JobSpec) -> tuple[int, int] | None:
    """The Python that will run the script, as far as the catalogue knows; an image of the user's own may have any."""
    framework = spec.framework
    known = build(framework.name, framework.version)
    if framework.python is None and (known is None or (spec.engine == "smdistributed" and spec.image is not None)):
        return None
    major, _, minor = (framework.python or (known.python if known is not None else "3.8")).partition(".")
    return int(major), int(minor)


def cuda(facts: Facts) -> str | None:
    """The CUDA that the job will run with, if it can be known."""
    told = tag(facts).cuda
    if told is not None or facts.spec.image is not None:
        return told
    found = held(facts)
    return found.cuda if found is not None else None


def native_version(name: str, version: str) -> str | None:
    """The build of our engine for ``version``; "2.0" means the newest 2.0.x."""
    return next((one for one in reversed(native_builds(name)) if one == version or one.startswith(f"{version}.")), None)


def suitable_versions(facts: Facts) -> list[str]:
    """The versions of the job's framework that its engine and policy allow, oldest first; empty where there are none.

    For a job whose engine or policy has a schema error, those of every engine, with CUDA 11.
    """
    name, engine = facts.spec.framework.name, facts.spec.engine
    strict = facts.spec.policy != "extended"
    ours = native_builds(name) if engine == "native" else versions(name)
    young = [one for one in ours if parts(one) >= parts(minimum(name))]
    allowed = [one for one in young if not strict or _has_cuda_11(name, one, engine == "native")]
    return [one for one in allowed if engine != "smdistributed" or _library(name, one)]


def _has_cuda_11(name: str, version: str, native: bool) -> bool:
    found = build(name, version)
    return is_cuda_11(native_cuda(name, version) if native else found.cuda if found is not None else None)


def _library(name: str, version: str) -> bool:
    found = build(name, version)
    return found is not None and found.smddp is not None
