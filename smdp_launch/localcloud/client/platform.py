"""The calls of the platform itself to the server, such as those of a tuning job that starts its trials.

The user's AWS configuration is not read. A server that was killed is started again.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from smdp_launch.localcloud.client.connect import LocalCloudError, private
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol.signatures import Credentials, Holder

_RETRY_LIMIT = 60.0  # seconds of retries while no server answers


class PlatformError(Exception):
    """The server refused a call, or does not answer.

    Args:
        code: of the service, such as ResourceLimitExceeded; empty where the server does not answer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Platform:
    """Holds the clients' lock while it is open, so that the server stays."""

    def __init__(self, state: StateFolder, region: str) -> None:
        self._state = state
        self._region = region
        self._stack = ExitStack()
        self._connect()

    def close(self) -> None:
        self._stack.close()

    def call(self, operation: str, **parameters: Any) -> Any:
        """The answer of a SageMaker call, by the name of botocore's method. Raises PlatformError."""
        deadline = time.monotonic() + _RETRY_LIMIT
        while True:
            try:
                return getattr(self._client, operation)(**parameters)
            except ClientError as error:
                raise PlatformError(error.response["Error"]["Code"], error.response["Error"]["Message"]) from error
            except (ConnectionError, HTTPClientError) as error:
                if time.monotonic() > deadline:
                    raise PlatformError("", f"the local cloud's server does not answer: {error}") from error
                time.sleep(0.2)
                self._stack.close()
                self._connect()
            except BotoCoreError as error:
                raise PlatformError("", str(error)) from error

    def _connect(self) -> None:
        try:
            endpoint = self._stack.enter_context(private(self._state.root))
        except LocalCloudError as error:
            raise PlatformError("", str(error)) from error
        keys = Credentials(endpoint.access_key, endpoint.secret_key).of(Holder("agent"))
        session = botocore.session.Session({"profile": (None, None, None, None)})  # AWS_PROFILE is not read
        for variable in ("config_file", "credentials_file"):
            session.set_config_variable(variable, os.devnull)
        self._client = session.create_client(
            "sagemaker",
            region_name=self._region,
            endpoint_url=endpoint.url,
            aws_access_key_id=keys.access_key,
            aws_secret_access_key=keys.secret_key,
            config=Config(proxies={}, connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 1}),
        )
