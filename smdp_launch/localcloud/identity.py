"""The STS and IAM calls that tell who calls, and what a role is and may do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from smdp_launch.localcloud.account import Account, AccountFile, Role, matches
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.requests import Action, Parameters, checked

_CREATED = 1_700_000_000.0  # seconds; the roles of the file have no date of their own


class TokenService:
    def __init__(self, account: AccountFile) -> None:
        self._account = account

    def actions(self) -> dict[str, Action]:
        return checked("sts", self.GetCallerIdentity)

    def GetCallerIdentity(self, _: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        account = self._account.read()
        return {"UserId": "AIDALOCAL", "Account": ACCOUNT, "Arn": account.caller_arn}


class RoleService:
    def __init__(self, account: AccountFile) -> None:
        self._account = account

    def actions(self) -> dict[str, Action]:
        return checked("iam", self.GetRole, self.SimulatePrincipalPolicy)

    def GetRole(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account, name = self._account.read(), request["RoleName"]
        role = _role(account, name)
        if role is None:
            raise ServiceError("NoSuchEntity", f"The role with name {name} cannot be found.", 404)
        allowed = {"Effect": "Allow", "Principal": {"Service": list(role.trusts)}, "Action": "sts:AssumeRole"}
        policy = {"Version": "2012-10-17", "Statement": [allowed]}
        found = {
            "Path": "/",
            "RoleName": name,
            "RoleId": "AROALOCAL",
            "Arn": f"arn:aws:iam::{ACCOUNT}:role/{name}",
            "CreateDate": _CREATED,
            "AssumeRolePolicyDocument": quote(json.dumps(policy)),
        }
        return {"Role": found}

    def SimulatePrincipalPolicy(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        account, source = self._account.read(), request["PolicySourceArn"]
        denied = account.denied
        if source != account.caller_arn:
            role = _role(account, source.rpartition("/")[2])
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
    """The decision comes again with the resource, where IAM also names the context keys that it missed."""
    of_resource = {"EvalResourceName": resource, "EvalResourceDecision": decision, "MissingContextValues": []}
    return {
        "EvalActionName": action,
        "EvalResourceName": resource,
        "EvalDecision": decision,
        "MissingContextValues": [],
        "ResourceSpecificResults": [of_resource],
    }


def _role(account: Account, name: str) -> Role | None:
    return Role() if account.roles is None else account.roles.get(name)
