"""The STS and IAM calls: the caller's identity, keys for roles, and the descriptions and permissions of roles."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from smdp_launch.localcloud.account import CREATED, AccountFile, Role, matches
from smdp_launch.localcloud.arns import role_arn, role_name
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol import caller, sessions
from smdp_launch.localcloud.protocol.principals import ROLE_ID, Principals, assumed, known_role
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.protocol.sessions import Session
from smdp_launch.localcloud.protocol.signatures import Credentials

_PAGE = 100  # roles, as the service
_HOUR, _HALF_DAY = 3600, 43200  # seconds; the service's defaults of AssumeRole and GetSessionToken


class TokenService:
    def __init__(self, account: AccountFile, principals: Principals, credentials: Credentials) -> None:
        self._account = account
        self._principals = principals
        self._credentials = credentials

    def actions(self) -> dict[str, Action]:
        return checked("sts", self.GetCallerIdentity, self.AssumeRole, self.GetSessionToken)

    def GetCallerIdentity(self, _: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        principal = self._principals.of(caller.holder())
        return {"UserId": principal.user_id, "Account": ACCOUNT, "Arn": principal.arn}

    def AssumeRole(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        """Every caller except a job may assume every role, although `trusts` in `account.yaml` names only services."""
        account, arn, name = self._account.read(), request["RoleArn"], request["RoleSessionName"]
        role, holder = role_name(arn), caller.holder()
        known = known_role(account, role) if arn.split(":")[4] == ACCOUNT else None
        if holder.kind == "role" or known is None:
            principal = self._principals.of(holder).arn
            message = f"User: {principal} is not authorized to perform: sts:AssumeRole on resource: {arn}"
            raise ServiceError("AccessDenied", message, 403)
        session = Session(role, name, int(time.time()) + request.get("DurationSeconds", _HOUR))
        user = assumed(role, name, known)
        return {
            "Credentials": sessions.issue(self._credentials, session),
            "AssumedRoleUser": {"AssumedRoleId": user.user_id, "Arn": user.arn},
        }

    def GetSessionToken(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        if caller.holder().kind != "user":
            raise ServiceError("AccessDenied", "Cannot call GetSessionToken with session credentials", 403)
        session = Session("", "", int(time.time()) + request.get("DurationSeconds", _HALF_DAY))
        return {"Credentials": sessions.issue(self._credentials, session)}


class RoleService:
    def __init__(self, account: AccountFile) -> None:
        self._account = account

    def actions(self) -> dict[str, Action]:
        return checked("iam", self.GetRole, self.ListRoles, self.SimulatePrincipalPolicy)

    def GetRole(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account, name = self._account.read(), request["RoleName"]
        role = known_role(account, name)
        if role is None:
            raise ServiceError("NoSuchEntity", f"The role with name {name} cannot be found.", 404)
        return {"Role": _described(name, role)}

    def ListRoles(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        """An empty list where `account.yaml` lists no roles: then every name is a role."""
        roles = self._account.read().roles or {}
        last, size = request.get("Marker", ""), request.get("MaxItems", _PAGE)
        names = sorted(name for name in roles if name > last and request.get("PathPrefix", "/") == "/")
        answer: dict[str, Any] = {"Roles": [_described(name, roles[name]) for name in names[:size]]}
        more = size < len(names)
        return {**answer, "IsTruncated": more, **({"Marker": names[size - 1]} if more else {})}

    def SimulatePrincipalPolicy(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account, source = self._account.read(), request["PolicySourceArn"]
        denied = account.denied
        if source != account.caller_arn:
            role = known_role(account, role_name(source))
            if role is None:
                raise ServiceError("NoSuchEntity", f"The principal {source} cannot be found.", 404)
            denied = role.denied
        results = [
            _evaluated(action, resource, "explicitDeny" if matches(action, denied) else "allowed")
            for action in request["ActionNames"]
            for resource in request.get("ResourceArns", ["*"])
        ]
        return {"EvaluationResults": results, "IsTruncated": False}


def _evaluated(action: str, resource: str, decision: str) -> Mapping[str, Any]:
    """As IAM answers, the decision is repeated in ResourceSpecificResults."""
    of_resource = {"EvalResourceName": resource, "EvalResourceDecision": decision, "MissingContextValues": []}
    return {
        "EvalActionName": action,
        "EvalResourceName": resource,
        "EvalDecision": decision,
        "MissingContextValues": [],
        "ResourceSpecificResults": [of_resource],
    }


def _described(name: str, role: Role) -> dict[str, Any]:
    allowed = {"Effect": "Allow", "Principal": {"Service": list(role.trusts)}, "Action": "sts:AssumeRole"}
    policy = {"Version": "2012-10-17", "Statement": [allowed]}
    return {
        "Path": "/",
        "RoleName": name,
        "RoleId": ROLE_ID,
        "Arn": role_arn(name),
        "CreateDate": CREATED,
        "AssumeRolePolicyDocument": quote(json.dumps(policy)),
    }
