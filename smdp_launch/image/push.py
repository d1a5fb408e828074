"""Pushes a local image to the account's registry."""

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
    """An image in the registry. ``fresh``: whether this run pushed it."""

    uri: str
    fresh: bool


@dataclass(frozen=True)
class LocalImage:
    """A local image, such as ``smdp-pytorch:2.0.1-cu118-py310-0123456789ab``."""

    reference: str
    repository: str
    tag: str


def local_image(reference: str, tool: Tool) -> LocalImage:
    """The local image ``reference``.

    Raises:
        EnvironmentProblem: there is no such image.
    """
    image = parse_image(reference)
    if image is None or image.registry or image.tag is None:
        raise EnvironmentProblem(f"{reference!r} is not the NAME:TAG of a local image, such as `image build` prints")
    if not tool.has(reference):
        raise EnvironmentProblem(f"{tool.name} has no image {reference}: run `smdp-launch image build`")
    return LocalImage(reference, image.repository, image.tag)


def push(image: LocalImage, ecr: Any, tool: Tool, progress: Progress, *, create: bool, again: bool) -> Pushed:
    """Push an image to the repository of its own name.

    Args:
        image: from ``local_image``.
        ecr: a botocore client.
        create: create the repository if it does not exist.
        again: push the image even if the repository has that tag.

    Raises:
        EnvironmentProblem: the tool failed.
        Refused: the repository does not exist, and ``create`` is not set.
        ServiceProblem: ECR refused or did not answer.
    """
    uri = f"{service.repository_uri(ecr, image.repository, create=create)}:{image.tag}"
    if not again and service.has_image(ecr, image.repository, image.tag):
        return Pushed(uri, fresh=False)
    login, plain_http = service.login(ecr)
    # The tag is not removed: `launch --local --containers` finds the image by the URI in the job file.
    tool.add_tag(image.reference, uri)
    with logged_in(login) as logins:
        run(tool.push(uri, plain_http=plain_http, logins=logins), tool.environment(), progress)
    return Pushed(uri, fresh=True)
