"""The record of a rehearsal: a local job with an injected fault, its events, and the verdict on it.

The events are those of the follower, so the verdict depends only on what the service and the hosts have reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from smdp_launch.catalog.faults import EVENT, Fault, Kind
from smdp_launch.diagnosis.texts import sentence
from smdp_launch.diagnosis.verdict import UNKNOWN
from smdp_launch.diagnosis.verdict import Verdict as Diagnosis
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.follow import Ended, FollowEvent, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.records.outcome import ENDED, Outcome
from smdp_launch.planning.past_rehearsals import REHEARSAL_VERSION
from smdp_launch.rehearsals.reading import Reading, first_advice, is_loader, is_source
from smdp_launch.rehearsals.texts import describe_fault, describe_limits, refused_calls, whole_number
from smdp_launch.units import count, size

_WARNING = "smdp: warning: "
#: The advice at the end of a reason.
REPORT_STEPS = "report steps with progress.step (docs/reference/events.md)"
_STEP_GAP = 100  # milliseconds between two recorded steps of the timeline

Row = tuple[str, str]

Result = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Verdict:
    """Args:
    result: INCONCLUSIVE if the run shows nothing about the job: the fault was not injected, for example.
    reason: one sentence.
    evidence: names and values of what was reported and measured.
    """

    result: Result
    reason: str
    evidence: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        return self.result == "PASS"


@dataclass
class Rehearsal:
    """Records the events of a job that gets ``fault``.

    Args:
        within: seconds after the fault in which a job that cannot continue must end; it is stopped then.
        ends: whether the job ends by itself when it hangs.
        clock: seconds since 1970.
    """

    fault: Fault
    within: float
    ends: bool = False
    clock: Callable[[], float] = time.time
    changes: list[StatusChanged] = field(default_factory=list)
    fault_events: list[JobEvent] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)  # a sample: milliseconds since 1970, and the step
    step_first: int | None = None  # the first reported step
    step_before: int | None = None  # the highest step reported before the restart
    step_after: int | None = None  # the first step reported after the restart
    restorations: list[JobEvent] = field(default_factory=list)
    restored: int = 0  # checkpoint files that the restarted hosts have
    named: str | None = None  # the first warning that names the rank of the fault
    outcome: Outcome | None = None
    gave_up: bool = False
    refused: str | None = None  # why the job could not be resumed
    reading: Reading = field(default_factory=Reading)  # with slow input

    def observe(self, event: FollowEvent) -> None:
        if isinstance(event, StatusChanged):
            self.changes.append(event)
        elif isinstance(event, JobEvent):
            self._observe_job_event(event)
        elif isinstance(event, LogLine) and self.named is None and self._names_victim(event.text):
            self.named = event.text
        elif isinstance(event, Ended):
            self.outcome = event.outcome

    def should_stop(self) -> bool:
        """Whether the job should have ended by now and must be stopped. True only once."""
        has_ended = bool(self.changes) and self.changes[-1].status in ENDED
        if self.gave_up or has_ended or not (self.has_reported("killed") or self.has_reported("hung")):
            return False
        has_passed = self.fault.kind == "hang" and self.named is not None and not self.ends
        self.gave_up = has_passed or self.clock() > self.fault_events[0].time_ms / 1000 + self.within
        return self.gave_up

    @property
    def trained_ms(self) -> list[int]:
        """The times of each start of training. A status is reported again when its message changes."""
        return sorted({one.time_ms for one in self.changes if one.status == "Training"})

    def _observe_job_event(self, event: JobEvent) -> None:
        self.reading.observe(event)
        if event.name == EVENT:
            self.fault_events.append(event)
        elif event.name == "checkpoints_restored" and self.fault_events:
            self.restored = whole_number(event.fields.get("files")) or 0
            self.restorations.append(event)
        elif event.name == "step":
            step = whole_number(event.fields.get("step"))
            if step is not None:
                self.reading.observe_step(step)
                self._note_step(event.time_ms, step)

    def _note_step(self, time_ms: int, step: int) -> None:
        self.step_first = self.step_first if self.step_first is not None else step
        began = self.trained_ms
        if len(began) > 1 and time_ms >= began[1]:
            self.step_after = self.step_after if self.step_after is not None else step
        elif not self.fault_events or self.fault.kind in ("spot", "resume"):
            self.step_before = max(step, self.step_before or 0)
        if not self.steps or time_ms >= self.steps[-1][0] + _STEP_GAP:
            self.steps.append((time_ms, step))

    def _names_victim(self, text: str) -> bool:
        if not self.fault_events:
            return False  # a host can be slow before the fault, too
        if self.fault.kind == "hang":
            return f"hang: rank {self.fault.rank} on {self.fault.host} has made no progress" in text
        waiting_for = text.partition(_WARNING)[2].partition("waiting for ")[2]
        return f"rank {self.fault.rank} (" in waiting_for

    def has_reported(self, what: str) -> bool:
        """Whether the local cloud has reported this action."""
        return any(one.fields.get("what") == what for one in self.fault_events)

    def verdict(self) -> Verdict:
        """Raises:
        ValueError: the job has not ended.
        """
        if self.outcome is None:
            raise ValueError("the job has not ended")
        evidence = tuple(_evidence(self, self.outcome))
        try:
            _require_fault(self, self.outcome)
            return Verdict("PASS", _JUDGES[self.fault.kind](self, self.outcome), evidence)
        except _Failed as cause:
            return Verdict("FAIL", str(cause), evidence)
        except _Inconclusive as cause:
            return Verdict("INCONCLUSIVE", str(cause), evidence)

    def seconds_after_fault(self) -> float | None:
        """From the fault to the job's end."""
        if not self.fault_events or not self.changes:
            return None
        return (self.changes[-1].time_ms - self.fault_events[0].time_ms) / 1000

    def to_json(self) -> dict[str, Any]:
        verdict = self.verdict()
        return {
            "rehearsal": REHEARSAL_VERSION,
            "kind": self.fault.kind,
            "verdict": verdict.result,
            "passed": verdict.passed,
            "reason": verdict.reason,
            "evidence": [{"name": name, "value": value} for name, value in verdict.evidence],
        }


class _Failed(Exception):
    """The message is the verdict's reason."""


class _Inconclusive(Exception):
    """The message is the verdict's reason: the run shows nothing about the job."""


def _require_fault(rehearsal: Rehearsal, ended: Outcome) -> None:
    """Raises:
    _Inconclusive: the fault was not injected, or the job was stopped for another reason.
    """
    if rehearsal.has_reported("missed"):
        raise _Inconclusive(f"the fault was not injected: {_missed(rehearsal.fault)}")
    if ended.exit_code is ExitCode.JOB_STOPPED and not rehearsal.gave_up and rehearsal.refused is None:
        raise _Inconclusive("the job was stopped before there was a result")
    if not rehearsal.fault_events and rehearsal.fault.kind != "late":
        raise _Inconclusive(f"the fault was not injected: {_ended_early(rehearsal, ended)}")


def _missed(fault: Fault) -> str:
    if fault.kind == "hang" and fault.where == "loader":
        return f"rank {fault.rank} had no process of a DataLoader that can stop; pass another --in"
    if fault.kind == "hang":
        return f"rank {fault.rank} had exited before, or its image has an entrypoint without this rehearsal"
    return f"rank {fault.rank} had exited before"


def _ended_early(rehearsal: Rehearsal, ended: Outcome) -> str:
    """Why the job ended before its fault, and how to set another time for the fault."""
    fault, last = rehearsal.fault, rehearsal.steps[-1][1] if rehearsal.steps else None
    trained = f" after {ended.training_seconds} s of training" if ended.training_seconds is not None else ""
    text = f"the job {ended.summary}{trained}"
    if ended.status == "Failed":
        return f"{text} by itself"
    if fault.after is not None:
        return f"{text}, and --after is {fault.after:g} s"
    reported = (
        f"the last step that its script reported was {last}" if last is not None else "its script reported no step"
    )
    if fault.step is not None:
        return f"{text}, {reported}, and --at is step {fault.step}"
    if last is not None:
        return f"{text}, before a checkpoint was saved; set a time with --at @STEP or --after SECONDS"
    return f"{text}, and {reported} (docs/reference/events.md); report steps, or set a time with --after SECONDS"


def _judge_resume(rehearsal: Rehearsal, ended: Outcome) -> str:
    if rehearsal.refused is not None:
        raise _Failed(f"the job could not be resumed: {rehearsal.refused}")
    return _judge_restart(rehearsal, ended, "the job was resumed")


def _judge_restart(rehearsal: Rehearsal, ended: Outcome, restarted: str = "the job restarted") -> str:
    if len(rehearsal.trained_ms) < 2:
        raise _Failed(f"the job did not restart: it {ended.summary}")
    if ended.status != "Completed":
        raise _Failed(f"{restarted} and {ended.summary}")
    first, before, after = rehearsal.step_first, rehearsal.step_before, rehearsal.step_after
    if not rehearsal.restored:
        repeated = f", and all {before} steps were repeated" if before else ""
        raise _Failed(f"no checkpoint had been saved when the hosts were stopped{repeated}")
    if after is None:
        unknown = "but it reported no step, so it is unknown whether it continued"
        raise _Inconclusive(f"{restarted} and completed, {unknown}: {REPORT_STEPS}")
    if first is not None and before is not None and after <= first < before:
        raise _Failed(
            f"the script started again at step {after}: it does not load the checkpoints, which were restored"
        )
    return f"{restarted}, continued at step {after} and completed"


def _judge_kill(rehearsal: Rehearsal, ended: Outcome) -> str:
    rank = f"rank {rehearsal.fault.rank}"
    if rehearsal.gave_up or (rehearsal.seconds_after_fault() or 0.0) > rehearsal.within:
        raise _Failed(f"the job still ran {rehearsal.within:g} s after {rank} was killed, and would be billed")
    if ended.status != "Failed":
        raise _Failed(f"the job {ended.summary} although {rank} had been killed: that rank's work is missing")
    if f"{rank} " not in ended.reason:
        raise _Failed(f"the job failed, but its FailureReason does not name {rank}")
    return f"the job ended by itself, and its FailureReason names {rank}"


def _judge_hang(rehearsal: Rehearsal, ended: Outcome) -> str:
    rank, within = f"rank {rehearsal.fault.rank}", f"{rehearsal.within:g} s"
    if rehearsal.named is None:
        if rehearsal.gave_up:
            raise _Failed(f"no report named {rank} in the {within} after it had stopped")
        if ended.status == "Completed":
            raise _Inconclusive(f"the job completed, so no rank needed {rank} after it had stopped")
        raise _Failed(f"the job {ended.summary} before a report named {rank}")
    if not rehearsal.ends:
        return f"the report named {rank}; the job would hang until max_run, and hang.action: end ends it"
    if rehearsal.gave_up:
        raise _Failed(f"a report named {rank}, but the job still ran {within} after it had stopped")
    if f"{rank} " not in ended.reason:
        raise _Failed(f"the job {ended.summary}, but its FailureReason does not name {rank}")
    return f"the report named {rank}, and the job ended by itself with its name in the FailureReason"


def _judge_slow(rehearsal: Rehearsal, ended: Outcome) -> str:
    rank, pause = f"rank {rehearsal.fault.rank}", f"{rehearsal.fault.seconds:g} s"
    if ended.status != "Completed":
        raise _Failed(f"the job {ended.summary} after {rank} was paused for {pause}")
    if rehearsal.named is None:
        raise _Failed(f"no rank reported that {rank} was paused for {pause}: none waited for it long enough")
    return f"the other ranks named {rank} while it was paused, and the job continued and completed"


def _judge_late(rehearsal: Rehearsal, ended: Outcome) -> str:
    host, seconds = rehearsal.fault.host, f"{rehearsal.fault.seconds:g} s"
    if ended.status != "Completed":
        when = "after" if rehearsal.fault_events else "before"
        raise _Failed(f"the job {ended.summary} {when} {host} started, {seconds} late")
    return f"the other hosts waited {seconds} for {host}, and the job completed"


def _judge_refused(rehearsal: Rehearsal, ended: Outcome) -> str:
    if ended.status != "Completed":
        raise _Failed(f"the job {ended.summary} when calls were refused")
    answered = [one for one in rehearsal.fault_events if one.fields.get("what") == "answered"]
    if not answered:
        raise _Inconclusive("the job completed while calls were still refused; set a shorter time with --for")
    if not refused_calls(answered[0]):
        raise _Inconclusive("no call was refused, because neither the job nor its follower made one")
    return "the job completed, and was followed to its end, although calls were refused"


def _judge_slow_input(rehearsal: Rehearsal, ended: Outcome) -> str:
    limit, reading = f"{describe_limits(rehearsal.fault)} on each host", rehearsal.reading
    if ended.status != "Completed":
        raise _Failed(f"the job {ended.summary} with input limited to {limit}; {reading.steps}")
    found = reading.diagnosis()
    if not reading.has_bytes:
        elsewhere = f"; its loader read {size(int(found.bytes_step))} a step from elsewhere" if found.bytes_step else ""
        raise _Inconclusive(f"the job read nothing from its channels while it trained, so nothing was slow{elsewhere}")
    waited = f"a host waited {reading.waited:.1f} s for bytes"
    if found.cause == UNKNOWN:
        missing = found.missing[0] if found.missing else sentence(found)
        raise _Inconclusive(f"{waited}, but what held the job back is unknown: {missing}")
    if is_loader(found):
        raise _Failed(f"the loader holds the job back, and not the channel alone: {sentence(found)} {_try(found)}")
    if not is_source(found):
        raise _Inconclusive(
            f"input limited to {limit} did not hold the job back: {sentence(found)} Lower --rate, or raise --latency"
        )
    return f"the job completed with input limited to {limit}; {reading.steps}; {waited}. {sentence(found)}"


def _try(found: Diagnosis) -> str:
    first = first_advice(found)
    return f"{first[:1].upper()}{first[1:]}" if first else ""


#: Return the reason of a PASS; raise _Failed or _Inconclusive.
_JUDGES: dict[Kind, Callable[[Rehearsal, Outcome], str]] = {
    "spot": _judge_restart,
    "resume": _judge_resume,
    "kill": _judge_kill,
    "slow": _judge_slow,
    "hang": _judge_hang,
    "late": _judge_late,
    "throttle": _judge_refused,
    "expire": _judge_refused,
    "slow-input": _judge_slow_input,
}


def _evidence(rehearsal: Rehearsal, ended: Outcome) -> Iterator[Row]:
    """What was reported and measured, in order of time."""
    began = rehearsal.trained_ms
    for event in rehearsal.fault_events:
        after = f", {(event.time_ms - began[0]) / 1000:.1f} s after training began" if began else ""
        yield "fault" if event is rehearsal.fault_events[0] else "", f"{describe_fault(event)}{after}"
    if rehearsal.step_before is not None:
        yield "step before", str(rehearsal.step_before)
    if len(began) > 1:
        yield "restored", f"{count(rehearsal.restored, 'checkpoint file')}, to every host"
        yield "step after", str(rehearsal.step_after) if rehearsal.step_after is not None else "none was reported"
        if rehearsal.step_before is not None and rehearsal.step_after is not None:
            yield "repeated", count(max(0, rehearsal.step_before - rehearsal.step_after + 1), "step")
    if rehearsal.named is not None:
        yield "named", rehearsal.named
    if rehearsal.fault.kind == "slow-input":
        yield from rehearsal.reading.rows()
    since = rehearsal.seconds_after_fault()
    if since is not None:
        yield "ended", f"{ended.status}, {since:.1f} s after the fault"
    if ended.reason:
        yield "reason", ended.reason
    if rehearsal.fault.kind == "spot":
        yield from _billed(ended)


def _billed(ended: Outcome) -> Iterator[Row]:
    trained, billable = ended.training_seconds, ended.billable_seconds
    if trained is None or billable is None:
        return
    saved = f": {100 * (trained - billable) / trained:.0f} % without hosts" if trained else ""
    yield "billable", f"{billable} of {trained} s on each host{saved}"
