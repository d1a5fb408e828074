"""The jobs launched from one folder, in ``.smdp/history.jsonl``, which only grows.

A job has one line that is written before it is submitted, and one more when a command in this folder has seen its end.
A line with what it read is added when a command has read its numbers.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.file_lock import LockTimeout, locked
from smdp_launch.jobs.records.current_folder import require_current_folder
from smdp_launch.jobs.records.folders import remember_folder
from smdp_launch.jobs.records.lines import NEVER_ACCEPTED, End, InputRate, Launch, Notified, Retained
from smdp_launch.private_files import NotPrivate, check_folder, make_folder, open_file, read_bytes
from smdp_launch.saved_versions import NewerVersion, check_folder_version, write_folder_version
from smdp_launch.systems import IS_WINDOWS

if TYPE_CHECKING:
    from smdp_launch.jobs.records.outcome import Outcome
    from smdp_launch.planning.plan import Plan

#: The folder in the current one that has all files of this tool.
STATE_FOLDER = ".smdp"
#: Version of its layout and of the history; raised when an older smdp-launch would read it wrongly.
STATE_VERSION = 1

_FILE = "history.jsonl"
_LOCK_WAIT = 10.0  # seconds; a write takes milliseconds

#: At most so many runs of a job are searched for what they measured.
_MOST_RUNS = 5

#: `where` of a local job.
LOCAL = "local"


def state_folder(beside: Path | None = None) -> Path:
    """The state folder in the current one, or in ``beside``. It is created if it is missing; git ignores it.

    Raises:
        EnvironmentProblem: it cannot be created, another user may have prepared it, or a newer smdp-launch has.
    """
    folder = (beside or Path.cwd()) / STATE_FOLDER
    try:
        with private_state():
            make_folder(folder)
            _check_version(folder)
            with suppress(OSError):  # a folder of an older version that is read-only now
                write_folder_version(folder, STATE_VERSION)
        with suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="ascii") as ignore:
            ignore.write("*\n")
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be created ({why(error, folder)}): run in a folder that you can write to, such as after: "
            'cd "$(mktemp -d)"'
        ) from error
    return folder


def existing_state_folder(beside: Path | None = None) -> Path | None:
    """The state folder in the current one, or in ``beside``; None if there is none.

    Raises:
        EnvironmentProblem: another user may have prepared it, or a newer smdp-launch has written it.
    """
    try:
        folder = (beside or Path.cwd()) / STATE_FOLDER
        with private_state():
            check_folder(folder)
            _check_version(folder)
    except OSError:
        return None
    return folder


def _check_version(folder: Path) -> None:
    try:
        check_folder_version(folder, STATE_VERSION)
    except NewerVersion as error:
        raise EnvironmentProblem(str(error)) from error


@contextmanager
def private_state() -> Iterator[None]:
    """Turn NotPrivate into EnvironmentProblem: another user may have prepared the state, or may change it."""
    try:
        yield
    except NotPrivate as error:
        raise EnvironmentProblem(str(error)) from error


def record_plan(plan: Plan, now: datetime, state: Path | None = None) -> None:
    """Record the launch of ``plan`` before it is submitted to the local cloud on ``state``, or to AWS."""
    if plan.local is not None:
        where, price, most_usd = LOCAL, None, None
    else:
        where, price, most_usd = plan.spec.region, plan.billing.price, plan.billing.usd
        most_usd = plan.sweep_bounds.usd if plan.sweep_bounds is not None else most_usd
    more: dict[str, Any] = {"hosts": plan.hosts, "price": price, "most_usd": most_usd, "state": relative_state(state)}
    if plan.local is None:
        more |= _billed_as(plan)
    if plan.spec.serve is not None:
        more["serves"] = True
    if plan.tuning is not None:
        more["sweep"] = True
    if plan.spec.notify is not None:
        more["notify"] = plan.spec.notify.model_dump_json(exclude_none=True)
    record_launch(plan.job, where, plan.job_file, plan.hash, now, **more)
    if plan.local is None:
        remember_folder(Path.cwd())


def _billed_as(plan: Plan) -> dict[str, Any]:
    """What the cost of a job on AWS depends on, as fields of `Launch`."""
    from smdp_launch.host_counts import hosts_by_type
    from smdp_launch.request.cost import priced_types  # most commands have no plan

    types, prices = priced_types(plan.spec), plan.prices
    known = {one: prices.hourly(plan.spec.region, one) for one in types} if prices is not None else {}
    if plan.spec.compute.other_groups:
        return {
            "types": hosts_by_type(plan.request["ResourceConfig"]),
            "price_source": f"{prices.source}, {prices.date}" if prices is not None and all(known.values()) else None,
            "tags": dict(plan.spec.tags) or None,
            "spot": True if plan.spec.spot is not None else None,
        }
    return {
        "instance_type": types[0] if len(types) == 1 else None,
        "prices": {name: price for name, price in known.items() if price is not None} or None,
        "price_source": f"{prices.source}, {prices.date}" if prices is not None and any(known.values()) else None,
        "tags": dict(plan.spec.tags) or None,
        "spot": True if plan.spec.spot is not None else None,
        "keep_alive": plan.spec.compute.keep_alive,
    }


def record_launch(job: str, where: str, job_file: str, plan_hash: str, now: datetime, **more: Any) -> None:
    """``more``: the other fields of `Launch`."""
    write_entry(Launch(job, where, job_file, plan_hash, stamp(now), **more))


def record_resumption(job: str, resumes: str, where: str, plan_hash: str, now: datetime, hosts: int) -> None:
    """Record the launch of ``job``, which continues from the checkpoints of ``resumes``, with that job's file and
    price."""
    old = find_launch(resumes) or Launch(resumes, where, "job.yaml", "", "")
    write_entry(replace(old, job=job, where=where, plan_hash=plan_hash, time=stamp(now), hosts=hosts, resumes=resumes))


def write_entry(entry: Any, what: str = "the launch") -> None:
    """Append a dataclass as a line. Its required fields distinguish it from the other kinds of lines.

    Raises:
        EnvironmentProblem: it cannot be written; ``what`` is what is not recorded.
    """
    path = state_folder() / _FILE
    try:
        with _opened(path) as file:
            _append(file, entry)
    except OSError as error:
        raise EnvironmentProblem(f"{what} cannot be recorded in {path}: {why(error, path)}") from error


def record_end(job: str, outcome: Outcome, now: datetime, beside: Path | None = None) -> None:
    """Record how ``job`` ended, if it was launched from this folder, or from ``beside``, and its end is not recorded
    yet.

    A write error is ignored: commands that only show a job also work in a read-only folder.
    """
    folder = existing_state_folder(beside)
    if folder is None or not (folder / _FILE).exists():
        return
    with suppress(OSError, EnvironmentProblem), _opened(folder / _FILE) as file:
        launched = find_launch(job, beside)
        if launched is None or job in ends(beside):
            return
        usd = _usd(launched, outcome)
        code = int(outcome.exit_code)
        seconds = (outcome.billable_seconds, usd, outcome.training_seconds)
        _append(file, End(job, outcome.status, outcome.summary, code, stamp(now), *seconds, outcome.instance_type))


def record_input_rate(rate: InputRate) -> None:
    """Record what a job of this folder read, unless the same is recorded. A write error is ignored, as for its end."""
    folder = existing_state_folder()
    if folder is None or not (folder / _FILE).exists():
        return
    with suppress(OSError, EnvironmentProblem), _opened(folder / _FILE) as file:
        if find_launch(rate.job) is not None and input_rates().get(rate.job) != rate:
            _append(file, rate)


def claim_notification(wanted: Notified) -> bool:
    """Whether the caller has to send it: of several commands that follow a job, the first one. If the claim cannot be
    recorded, each sends it."""
    folder = existing_state_folder()
    if folder is None or not (folder / _FILE).exists():
        return True
    try:
        with _opened(folder / _FILE) as file:
            if wanted in entries(Notified):
                return False
            _append(file, wanted)
    except (OSError, EnvironmentProblem):
        return True
    return True


def record_retained(retained: Retained) -> None:
    """Record how long a warm pool of this folder stayed, unless it is recorded. A write error is ignored, as for an
    end."""
    folder = existing_state_folder()
    if folder is None or not (folder / _FILE).exists():
        return
    with suppress(OSError, EnvironmentProblem), _opened(folder / _FILE) as file:
        if retained.job not in {one.job for one in entries(Retained)}:
            _append(file, retained)


def input_rates() -> dict[str, InputRate]:
    """The last recorded rate of each job that was launched from the current folder."""
    return {one.job: one for one in entries(InputRate)}


def runs_of(job_file: Path) -> Iterator[Launch]:
    """The latest runs of this job file from the current folder, the last first, rehearsals included."""
    path = job_file.absolute()
    runs = (one for one in reversed(launches()) if Path(one.job_file).absolute() == path)
    return islice(runs, _MOST_RUNS)


def launches(beside: Path | None = None) -> list[Launch]:
    """The launches from the current folder, or from ``beside``, in order; of each job only the last one. A line that is
    no launch is skipped."""
    by_job: dict[str, Launch] = {}
    for one in entries(Launch, beside):
        by_job.pop(one.job, None)
        by_job[one.job] = one
    return list(by_job.values())


def ends(beside: Path | None = None) -> dict[str, End]:
    """The recorded ends of the jobs that were launched from the current folder, or from ``beside``, by job name. A job
    that was never accepted may have been launched again later: the resumption of a job has the same name each time."""
    found: dict[str, End] = {}
    for line in _lines(beside):
        end = _read(End, line)
        again = _read(Launch, line) if end is None else None
        if end is not None:
            found[end.job] = end
        elif again is not None and again.job in found and found[again.job].ended == NEVER_ACCEPTED:
            del found[again.job]
    return found


def find_launch(job: str | None = None, beside: Path | None = None) -> Launch | None:
    """The launch of ``job``; without ``job``, the last launch."""
    return next((one for one in reversed(launches(beside)) if job in (None, one.job)), None)


#: The NAME that stands for the job that was launched last.
LATEST = "latest"


def resolve_name(name: str | None) -> Launch | None:
    """The launch for a NAME on the command line: a job's whole name, a unique prefix of it, or ``latest``.

    Returns:
        None if no job of this folder has such a name; without a name, if none was launched from this folder.

    Raises:
        Refused: several jobs have this prefix.
        EnvironmentProblem: the current folder was deleted.
    """
    require_current_folder()
    exact = find_launch(name)
    if name is None or exact is not None:
        return exact
    if name == LATEST:
        return find_launch()
    matching = [one for one in launches() if one.job.startswith(name)] if name else []
    if len(matching) > 1:
        listed = ", ".join(one.job for one in matching[:-6:-1])
        more = f" and {len(matching) - 5} more" if len(matching) > 5 else ""
        raise Refused(f"{len(matching)} jobs begin with {name}: {listed}{more}; `latest` is the last of all")
    return matching[0] if matching else None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open and lock the file for appending.

    Raises:
        EnvironmentProblem: another process holds the lock, or another user may have prepared the file.
    """
    with private_state():
        file = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        with locked(file, path, _LOCK_WAIT):
            yield file
    except LockTimeout:
        shown = "Task Manager" if IS_WINDOWS else f"`fuser {path}`"
        raise EnvironmentProblem(
            f"another process has locked {path} for {_LOCK_WAIT:g} s: {shown} shows it; end it and try again"
        ) from None
    finally:
        os.close(file)


def _append(file: int, entry: Any) -> None:
    """Append a whole line, also after a line that a full disk or a power failure has cut off."""
    known: dict[str, Any] = {name: value for name, value in asdict(entry).items() if value is not None}
    is_cut_off = False
    if os.lseek(file, 0, os.SEEK_END) > 0:
        os.lseek(file, -1, os.SEEK_END)
        is_cut_off = os.read(file, 1) != b"\n"
    line = ("\n" * is_cut_off + json.dumps(known) + "\n").encode()
    if os.write(file, line) < len(line):  # the disk became full
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _usd(launched: Launch, outcome: Outcome) -> float | None:
    billable, price = outcome.billable_seconds, launched.price_of(outcome.instance_type)
    if price is None or launched.hosts is None or billable is None:
        return None
    return round(price * launched.hosts * billable / 3600, 6)


def relative_state(state: Path | None) -> str | None:
    if state is None:
        return None
    current = Path.cwd()
    return str(state.relative_to(current) if state.is_relative_to(current) else state.absolute())


def stamp(now: datetime) -> str:
    return now.astimezone(timezone.utc).isoformat(timespec="seconds")


_Line = TypeVar("_Line")

#: The types of the fields, by their annotations.
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "bool | None": (bool, NoneType),
    "float": (float, int),
    "str | None": (str, NoneType),
    "int | None": (int, NoneType),
    "float | None": (float, int, NoneType),
    "dict[str, float] | None": (dict, NoneType),
    "dict[str, int] | None": (dict, NoneType),
    "dict[str, str] | None": (dict, NoneType),
}


def entries(kind: type[_Line], beside: Path | None = None) -> Iterator[_Line]:
    """The lines of this kind, a dataclass, in the history of the current folder or of ``beside``. A later version may
    add fields, which are ignored."""
    read = (_read(kind, line) for line in _lines(beside))
    return (one for one in read if one is not None)


def _read(kind: type[_Line], line: str) -> _Line | None:
    """None if it is no line of this kind."""
    known = fields(cast("Any", kind))
    try:
        given = json.loads(line)
        one = kind(**{field.name: given[field.name] for field in known if field.name in given})
    except (ValueError, TypeError, RecursionError):
        return None
    return one if all(isinstance(getattr(one, field.name), _TYPES[str(field.type)]) for field in known) else None


def _lines(beside: Path | None) -> list[str]:
    folder = existing_state_folder(beside)
    if folder is None:
        return []
    try:
        with private_state():
            return read_bytes(folder / _FILE).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
