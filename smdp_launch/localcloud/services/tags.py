"""The calls about the tags of any SageMaker resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked

MAX_TAGS = 50  # of one resource, on AWS


class Tagged(Protocol):
    """Resources of one kind in the caller's region. The methods raise ServiceError for an unknown name."""

    def tags(self, name: str) -> Mapping[str, str]: ...
    def change_tags(self, name: str, added: Mapping[str, str], removed: Iterable[str]) -> None: ...


class TagService:
    def __init__(self, kinds: Mapping[str, Tagged]) -> None:
        """`kinds`: by the resource's kind in its ARN, such as `training-job`."""
        self._kinds = kinds

    def actions(self) -> dict[str, Action]:
        return checked("sagemaker", self.ListTags, self.AddTags, self.DeleteTags)

    def ListTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        resources, name = self._find(request["ResourceArn"])
        return {"Tags": tag_list(resources.tags(name))}

    def AddTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        check_tags(request["Tags"])
        resources, name = self._find(request["ResourceArn"])
        added = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        if len({**resources.tags(name), **added}) > MAX_TAGS:
            raise ServiceError("ResourceLimitExceeded", f"A resource may have {MAX_TAGS} tags.")
        resources.change_tags(name, added, ())
        return {"Tags": tag_list(resources.tags(name))}

    def DeleteTags(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        resources, name = self._find(request["ResourceArn"])
        resources.change_tags(name, {}, request["TagKeys"])
        return {}

    def _find(self, arn: str) -> tuple[Tagged, str]:
        head = f"arn:aws:sagemaker:{caller.region()}:{ACCOUNT}:"
        kind, _, name = arn.removeprefix(head).partition("/")
        resources = self._kinds.get(kind) if arn.startswith(head) else None
        if resources is None:
            raise validation("Requested resource not found.")
        return resources, name


def check_tags(tags: Iterable[Mapping[str, str]]) -> None:
    """Raises ServiceError for a key that is used twice or reserved."""
    keys = [tag["Key"] for tag in tags]
    if len(keys) != len(set(keys)):
        raise validation("Duplicate tag key")
    reserved = [key for key in keys if key.lower().startswith("aws:")]
    if reserved:
        raise validation(
            f"Tag key {reserved[0]!r} is not allowed: keys that begin with aws: are reserved for system use"
        )


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def of_request(request: Parameters) -> dict[str, str]:
    """The tags that a Create call sets."""
    return {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
