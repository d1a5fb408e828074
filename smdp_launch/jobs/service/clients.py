"""The service clients that a job needs. Their users do not know whether the endpoint is AWS or the local cloud."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.records.local_clouds import local_cloud_folder
from smdp_launch.jobs.service.error_kinds import ErrorKind
from smdp_launch.jobs.service.retry_policy import RetryPolicy, Waiting
from smdp_launch.signals.flag import SignalFlag

_Connected = TypeVar("_Connected")

#: Timeouts in seconds for SageMaker and CloudWatch. `call_with_retries` and the follower retry these calls themselves,
#: since the user can interrupt them between two tries. The clients of the other services retry by themselves.
_CONNECT_TIMEOUT, _READ_TIMEOUT = 5, 10
#: Seconds for the answer of a model: SageMaker ends a request after 60 s.
_MODEL_TIMEOUT = 70
_RUNTIME = "sagemaker-runtime"


def ignore_waiting(_: Waiting) -> None:
    """Show nothing: the default of ``on_waiting``."""


@dataclass
class Clients:
    """botocore clients of one account and region.

    Args:
        poll: seconds between two polls of a job. AWS throttles DescribeTrainingJob per account.
        service: returns a client of any other service, by botocore's name.
        quick: returns a client that tries once and waits 10 s for an answer, for what a view can omit; for that of a
            model it waits as long as SageMaker does.
        reconnect: makes new clients with the current credentials; None if the credentials cannot change.
        reconnect_on: the error kinds after which the clients are made anew.
        on_waiting: called before each wait for a retry.
        interrupted: once it is set, no call is retried.
    """

    sagemaker: Any
    s3: Any
    logs: Any
    poll: float
    service: Callable[[str], Any]
    quick: Callable[[str], Any]
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    reconnect: Callable[[], Clients] | None = None
    reconnect_on: frozenset[ErrorKind] = frozenset({ErrorKind.CREDENTIALS})
    on_waiting: Callable[[Waiting], None] = ignore_waiting
    interrupted: SignalFlag = field(default_factory=SignalFlag)

    def renew(self, kind: ErrorKind) -> None:
        """Make the clients anew after an error of ``kind``, if that may help.

        Raises:
            EnvironmentProblem: the local cloud died and cannot be restarted.
        """
        if self.reconnect is None or kind not in self.reconnect_on:
            return
        try:
            new = self.reconnect()
        except EnvironmentProblem:
            if kind is ErrorKind.CREDENTIALS:
                return  # the next call reports the reason
            raise
        self.sagemaker, self.s3, self.logs = new.sagemaker, new.s3, new.logs
        self.service, self.quick = new.service, new.quick


#: Opens the clients of a job, and closes them: a private local cloud runs only while it is needed.
Connect = Callable[[], AbstractContextManager[Clients]]


def connection(where: str | None, state: str | None = None) -> Connect:
    """The connection to the service that runs a job.

    Args:
        where: as in the history: a region, or ``local`` for a local cloud. None for the region of the user's AWS
            configuration.
        state: as in the history: the local cloud's state folder. None for the current one.

    Raises:
        EnvironmentProblem: the state folder no longer exists.
    """
    if where != LOCAL:
        return lambda: nullcontext(connect_aws(where))
    return local_cloud(local_cloud_folder() if state is None else _existing(Path(state).absolute()))


def _existing(state: Path) -> Path:
    """Do not create the folder, as a launch would: an empty local cloud knows no job."""
    if not state.is_dir():
        raise EnvironmentProblem(f"the local cloud of the job no longer exists: there is no folder {state}")
    return state


def local_cloud(state: Path) -> Connect:
    """The private local cloud on ``state``: started if none runs, restarted if it dies while it is needed. It keeps
    running while a job runs."""
    from smdp_launch.localcloud.client.connect import LocalCloudError, private

    @contextmanager
    def connect() -> Iterator[Clients]:
        with ExitStack() as stack:

            def start() -> Clients:
                stack.close()  # otherwise each reconnection would hold one more lock and one more process
                models = Thread(target=_read_models, daemon=True)
                models.start()  # while the server starts, which takes longer
                try:
                    endpoint = stack.enter_context(private(state))
                except LocalCloudError as error:
                    raise EnvironmentProblem(str(error)) from error
                models.join()
                clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
                restarting = frozenset({ErrorKind.CREDENTIALS, ErrorKind.TEMPORARY})
                return replace(clients, reconnect=start, reconnect_on=restarting)

            yield start()

    return connect


def connect_aws(region: str | None) -> Clients:
    """Clients with the user's own credentials, found as every AWS tool finds them.

    Args:
        region: None for that of the user's AWS configuration.

    Raises:
        EnvironmentProblem: no credentials, no region, or a profile that does not exist.
    """
    clients = _aws(lambda session, config: _clients(session, 5.0, config, region_name=region))
    return replace(clients, reconnect=lambda: connect_aws(region))


def connect_ecr(region: str | None) -> Any:
    """A client of the registry service, with the user's own credentials.

    Args:
        region: None for that of the user's AWS configuration.

    Raises:
        EnvironmentProblem: no credentials, no region, or a profile that does not exist.
    """
    return _aws(lambda session, config: session.create_client("ecr", region_name=region, config=config))


def connect_service(service: str, region: str) -> Any:
    """A client of any service of AWS, by botocore's name, with the user's own credentials.

    Raises:
        EnvironmentProblem: no credentials, or a profile that does not exist.
    """
    return _aws(lambda session, config: session.create_client(service, region_name=region, config=config))


def _aws(connect: Callable[[Any, Any], _Connected]) -> _Connected:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, NoRegionError
    from botocore.session import Session

    try:
        session = Session()
        session.register_component("data_loader", _models(session.get_config_variable("data_path")))
        if session.get_credentials() is None:
            raise EnvironmentProblem(
                "no AWS credentials were found: set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run `aws configure`"
            )
        config = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10, read_timeout=30)
        return connect(session, config)
    except NoRegionError as error:
        raise EnvironmentProblem("no AWS region is set: add --region, or set AWS_DEFAULT_REGION") from error
    except BotoCoreError as error:
        raise EnvironmentProblem(f"AWS cannot be used: {error}") from error


def connect_endpoint(url: str, region: str, access_key: str, secret_key: str) -> Clients:
    """Clients of the local cloud. They use neither the user's AWS settings nor a proxy."""
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
    session.register_component("data_loader", _models(None))
    session.set_credentials(access_key, secret_key)
    config = Config(
        proxies={},
        retries={"mode": "standard", "total_max_attempts": 3},
        connect_timeout=5,
        read_timeout=60,
        s3={"addressing_style": "path"},
    )
    return _clients(session, 0.2, config, region_name=region, endpoint_url=url)


@cache
def _models(path: str | None) -> Any:
    """Botocore's descriptions of the services. They are read once, since reading takes longer than the rest of making
    a client. ``path``: further folders of the user, as in AWS_DATA_PATH."""
    from botocore.loaders import create_loader

    return create_loader(path)


def _read_models() -> None:
    """Import botocore and read the descriptions that every command about a job needs."""
    import botocore.session  # noqa: F401

    models = _models(None)
    for service in ("sagemaker", "s3", "logs"):
        models.load_service_model(service, "service-2")


def _clients(session: Any, poll: float, config: Any, **settings: Any) -> Clients:
    from botocore.config import Config

    model = Config(read_timeout=_MODEL_TIMEOUT)
    once = Config(retries={"total_max_attempts": 1}, connect_timeout=_CONNECT_TIMEOUT, read_timeout=_READ_TIMEOUT)

    def client(name: str) -> Any:
        chosen = config.merge(model) if name == _RUNTIME else config
        return session.create_client(name, config=chosen, **settings)

    @cache
    def quick(name: str) -> Any:
        chosen = once.merge(model) if name == _RUNTIME else once
        return session.create_client(name, config=config.merge(chosen), **settings)

    return Clients(quick("sagemaker"), client("s3"), quick("logs"), poll, client, quick)
