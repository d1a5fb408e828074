"""``local_cloud()``: boto3, the SageMaker SDK and smdp-launch talk to a local cloud within a block, as to AWS."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.localcloud.client import shared
from smdp_launch.localcloud.client.connect import LocalCloudError
from smdp_launch.localcloud.client.sdk_defaults import ROLE
from smdp_launch.localcloud.client.variables import variables

#: So that nothing is read from the person's AWS files, nor asked of a machine that is not there.
_ALONE = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True)
class LocalCloud:
    """A running local cloud.

    Args:
        url: for ``endpoint_url=``; clients made within the block need none.
        region: the only one there is.
        role: ARN of a role that the account has, for jobs.
        state: the folder that holds buckets, jobs and logs; ``s3/BUCKET/KEY`` below it are the objects.
    """

    url: str
    region: str
    role: str
    state: Path


@contextmanager
def local_cloud(state: str | os.PathLike[str] | None = None) -> Iterator[LocalCloud]:
    """Run a block, or as a decorator a function, against a local cloud of its own, in the manner of moto's mock_aws.

    Within it every AWS client of this process and of those it starts finds the local cloud and its credentials in the
    environment; ``launch --local`` uses it too. Afterwards the environment and boto3's default session are what they
    were, and no process, port or folder is left: jobs that still run are killed. Clients that were made before the
    block go on talking to AWS. The environment is the process's: no two blocks at once in several threads.

    Args:
        state: a folder to keep, for what lies in its buckets; one that goes with the block by default.

    Raises:
        EnvironmentProblem: the local cloud does not start, or ``state`` is that of one which somebody else uses.

    Examples:
        >>> import boto3
        >>> with local_cloud() as cloud:
        ...     boto3.client("s3").create_bucket(Bucket="mine")["Location"]
        ...     sorted(one.name for one in (cloud.state / "s3").iterdir())
        '/mine'
        ['mine']
    """
    with ExitStack() as stack:
        folder = Path(state) if state is not None else _scratch(stack)
        try:
            endpoint = stack.enter_context(shared.alone(folder))
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
    """boto3 keeps the credentials that it found first."""
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
