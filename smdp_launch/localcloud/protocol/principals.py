"""The principal of a call, and its denied actions: the account's caller, a session of a role, or the role of a job."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from smdp_launch.localcloud.account import Account, AccountFile, Role
from smdp_launch.localcloud.arns import role_name
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.files import read_json
from smdp_launch.localcloud.layout import EndpointFolder, JobFolder, StateFolder
from smdp_launch.localcloud.protocol import sessions
from smdp_launch.localcloud.protocol.signatures import Holder, job_hash

ROLE_ID = "AROALOCAL"
_NOTHING = Role(denied=("*",))
_SERVICE = "SageMaker"  # the platform's name for its sessions of a job's role


@dataclass(frozen=True)
class Principal:
    """Args:
    denied: patterns of actions, such as `s3:*`.
    """

    arn: str
    user_id: str
    denied: tuple[str, ...]


class Principals:
    """Any thread may call the methods."""

    def __init__(self, account: AccountFile, state: StateFolder) -> None:
        self._account = account
        self._state = state
        self._lock = threading.Lock()
        self._places: dict[str, tuple[JobFolder | EndpointFolder, str]] = {}  # by job_hash, with the variant's name

    def of(self, holder: Holder) -> Principal:
        """The principal of the keys' holder.

        The platform's agents act with the role of their job or, without a job, without denials. A role or a job that
        no longer exists may do nothing.
        """
        account = self._account.read()
        if holder.kind == "agent" and not holder.job:
            return assumed(_SERVICE, _SERVICE, Role())
        if holder.kind == "session":
            session = sessions.read(holder.token)
            if session.role:
                return assumed(session.role, session.name, known_role(account, session.role) or _NOTHING)
        if holder.kind in ("user", "session"):
            return Principal(account.caller_arn, "AIDALOCAL", account.denied)
        name = self._role(holder.job)
        return assumed(name, _SERVICE, (known_role(account, name) if name else None) or _NOTHING)

    def _role(self, job: str) -> str:
        """The name of the role of a job or of an endpoint's variant, read from the request each time: a deleted job's
        name may be used again."""
        with self._lock:
            if job not in self._places:
                self._places |= {job_hash(folder.name): (folder, "") for folder in self._state.job_folders()}
                self._places |= _of_endpoints(self._state)
            place = self._places.get(job)
        if place is None:
            return ""
        folder, variant = place
        return _model_role(folder, variant) if isinstance(folder, EndpointFolder) else _job_role(folder)


def _of_endpoints(state: StateFolder) -> dict[str, tuple[EndpointFolder, str]]:
    return {
        job_hash(folder.principal(variant)): (folder, variant)
        for folder in (*state.endpoint_folders(), *state.transform_folders())
        for variant in _variants(folder)
    }


def _variants(folder: EndpointFolder) -> dict[str, dict[str, object]]:
    """The models of the endpoint's variants, by the variants' names."""
    record = read_json(folder.deployment) or {"variants": []}
    return {one["VariantName"]: one["Model"] for one in record["variants"]}


def _model_role(folder: EndpointFolder, variant: str) -> str:
    return role_name(str(_variants(folder).get(variant, {}).get("ExecutionRoleArn", "")))


def _job_role(folder: JobFolder) -> str:
    request = read_json(folder.request)
    return role_name(str(request["RoleArn"])) if request else ""


def known_role(account: Account, name: str) -> Role | None:
    return Role() if account.roles is None else account.roles.get(name)


def assumed(role: str, session: str, known: Role) -> Principal:
    """The principal of a session of a role."""
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/{session}"
    return Principal(arn, f"{ROLE_ID}:{session}", known.denied)
