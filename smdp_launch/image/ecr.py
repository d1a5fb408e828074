"""Amazon ECR: the repository for an image, and a temporary login."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from smdp_launch.errors import EnvironmentProblem, Refused, ServiceProblem
from smdp_launch.image.tools import Login


def repository_uri(ecr: Any, name: str, *, create: bool) -> str:
    """The URI, without a tag, of the account's repository.

    Args:
        ecr: a botocore client.
        create: create the repository if it does not exist.

    Raises:
        Refused: the repository does not exist and ``create`` is not set.
        ServiceProblem: ECR refused or did not answer.
    """
    with _own_errors():
        try:
            repositories = ecr.describe_repositories(repositoryNames=[name])["repositories"]
        except ecr.exceptions.RepositoryNotFoundException:
            if not create:
                raise Refused(f"there is no repository {name!r} in this account and region: add --create") from None
            repositories = [ecr.create_repository(repositoryName=name)["repository"]]
        return str(repositories[0]["repositoryUri"])


def has_image(ecr: Any, name: str, tag: str) -> bool:
    """Whether the repository has an image of that tag."""
    with _own_errors():
        try:
            return bool(ecr.describe_images(repositoryName=name, imageIds=[{"imageTag": tag}])["imageDetails"])
        except ecr.exceptions.ImageNotFoundException:
            return False


def login(ecr: Any) -> tuple[Login, bool]:
    """A login for the account's registry, and whether the registry, a local one, is used without TLS."""
    with _own_errors():
        data = ecr.get_authorization_token()["authorizationData"][0]
        try:
            user, _, password = base64.b64decode(data["authorizationToken"], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise ServiceProblem("ECR answered with a login that cannot be read") from None
    address = urlsplit(data["proxyEndpoint"])
    return Login(address.netloc, user, password), address.scheme == "http"


@contextmanager
def _own_errors() -> Iterator[None]:
    """Convert botocore's errors to errors of this package."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except NoCredentialsError as error:
        raise EnvironmentProblem("no AWS credentials were found: set AWS_PROFILE, or run `aws configure`") from error
    except ClientError as error:
        details = error.response["Error"]
        raise ServiceProblem(f"ECR refused: {details['Code']}: {details['Message']}") from error
    except BotoCoreError as error:
        raise ServiceProblem(f"ECR cannot be reached: {error}") from error
