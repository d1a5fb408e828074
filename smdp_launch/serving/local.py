"""The local cloud of local endpoints: it runs until the last of them is deleted.

A private local cloud ends with its last job and client, and its endpoints end with it. So a deployment announces it, as
``local up`` does.
"""

from __future__ import annotations

import time
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobs.records.endpoints import Served, served
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.localcloud.client import shared
from smdp_launch.localcloud.client.connect import LocalCloudError
from smdp_launch.request.names import S3Location
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.source.scan import data_files

#: How the local cloud names a running endpoint.
_ENDPOINT = "endpoint/"
#: Seconds for an endpoint to be removed after its deletion.
_LONGEST_REMOVAL = 30.0
_TICK = 0.05


def keep_running(state: str) -> bool:
    """Let the local cloud on ``state`` run until `let_end`.

    Returns:
        Whether endpoints alone keep it running; False if the user has started it with ``local up``.

    Raises:
        EnvironmentProblem: it does not start.
    """
    folder = Path(state).absolute()
    was_announced = shared.status(folder).announced
    if was_announced:
        return any(one.keeps_cloud for one in _endpoints(state))
    try:
        shared.up(folder)
    except LocalCloudError as error:
        raise EnvironmentProblem(str(error)) from error
    return True


def upload_input(clients: Clients, plan: ServingPlan, path: Path) -> None:
    """Upload the file, or the files of the folder, to the location that a batch transform reads.

    Raises:
        Refused: the deployment is no batch transform.
        ServiceProblem: the local cloud did not accept a file.
    """
    if plan.serve.input is None:
        raise Refused(f"{plan.job_file} has no `serve.input`: only `kind: batch` reads data")
    where = S3Location.parse(plan.serve.input)

    def call() -> None:
        clients.s3.create_bucket(Bucket=where.bucket)
        for name, file in data_files(path):
            with file.open("rb") as body:
                clients.s3.put_object(Bucket=where.bucket, Key=where.join(name).key, Body=body)

    call_with_retries(clients, f"{path} could not be uploaded to the local cloud", call, is_transfer=True)


def let_end(state: str) -> bool:
    """End the local cloud, if no endpoint and no job needs it any more. Return whether it has ended.

    Raises:
        EnvironmentProblem: it does not end.
    """
    folder = Path(state).absolute()
    if _endpoints(state):
        return False
    deadline = time.monotonic() + _LONGEST_REMOVAL
    while running := shared.status(folder).running:
        if time.monotonic() > deadline or not all(one.startswith(_ENDPOINT) for one in running):
            return False
        time.sleep(_TICK)
    try:
        shared.down(folder)
    except LocalCloudError as error:
        raise EnvironmentProblem(str(error)) from error
    return True


def let_end_after(known: Served | None) -> None:
    """`let_end` for the local cloud of a deployment that is deleted, if it ran only for endpoints."""
    if known is not None and known.keeps_cloud and known.state is not None:
        let_end(known.state)


def _endpoints(state: str) -> list[Served]:
    return [one for one in served() if one.where == LOCAL and one.state == state]
