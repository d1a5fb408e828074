"""The report of a rehearsal: one page of plain data that the terminal, the browser and programs are given.

Each figure in it was measured by this machine or stands in the plan, which says so; nothing is estimated.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.catalog.faults import Fault
from smdp_launch.catalog.instances import instance
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobs.follow import StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.small_runs import needs_more_workers
from smdp_launch.planning.consequences import side_effects
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.rehearsed import Rehearsed, spec_digest
from smdp_launch.planning.summary import cost
from smdp_launch.rehearsals.rehearsal import Rehearsal, Result, Row, announced, platform, told_fault
from smdp_launch.request.build import training_request
from smdp_launch.rules.request.placeholders import to_fill_in
from smdp_launch.secret_forms import named_secrets, starred
from smdp_launch.units import count, duration, size, titled

#: Points of the steps that a report keeps: enough for a line across a page, and a bound for a long run.
_MOST_STEPS = 600


@dataclass(frozen=True)
class Status:
    """A secondary status of the service; milliseconds since the timeline began. One that ends a job has no length."""

    name: str
    message: str
    start_ms: int
    end_ms: int

    @property
    def seconds(self) -> float:
        return (self.end_ms - self.start_ms) / 1000


@dataclass(frozen=True)
class Moment:
    """Something that happened to one host, or to all."""

    at_ms: int
    host: str
    text: str


@dataclass(frozen=True)
class Timeline:
    """Args:
    began: when the job was created.
    length_ms: until its end.
    attempts: the statuses of each start of the hosts; a wait for new ones belongs to the attempt that it follows.
    restored: checkpoints that a host found when it began again.
    steps: milliseconds and the step that was reported then; a long run's are thinned, none is made up.
    """

    began: datetime
    length_ms: int
    attempts: tuple[tuple[Status, ...], ...]
    strikes: tuple[Moment, ...]
    restored: tuple[Moment, ...]
    steps: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "began": self.began.isoformat(timespec="milliseconds"),
            "length_ms": self.length_ms,
            "attempts": [[asdict(one) for one in statuses] for statuses in self.attempts],
            "strikes": [asdict(one) for one in self.strikes],
            "restored": [asdict(one) for one in self.restored],
            "steps": [{"at_ms": at, "step": step} for at, step in self.steps],
        }


@dataclass(frozen=True)
class Report:
    """Args:
    version: of smdp-launch.
    rehearsed: what was run, where and when.
    evidence: what was seen and measured.
    honoured: what of the job file was in force here.
    not_honoured: what was not, a sentence each.
    adds: what the run on AWS has beyond this one, from the plan.
    """

    plan: Plan
    rehearsal: Rehearsal
    local: LocalRun
    version: str
    verdict: Result
    reason: str
    rehearsed: tuple[Row, ...]
    platform: str
    evidence: tuple[Row, ...]
    honoured: tuple[Row, ...]
    not_honoured: tuple[str, ...]
    adds: tuple[Row, ...]
    timeline: Timeline

    @property
    def passed(self) -> bool:
        return self.verdict == "PASS"

    @property
    def fault(self) -> Fault:
        return self.rehearsal.fault

    def summary(self) -> Rehearsed:
        local = self.local
        made = self.plan.made.isoformat(timespec="seconds")
        return Rehearsed(
            self.fault.kind, self.passed, self.reason, made, self.plan.job, local.hosts, local.workers_per_host, True
        )

    def to_json(self) -> dict[str, Any]:
        """The document that docs/json.md tells of."""
        plan = self.plan
        told = {
            **self.rehearsal.to_json(),
            "job": plan.job,
            "job_file": plan.job_file,
            "made": plan.made.isoformat(timespec="seconds"),
            "version": self.version,
            "hosts": self.local.hosts,
            "workers_per_host": self.local.workers_per_host,
            "plan_hash": plan.hash,
            "spec_sha256": spec_digest(plan.spec),
            "source_sha256": plan.source.sha256,
            "fault": asdict(self.fault),
            "rehearsed": _named(self.rehearsed),
            "platform": self.platform,
            "honoured": _named(self.honoured),
            "not_honoured": list(self.not_honoured),
            "real_run_adds": _named(self.adds),
            "timeline": self.timeline.to_json(),
        }
        shown: dict[str, Any] = starred(told, named_secrets(plan.spec.model_dump(mode="json")))
        return shown


def report(plan: Plan, rehearsal: Rehearsal, version: str) -> Report:
    """Of a job that has ended.

    Args:
        version: of smdp-launch.

    Raises:
        ValueError: it has not, or was not run on this machine.
    """
    if plan.local is None:
        raise ValueError(f"{plan.job} was not run on this machine")
    judged = rehearsal.verdict()
    secrets = named_secrets(plan.spec.model_dump(mode="json"))

    def shown(rows: Iterable[Row]) -> tuple[Row, ...]:
        return tuple((name, str(starred(value, secrets))) for name, value in rows)

    return Report(
        plan=plan,
        rehearsal=rehearsal,
        local=plan.local,
        version=version,
        verdict=judged.result,
        reason=str(starred(judged.reason, secrets)),
        rehearsed=shown([*_rehearsed(plan, plan.local, rehearsal), ("with", f"smdp-launch {version}")]),
        platform=platform(rehearsal.fault.kind),
        evidence=shown([*judged.evidence, *_too_few(plan, rehearsal)]),
        honoured=shown(_honoured(plan, plan.local, rehearsal)),
        not_honoured=plan.local.not_honoured,
        adds=shown(_adds(plan, plan.local)),
        timeline=timeline(rehearsal),
    )


def _too_few(plan: Plan, rehearsal: Rehearsal) -> list[Row]:
    """That the job failed because this run has fewer workers than it."""
    if rehearsal.outcome is None:
        return []
    return titled("workers", list(needs_more_workers(plan, rehearsal.outcome)))


def _named(rows: Sequence[Row]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in rows]


def _rehearsed(plan: Plan, local: LocalRun, rehearsal: Rehearsal) -> Iterator[Row]:
    here = f"{count(local.hosts, 'host')} x {count(local.workers_per_host, 'worker')}"
    image = ", from the job's image" if local.containers else ""
    link = f", links of {local.network}" if local.network is not None else ""
    yield "fault", f"{rehearsal.fault.kind}: {announced(rehearsal.fault)}"
    if rehearsal.fault.kind == "kill":
        yield "", f"the job must have ended {rehearsal.within:g} s later"
    yield "on", f"{here} of this machine{image}{link}"
    yield "job", f"{plan.job}, from {plan.job_file}"
    yield "plan", plan.hash
    yield "source", f"{count(len(plan.source.files), 'file')}, {size(plan.source.size)}, sha256 {plan.source.sha256}"
    yield "when", f"{plan.made.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _honoured(plan: Plan, local: LocalRun, rehearsal: Rehearsal) -> Iterator[Row]:
    """What was in force; a job whose hosts never started has put nothing but its request to the test."""
    yield "request", _request_kept(plan)
    if not rehearsal.trained_ms:
        return
    spec = plan.spec
    # Before quotation marks are put around what holds one, which would hide it.
    arguments = starred(list(plan.script_arguments), named_secrets(spec.model_dump(mode="json")))
    yield "script", shlex.join([spec.script.entry, *arguments])
    yield "entrypoint", "that of the job's image" if local.containers else "smdp-entrypoint"
    if spec.environment:
        yield "environment", ", ".join(sorted(spec.environment))
    yield from titled("channels", list(_channels_here(plan, local)))
    if spec.checkpoint is not None:
        yield "checkpoints", f"{spec.checkpoint.path} is kept in the local cloud's S3 while the job trains"
    yield "max_run", f"the job would have been stopped after {duration(spec.compute.max_run)} of training"
    if rehearsal.fault.kind == "spot" and spec.spot is not None and spec.spot.max_wait is not None:
        yield "max_wait", f"the wait for capacity would have ended {duration(spec.spot.max_wait)} after the job began"
    if rehearsal.has_told("interrupted") and spec.spot is not None:
        yield "spot", "one interruption, at the moment that was asked for; AWS chooses its own"
    if spec.metrics:
        yield "metrics", f"{', '.join(sorted(spec.metrics))}: looked for in each line"


def _request_kept(plan: Plan) -> str:
    asked = training_request(plan.spec, plan.source, plan.job)
    names = sorted((set(asked) | set(plan.request)) - {"Tags"})
    changed = [name for name in names if asked.get(name) != plan.request.get(name)]
    return f"{len(names) - len(changed)} of its {len(names)} members as on AWS; changed for this machine: " + ", ".join(
        changed
    )


def _channels_here(plan: Plan, local: LocalRun) -> Iterator[str]:
    for name, one in sorted(plan.spec.channels.items()):
        where = local.data.get(name)
        kind = "files under" if isinstance(one, S3Channel) else "the folder"
        yield f"{name}: {kind} {where}" if where is not None else f"{name}: the folder that the local cloud has for it"


def _adds(plan: Plan, local: LocalRun) -> Iterator[Row]:
    spec = plan.spec
    compute, known = spec.compute, instance(spec.compute.instance_type)
    gpus = ""
    if known is not None:
        gpus = f": {compute.instance_count * known.gpus} x {known.gpu}, {known.gpu_memory_gb} GB each"
    yield "instances", f"{compute.instance_count} x {compute.instance_type}{gpus}"
    yield "image", f"every host pulls {plan.image.uri}"
    yield "capacity", _capacity(plan)
    yield from titled("data", [f"{name}: {_data(one)}" for name, one in sorted(spec.channels.items())])
    yield "cost", cost(plan)
    where = {"CheckpointConfig": {"S3Uri": spec.checkpoint.s3}} if spec.checkpoint is not None else {}
    yield from titled("leaves", list(side_effects(spec, where)))  # this run's own name is in its request
    if plan.placeholders:
        yield "to fill in", to_fill_in(plan.placeholders)


def _capacity(plan: Plan) -> str:
    spec = plan.spec
    if spec.spot is not None and spec.spot.max_wait is not None:
        return f"waits and runs for {duration(spec.spot.max_wait)} at most; AWS says when spot instances come and go"
    if spec.compute.max_pending is not None:
        return f"the job may wait {duration(spec.compute.max_pending)} for its instances"
    return "the job waits for its instances, without a limit of its own: compute.max_pending sets one"


def _data(channel: S3Channel | FsxChannel | EfsChannel) -> str:
    if isinstance(channel, S3Channel):
        return f"what lies under {channel.s3} ({channel.mode})"
    return f"{channel.fsx if isinstance(channel, FsxChannel) else channel.efs}, {channel.path}"


def timeline(rehearsal: Rehearsal) -> Timeline:
    """Of what was seen so far."""
    changes = _without_repeats(rehearsal.changes)
    times = [one.time_ms for one in changes] + [one.time_ms for one in (*rehearsal.struck, *rehearsal.restorations)]
    times += [at for at, _ in rehearsal.steps]
    began, last = min(times, default=0), max(times, default=0)
    return Timeline(
        datetime.fromtimestamp(began / 1000, timezone.utc),
        last - began,
        tuple(_attempts(changes, began, last if rehearsal.outcome is None else None)),
        tuple(_moment(one, began, told_fault(one)) for one in rehearsal.struck),
        tuple(_moment(one, began, _restored(one)) for one in rehearsal.restorations),
        tuple((at - began, step) for at, step in _thinned(rehearsal.steps)),
    )


def _without_repeats(changes: Sequence[StatusChanged]) -> list[StatusChanged]:
    """A status is told again when its message changes: each once, with the last message."""
    found: dict[tuple[int, str], StatusChanged] = {(one.time_ms, one.status): one for one in changes}
    return list(found.values())


def _attempts(changes: Sequence[StatusChanged], began: int, last: int | None) -> Iterator[tuple[Status, ...]]:
    """``last`` is None for a job that has ended: its last status is a moment, whatever a log has told since."""
    attempt: list[Status] = []
    for index, one in enumerate(changes):
        until = changes[index + 1].time_ms if index + 1 < len(changes) else last or one.time_ms
        if attempt and attempt[-1].name in ("Interrupted", "Stopped"):
            yield tuple(attempt)
            attempt = []
        attempt.append(Status(one.status, one.message, one.time_ms - began, until - began))
    if attempt:
        yield tuple(attempt)


def _moment(event: JobEvent, began: int, text: str) -> Moment:
    return Moment(event.time_ms - began, event.host, text)


def _restored(event: JobEvent) -> str:
    files = event.fields.get("files")
    return f"{count(files, 'file') if isinstance(files, int) else 'files'} of checkpoints restored"


def _thinned(steps: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """One of so many at equal distances, and the last."""
    stride = -(-len(steps) // _MOST_STEPS)
    if stride <= 1:
        return steps
    kept = list(steps[::stride])
    return kept if kept[-1] == steps[-1] else [*kept, steps[-1]]
