"""A job's results from S3 to a folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.clients import Clients
from smdp_launch.jobs.submit import told
from smdp_launch.request.names import S3Location


def download(clients: Clients, job: str, output: str, folder: Path) -> list[Path]:
    """Fetch what ``job`` left below the S3 location ``output`` (its model, packed or not, and output.tar.gz).

    Returns:
        The files, which lie in ``folder`` as they lay in S3. A file appears whole or not at all.

    Raises:
        ServiceProblem: S3 refused, or did not answer.
        EnvironmentProblem: a file cannot be written.
    """
    results = S3Location.parse(output).join(job, "output")
    written = []
    with told(f"the results of {job} could not be fetched"):
        for key in _keys(clients, results):
            path = folder / _name(key, results)
            try:
                _fetch(clients, S3Location(results.bucket, key), path)
            except OSError as error:
                raise EnvironmentProblem(f"{path} cannot be written: {error.strerror}") from error
            written.append(path)
    return written


def _keys(clients: Clients, where: S3Location) -> Iterator[str]:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=where.bucket, Prefix=f"{where.key}/")
    for page in pages:
        yield from (str(one["Key"]) for one in page.get("Contents", []) if not str(one["Key"]).endswith("/"))


def _name(key: str, below: S3Location) -> PurePosixPath:
    name = PurePosixPath(key.removeprefix(f"{below.key}/"))
    if name.is_absolute() or ".." in name.parts:
        raise EnvironmentProblem(f"the object {key} would be written outside the folder: fetch it by hand")
    return name


def _fetch(clients: Clients, where: S3Location, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    body = clients.s3.get_object(Bucket=where.bucket, Key=where.key)["Body"]
    try:
        with body, unfinished.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
