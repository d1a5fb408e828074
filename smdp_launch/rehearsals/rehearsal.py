"""A rehearsal: a job of the local cloud that a fault meets, what was seen of it, and whether it came through.

What is seen comes from the follower alone, so a verdict rests on what the service and the hosts have said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from smdp_launch.catalog.faults import EVENT, Fault, Kind
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.follow import Ended, Seen, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.records.outcome import ENDED, Outcome
from smdp_launch.planning.rehearsed import REHEARSAL_VERSION
from smdp_launch.units import count

_WARNING = "smdp: warning: "
_THINNED = 100  # milliseconds between two steps that are kept for the timeline

Row = tuple[str, str]


_PLATFORM: dict[Kind, str] = {
    "spot": "AWS takes the instances back: all hosts get SIGTERM and are gone 120 s later. When there is capacity again"
    " the job starts on other hosts, with the checkpoints that had reached S3 in their folder. The time between is not"
    " billed.",
    "resume": "a stop, max_run or a failure ends the job for good: all hosts get SIGTERM and are gone 120 s later."
    " `smdp-launch resume` then launches a new job with the checkpoints that had reached S3 in its folder.",
    "kill": "the system kills a process that asks for more memory than there is. The platform does not start it again:"
    " the job is billed until its processes end, or until max_run.",
    "slow": "a disk, a network or a neighbour holds one worker up, and with it all that wait for its gradients.",
    "late": "a host starts when its instance and image have come; the others wait for it: the entrypoint for its"
    " address, up to SMDP_HOSTS_TIMEOUT, and the script in its process group, up to the timeout of that.",
    "throttle": "AWS refuses calls that come too often, to SageMaker, CloudWatch and S3: those of who follows the job"
    " and those of its script.",
    "expire": "the credentials of who follows the job expire after hours, those of the job's role too. The role's are"
    " replaced in time for clients that ask again; the person logs in again.",
}


def platform(kind: Kind) -> str:
    """What happens to the job on the platform."""
    return _PLATFORM[kind]


def announced(fault: Fault) -> str:
    """What will happen here, and when."""
    at = {
        "spot": f"the hosts go ({_notice(fault)}) and come back {fault.seconds:g} s later",
        "resume": f"the job is stopped ({_notice(fault)}), and a new one goes on from its checkpoints",
        "kill": f"rank {fault.rank} on {fault.host} is killed",
        "slow": f"rank {fault.rank} on {fault.host} stands still for {fault.seconds:g} s",
        "late": f"{fault.host} starts {fault.seconds:g} s after the others",
        "throttle": f"three of four calls are refused for {fault.seconds:g} s",
        "expire": f"who follows is refused for {fault.seconds:g} s, and the role gets new credentials",
    }[fault.kind]
    return f"{at}{_moment(fault)}"


def _notice(fault: Fault) -> str:
    return f"SIGTERM, {fault.grace:g} s to end" if fault.grace else "without notice"


def _moment(fault: Fault) -> str:
    if fault.kind == "late":
        return ""
    if fault.after is not None:
        return f", {fault.after:g} s after training has begun"
    if fault.step is not None:
        return f", once step {fault.step} is reported"
    return ", once a checkpoint is kept" if fault.kind in ("spot", "resume") else ", once a step is reported"


Result = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Verdict:
    """Args:
    result: INCONCLUSIVE where the job did not meet the fault, or somebody stopped it: that says nothing of the job.
    reason: one sentence.
    evidence: what was seen and measured, a name and a value each.
    """

    result: Result
    reason: str
    evidence: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        return self.result == "PASS"


@dataclass
class Rehearsal:
    """What is seen of a job that is to meet ``fault``.

    Args:
        within: seconds in which a job must have ended that cannot go on; afterwards it is stopped.
        clock: seconds since 1970.
    """

    fault: Fault
    within: float
    clock: Callable[[], float] = time.time
    changes: list[StatusChanged] = field(default_factory=list)
    struck: list[JobEvent] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)  # thinned: milliseconds since 1970, and the step
    step_first: int | None = None  # the first that was reported at all
    step_before: int | None = None  # the furthest that was reported before the job had to begin again
    step_after: int | None = None  # the first that was reported when it had begun again
    restorations: list[JobEvent] = field(default_factory=list)
    restored: int = 0  # files of checkpoints that the hosts found when they began again
    named: str | None = None  # the first warning that names the rank that is struck
    outcome: Outcome | None = None
    gave_up: bool = False
    refused: str | None = None  # why the job could not be resumed

    def see(self, seen: Seen) -> None:
        if isinstance(seen, StatusChanged):
            self.changes.append(seen)
        elif isinstance(seen, JobEvent):
            self._hear(seen)
        elif isinstance(seen, LogLine) and self.named is None and self._names_victim(seen.text):
            self.named = seen.text
        elif isinstance(seen, Ended):
            self.outcome = seen.outcome

    def has_waited(self) -> bool:
        """Whether the job should have ended by now and has not; said once."""
        has_ended = bool(self.changes) and self.changes[-1].status in ENDED
        if self.fault.kind != "kill" or self.gave_up or has_ended or not self.has_told("killed"):
            return False
        self.gave_up = self.clock() > self.struck[0].time_ms / 1000 + self.within
        return self.gave_up

    @property
    def trained_ms(self) -> list[int]:
        """When the hosts were started, each time; a status is told again when its message changes."""
        return sorted({one.time_ms for one in self.changes if one.status == "Training"})

    def _hear(self, event: JobEvent) -> None:
        if event.name == EVENT:
            self.struck.append(event)
        elif event.name == "checkpoints_restored" and self.struck:
            self.restored = _count(event.fields.get("files")) or 0
            self.restorations.append(event)
        elif event.name == "step":
            step = _count(event.fields.get("step"))
            if step is not None:
                self._note_step(event.time_ms, step)

    def _note_step(self, time_ms: int, step: int) -> None:
        self.step_first = self.step_first if self.step_first is not None else step
        began = self.trained_ms
        if len(began) > 1 and time_ms >= began[1]:
            self.step_after = self.step_after if self.step_after is not None else step
        elif not self.struck or self.fault.kind in ("spot", "resume"):
            self.step_before = max(step, self.step_before or 0)
        if not self.steps or time_ms >= self.steps[-1][0] + _THINNED:
            self.steps.append((time_ms, step))

    def _names_victim(self, text: str) -> bool:
        waits = text.partition(_WARNING)[2].partition("waiting for ")[2]
        return bool(self.struck) and f"rank {self.fault.rank} (" in waits

    def has_told(self, what: str) -> bool:
        """Whether the local cloud has said that it did this."""
        return any(one.fields.get("what") == what for one in self.struck)

    def verdict(self) -> Verdict:
        """Of a job that has ended."""
        if self.outcome is None:
            raise ValueError("the job has not ended")
        evidence = tuple(_evidence(self, self.outcome))
        try:
            _require_fault(self, self.outcome)
            return Verdict("PASS", _JUDGES[self.fault.kind](self, self.outcome), evidence)
        except _FellShort as short:
            return Verdict("FAIL", str(short), evidence)
        except _Inconclusive as cause:
            return Verdict("INCONCLUSIVE", str(cause), evidence)

    def seconds_since_struck(self) -> float | None:
        """Until the job's end."""
        if not self.struck or not self.changes:
            return None
        return (self.changes[-1].time_ms - self.struck[0].time_ms) / 1000

    def to_json(self) -> dict[str, Any]:
        judged = self.verdict()
        return {
            "rehearsal": REHEARSAL_VERSION,
            "kind": self.fault.kind,
            "verdict": judged.result,
            "passed": judged.passed,
            "reason": judged.reason,
            "evidence": [{"name": name, "value": value} for name, value in judged.evidence],
        }


def told_fault(event: JobEvent) -> str:
    """What the local cloud did to the job, in words."""
    fields, host = event.fields, event.fields.get("host", event.host)
    what, rank = str(fields.get("what")), f"rank {fields.get('rank')} on {host}"
    if what == "interrupted":
        grace = fields.get("grace")
        return (
            f"SIGTERM to all hosts, {grace:g} s to end"
            if isinstance(grace, float | int) and grace
            else "all hosts gone"
        )
    if what == "job_stopped":
        return "SIGTERM to all hosts: the job is stopped"
    if what == "refused":
        return f"calls are refused for {fields.get('seconds')} s"
    if what == "answered":
        counts = ", ".join(f"{count(number, 'call')} of {name}" for name, number in sorted(_refused(event).items()))
        return f"calls are answered again; refused were {counts or 'none'}"
    if what == "late":
        return f"{host} starts now, {fields.get('seconds')} s late"
    done = {"killed": "killed", "stopped": "stopped", "continued": "goes on", "missed": "had ended already"}
    return f"{rank} {done.get(what, what)}"


def _refused(event: JobEvent) -> dict[str, int]:
    """Calls by service."""
    told = event.fields.get("refused")
    found = {str(name): _count(number) for name, number in told.items()} if isinstance(told, dict) else {}
    return {name: number for name, number in found.items() if number is not None}


def _count(value: object) -> int | None:
    """One that can be drawn; a script may send anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


class _FellShort(Exception):
    """The message is the verdict's reason."""


class _Inconclusive(Exception):
    """The same, where the job was not put to the test."""


def _require_fault(seen: Rehearsal, ended: Outcome) -> None:
    """Raises:
    _Inconclusive: the job did not meet the fault, or was stopped for another reason.
    """
    if seen.has_told("missed"):
        raise _Inconclusive(f"the fault was not injected: rank {seen.fault.rank} had ended before")
    if ended.exit_code is ExitCode.JOB_STOPPED and not seen.gave_up and seen.refused is None:
        raise _Inconclusive("the job was stopped before it could show anything")
    if not seen.struck and seen.fault.kind != "late":
        raise _Inconclusive(f"the fault was not injected: {_too_early(seen, ended)}")


def _too_early(seen: Rehearsal, ended: Outcome) -> str:
    """Why the moment of the fault did not come, and how to choose one that does."""
    fault, last = seen.fault, seen.steps[-1][1] if seen.steps else None
    trained = f" after {ended.training_seconds} s of training" if ended.training_seconds is not None else ""
    told = f"the job {ended.summary}{trained}"
    if ended.status == "Failed":
        return f"{told} by itself"
    if fault.after is not None:
        return f"{told}, and --after asks for {fault.after:g} s"
    reported = (
        f"the last step that its script reported was {last}" if last is not None else "its script reported no step"
    )
    if fault.step is not None:
        return f"{told}, and {reported}; --at asks for step {fault.step}"
    if last is not None:
        return f"{told}, before a checkpoint was kept; name a moment with --at @STEP or --after SECONDS"
    return f"{told}, and {reported} (docs/events.md); report steps, or name a moment with --after SECONDS"


def _judge_spot(seen: Rehearsal, ended: Outcome) -> str:
    return _judge_second(seen, ended, "the job came back")


def _judge_resume(seen: Rehearsal, ended: Outcome) -> str:
    if seen.refused is not None:
        raise _FellShort(f"the job could not be resumed: {seen.refused}")
    return _judge_second(seen, ended, "the job was resumed")


def _judge_second(seen: Rehearsal, ended: Outcome, came: str) -> str:
    """Of hosts that were to be started a second time."""
    if len(seen.trained_ms) < 2:
        raise _FellShort(f"the job did not come back: it {ended.summary}")
    if ended.status != "Completed":
        raise _FellShort(f"{came} and {ended.summary}")
    first, before, after = seen.step_first, seen.step_before, seen.step_after
    if not seen.restored:
        again = f", and all {before} steps were done again" if before else ""
        raise _FellShort(f"no checkpoint had been kept when the hosts went{again}")
    if after is None:
        raise _FellShort(f"{came} and completed, and no step was reported that would show whether it went on")
    if first is not None and before is not None and after <= first < before:
        raise _FellShort(f"the script began again at step {after}: its checkpoints were there, it does not load them")
    return f"{came}, went on at step {after} and completed"


def _judge_kill(seen: Rehearsal, ended: Outcome) -> str:
    who = f"rank {seen.fault.rank}"
    if seen.gave_up or (seen.seconds_since_struck() or 0.0) > seen.within:
        raise _FellShort(f"{seen.within:g} s after {who} was killed the job still ran, and would be paid for")
    if ended.status != "Failed":
        raise _FellShort(f"the job {ended.summary}, though {who} had been killed: its share is missing")
    if f"{who} " not in ended.reason:
        raise _FellShort(f"the job failed, and its FailureReason does not name {who}")
    return f"the job ended by itself, and its FailureReason names {who}"


def _judge_slow(seen: Rehearsal, ended: Outcome) -> str:
    who, pause = f"rank {seen.fault.rank}", f"{seen.fault.seconds:g} s"
    if ended.status != "Completed":
        raise _FellShort(f"the job {ended.summary} after {who} had stood still for {pause}")
    if seen.named is None:
        raise _FellShort(f"nobody said that {who} stood still for {pause}: no other rank waited long enough for it")
    return f"the others named {who} while it stood still, and the job went on and completed"


def _judge_late(seen: Rehearsal, ended: Outcome) -> str:
    if ended.status != "Completed":
        came = "after" if seen.struck else "before"
        raise _FellShort(f"the job {ended.summary} {came} {seen.fault.host} came, {seen.fault.seconds:g} s late")
    return f"the others waited {seen.fault.seconds:g} s for {seen.fault.host}, and the job completed"


def _judge_refused(seen: Rehearsal, ended: Outcome) -> str:
    if ended.status != "Completed":
        raise _FellShort(f"the job {ended.summary} when calls were refused")
    answered = [one for one in seen.struck if one.fields.get("what") == "answered"]
    if not answered:
        raise _Inconclusive("the job completed before the refusals were over; give a shorter time with --for")
    if not _refused(answered[0]):
        raise _Inconclusive("no call was refused, because neither the job nor its follower made one")
    return "the job was followed to its end through the refusals, and completed"


#: What is said of a job that comes through. Raise _FellShort and _Inconclusive.
_JUDGES: dict[Kind, Callable[[Rehearsal, Outcome], str]] = {
    "spot": _judge_spot,
    "resume": _judge_resume,
    "kill": _judge_kill,
    "slow": _judge_slow,
    "late": _judge_late,
    "throttle": _judge_refused,
    "expire": _judge_refused,
}


def _evidence(seen: Rehearsal, ended: Outcome) -> Iterator[Row]:
    """What was seen, in the order of time."""
    began = seen.trained_ms
    for event in seen.struck:
        after = f", {(event.time_ms - began[0]) / 1000:.1f} s after training began" if began else ""
        yield "struck" if event is seen.struck[0] else "", f"{told_fault(event)}{after}"
    if seen.step_before is not None:
        yield "step before", str(seen.step_before)
    if len(began) > 1:
        yield "restored", f"{count(seen.restored, 'file')} of checkpoints, to every host"
        yield "step after", str(seen.step_after) if seen.step_after is not None else "none was reported"
        if seen.step_before is not None and seen.step_after is not None:
            yield "done again", count(max(0, seen.step_before - seen.step_after + 1), "step")
    if seen.named is not None:
        yield "named", seen.named
    since = seen.seconds_since_struck()
    if since is not None:
        yield "ended", f"{ended.status}, {since:.1f} s after that"
    if ended.reason:
        yield "reason", ended.reason
    if seen.fault.kind == "spot":
        yield from _billed(ended)


def _billed(ended: Outcome) -> Iterator[Row]:
    trained, billable = ended.training_seconds, ended.billable_seconds
    if trained is None or billable is None:
        return
    saved = f": {100 * (trained - billable) / trained:.0f} % without hosts" if trained else ""
    yield "billable", f"{billable} of {trained} s on each host{saved}"
