"""SMDP801: values that stand for "fill this in". They may be planned with and run here, not launched."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.registries import placeholder_account, placeholder_region
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.rules.facts import Facts, rule


@rule("role", "region", "image")
def placeholders(facts: Facts) -> Iterator[Diagnostic]:
    """Not among the rules of every job: only a launch on AWS asks it."""
    spec = facts.spec
    if f"::{placeholder_account()}:" in spec.role:
        yield facts.problem("SMDP801", "the role is a placeholder", ("role",), "give the ARN of your execution role")
    if spec.region == placeholder_region():
        yield facts.problem(
            "SMDP801", "the region is a placeholder", ("region",), "give your region, such as us-east-1"
        )
    if spec.image is not None and (
        spec.image.startswith(f"{placeholder_account()}.") or f".{placeholder_region()}." in spec.image
    ):
        yield facts.problem("SMDP801", "the image is a placeholder", ("image",), "give the URI of an image you pushed")
