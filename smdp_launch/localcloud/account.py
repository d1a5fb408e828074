"""What the account of a local cloud has: `account.yaml` in the state folder, typed, read anew when it changed.

Without the file the account takes any role, has room for a thousand instances of every type, and one VPC with one
subnet, one security group that is fit for EFA, FSx and EFS, and a route to S3.
"""

from __future__ import annotations

import fnmatch
import re
import threading
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from smdp_launch.catalog.local_cloud import THIS_MACHINE
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError

FILE = "account.yaml"
VPC = "vpc-00000000000000001"
SUBNET = "subnet-00000000000000001"
GROUP = "sg-00000000000000001"


def _with_a_home(folder: str) -> str:
    try:
        Path(folder).expanduser()
    except RuntimeError:
        raise ValueError(f"nobody's home folder is known as {folder.partition('/')[0]}") from None
    return folder


def _not_this_machine(name: str) -> str:
    if name == THIS_MACHINE:
        raise ValueError("it is this machine itself, at its own paths: give the entry another id, or leave it out")
    return name


FileSystemId = Annotated[str, AfterValidator(_not_this_machine)]
Folder = Annotated[str, AfterValidator(_with_a_home)]
Ports = Annotated[str, StringConstraints(pattern=r"^(all|\d{1,5}(-\d{1,5})?)$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Role(_Model):
    """`trusts`: services that may take the role. `denied`: actions it may not do, such as `s3:*`."""

    trusts: tuple[str, ...] = ("sagemaker.amazonaws.com",)
    denied: tuple[str, ...] = ()


class Subnet(_Model):
    """`addresses`: how many are free. `s3`: whether a route leads to S3, through a gateway endpoint of the VPC."""

    vpc: str = VPC
    zone: str = "us-east-1a"
    addresses: int = 250
    s3: bool = True


class Rule(_Model):
    """`ports`: `988`, `1018-1023` or `all`, which is every protocol. `peer`: a security group or a range of
    addresses."""

    ports: Ports
    peer: str


class SecurityGroup(_Model):
    vpc: str = VPC
    inbound: tuple[Rule, ...] = ()
    outbound: tuple[Rule, ...] = (Rule(ports="all", peer="0.0.0.0/0"),)


class Fsx(_Model):
    """`folder`: stands for the file system in jobs, relative to the account's file."""

    folder: Folder | None = None
    subnets: tuple[str, ...] = (SUBNET,)
    groups: tuple[str, ...] = (GROUP,)
    mount_name: str = "fsx"


class Efs(_Model):
    """`targets`: security groups of the mount target in each subnet. `folder`: as that of FSx."""

    folder: Folder | None = None
    targets: dict[str, tuple[str, ...]] = Field(default={SUBNET: (GROUP,)})


def _group() -> SecurityGroup:
    itself = Rule(ports="all", peer=GROUP)
    return SecurityGroup(inbound=(itself,), outbound=(itself, Rule(ports="all", peer="0.0.0.0/0")))


class Account(_Model):
    """`roles`: None for any. `quotas`: instances of training jobs at once, by type. `denied`: calls that the caller may
    not make, such as `iam:GetRole` or `ec2:*`. `images`: NAME:TAG of all that other accounts' registries hold; None
    where they may not be asked. `longest_run`: seconds that a training job may have; AWS's own default.
    `role_account`: whose roles a job may have; None for any account's, since job files name roles of real accounts."""

    caller: str = "user/local"
    denied: tuple[str, ...] = ()
    roles: dict[str, Role] | None = None
    role_account: Annotated[str, StringConstraints(pattern=r"^\d{12}$")] | None = None
    images: tuple[str, ...] | None = None
    quotas: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    quota: Annotated[int, Field(ge=0)] = 1000
    longest_run: Annotated[int, Field(ge=1)] = 432_000
    subnets: dict[str, Subnet] = Field(default_factory=lambda: {SUBNET: Subnet()})
    security_groups: dict[str, SecurityGroup] = Field(default_factory=lambda: {GROUP: _group()})
    fsx: dict[FileSystemId, Fsx] = Field(default_factory=dict)
    efs: dict[FileSystemId, Efs] = Field(default_factory=dict)

    @property
    def caller_arn(self) -> str:
        return f"arn:aws:iam::{ACCOUNT}:{self.caller}"

    def lists(self, name: str) -> bool:
        """Whether the file says what there is of it; else there is a default."""
        return name in self.model_fields_set

    def room(self, instance_type: str) -> int:
        return self.quotas.get(instance_type, self.quota)


def matches(action: str, patterns: tuple[str, ...]) -> bool:
    """As IAM compares: `*` and `?`, capitals are no different."""
    return any(fnmatch.fnmatchcase(action.lower(), one.lower()) for one in patterns)


class AccountFile:
    """The account as the file says now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._account = Account()

    def place(self, folder: str) -> Path:
        """Where a folder lies that the file names."""
        return self.folder / Path(folder).expanduser()

    def read(self) -> Account:
        """Raises ServiceError with the file's mistake, which every call is answered with until it is mended."""
        with self._lock:
            try:
                status = self._path.stat()
            except OSError:
                self._stamp, self._account = None, Account()
                return self._account
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._account = _parsed(self._path)
                self._stamp = stamp
            return self._account


def _parsed(path: Path) -> Account:
    try:
        return Account.model_validate(_as_tuples(YAML(typ="safe", pure=True).load(StringIO(path.read_text())) or {}))
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    except (YAMLError, UnicodeDecodeError, OSError) as error:
        told = re.sub(r"\s+", " ", str(error))
    raise ServiceError("InternalFailure", f"{path} cannot be used: {told}", 500)


def _as_tuples(value: Any) -> Any:
    """A sequence of YAML is a list, which strict models take for no tuple."""
    if isinstance(value, list):
        return tuple(map(_as_tuples, value))
    return {name: _as_tuples(one) for name, one in value.items()} if isinstance(value, dict) else value
