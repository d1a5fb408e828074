"""Sends an image of this machine to the account's registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from smdp_launch.catalog.images import parse_image
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.image import ecr as service
from smdp_launch.image.build import Progress, run
from smdp_launch.image.tools import Tool, logged_in


@dataclass(frozen=True)
class Pushed:
    """Where the image lies now. ``fresh``: whether it was sent just now."""

    uri: str
    fresh: bool


@dataclass(frozen=True)
class LocalImage:
    """An image of this machine, such as ``smdp-pytorch:2.0.1-cu118-py310-0123456789ab``."""

    reference: str
    repository: str
    tag: str


def local_image(reference: str, tool: Tool) -> LocalImage:
    """The image of that name.

    Raises:
        EnvironmentProblem: there is none of that name.
    """
    image = parse_image(reference)
    if image is None or image.registry or image.tag is None:
        raise EnvironmentProblem(f"{reference!r} is no NAME:TAG of an image here, such as `image build` prints")
    if not tool.has(reference):
        raise EnvironmentProblem(f"{tool.name} has no image {reference}: `smdp-launch image build` makes one")
    return LocalImage(reference, image.repository, image.tag)


def push(image: LocalImage, ecr: Any, tool: Tool, progress: Progress, *, create: bool, again: bool) -> Pushed:
    """Push an image to the repository of its own name.

    Args:
        image: from ``local_image``.
        ecr: a botocore client.
        create: make the repository where there is none.
        again: push even where that tag is there.

    Raises:
        EnvironmentProblem: the tool failed.
        Refused: no such repository, and ``create`` is not set.
        ServiceProblem: ECR refused or did not answer.
    """
    uri = f"{service.repository_uri(ecr, image.repository, create=create)}:{image.tag}"
    if not again and service.holds(ecr, image.repository, image.tag):
        return Pushed(uri, fresh=False)
    found, plain_http = service.login(ecr)
    # The name stays: `launch --local --containers` finds the image by the URI in the job file.
    tool.name_also(image.reference, uri)
    with logged_in(found) as logins:
        run(tool.push(uri, plain_http=plain_http, logins=logins), tool.environment(), progress)
    return Pushed(uri, fresh=True)
