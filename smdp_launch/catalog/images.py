"""The parts of an image URI: its registry, and the framework build in the image."""

from __future__ import annotations

import re
from typing import NamedTuple

from smdp_launch.catalog.frameworks import Build, alternatives, build, frameworks
from smdp_launch.catalog.regions import registry_accounts
from smdp_launch.catalog.tables import table

_REFERENCE = re.compile(
    r"(?:(?P<registry>[a-z0-9.-]+(?::\d+)?)/)?"
    r"(?P<repository>[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{32,}))?",
    re.ASCII,
)
# The second form, with a hyphen, is for hosts that IPv6 reaches too.
_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)", re.ASCII
)
_TRAINING = re.compile(r"(?:^|[-/])training(?:$|-)")
_INFERENCE = re.compile(r"(?:^|[-/])inference(?:$|-)")


class ImageUri(NamedTuple):
    """A reference to an image.

    Args:
        account: twelve digits; None, like ``region`` and ``dns_suffix``, if the registry is not in Amazon ECR.
        registry: the host; empty if the URI has none.
    """

    registry: str
    account: str | None
    region: str | None
    dns_suffix: str | None
    repository: str
    tag: str | None
    digest: str | None

    @property
    def is_aws(self) -> bool:
        """Whether it is one of AWS's deep learning containers: their account and one of their repositories."""
        return self.account in registry_accounts() and (
            self.repository in _aws_repositories() or self.purpose is not None
        )

    @property
    def purpose(self) -> str | None:
        """``training`` or ``inference``, if the repository's name contains it."""
        if _INFERENCE.search(self.repository):
            return "inference"
        return "training" if _TRAINING.search(self.repository) else None


class TagFacts(NamedTuple):
    """The parts of a tag in the form of AWS's tags; None for a part that it does not have.

    Args:
        processor: ``gpu`` or ``cpu``.
        python: such as "3.10".
        cuda: such as "11.8".
    """

    version: str | None
    processor: str | None
    python: str | None
    cuda: str | None
    transformers: str | None


def parse_image(uri: str) -> ImageUri | None:
    """The parts of ``uri``; None if it is not a reference to an image."""
    # No service accepts a longer reference, and the pattern would be slow.
    match = _REFERENCE.fullmatch(uri) if len(uri) <= 1024 else None
    if match is None:
        return None
    registry, repository = match["registry"] or "", match["repository"]
    if registry and not re.search(r"[.:]|^localhost$", registry):
        # As in docker, the first part is a host only if it has a dot or a colon, or is localhost.
        registry, repository = "", f"{registry}/{repository}"
    ecr = _ECR.fullmatch(registry)
    account, region, suffix = (ecr["account"], ecr["region"], ecr["suffix"]) if ecr else (None, None, None)
    return ImageUri(registry, account, region, suffix, repository, match["tag"], match["digest"])


def tag_facts(tag: str) -> TagFacts:
    """The parts of a tag such as ``2.0.1-gpu-py310-cu118-ubuntu20.04-sagemaker``, in any order."""
    words = tag.split("-")
    return TagFacts(
        version=next((one for one in words[:1] if re.fullmatch(r"\d+\.\d+(\.\d+)?", one, re.ASCII)), None),
        processor=next((one for one in words if one in ("gpu", "cpu")), None),
        python=_dotted(words, "py", 1),
        cuda=_dotted(words, "cu", 2),
        transformers=next((one.removeprefix("transformers") for one in words if one.startswith("transformers")), None),
    )


def aws_build(image: ImageUri) -> Build | None:
    """The build in one of AWS's framework images; None for any other image and for an unknown tag."""
    repositories = table("frameworks")["repositories"]
    framework = next((name for name in frameworks() if repositories[name] == image.repository), None)
    facts = tag_facts(image.tag or "")
    if framework is None or not image.is_aws or facts.version is None or facts.processor == "cpu":
        return None
    first = build(framework, facts.version)
    if first is None:
        return None
    candidates = [first, *alternatives(framework, first.version)]
    return next((one for one in candidates if facts.cuda in (None, one.cuda)), None)


def _dotted(words: list[str], prefix: str, major_digits: int) -> str | None:
    """``py310`` -> 3.10, ``cu118`` -> 11.8; None if no word is the prefix and at least two digits."""
    for word in words:
        digits = word.removeprefix(prefix)
        if digits != word and re.fullmatch(rf"\d{{{major_digits + 1},4}}", digits, re.ASCII):
            return f"{digits[:major_digits]}.{digits[major_digits:]}"
    return None


def _aws_repositories() -> frozenset[str]:
    frameworks_table = table("frameworks")
    return frozenset(
        [*frameworks_table["repositories"].values(), *frameworks_table["transformers"]["repositories"].values()]
    )
