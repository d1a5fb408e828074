"""Pushes a local image to the account's registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from smdp_launch.catalog.images import parse_image
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.image import ecr as service
from smdp_launch.image.build import Progress, run
from smdp_launch.image.inspection import digests
from smdp_launch.image.tools import ARCHITECTURE, Tool, logged_in

#: The end of the tags that ``image build`` makes: two images with the same tag are then built from the same inputs.
_CONTENT_HASH = re.compile(r"-[0-9a-f]{12}", re.ASCII)


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
        Refused: it is for another processor than that of SageMaker's hosts.
    """
    image = parse_image(reference)
    if image is None or image.registry or image.tag is None:
        raise EnvironmentProblem(f"{reference!r} is not the NAME:TAG of a local image, such as `image build` prints")
    if not tool.has(reference):
        raise EnvironmentProblem(f"{tool.name} has no image {reference}: run `smdp-launch image build`")
    architecture = tool.architecture(reference)
    if architecture != ARCHITECTURE:
        raise Refused(
            f"{reference} is for {architecture or 'an unknown processor'}, and SageMaker's hosts need {ARCHITECTURE}: "
            "build it again with `smdp-launch image build --rebuild`"
        )
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
        Refused: the repository does not exist, and ``create`` is not set; or ``again`` is not set, and the repository
            has another image of that tag.
        ServiceProblem: ECR refused or did not answer.
    """
    uri = f"{service.repository_uri(ecr, image.repository, create=create)}:{image.tag}"
    if not again and service.has_image(ecr, image.repository, image.tag):
        _require_same(image, uri, ecr, tool)
        return Pushed(uri, fresh=False)
    login, plain_http = service.login(ecr)
    # The tag is not removed: `launch --local --containers` finds the image by the URI in the job file.
    tool.add_tag(image.reference, uri)
    with logged_in(login) as logins:
        run(tool.push(uri, plain_http=plain_http, logins=logins), tool.environment(), progress)
    return Pushed(uri, fresh=True)


def _require_same(image: LocalImage, uri: str, ecr: Any, tool: Tool) -> None:
    """Raises Refused if the local image is not the image at ``uri``."""
    if _CONTENT_HASH.fullmatch(image.tag[-13:]):
        return
    login, _ = service.login(ecr)
    if tool.digest(image.reference) not in digests(uri, login):
        raise Refused(
            f"{uri} exists, and is another image than the local {image.reference}: add --again to replace it, or push "
            "the image under the name that `image build` printed"
        )
