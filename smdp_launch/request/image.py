"""The training image of a job."""

from __future__ import annotations

from smdp_launch.catalog.frameworks import Build, build
from smdp_launch.catalog.registries import cpu_image, training_image
from smdp_launch.catalog.transformers import Pair, pair
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.batch import on_cpus


def image(spec: JobSpec) -> str:
    """The job file's image, or else AWS's image for the framework and the transformers version.

    Raises:
        ValueError: there is none. A rule reports that before a request is built.
    """
    if spec.image is not None:
        return spec.image
    framework = spec.framework
    known: Build | Pair | None = build(framework.name, framework.version)
    if framework.transformers is not None:
        known = pair(framework.transformers, framework.name, framework.version)
    if known is None:
        raise ValueError(f"no image of {framework.name} {framework.version}")
    return cpu_image(known, spec.region) if on_cpus(spec) else training_image(known, spec.region)
