"""The ECR calls that a push needs. A file lists the repositories; the image registry stores the images."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.files import read_json, write_json
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.services.registry import USER, Registry

_NAME = re.compile(r"(?=.{2,256}$)[a-z0-9]+(?:[._-][a-z0-9]+)*(?:/[a-z0-9]+(?:[._-][a-z0-9]+)*)*")  # the service's own
_TOKEN_LIFE = 12 * 3600  # seconds, as the service


class RegistryService:
    def __init__(self, registry: Registry, account: AccountFile) -> None:
        self._registry = registry
        self._account = account
        self._lock = threading.Lock()

    def actions(self) -> dict[str, Action]:
        calls = (self.GetAuthorizationToken, self.CreateRepository, self.DescribeRepositories, self.DescribeImages)
        return checked("ecr", *calls)

    def GetAuthorizationToken(self, _: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        host = self._registry.require()
        token = base64.b64encode(f"{USER}:{self._registry.password}".encode()).decode()
        expires = time.time() + _TOKEN_LIFE
        data = {"authorizationToken": token, "expiresAt": expires, "proxyEndpoint": f"http://{host}"}
        return {"authorizationData": [data]}

    def CreateRepository(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        name = request["repositoryName"]
        if not _NAME.fullmatch(name):
            raise ServiceError("InvalidParameterException", f"{name!r} is not a repository name")
        host = self._registry.require()
        with self._lock:
            repositories = self._repositories()
            if name in repositories:
                message = f"The repository with name '{name}' already exists"
                raise ServiceError("RepositoryAlreadyExistsException", message)
            repositories[name] = time.time()
            write_json(self._registry.folder / "repositories.json", repositories)
        return {"repository": _describe(name, repositories[name], host)}

    def DescribeRepositories(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        host, repositories = self._registry.require(), self._repositories()
        names = request.get("repositoryNames") or sorted(repositories)
        for name in names:
            _require(name, repositories)
        return {"repositories": [_describe(name, repositories[name], host) for name in names]}

    def DescribeImages(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        name = request["repositoryName"]
        if request.get("registryId", ACCOUNT) != ACCOUNT:
            return self._of_other_account(request)
        _require(name, self._repositories())
        self._registry.require()
        references = [one.get("imageTag") or one.get("imageDigest", "") for one in request.get("imageIds", [])]
        return {"imageDetails": [self._image(name, reference) for reference in references or self._tags(name)]}

    def _of_other_account(self, request: Parameters) -> Mapping[str, Any]:
        """Images of another account: those that `account.yaml` lists."""
        name, listed = request["repositoryName"], self._account.read().images
        if listed is None:
            raise ServiceError("AccessDeniedException", "The local cloud has only the images of its own account.")
        _require(name, {one.partition(":")[0]: 0.0 for one in listed})
        tags = [one.get("imageTag", "") for one in request.get("imageIds", [])]
        for tag in tags:
            if f"{name}:{tag}" not in listed:
                raise _no_image(name, tag)
        return {"imageDetails": [{"repositoryName": name, "imageTags": [tag]} for tag in tags]}

    def _image(self, name: str, reference: str) -> dict[str, Any]:
        answer = self._registry.fetch(f"{name}/manifests/{reference}")
        if answer is None:
            raise _no_image(name, reference)
        digest, body = answer
        manifest = json.loads(body)
        return {
            "registryId": ACCOUNT,
            "repositoryName": name,
            "imageDigest": digest,
            "imageTags": [] if reference.startswith("sha256:") else [reference],
            "imageSizeInBytes": sum(layer["size"] for layer in manifest.get("layers", [])),
            "imageManifestMediaType": manifest["mediaType"],
        }

    def _tags(self, name: str) -> list[str]:
        answer = self._registry.fetch(f"{name}/tags/list")
        return [] if answer is None else json.loads(answer[1]).get("tags") or []

    def _repositories(self) -> dict[str, float]:
        """Names, each with its time of creation."""
        return dict(read_json(self._registry.folder / "repositories.json") or {})


def _describe(name: str, created: float, host: str) -> dict[str, Any]:
    return {
        "repositoryArn": f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/{name}",
        "registryId": ACCOUNT,
        "repositoryName": name,
        "repositoryUri": f"{host}/{name}",
        "createdAt": created,
    }


def _require(name: str, repositories: Mapping[str, float]) -> None:
    if name not in repositories:
        message = f"The repository with name '{name}' does not exist in the registry with id '{ACCOUNT}'"
        raise ServiceError("RepositoryNotFoundException", message)


def _no_image(name: str, reference: str) -> ServiceError:
    message = f"The image with imageId {reference!r} does not exist in '{name}'"
    return ServiceError("ImageNotFoundException", message)
