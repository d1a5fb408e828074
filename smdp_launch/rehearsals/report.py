"""The report of a rehearsal: plain data for the terminal, the browser and programs.

Each figure was measured in the local run or is in the plan; nothing is estimated.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from smdp_launch.catalog.instances import instance
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobs.follow import StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.too_few_workers import needs_more_workers
from smdp_launch.planning.consequences import side_effects
from smdp_launch.planning.past_rehearsals import REHEARSAL_VERSION, spec_digest
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.summary import cost
from smdp_launch.rehearsals.rehearsal import Rehearsal, Result, Row
from smdp_launch.rehearsals.texts import describe_fault, describe_planned_fault, platform
from smdp_launch.request.build import training_request
from smdp_launch.request.cost import pending_is_limited
from smdp_launch.rules.request.placeholders import to_fill_in
from smdp_launch.secret_forms import named_secrets, starred
from smdp_launch.source.scan import SourceTree
from smdp_launch.units import count, duration, size, titled

#: Limit for the steps in a report: enough for a line across a page.
_MOST_STEPS = 600


@dataclass(frozen=True)
class Status:
    """A secondary status of the service; milliseconds since the start of the timeline. A final status has no length."""

    name: str
    message: str
    start_ms: int
    end_ms: int

    @property
    def seconds(self) -> float:
        return (self.end_ms - self.start_ms) / 1000


@dataclass(frozen=True)
class Moment:
    """An event on one host, or on all."""

    at_ms: int
    host: str
    text: str


@dataclass(frozen=True)
class Timeline:
    """Args:
    began: when the job was created.
    length_ms: from then to its end.
    attempts: the statuses of each start of the hosts; the wait for new hosts belongs to the attempt before it.
    faults: what the local cloud did to the job.
    restored: checkpoints that a restarted host has.
    steps: milliseconds and the step reported then; a sample of them for a long run.
    """

    began: datetime
    length_ms: int
    attempts: tuple[tuple[Status, ...], ...]
    faults: tuple[Moment, ...]
    restored: tuple[Moment, ...]
    steps: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "began": self.began.isoformat(timespec="milliseconds"),
            "length_ms": self.length_ms,
            "attempts": [[asdict(one) for one in statuses] for statuses in self.attempts],
            "strikes": [asdict(one) for one in self.faults],
            "restored": [asdict(one) for one in self.restored],
            "steps": [{"at_ms": at, "step": step} for at, step in self.steps],
        }


@dataclass(frozen=True)
class Rehearsed:
    """A job or an endpoint that was rehearsed.

    Args:
        spec: as in the job file.
        workers_per_host: None for an endpoint.
        hash: of the job's plan, or of the deployment.
        fault: its fields.
    """

    name: str
    job_file: str
    made: datetime
    spec: JobSpec
    source: SourceTree
    hosts: int
    workers_per_host: int | None
    hash: str
    fault: Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """Args:
    run: what was rehearsed.
    kind: of the fault.
    version: of smdp-launch.
    rehearsed: what was run, where and when.
    evidence: what was reported and measured.
    applied: the parts of the job file that the local run applied.
    not_applied: the parts that it did not apply, one sentence each.
    adds: what the run on AWS adds, from the plan.
    """

    run: Rehearsed
    kind: str
    version: str
    verdict: Result
    reason: str
    rehearsed: tuple[Row, ...]
    platform: str
    evidence: tuple[Row, ...]
    applied: tuple[Row, ...]
    not_applied: tuple[str, ...]
    adds: tuple[Row, ...]
    timeline: Timeline

    @property
    def passed(self) -> bool:
        return self.verdict == "PASS"

    def to_json(self) -> dict[str, Any]:
        """The JSON output that docs/reference/json.md describes."""
        run = self.run
        document = {
            "rehearsal": REHEARSAL_VERSION,
            "kind": self.kind,
            "verdict": self.verdict,
            "passed": self.passed,
            "reason": self.reason,
            "evidence": _named(self.evidence),
            "job": run.name,
            "job_file": run.job_file,
            "made": run.made.isoformat(timespec="seconds"),
            "version": self.version,
            "hosts": run.hosts,
            "workers_per_host": run.workers_per_host,
            "plan_hash": run.hash,
            "spec_sha256": spec_digest(run.spec),
            "source_sha256": run.source.sha256,
            "fault": dict(run.fault),
            "rehearsed": _named(self.rehearsed),
            "platform": self.platform,
            "honoured": _named(self.applied),
            "not_honoured": list(self.not_applied),
            "real_run_adds": _named(self.adds),
            "timeline": self.timeline.to_json(),
        }
        shown: dict[str, Any] = starred(document, named_secrets(run.spec.model_dump(mode="json")))
        return shown


def report(plan: Plan, rehearsal: Rehearsal, version: str) -> Report:
    """The report on a job that has ended.

    Args:
        version: of smdp-launch.

    Raises:
        ValueError: the job has not ended, or is no local job.
    """
    if plan.local is None:
        raise ValueError(f"{plan.job} is no local job")
    verdict = rehearsal.verdict()
    secrets = named_secrets(plan.spec.model_dump(mode="json"))

    def shown(rows: Iterable[Row]) -> tuple[Row, ...]:
        return tuple((name, str(starred(value, secrets))) for name, value in rows)

    local = plan.local
    return Report(
        run=Rehearsed(
            plan.job,
            plan.job_file,
            plan.made,
            plan.spec,
            plan.source,
            local.hosts,
            local.workers_per_host,
            plan.hash,
            asdict(rehearsal.fault),
        ),
        kind=rehearsal.fault.kind,
        version=version,
        verdict=verdict.result,
        reason=str(starred(verdict.reason, secrets)),
        rehearsed=shown([*_rehearsed(plan, plan.local, rehearsal), ("with", f"smdp-launch {version}")]),
        platform=platform(rehearsal.fault.kind),
        evidence=shown([*verdict.evidence, *_too_few_workers(plan, rehearsal)]),
        applied=shown(_applied(plan, plan.local, rehearsal)),
        not_applied=plan.local.not_simulated,
        adds=shown(_adds(plan, plan.local)),
        timeline=timeline(rehearsal),
    )


def _too_few_workers(plan: Plan, rehearsal: Rehearsal) -> list[Row]:
    """Rows if the local run failed because it has fewer workers than the job."""
    if rehearsal.outcome is None:
        return []
    return titled("workers", list(needs_more_workers(plan, rehearsal.outcome)))


def _named(rows: Sequence[Row]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in rows]


def _rehearsed(plan: Plan, local: LocalRun, rehearsal: Rehearsal) -> Iterator[Row]:
    dimensions = f"{count(local.hosts, 'host')} x {count(local.workers_per_host, 'worker')}"
    image = ", from the job's image" if local.containers else ""
    link = f", links of {local.network}" if local.network is not None else ""
    yield "fault", f"{rehearsal.fault.kind}: {describe_planned_fault(rehearsal.fault)}"
    if rehearsal.fault.kind == "kill":
        yield "", f"the job must end within {rehearsal.within:g} s after it"
    if rehearsal.fault.kind == "hang":
        yield "", f"a report must name the rank within {rehearsal.within:g} s after it"
    yield "on", f"{dimensions}, simulated locally{image}{link}"
    yield "job", f"{plan.job}, from {plan.job_file}"
    yield "plan", plan.hash
    yield "source", f"{count(len(plan.source.files), 'file')}, {size(plan.source.size)}, sha256 {plan.source.sha256}"
    yield "when", f"{plan.made.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _applied(plan: Plan, local: LocalRun, rehearsal: Rehearsal) -> Iterator[Row]:
    """The parts of the job file that were applied: only the request, if the hosts never started."""
    yield "request", _unchanged_fields(plan)
    if not rehearsal.trained_ms:
        return
    spec = plan.spec
    # Before the arguments are quoted, which could hide a secret.
    arguments = starred(list(plan.script_arguments), named_secrets(spec.model_dump(mode="json")))
    yield "script", shlex.join([spec.script.entry, *arguments])
    yield "entrypoint", "that of the job's image" if local.containers else "smdp-entrypoint"
    if spec.environment:
        yield "environment", ", ".join(sorted(spec.environment))
    yield from titled("channels", list(_channels(plan, local)))
    if spec.checkpoint is not None:
        yield "checkpoints", f"{spec.checkpoint.path} is uploaded to the local cloud's S3 while the job trains"
    yield "max_run", f"the job would have been stopped after {duration(spec.compute.max_run)} of training"
    if rehearsal.fault.kind == "spot" and spec.spot is not None and spec.spot.max_wait is not None:
        yield "max_wait", f"the wait for capacity would have ended {duration(spec.spot.max_wait)} after the job began"
    if rehearsal.has_reported("interrupted") and spec.spot is not None:
        yield "spot", "one interruption, at the requested time; on AWS the time is unknown"
    if spec.metrics:
        yield "metrics", f"{', '.join(sorted(spec.metrics))}: read from each line"


def _unchanged_fields(plan: Plan) -> str:
    real = training_request(plan.spec, plan.source, plan.job)
    names = sorted((set(real) | set(plan.request)) - {"Tags"})
    changed = [name for name in names if real.get(name) != plan.request.get(name)]
    unchanged = f"{len(names) - len(changed)} of its {len(names)} fields"
    return f"{unchanged} as on AWS; changed for the local run: {', '.join(changed)}"


def _channels(plan: Plan, local: LocalRun) -> Iterator[str]:
    for name, one in sorted(plan.spec.channels.items()):
        where = local.data.get(name)
        kind = "files under" if isinstance(one, S3Channel) else "the folder"
        yield f"{name}: {kind} {where}" if where is not None else f"{name}: the local cloud's folder for it"


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
    yield from titled("leaves", list(side_effects(spec, where)))  # the local run's name is in its own request
    if plan.placeholders:
        yield "to fill in", to_fill_in(plan.placeholders)


def _capacity(plan: Plan) -> str:
    spec = plan.spec
    if spec.spot is not None and spec.spot.max_wait is not None:
        return f"the job waits and runs for {duration(spec.spot.max_wait)} at most; AWS decides when it has instances"
    if not pending_is_limited(spec):
        return "the job waits for its instances; SageMaker does not limit the wait for instances without accelerators"
    if spec.compute.max_pending is not None:
        return f"the job may wait {duration(spec.compute.max_pending)} for its instances"
    return "the job waits for its instances, without a limit of its own: compute.max_pending sets one"


def _data(channel: S3Channel | FsxChannel | EfsChannel) -> str:
    if isinstance(channel, S3Channel):
        return f"the objects under {channel.s3} ({channel.mode})"
    return f"{channel.fsx if isinstance(channel, FsxChannel) else channel.efs}, {channel.path}"


def timeline(rehearsal: Rehearsal) -> Timeline:
    """The timeline until now."""
    # A status is reported again when its message changes: the last message counts.
    changes = list({(one.time_ms, one.status): one for one in rehearsal.changes}.values())
    times = [one.time_ms for one in changes]
    times += [one.time_ms for one in (*rehearsal.fault_events, *rehearsal.restorations)]
    times += [at for at, _ in rehearsal.steps]
    began, last = min(times, default=0), max(times, default=0)
    return Timeline(
        datetime.fromtimestamp(began / 1000, timezone.utc),
        last - began,
        tuple(_attempts(changes, began, last if rehearsal.outcome is None else None)),
        tuple(_moment(one, began, describe_fault(one)) for one in rehearsal.fault_events),
        tuple(_moment(one, began, _restored(one)) for one in rehearsal.restorations),
        tuple((at - began, step) for at, step in _sample(rehearsal.steps)),
    )


def _attempts(changes: Sequence[StatusChanged], began: int, last: int | None) -> Iterator[tuple[Status, ...]]:
    """``last`` is None for a job that has ended: its last status has no length, although log lines may follow."""
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
    return f"{count(files, 'checkpoint file') if isinstance(files, int) else 'checkpoint files'} restored"


def _sample(steps: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Every n-th step and the last, `_MOST_STEPS` at most."""
    stride = -(-len(steps) // _MOST_STEPS)
    if stride <= 1:
        return steps
    sample = list(steps[::stride])
    return sample if sample[-1] == steps[-1] else [*sample, steps[-1]]
