"""The calls of the platform itself to the server, such as those of a tuning job that starts its trials."""

from __future__ import annotations

from typing import Any

from botocore.config import Config

from smdp_launch.localcloud.client.connect import LocalCloudError
from smdp_launch.localcloud.client.session import Session
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol.signatures import Holder


class PlatformError(Exception):
    """The server refused a call, or does not answer.

    Args:
        code: of the service, such as ResourceLimitExceeded; empty where the server does not answer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Platform(Session):
    """SageMaker calls. Raises PlatformError where the server cannot be started."""

    def __init__(self, state: StateFolder, region: str) -> None:
        try:
            super().__init__(state, "sagemaker", Holder("agent"), Config(retries={"total_max_attempts": 1}), region)
        except LocalCloudError as error:
            raise PlatformError("", str(error)) from error

    def error(self, code: str, message: str, status: int = 0) -> PlatformError:
        return PlatformError(code, message)

    def call(self, operation: str, **parameters: Any) -> Any:
        """The answer of a call, by the name of botocore's method. Raises PlatformError."""
        return self.attempt(lambda client: getattr(client, operation)(**parameters))
