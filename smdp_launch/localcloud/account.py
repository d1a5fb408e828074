"""The account of a local cloud: `account.yaml` in the state folder, typed, and read again when it has changed.

Without the file the account accepts any role, has a quota of a thousand instances of every type, and one VPC with one
subnet, one security group that allows EFA, FSx and EFS, and a route to S3.
"""

from __future__ import annotations

import fnmatch
import re
import threading
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from smdp_launch.catalog.local_cloud import THIS_MACHINE
from smdp_launch.localcloud.environment import ACCOUNT
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.layout import ACCOUNT_FILE

FILE = ACCOUNT_FILE
VPC = "vpc-00000000000000001"
SUBNET = "subnet-00000000000000001"
GROUP = "sg-00000000000000001"
CREATED = 1_700_000_000.0  # seconds since 1970: the creation time of all resources, for which the file has no field


def _with_known_home(folder: str) -> str:
    try:
        Path(folder).expanduser()
    except RuntimeError:
        raise ValueError(f"{folder.partition('/')[0]} is not the home folder of a known user") from None
    return folder


def _not_this_machine(name: str) -> str:
    if name == THIS_MACHINE:
        raise ValueError("this id means this machine's own files: give the entry another id, or leave it out")
    return name


FileSystemId = Annotated[str, AfterValidator(_not_this_machine)]
Folder = Annotated[str, AfterValidator(_with_known_home)]
Ports = Annotated[str, StringConstraints(pattern=r"^(all|\d{1,5}(-\d{1,5})?)$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Role(_Model):
    """`trusts`: services that may assume the role. `denied`: actions that the role may not do, such as `s3:*`."""

    trusts: tuple[str, ...] = ("sagemaker.amazonaws.com",)
    denied: tuple[str, ...] = ()


class Subnet(_Model):
    """`addresses`: number of free ones. `s3`: whether a gateway endpoint of the VPC gives a route to S3; `interface`:
    the VPC has an interface endpoint with private DNS, which needs no route."""

    vpc: str = VPC
    zone: str = "us-east-1a"
    addresses: int = 250
    s3: bool | Literal["interface"] = True


class Rule(_Model):
    """`ports`: `988`, `1018-1023` or `all` (every protocol too). `peer`: a security group or an address range."""

    ports: Ports
    peer: str


class SecurityGroup(_Model):
    vpc: str = VPC
    inbound: tuple[Rule, ...] = ()
    outbound: tuple[Rule, ...] = (Rule(ports="all", peer="0.0.0.0/0"),)


class Fsx(_Model):
    """`folder`: the file system's content in jobs, relative to `account.yaml`."""

    folder: Folder | None = None
    subnets: tuple[str, ...] = (SUBNET,)
    groups: tuple[str, ...] = (GROUP,)
    mount_name: str = "fsx"


class Efs(_Model):
    """`targets`: security groups of the mount target in each subnet. `folder`: as in `Fsx`."""

    folder: Folder | None = None
    targets: dict[str, tuple[str, ...]] = Field(default={SUBNET: (GROUP,)})


class TrainingPlan(_Model):
    """Reserved capacity: `count` instances of `type`. `status` is one of the service's."""

    type: str
    count: Annotated[int, Field(ge=1)] = 1
    status: str = "Active"


def _group() -> SecurityGroup:
    itself = Rule(ports="all", peer=GROUP)
    return SecurityGroup(inbound=(itself,), outbound=(itself, Rule(ports="all", peer="0.0.0.0/0")))


class Account(_Model):
    """Everything that `account.yaml` may set.

    Args:
        denied: calls that the caller may not make, such as `iam:GetRole` or `ec2:*`.
        roles: None for any role.
        role_account: the account whose roles a job may have; None for any account, since job files name roles of real
            accounts.
        images: NAME:TAG of all images in other accounts' registries; None where those registries refuse access.
        quotas: instances at once, by type: for training jobs, endpoints and transform jobs each. The full name of a
            quota, such as ``ml.m5.large for endpoint usage``, is for one of these only.
        quota: the same for every other type, and the concurrency of all serverless endpoints together.
        capacity: the most hosts that a job gets, by region and type; unlimited for all others.
        capacity_wait: seconds that a job waits for capacity until it fails.
        training_plans: by name.
        longest_run: seconds that a training job may take; the default is that of AWS.
    """

    caller: str = "user/local"
    denied: tuple[str, ...] = ()
    roles: dict[str, Role] | None = None
    role_account: Annotated[str, StringConstraints(pattern=r"^\d{12}$")] | None = None
    images: tuple[str, ...] | None = None
    quotas: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    quota: Annotated[int, Field(ge=0)] = 1000
    capacity: dict[str, dict[str, Annotated[int, Field(ge=0)]]] = Field(default_factory=dict)
    capacity_wait: Annotated[int, Field(ge=0)] = 60
    training_plans: dict[str, TrainingPlan] = Field(default_factory=dict)
    longest_run: Annotated[int, Field(ge=1)] = 432_000
    subnets: dict[str, Subnet] = Field(default_factory=lambda: {SUBNET: Subnet()})
    security_groups: dict[str, SecurityGroup] = Field(default_factory=lambda: {GROUP: _group()})
    fsx: dict[FileSystemId, Fsx] = Field(default_factory=dict)
    efs: dict[FileSystemId, Efs] = Field(default_factory=dict)

    def address_in(self, subnet: str, host: int) -> str:
        """The address with this number in the subnet's range of addresses; in the first range for an unknown subnet."""
        return f"10.0.{self.number_of(subnet)}.{host}"

    def number_of(self, subnet: str) -> int:
        """The third byte of the addresses of the subnet."""
        return list(self.subnets).index(subnet) % 256 if subnet in self.subnets else 0

    @property
    def caller_arn(self) -> str:
        return f"arn:aws:iam::{ACCOUNT}:{self.caller}"

    def lists(self, name: str) -> bool:
        """Whether the file sets the field; otherwise the default applies."""
        return name in self.model_fields_set

    def has_capacity(self, region: str, instance_type: str, hosts: int) -> bool:
        most = self.capacity.get(region, {}).get(instance_type)
        return most is None or hosts <= most

    def quota_of(self, name: str) -> int:
        """The quota with this name of Service Quotas, which begins with the instance type."""
        return self.quotas.get(name, self.quotas.get(name.partition(" ")[0], self.quota))


def matches(action: str, patterns: tuple[str, ...]) -> bool:
    """Compare as IAM does: with `*` and `?`, and without regard to case."""
    return any(fnmatch.fnmatchcase(action.lower(), one.lower()) for one in patterns)


class AccountFile:
    """Reads `account.yaml`, again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._account = Account()

    def resolve(self, folder: str) -> Path:
        """The path of a folder that the file names."""
        return self.folder / Path(folder).expanduser()

    def read(self) -> Account:
        """Raises ServiceError with the file's errors. Every call returns that error until the file is fixed."""
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
        return Account.model_validate(
            _as_tuples(YAML(typ="safe", pure=True).load(StringIO(path.read_text(encoding="utf-8"))) or {})
        )
    except ValidationError as error:
        message = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    except (YAMLError, UnicodeDecodeError, OSError) as error:
        message = re.sub(r"\s+", " ", str(error))
    raise ServiceError("InternalFailure", f"{path} cannot be used: {message}", 500)


def _as_tuples(value: Any) -> Any:
    """Convert the lists of YAML: strict models do not accept a list as a tuple."""
    if isinstance(value, list):
        return tuple(map(_as_tuples, value))
    return {name: _as_tuples(one) for name, one in value.items()} if isinstance(value, dict) else value
