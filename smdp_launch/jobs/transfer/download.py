"""A job's results from S3 to a folder of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from smdp_launch.errors import Refused
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.transfer.fetch import fetch, publish
from smdp_launch.jobs.transfer.results import Result, Results, find_results
from smdp_launch.jobs.transfer.unpack import unpack

_PACKED = ".tar.gz"

#: Told of each file, and the bytes of it that are there, again and again.
Progress = Callable[[Result, int], None]


@dataclass(frozen=True)
class Downloaded:
    """One file. ``unpacked`` is the folder that holds its content, if that was asked for."""

    path: Path
    source: str
    size: int
    unpacked: Path | None = None


@dataclass(frozen=True)
class Download:
    """What was fetched of a job, and how that had ended."""

    job: str
    outcome: Outcome
    folder: Path
    files: tuple[Downloaded, ...]


def download(
    clients: Clients,
    job: str,
    folder: Path,
    *,
    extract: bool = False,
    force: bool = False,
    limits: bool = True,
    progress: Progress = lambda *_: None,
) -> Download:
    """Fetch what ``job`` left (its model, packed or not, and output.tar.gz) into ``folder``, as it lay in S3.

    Files appear whole, when all are there; a download that was interrupted goes on where it was.

    Args:
        extract: unpack the archives too, each to a folder of its name.
        force: replace what is there.
        limits: unpack no archive whose content is unusually large (`unpack`).

    Raises:
        ServiceProblem: the service does not know the job, refused, or did not answer.
        Refused: the job has not ended, a file is there already, or an archive holds what should not be unpacked.
        NoResults: the job left nothing.
        EnvironmentProblem: a file cannot be written.
    """
    results = find_results(clients, job)
    if not force:
        _require_room(results, folder, extract)
    parts = [fetch(clients, one, folder / one.name, partial(progress, one)) for one in results.objects]
    for part, one in zip(parts, results.objects, strict=True):
        publish(part, folder / one.name)
    return Download(job, results.outcome, folder, tuple(_downloaded(results, folder, extract, limits)))


def _require_room(results: Results, folder: Path, extract: bool) -> None:
    wanted = [folder / one.name for one in results.objects]
    unpacked = [one for one in map(_unpacked, wanted) if one is not None] if extract else []
    for path in [*wanted, *unpacked]:
        if path.exists() or path.is_symlink():
            raise Refused(f"{path} is there already: --force (in Python force=True) replaces it")


def _downloaded(results: Results, folder: Path, extract: bool, limits: bool) -> Iterator[Downloaded]:
    for one in results.objects:
        path = folder / one.name
        unpacked = _unpacked(path) if extract else None
        if unpacked is not None:
            unpack(path, unpacked, limits=limits)
        yield Downloaded(path, str(one.where), one.size, unpacked)


def _unpacked(path: Path) -> Path | None:
    return path.with_name(path.name.removesuffix(_PACKED)) if path.name.endswith(_PACKED) else None
