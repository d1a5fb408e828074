"""The ECR calls that a push needs. Repositories are a file, images are what the registry beside us holds."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import urllib.error
import urllib.request
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
_KINDS = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"


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
            raise _refused("InvalidParameterException", f"{name!r} is not a repository name")
        host = self._registry.require()
        with self._lock:
            known = self._repositories()
            if name in known:
                raise _refused("RepositoryAlreadyExistsException", f"The repository with name '{name}' already exists")
            known[name] = time.time()
            write_json(self._registry.folder / "repositories.json", known)
        return {"repository": _describe(name, known[name], host)}

    def DescribeRepositories(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        host, known = self._registry.require(), self._repositories()
        wanted = request.get("repositoryNames") or sorted(known)
        for name in wanted:
            _require(name, known)
        return {"repositories": [_describe(name, known[name], host) for name in wanted]}

    def DescribeImages(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        name = request["repositoryName"]
        if request.get("registryId", ACCOUNT) != ACCOUNT:
            return self._elsewhere(request)
        _require(name, self._repositories())
        self._registry.require()
        wanted = [one.get("imageTag") or one.get("imageDigest", "") for one in request.get("imageIds", [])]
        found = [self._image(name, reference) for reference in wanted or self._tags(name)]
        return {"imageDetails": found}

    def _elsewhere(self, request: Parameters) -> Mapping[str, Any]:
        """Another account's images: those that the account's file lists, if it lists any."""
        name, listed = request["repositoryName"], self._account.read().images
        if listed is None:
            raise _refused("AccessDeniedException", "The local cloud has the images of its own account alone.")
        _require(name, {one.partition(":")[0]: 0.0 for one in listed})
        tags = [one.get("imageTag", "") for one in request.get("imageIds", [])]
        for tag in tags:
            if f"{name}:{tag}" not in listed:
                raise _refused("ImageNotFoundException", f"The image with imageId {tag!r} does not exist in '{name}'")
        return {"imageDetails": [{"repositoryName": name, "imageTags": [tag]} for tag in tags]}

    def _image(self, name: str, reference: str) -> dict[str, Any]:
        answer = self._ask(f"{name}/manifests/{reference}")
        if answer is None:
            raise _refused("ImageNotFoundException", f"The image with imageId {reference!r} does not exist in '{name}'")
        digest, body = answer
        manifest = json.loads(body)
        size = sum(layer["size"] for layer in manifest.get("layers", []))
        tags = [] if reference.startswith("sha256:") else [reference]
        found = {"registryId": ACCOUNT, "repositoryName": name, "imageDigest": digest}
        return {**found, "imageTags": tags, "imageSizeInBytes": size, "imageManifestMediaType": manifest["mediaType"]}

    def _tags(self, name: str) -> list[str]:
        answer = self._ask(f"{name}/tags/list")
        return [] if answer is None else json.loads(answer[1]).get("tags") or []

    def _ask(self, path: str) -> tuple[str, bytes] | None:
        """Digest and body of what the registry has there; None where it has nothing."""
        word = base64.b64encode(f"{USER}:{self._registry.password}".encode()).decode()
        request = urllib.request.Request(
            f"http://{self._registry.host}/v2/{path}", headers={"Authorization": f"Basic {word}", "Accept": _KINDS}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.headers.get("Docker-Content-Digest", ""), answer.read()
        except urllib.error.HTTPError as error:
            if error.code in (400, 404):
                return None
            raise

    def _repositories(self) -> dict[str, float]:
        """Names, with the time each was made."""
        return dict(read_json(self._registry.folder / "repositories.json") or {})


def _describe(name: str, created: float, host: str) -> dict[str, Any]:
    return {
        "repositoryArn": f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/{name}",
        "registryId": ACCOUNT,
        "repositoryName": name,
        "repositoryUri": f"{host}/{name}",
        "createdAt": created,
    }


def _require(name: str, known: Mapping[str, float]) -> None:
    if name not in known:
        message = f"The repository with name '{name}' does not exist in the registry with id '{ACCOUNT}'"
        raise _refused("RepositoryNotFoundException", message)


def _refused(code: str, message: str) -> ServiceError:
    return ServiceError(code, message)
