"""Values that stand for "fill this in". They may be planned with and run here, not launched."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.registries import placeholder_account, placeholder_region
from smdp_launch.rules.facts import Facts, Finding, rule


@rule("SMDP801", "role", "region", "image", on_launch=True)
def placeholders(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    if f"::{placeholder_account()}:" in spec.role:
        yield Finding(("role",), "the role is a placeholder", "give the ARN of your execution role")
    if spec.region == placeholder_region():
        yield Finding(("region",), "the region is a placeholder", "give your region, such as us-east-1")
    if spec.image is not None and (
        spec.image.startswith(f"{placeholder_account()}.") or f".{placeholder_region()}." in spec.image
    ):
        yield Finding(("image",), "the image is a placeholder", "give the URI of an image you pushed")
