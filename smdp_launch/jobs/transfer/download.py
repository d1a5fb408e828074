"""Downloads a job's results from S3 to a folder of its name."""

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

#: Called repeatedly with a result and how many of its bytes have been written.
Progress = Callable[[Result, int], None]


@dataclass(frozen=True)
class Downloaded:
    """One file. ``unpacked`` is the folder with its content, if it was unpacked."""

    path: Path
    source: str
    size: int
    unpacked: Path | None = None


@dataclass(frozen=True)
class Download:
    """The downloaded files of a job, and how the job ended."""

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
    """Download the results of ``job`` (its model, packed or not, and output.tar.gz) into ``folder``, unchanged.

    The files appear when all of them are complete. An interrupted download continues at the same byte.

    Args:
        extract: also unpack each archive to a folder of its name.
        force: replace existing files.
        limits: refuse to unpack an archive with unusually large content (`unpack`).

    Raises:
        ServiceProblem: the service does not know the job, refused, or did not answer.
        Refused: the job has not ended, a file exists already, or an archive has unsafe content.
        NoResults: the job wrote no results.
        EnvironmentProblem: a file cannot be written.
    """
    results = find_results(clients, job)
    if not force:
        _require_no_files(results, folder, extract)
    parts = [fetch(clients, one, folder / one.name, partial(progress, one)) for one in results.objects]
    for part, one in zip(parts, results.objects, strict=True):
        publish(part, folder / one.name)
    return Download(job, results.outcome, folder, tuple(_downloaded(results, folder, extract, limits)))


def _require_no_files(results: Results, folder: Path, extract: bool) -> None:
    files = [folder / one.name for one in results.objects]
    unpacked = [one for one in map(_unpacked, files) if one is not None] if extract else []
    for path in [*files, *unpacked]:
        if path.exists() or path.is_symlink():
            raise Refused(f"{path} exists already: --force (in Python force=True) replaces it")


def _downloaded(results: Results, folder: Path, extract: bool, limits: bool) -> Iterator[Downloaded]:
    for one in results.objects:
        path = folder / one.name
        unpacked = _unpacked(path) if extract else None
        if unpacked is not None:
            unpack(path, unpacked, limits=limits)
        yield Downloaded(path, str(one.where), one.size, unpacked)


def _unpacked(path: Path) -> Path | None:
    return path.with_name(path.name.removesuffix(_PACKED)) if path.name.endswith(_PACKED) else None
