"""The service clients a job needs. Everything below knows an endpoint, not which one: AWS or the local cloud."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.records.local_clouds import local_cloud_folder
from smdp_launch.jobs.service.error_kinds import Trouble
from smdp_launch.jobs.service.retry_policy import Patience, Waiting
from smdp_launch.signal_flag import SignalFlag

_Connected = TypeVar("_Connected")

#: Seconds, for SageMaker and CloudWatch: `ask` and a follower put a question again themselves, and between two tries
#: they can be left. The other services' clients try again by themselves.
_CONNECTS, _ANSWERS = 5, 10


def tell_nobody(_: Waiting) -> None:
    """Whoever shows what is waited for takes this one's place."""


@dataclass
class Clients:
    """botocore clients of one account and region.

    Args:
        poll: seconds between two looks at a job. DescribeTrainingJob is throttled per account on AWS.
        service: a client of any other service, by botocore's name.
        quick: a client that tries once and waits 10 s for an answer, for what a view can do without.
        patience: how long a question is asked again.
        again: makes the clients anew, with what the credentials are by then; None if they cannot change.
        lost: the troubles that call for that.
        tell: told of each wait for an answer.
        interrupted: once it is set, no question is put again.
    """

    sagemaker: Any
    s3: Any
    logs: Any
    poll: float
    service: Callable[[str], Any]
    quick: Callable[[str], Any]
    patience: Patience = field(default_factory=Patience)
    again: Callable[[], Clients] | None = None
    lost: frozenset[Trouble] = frozenset({Trouble.CREDENTIALS})
    tell: Callable[[Waiting], None] = tell_nobody
    interrupted: SignalFlag = field(default_factory=SignalFlag)

    def renew(self, trouble: Trouble) -> None:
        """Make the clients anew if that may help.

        Raises:
            EnvironmentProblem: a local cloud that died cannot be started again.
        """
        if self.again is None or trouble not in self.lost:
            return
        try:
            made = self.again()
        except EnvironmentProblem:
            if trouble is Trouble.CREDENTIALS:
                return  # the next question says why
            raise
        self.sagemaker, self.s3, self.logs = made.sagemaker, made.s3, made.logs
        self.service, self.quick = made.service, made.quick


#: Opens what a job is reached through, and leaves it again: a private local cloud lives no longer than it is needed.
Connect = Callable[[], AbstractContextManager[Clients]]


def connection(where: str | None, state: str | None = None) -> Connect:
    """To the service that runs a job.

    Args:
        where: as in the history: a region, or ``local`` for a local cloud. None for the region of the person's AWS
            configuration.
        state: as in the history: the local cloud's state folder. None for the one that is meant here and now.

    Raises:
        EnvironmentProblem: there is no such folder any more.
    """
    if where != LOCAL:
        return lambda: nullcontext(connect_aws(where))
    return local_cloud(local_cloud_folder() if state is None else _kept(Path(state).absolute()))


def _kept(state: Path) -> Path:
    """Not made anew, as a launch would: an empty one knows no job."""
    if not state.is_dir():
        raise EnvironmentProblem(f"the local cloud that the job ran in is gone: there is no folder {state}")
    return state


def local_cloud(state: Path) -> Connect:
    """The private local cloud on ``state``: started where none runs, also anew when it dies while it is needed, and
    left to itself while a job does."""
    from smdp_launch.localcloud.client.connect import LocalCloudError, private

    @contextmanager
    def connect() -> Iterator[Clients]:
        with ExitStack() as held:

            def reach() -> Clients:
                held.close()  # or each connection made anew would hold one more lock, and one more process
                try:
                    endpoint = held.enter_context(private(state))
                except LocalCloudError as error:
                    raise EnvironmentProblem(str(error)) from error
                made = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
                return replace(made, again=reach, lost=frozenset({Trouble.CREDENTIALS, Trouble.TEMPORARY}))

            yield reach()

    return connect


def connect_aws(region: str | None) -> Clients:
    """Clients with the person's own credentials, found as every AWS tool finds them.

    Args:
        region: None for that of the person's AWS configuration.

    Raises:
        EnvironmentProblem: no credentials, no region, or a profile that does not exist.
    """
    made = _aws(lambda session, config: _clients(session, 5.0, config, region_name=region))
    return replace(made, again=lambda: connect_aws(region))


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
        session.register_component("data_loader", _models(session.get_config_variable("data_path")))
        if session.get_credentials() is None:
            raise EnvironmentProblem(
                "no AWS credentials were found: set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run `aws configure`"
            )
        config = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10, read_timeout=30)
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
    """Botocore's descriptions of the services, read once: to read them takes longer than all else about a client.

    ``path``: the person's folders with further ones, as in AWS_DATA_PATH.
    """
    from botocore.loaders import create_loader

    return create_loader(path)


def _clients(session: Any, poll: float, config: Any, **settings: Any) -> Clients:
    from botocore.config import Config

    once = Config(retries={"total_max_attempts": 1}, connect_timeout=_CONNECTS, read_timeout=_ANSWERS)

    def client(name: str) -> Any:
        return session.create_client(name, config=config, **settings)

    def quick(name: str) -> Any:
        return session.create_client(name, config=config.merge(once), **settings)

    return Clients(quick("sagemaker"), client("s3"), quick("logs"), poll, client, quick)
