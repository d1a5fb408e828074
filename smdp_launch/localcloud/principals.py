"""Who makes a call: the account's caller, a session of a role, or the role of a job, and what each may not do."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from smdp_launch.localcloud import sessions
from smdp_launch.localcloud.account import Account, AccountFile, Role
from smdp_launch.localcloud.arns import role_name
from smdp_launch.localcloud.auth import Holder, mark
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.files import read_json
from smdp_launch.localcloud.layout import StateFolder

ROLE_ID = "AROALOCAL"
_SERVICE = "SageMaker"  # how the platform names its sessions of a job's role


@dataclass(frozen=True)
class Principal:
    """Args:
    denied: patterns of actions, such as `s3:*`.
    """

    arn: str
    user_id: str
    denied: tuple[str, ...]


class Principals:
    """Any thread may ask."""

    def __init__(self, account: AccountFile, state: StateFolder) -> None:
        self._account = account
        self._state = state
        self._lock = threading.Lock()
        self._roles: dict[str, str] = {}  # ARNs by the marks of jobs, which keep their role for good

    def of(self, holder: Holder) -> Principal:
        """The platform's agents act with the role of the job that they work for, or, for none, without denials."""
        account = self._account.read()
        if holder.kind == "session":
            session = sessions.read(holder.token)
            if session.role:
                # A role that has left the file since may do nothing.
                return _assumed(session.role, session.name, known_role(account, session.role) or Role(denied=("*",)))
        if holder.kind in ("person", "session"):
            return Principal(account.caller_arn, "AIDALOCAL", account.denied)
        name = self._role(holder.job)
        return _assumed(name, _SERVICE, (account.roles or {}).get(name, Role()))

    def _role(self, job: str) -> str:
        """Name of the job's role."""
        with self._lock:
            if job and job not in self._roles:
                self._roles |= self._known()
            return role_name(self._roles.get(job, ""))

    def _known(self) -> dict[str, str]:
        requests = {mark(folder.name): read_json(folder.request) for folder in self._state.job_folders()}
        return {job: str(request["RoleArn"]) for job, request in requests.items() if request}


def known_role(account: Account, name: str) -> Role | None:
    return Role() if account.roles is None else account.roles.get(name)


def _assumed(role: str, session: str, known: Role) -> Principal:
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/{session}"
    return Principal(arn, f"{ROLE_ID}:{session}", known.denied)
