"""AWS's inference images."""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.catalog.frameworks import matches
from smdp_launch.catalog.hosting.instances import has_gpus, has_other_accelerators, is_arm
from smdp_launch.catalog.regions import dns_suffix, registry_account
from smdp_launch.catalog.tables import table


class InferenceBuild(NamedTuple):
    """One framework version in AWS's inference images; ``python`` is None if the tag does not name it."""

    framework: str
    version: str
    python: str | None


def inference_build(framework: str, version: str) -> InferenceBuild | None:
    """The build of ``version``; "2.0" means the newest 2.0.x."""
    known = table("hosting")["builds"][framework]
    full = version if version in known else next((one for one in reversed(known) if matches(one, version)), None)
    return InferenceBuild(framework, full, known[full]) if full is not None else None


def inference_versions(framework: str) -> list[str]:
    return list(table("hosting")["builds"][framework])


def inference_image(framework: str, version: str, region: str, instance_type: str | None) -> str | None:
    """The URI of AWS's inference image; None if the catalogue does not know one.

    Args:
        instance_type: selects the image for GPUs or for CPUs; None for a serverless endpoint, which has no GPUs.
    """
    known = inference_build(framework, version)
    if known is None:
        return None
    if instance_type is not None and (is_arm(instance_type) or has_other_accelerators(instance_type)):
        return None
    # For a region without a known registry, such as the placeholder, the account of most regions.
    account = registry_account(region) or table("regions")["registries"]["default_account"]
    processor = "gpu" if instance_type is not None and has_gpus(instance_type) else "cpu"
    python = f"-py{known.python.replace('.', '')}" if known.python is not None else ""
    repository = table("hosting")["repositories"][framework]
    return f"{account}.dkr.ecr.{region}.{dns_suffix(region)}/{repository}:{known.version}-{processor}{python}"


def installed_packages(framework: str) -> frozenset[str] | None:
    """The top-level modules that the inference image has besides the standard library; None if they are not known."""
    known = table("hosting")["packages"].get(framework)
    return frozenset(known) if known is not None else None


def distribution_of(module: str) -> str:
    """The name under which a package index has a top-level module, such as ``scikit-learn`` for ``sklearn``."""
    return str(table("hosting")["distributions"].get(module, module)).lower().replace("_", "-")


def most_payload(kind: str) -> int | None:
    """Bytes that one request may have; None if no document says so."""
    limit: int | None = table("hosting")["payloads"]["bytes"].get(kind)
    return limit


def longest_answer(kind: str) -> int:
    """Seconds after which SageMaker ends a request."""
    seconds: int = table("hosting")["answers"]["seconds"][kind]
    return seconds
