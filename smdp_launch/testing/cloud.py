"""``local_cloud()``: within a block, boto3, the SageMaker SDK and smdp-launch use a local cloud in place of AWS."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.doctor.packages import require_local_cloud
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.localcloud.client import shared
from smdp_launch.localcloud.client.connect import LocalCloudError
from smdp_launch.localcloud.client.sdk_defaults import ROLE
from smdp_launch.localcloud.client.variables import variables

#: Clients read neither the user's AWS files nor the metadata service of EC2.
_ALONE = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True)
class LocalCloud:
    """A running local cloud.

    Args:
        url: for ``endpoint_url=``; clients made within the block do not need it.
        region: the region of the local cloud.
        role: ARN of a role for jobs, which exists in the account.
        state: the folder with buckets, jobs and logs; ``s3/BUCKET/KEY`` below it are the objects.
    """

    url: str
    region: str
    role: str
    state: Path


@contextmanager
def local_cloud(state: str | os.PathLike[str] | None = None) -> Iterator[LocalCloud]:
    """Run a block, or as a decorator a function, with its own local cloud, like moto's mock_aws.

    Within the block every AWS client of this process and its child processes finds the local cloud and its credentials
    in the environment; ``launch --local`` uses it too. After the block the environment and boto3's default session are
    restored, and no process, port or folder is left: jobs that still run are killed. Clients that were made before the
    block still use AWS. The environment belongs to the process, so run only one block at a time.

    Args:
        state: a state folder to keep, with its buckets; by default a folder that is deleted after the block.

    Raises:
        EnvironmentProblem: a package that the local cloud needs is missing, it does not start, or another process uses
            ``state``.

    Examples:
        >>> import boto3
        >>> with local_cloud() as cloud:
        ...     boto3.client("s3").create_bucket(Bucket="mine")["Location"]
        ...     sorted(one.name for one in (cloud.state / "s3").iterdir())
        '/mine'
        ['mine']
    """
    require_local_cloud()
    with ExitStack() as stack:
        folder = Path(state) if state is not None else _scratch(stack)
        try:
            endpoint = stack.enter_context(shared.exclusive(folder))
        except LocalCloudError as error:
            raise EnvironmentProblem(str(error)) from error
        stack.enter_context(_environment({**variables(endpoint, os.environ), **_ALONE}))
        stack.enter_context(_new_default_session())
        role = ROLE
        yield LocalCloud(endpoint.url, endpoint.region, role, endpoint.state_dir)


def _scratch(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smdp-local-"))) / "state"


@contextmanager
def _environment(wanted: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _set(wanted: Mapping[str, str | None]) -> None:
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _new_default_session() -> Iterator[None]:
    """Replace boto3's default session, which keeps the credentials that it found first."""
    boto3 = sys.modules.get("boto3")
    before = getattr(boto3, "DEFAULT_SESSION", None)
    if boto3 is not None:
        boto3.DEFAULT_SESSION = None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        boto3 = sys.modules.get("boto3")
        if boto3 is not None:
            boto3.DEFAULT_SESSION = before  # type: ignore[attr-defined]
