"""One run of ``checkpoints``: find the location, list it, and verify, fetch or delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from smdp_launch.api import attach
from smdp_launch.cli.render.diagnostics import print_diagnostics
from smdp_launch.cli.render.job.download import DownloadView
from smdp_launch.cli.render.job.stored_checkpoints import (
    Place,
    document,
    print_checkpoints,
    print_deleted,
    print_fetched,
    print_none,
    question,
)
from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import print_note
from smdp_launch.cli.render.terminal.bars import busy
from smdp_launch.cli.render.terminal.retries import print_retry
from smdp_launch.cli.shared.confirmation import confirm
from smdp_launch.errors import ExitCode, Refused
from smdp_launch.jobs.checkpoints.deletion import delete, of_steps, require_unused, superseded
from smdp_launch.jobs.checkpoints.fetching import Fetched, chosen, fetch_checkpoint
from smdp_launch.jobs.checkpoints.refusals import NO_LOCATION, refusal, torn
from smdp_launch.jobs.checkpoints.stored import State, StoredCheckpoint, StoredCheckpoints, stored_checkpoints
from smdp_launch.jobs.checkpoints.verification import verify
from smdp_launch.jobs.job import UNKNOWN_REGION
from smdp_launch.jobs.service.clients import Clients, connection
from smdp_launch.jobs.status.checkpoint_users import users_of
from smdp_launch.jobs.status.resumptions import last_resumption
from smdp_launch.request.names import S3Location
from smdp_launch.source.scan import RESULTS_FOLDER

_S3 = "s3://"


@dataclass(frozen=True)
class Request:
    """The options of the command.

    Args:
        step: to fetch; None for the newest.
    """

    verify: bool
    fetches: bool
    step: int | None
    folder: Path | None
    force: bool
    delete_steps: Sequence[int]
    keep_last: int | None
    keep_every: int | None
    yes: bool
    as_json: bool


def run(name: str | None, region: str | None, request: Request) -> ExitCode:
    with _connected(name, region) as (clients, place):
        stored = stored_checkpoints(clients, place.s3)
        if request.verify:
            with busy("reading the checkpoints"):
                stored = verify(clients, stored)
        if request.fetches:
            return _fetch(clients, place, stored, request)
        if request.delete_steps or request.keep_last is not None:
            return _delete(clients, place, stored, request)
    return _list(place, stored, request)


@contextmanager
def _connected(name: str | None, region: str | None) -> Iterator[tuple[Clients, Place]]:
    """The service with the checkpoints, and where they are.

    Raises:
        Refused: there is no such job, or it has no checkpoints.
    """
    if name is not None and name.startswith(_S3):
        location = S3Location.parse(name)
        if not location.bucket:
            raise Refused(f"{name} has no bucket: write s3://BUCKET/PREFIX")
        with connection(region)() as clients:
            clients.on_waiting = print_retry
            yield clients, Place(str(location).rstrip("/"), region or UNKNOWN_REGION)
        return
    job = attach(name, region=region)
    job.on_waiting = print_retry
    with job.connected() as clients:
        description = job.describe()
        if description.checkpoints is None:
            message = "its job file had no `checkpoint`, so no checkpoints were uploaded"
            help_ = "add `checkpoint: {s3: ...}` to the job file, and launch the job again"
            raise refusal(NO_LOCATION, job.name, message, help_, "there is nothing to list")
        yield clients, Place(description.checkpoints.rstrip("/"), job.where, job, description)


def _list(place: Place, stored: StoredCheckpoints, request: Request) -> ExitCode:
    if request.as_json:
        print_document(document(place, stored, verified=request.verify))
    elif stored.checkpoints:
        print_checkpoints(place, stored, verified=request.verify)
    else:
        print_none(place, stored)
    problems = [torn(stored, one) for one in stored.checkpoints if one.state is State.TORN] if request.verify else []
    print_diagnostics(problems)
    return ExitCode.JOB_FAILED if problems else ExitCode.OK


def _fetch(clients: Clients, place: Place, stored: StoredCheckpoints, request: Request) -> ExitCode:
    one = chosen(stored, request.step)
    folder = request.folder or Path(RESULTS_FOLDER, place.job.name if place.job else "", "checkpoints")
    with DownloadView() as view:
        fetched: Fetched = fetch_checkpoint(clients, stored, one, folder, view.show, request.force)
    if request.as_json:
        print_document(document(place, stored, verified=request.verify, fetched=fetched))
    else:
        print_fetched(place, fetched, folder)
    return ExitCode.OK


def _delete(clients: Clients, place: Place, stored: StoredCheckpoints, request: Request) -> ExitCode:
    if place.job is not None:
        place = replace(place, last=last_resumption(clients, place.job.name))
    users = list(dict.fromkeys([*([place.user] if place.user is not None else []), *users_of(clients, place.s3)]))
    if request.keep_last is not None:
        selected = superseded(
            stored, request.keep_last, request.keep_every, is_in_use=place.may_be_in_use or bool(users)
        )
    else:
        selected = of_steps(stored, request.delete_steps)
    for user in users:
        require_unused(stored, selected, user)
    gone: list[StoredCheckpoint] = []
    if selected:
        if not (request.yes or request.as_json):
            print_checkpoints(place, stored.replaced(selected), verified=request.verify, is_choice=True)
        confirm(
            request.yes,
            ask=not request.as_json,
            question=question(place, stored, selected),
            subject="a deletion of checkpoints cannot be undone",
            refusal="nothing was deleted",
        )
        try:
            delete(clients, stored, selected, gone.append)
        except BaseException:
            if gone:
                print_note(f"{len(gone)} of {len(selected)} were deleted; the same command deletes the others")
            raise
    rest = stored.replaced(one for one in stored.checkpoints if one not in gone)
    if request.as_json:
        print_document(document(place, rest, verified=request.verify, deleted=gone))
    else:
        print_deleted(place, rest, gone)
    return ExitCode.OK
