"""The jobs launched from one folder, in ``.smdp/history.jsonl``, which only grows.

A job has a line that is written before it is submitted, and one more when somebody from this folder has seen its end.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.private_files import NotPrivate, check_folder, make_folder, open_file, read_bytes

if TYPE_CHECKING:
    from smdp_launch.jobs.records.outcome import Outcome
    from smdp_launch.planning.plan import Plan

#: Everything this tool keeps beside the person's files lies in this folder of the current one.
STATE_FOLDER = ".smdp"

_FILE = "history.jsonl"
_LOCK_WAIT = 10.0  # seconds; who writes needs milliseconds

#: `where` of a job of this machine.
LOCAL = "local"

_Line = TypeVar("_Line")


@dataclass(frozen=True)
class Cost:
    """What a plan says of the money.

    Args:
        price: USD an hour of one host; None where no table of prices was given.
        most_usd: of the whole job, at the limit of its run time.
    """

    hosts: int
    price: float | None = None
    most_usd: float | None = None


@dataclass(frozen=True)
class Launch:
    """``where`` is the AWS region, or "local"; the rest of the cost is None where no price is known.

    ``state`` is the state folder of the local cloud that a job of this machine runs in, seen from the folder of the
    history where it lies below that, so that both can be moved together. ``resumes`` is the job that it goes on from.
    """

    job: str
    where: str
    job_file: str
    plan_hash: str
    time: str
    hosts: int | None = None
    price: float | None = None
    most_usd: float | None = None
    state: str | None = None
    resumes: str | None = None


@dataclass(frozen=True)
class End:
    """How a job ended.

    Args:
        ended: the service's TrainingJobStatus.
        time: when that was seen.
        billable_seconds: of one host, as the service counts them.
        usd: what all hosts cost for those, at the price of the launch; None where that is unknown.
    """

    job: str
    ended: str
    summary: str
    exit_code: int
    time: str
    billable_seconds: int | None = None
    usd: float | None = None


def state_folder(beside: Path | None = None) -> Path:
    """The folder in the current one, or in ``beside``, made if need be; git does not see it.

    Raises:
        EnvironmentProblem: it cannot be made here, or another user may have prepared it.
    """
    folder = (beside or Path.cwd()) / STATE_FOLDER
    try:
        with private_state():
            make_folder(folder)
        with suppress(FileExistsError), (folder / ".gitignore").open("x") as ignore:
            ignore.write("*\n")
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be made ({why(error, folder)}): run from a folder that you can write to"
        ) from error
    return folder


def existing_state_folder() -> Path | None:
    """That of the current folder, or None where there is none.

    Raises:
        EnvironmentProblem: another user may have prepared it.
    """
    try:
        folder = Path.cwd() / STATE_FOLDER
        with private_state():
            check_folder(folder)
    except OSError:
        return None
    return folder


@contextmanager
def private_state() -> Iterator[None]:
    """Raises:
    EnvironmentProblem: state that another user may have prepared or may change was met.
    """
    try:
        yield
    except NotPrivate as error:
        raise EnvironmentProblem(str(error)) from error


def remember_plan(plan: Plan, now: datetime, state: Path | None = None) -> None:
    """The launch of ``plan``, which is about to be submitted: to the local cloud on ``state``, or to AWS."""
    if plan.local is not None:
        remember(plan.job, LOCAL, plan.job_file, plan.hash, now, Cost(plan.hosts), state)
    else:
        bill = plan.billing
        cost = Cost(plan.hosts, bill.price, bill.usd)
        remember(plan.job, plan.spec.region, plan.job_file, plan.hash, now, cost)


def remember(
    job: str,
    where: str,
    job_file: str,
    plan_hash: str,
    now: datetime,
    cost: Cost | None = None,
    state: Path | None = None,
) -> None:
    known = asdict(cost) if cost is not None else {}
    _write(Launch(job, where, job_file, plan_hash, _stamp(now), **known, state=_from_here(state)))


def remember_resumption(job: str, resumes: str, where: str, plan_hash: str, now: datetime, hosts: int) -> None:
    """The launch of ``job``, which goes on from ``resumes``: as one of that one's file, at its price."""
    old = find_launch(resumes) or Launch(resumes, where, "job.yaml", "", "")
    _write(replace(old, job=job, where=where, plan_hash=plan_hash, time=_stamp(now), hosts=hosts, resumes=resumes))


def _write(entry: Launch) -> None:
    path = state_folder() / _FILE
    try:
        with _opened(path) as file:
            _append(file, entry)
    except OSError as error:
        raise EnvironmentProblem(f"the launch cannot be recorded in {path}: {why(error, path)}") from error


def remember_end(job: str, outcome: Outcome, now: datetime) -> None:
    """How ``job`` ended, unless that is written already, or the job is none of this folder.

    Whoever only looks at a job can do so where nothing can be written.
    """
    folder = existing_state_folder()
    if folder is None or not (folder / _FILE).exists():
        return
    with suppress(OSError, EnvironmentProblem), _opened(folder / _FILE) as file:
        launched, ended = find_launch(job), ends()
        if launched is None or job in ended:
            return
        usd = _usd(launched, outcome.billable_seconds)
        code = int(outcome.exit_code)
        _append(file, End(job, outcome.status, outcome.summary, code, _stamp(now), outcome.billable_seconds, usd))


def launches() -> list[Launch]:
    """From the current folder, in order, each job once, as it was launched last; a line that is no launch of this
    version is passed over."""
    found: dict[str, Launch] = {}
    for one in _read(Launch):
        found.pop(one.job, None)
        found[one.job] = one
    return list(found.values())


def ends() -> dict[str, End]:
    """Of the jobs that were launched from the current folder and seen to end, by their names."""
    return {one.job: one for one in _read(End)}


def find_launch(job: str | None = None) -> Launch | None:
    """That of ``job``, or the last of all."""
    return next((one for one in reversed(launches()) if job in (None, one.job)), None)


#: The NAME that stands for the job that was launched last.
LATEST = "latest"


def meant(name: str | None) -> Launch | None:
    """The launch that a person means by ``name``: a job's whole name, the beginning of only one, or ``latest``.

    Returns:
        None where no job of this folder has such a name; without a name, where none was launched from here.

    Raises:
        Refused: several begin so.
    """
    known = launches()
    exact = find_launch(name)
    if name is None or exact is not None:
        return exact
    if name == LATEST:
        return find_launch()
    found = [one for one in known if one.job.startswith(name)] if name else []
    if len(found) > 1:
        listed = ", ".join(one.job for one in found[:-6:-1])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Refused(f"{name} may be any of {len(found)} jobs: {listed}{more}; `latest` is the last of all")
    return found[0] if found else None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """For appending, one process at a time.

    Raises:
        EnvironmentProblem: another process keeps it, or another user may have prepared it.
    """
    with private_state():
        file = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        _lock(file, path)
        yield file
    finally:
        os.close(file)


def _lock(file: int, path: Path) -> None:
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise EnvironmentProblem(
                    f"another process has held {path} for {_LOCK_WAIT:g} s: end it (`fuser {path}` names it), try again"
                ) from None
            time.sleep(0.02)
        else:
            return


def _append(file: int, entry: Launch | End) -> None:
    """On a line of its own, also behind one that a full disk or a power cut has torn."""
    known: dict[str, Any] = {name: value for name, value in asdict(entry).items() if value is not None}
    size = os.fstat(file).st_size
    torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    line = ("\n" * torn + json.dumps(known) + "\n").encode()
    if os.write(file, line) < len(line):  # the first part of it had room
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _usd(launched: Launch, billable: int | None) -> float | None:
    if launched.price is None or launched.hosts is None or billable is None:
        return None
    return round(launched.price * launched.hosts * billable / 3600, 6)


def _from_here(state: Path | None) -> str | None:
    if state is None:
        return None
    here = Path.cwd()
    return str(state.relative_to(here) if state.is_relative_to(here) else state.absolute())


def _stamp(now: datetime) -> str:
    return now.astimezone(timezone.utc).isoformat(timespec="seconds")


def _read(kind: type[_Line]) -> Iterator[_Line]:
    for line in _lines():
        try:
            yield kind(**json.loads(line))
        except (ValueError, TypeError):
            continue


def _lines() -> list[str]:
    folder = existing_state_folder()
    if folder is None:
        return []
    try:
        with private_state():
            return read_bytes(folder / _FILE).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
