"""Where AWS's images lie, and the values that stand for "fill this in"."""

from __future__ import annotations

from smdp_launch.catalog.frameworks import Build
from smdp_launch.catalog.tables import table


def dns_suffix(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def training_image(build: Build, region: str) -> str:
    """URI of AWS's deep learning container that holds ``build``."""
    registries = table("registries")
    account = registries["accounts"].get(region, registries["default_account"])
    return f"{account}.dkr.ecr.{region}.{dns_suffix(region)}/{build.framework}-training:{build.image_tag}"


def placeholder_account() -> str:
    return str(table("registries")["placeholders"]["account"])


def placeholder_region() -> str:
    return str(table("registries")["placeholders"]["region"])
