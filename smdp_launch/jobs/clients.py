"""The service clients a job needs. Everything below knows an endpoint, not which one: AWS or the local cloud."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from smdp_launch.errors import EnvironmentProblem

_Connected = TypeVar("_Connected")


@dataclass(frozen=True)
class Clients:
    """botocore clients of one account and region.

    Args:
        poll: seconds between two looks at a job. DescribeTrainingJob is throttled per account on AWS.
        service: a client of any other service, by botocore's name.
    """

    sagemaker: Any
    s3: Any
    logs: Any
    poll: float
    service: Callable[[str], Any]


def connect_aws(region: str | None) -> Clients:
    """Clients with the person's own credentials, found as every AWS tool finds them.

    Args:
        region: None for that of the person's AWS configuration.

    Raises:
        EnvironmentProblem: no credentials, no region, or a profile that does not exist.
    """
    return _aws(lambda session, config: _clients(session, 5.0, region_name=region, config=config))


def connect_ecr(region: str | None) -> Any:
    """A client of the registry service, with the person's own credentials.

    Args:
        region: None for that of the person's AWS configuration.

    Raises:
        EnvironmentProblem: no credentials, no region, or a profile that does not exist.
    """
    return _aws(lambda session, config: session.create_client("ecr", region_name=region, config=config))


def _aws(connect: Callable[[Any, Any], _Connected]) -> _Connected:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        session = Session()
        if session.get_credentials() is None:
            raise EnvironmentProblem(
                "no AWS credentials were found: set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run `aws configure`"
            )
        config = Config(retries={"mode": "standard", "max_attempts": 8}, connect_timeout=10, read_timeout=30)
        return connect(session, config)
    except BotoCoreError as error:
        raise EnvironmentProblem(f"AWS cannot be used from here: {error}") from error


def connect_endpoint(url: str, region: str, access_key: str, secret_key: str) -> Clients:
    """Clients of the local cloud. Nothing of the person's AWS settings, nor a proxy, comes into it."""
    from botocore.config import Config
    from botocore.session import Session

    # Session variables are (name in the config file, environment variables, default, conversion).
    isolated = {
        "profile": (None, None, None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
        "ca_bundle": (None, None, None, None),
    }
    session = Session(session_vars=isolated)
    session.set_credentials(access_key, secret_key)
    config = Config(
        proxies={},
        retries={"mode": "standard", "total_max_attempts": 3},
        connect_timeout=5,
        read_timeout=60,
        s3={"addressing_style": "path"},
    )
    return _clients(session, 0.2, region_name=region, endpoint_url=url, config=config)


def _clients(session: Any, poll: float, **settings: Any) -> Clients:
    sagemaker, s3, logs = (session.create_client(name, **settings) for name in ("sagemaker", "s3", "logs"))
    return Clients(sagemaker, s3, logs, poll, lambda name: session.create_client(name, **settings))
