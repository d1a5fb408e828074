"""URIs of AWS's images."""

from __future__ import annotations

from typing import Protocol

from smdp_launch.catalog.regions import dns_suffix, registry_account
from smdp_launch.catalog.tables import table


class Image(Protocol):
    """A build that has an image of AWS: a framework build, or a transformers pair."""

    @property
    def repository(self) -> str: ...

    @property
    def image_tag(self) -> str: ...


def cpu_image(build: Image, region: str) -> str:
    """The URI of AWS's container for CPUs with ``build``: its tag differs in one word."""
    return training_image(build, region).replace("-gpu-", "-cpu-")


def training_image(build: Image, region: str) -> str:
    """The URI of AWS's deep learning container with ``build``.

    For a region without a known registry, such as the placeholder, it has the account of most regions.
    """
    account = registry_account(region) or table("regions")["registries"]["default_account"]
    return f"{account}.dkr.ecr.{region}.{dns_suffix(region)}/{build.repository}:{build.image_tag}"
