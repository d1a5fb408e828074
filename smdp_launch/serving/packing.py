"""The upload of the model with its serving script."""

from __future__ import annotations

import tarfile
import tempfile
import zlib
from contextlib import closing
from typing import IO, Any, cast

from smdp_launch.errors import Interrupted, Refused
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.transfer.upload import Progress, encryption, ignore_progress, upload
from smdp_launch.request.names import S3Location
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.serving.resources import Resource, delete_object
from smdp_launch.source.packed_model import UnsafeModelError, pack_model

#: Bytes; larger models are packed on disk.
_IN_MEMORY = 16 << 20


def packed_resource(
    clients: Clients, plan: ServingPlan, packed: S3Location, progress: Progress = ignore_progress
) -> Resource:
    """The model with the serving script in S3."""
    what = f"the model {plan.trained} could not be packed with its serving script"

    def create() -> None:
        call_with_retries(clients, what, lambda: _pack(clients, plan, packed, progress), is_transfer=True)

    return Resource(f"packed model {packed}", create, lambda: delete_object(clients, packed))


def _pack(clients: Clients, plan: ServingPlan, packed: S3Location, progress: Progress) -> None:
    trained = plan.trained
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        answer = clients.s3.get_object(Bucket=trained.bucket, Key=trained.key)
        with closing(answer["Body"]) as body:
            try:
                pack_model(
                    cast("IO[bytes]", _Interruptible(body, clients)),
                    plan.source,
                    file,
                    lambda: check_interrupt(clients),
                )
            except UnsafeModelError as error:
                raise Refused(f"{trained} is not packed: {error}") from error
            except (tarfile.TarError, EOFError, zlib.error) as error:
                raise Refused(f"{trained} is no gzipped tar archive that can be read: {error}") from error
        size = file.tell()
        file.seek(0)

        def show(sent: int, size: int) -> None:
            check_interrupt(clients)
            progress(sent, size)

        # As the job's own results.
        upload(clients.s3, file, size, packed, show, encryption(plan.spec.encryption.output_key))


def check_interrupt(clients: Clients) -> None:
    """Raises:
    Interrupted: the user interrupts.
    """
    if clients.interrupted.is_set():
        raise Interrupted("interrupted")


class _Interruptible:
    """The part of a file that a stream of an archive needs. A download ends soon after an interrupt."""

    def __init__(self, body: Any, clients: Clients) -> None:
        self._body = body
        self._clients = clients

    def read(self, size: int = -1, /) -> bytes:
        check_interrupt(self._clients)
        data: bytes = self._body.read(size)
        return data
