"""The platform's own connection to the server of a local cloud.

The user's AWS configuration is not read. A server that was killed is started again.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError
from botocore.loaders import Loader

from smdp_launch.localcloud.client.connect import Endpoint, LocalCloudError, private
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol.signatures import Credentials, Holder

_RETRY_LIMIT = 60.0  # seconds of retries while no server answers
_MODELS = Loader()  # the services' descriptions, which all sessions of a process read once
Result = TypeVar("Result")


class Session(ABC):
    """Holds the clients' lock while it is open, so that the server stays.

    Args:
        region: of the calls; that of the server by default.
        config: of the client, besides its timeouts.
    """

    def __init__(
        self, state: StateFolder, service: str, holder: Holder, config: Config, region: str | None = None
    ) -> None:
        self._state = state
        self._service = service
        self._holder = holder
        self._config = Config(proxies={}, connect_timeout=5, read_timeout=60).merge(config)
        self._region = region
        self._stack = ExitStack()
        self.endpoint = self._connect()

    def close(self) -> None:
        self._stack.close()

    @abstractmethod
    def error(self, code: str, message: str, status: int = 0) -> Exception:
        """What a failed call raises.

        Args:
            code: of the service; empty where the server does not answer.
            status: of HTTP.
        """

    def attempt(self, action: Callable[[Any], Result]) -> Result:
        """The result of ``action``, which gets botocore's client. Raises what `error` returns."""
        deadline = time.monotonic() + _RETRY_LIMIT
        while True:
            try:
                return action(self._client)
            except ClientError as error:
                details, status = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
                raise self.error(details["Code"], details["Message"], status) from error
            except (ConnectionError, HTTPClientError) as error:
                if time.monotonic() > deadline:
                    raise self.error("", f"the local cloud's server does not answer: {error}") from error
                time.sleep(0.2)
                self._reconnect()
            except BotoCoreError as error:
                raise self.error("", str(error)) from error

    def _reconnect(self) -> None:
        try:
            self._stack.close()
            self.endpoint = self._connect()
        except LocalCloudError as error:
            raise self.error("", str(error)) from error

    def _connect(self) -> Endpoint:
        endpoint = self._stack.enter_context(private(self._state.root))
        keys = Credentials(endpoint.access_key, endpoint.secret_key).of(self._holder)
        session = botocore.session.Session({"profile": (None, None, None, None)})  # AWS_PROFILE is not read
        for variable in ("config_file", "credentials_file"):
            session.set_config_variable(variable, os.devnull)
        session.register_component("data_loader", _MODELS)
        self._client = session.create_client(
            self._service,
            region_name=self._region or endpoint.region,
            endpoint_url=endpoint.url,
            aws_access_key_id=keys.access_key,
            aws_secret_access_key=keys.secret_key,
            config=self._config,
        )
        return endpoint
