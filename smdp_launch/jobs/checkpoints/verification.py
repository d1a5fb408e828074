"""Reads stored checkpoints and compares each file with the SHA-256 with which it was saved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from smdp_launch.jobs.checkpoints.stored import State, StoredCheckpoint, StoredCheckpoints
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries

_BLOCK = 1 << 20


def verify(clients: Clients, stored: StoredCheckpoints) -> StoredCheckpoints:
    """The same checkpoints, each whole one either VERIFIED or TORN. This reads all their bytes from S3.

    Raises:
        ServiceProblem: S3 refused or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    return stored.replaced(_verified(clients, stored, one) for one in stored.checkpoints)


def _verified(clients: Clients, stored: StoredCheckpoints, one: StoredCheckpoint) -> StoredCheckpoint:
    if one.state is not State.WHOLE:
        return one
    for name, sha256 in one.sha256:
        found = call_with_retries(
            clients, f"{stored.object(name)} cannot be read", _reader(clients, stored, name), is_transfer=True
        )
        if found != sha256:
            short = name.removeprefix(f"{one.name}/")
            reason = f"{short} is missing" if found is None else f"{short} differs from what was saved"
            return replace(one, state=State.TORN, reason=reason)
    return replace(one, state=State.VERIFIED)


def _reader(clients: Clients, stored: StoredCheckpoints, name: str) -> Callable[[], str | None]:
    from botocore.exceptions import ClientError

    where = stored.object(name)

    def read() -> str | None:
        """The SHA-256 of the object; None if it was deleted meanwhile."""
        digest = hashlib.sha256()
        try:
            answer = clients.s3.get_object(Bucket=where.bucket, Key=where.key)
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise
        with closing(answer["Body"]) as body:
            while block := body.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest()

    return read
