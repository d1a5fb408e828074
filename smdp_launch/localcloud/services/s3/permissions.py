"""The permissions that an object request needs, and whether `account.yaml` denies them.

The account's `denied` applies to the user. The `denied` of a role applies to the role's sessions, to the keys of a job
with that role, and to the supervisor, which downloads and uploads for the job: on AWS the platform does that with the
execution role.
"""

from __future__ import annotations

from dataclasses import dataclass

from smdp_launch.localcloud.account import matches
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.principals import Principals
from smdp_launch.localcloud.protocol.signatures import Holder
from smdp_launch.localcloud.services.s3.s3_call import Call

#: Actions by method; some calls with a parameter need another action.
_OF_BUCKETS = {"GET": "s3:ListBucket", "HEAD": "s3:ListBucket", "PUT": "s3:CreateBucket", "DELETE": "s3:DeleteBucket"}
_OF_OBJECTS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "DELETE": "s3:DeleteObject"}


@dataclass(frozen=True)
class Need:
    """An action on a resource, which is `BUCKET`, `BUCKET/KEY` or `*`."""

    action: str
    resource: str

    @property
    def arn(self) -> str:
        return self.resource if self.resource == "*" else f"arn:aws:s3:::{self.resource}"


def needs(call: Call) -> list[Need]:
    if not call.bucket:
        return [Need("s3:ListAllMyBuckets", "*")]
    if not call.key:
        return [Need(_of_bucket(call), call.bucket)]
    need = Need(_of_object(call), f"{call.bucket}/{call.key}")
    return [Need("s3:GetObject", call.source), need] if call.is_copy else [need]


def _of_bucket(call: Call) -> str:
    if call.method == "GET" and "location" in call.query:
        return "s3:GetBucketLocation"
    if call.method == "GET" and "uploads" in call.query:
        return "s3:ListBucketMultipartUploads"
    if call.method == "POST":
        return "s3:DeleteObject"
    return _OF_BUCKETS[call.method]


def _of_object(call: Call) -> str:
    if call.upload is not None and call.method in ("GET", "DELETE"):
        return "s3:ListMultipartUploadParts" if call.method == "GET" else "s3:AbortMultipartUpload"
    return _OF_OBJECTS.get(call.method, "s3:PutObject")


class Permissions:
    """Any thread may call the methods."""

    def __init__(self, principals: Principals) -> None:
        self._principals = principals

    def denial(self, holder: Holder, need: Need) -> ServiceError | None:
        """The error where `account.yaml` denies the action; otherwise None."""
        principal = self._principals.of(holder)
        if not matches(need.action, principal.denied):
            return None
        return ServiceError(
            "AccessDenied",
            f"User: {principal.arn} is not authorized to perform: {need.action} on resource: "
            f'"{need.arn}" with an explicit deny in an identity-based policy',
            403,
        )
