"""Texts about a fault: what happens on the platform, what is planned locally, and what the local cloud did."""

from __future__ import annotations

from smdp_launch.catalog.faults import Fault, Kind
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.units import count, size

_PLATFORM: dict[Kind, str] = {
    "spot": "AWS takes the instances back: all hosts get SIGTERM and are stopped 120 s later. When there is capacity"
    " again, the job starts on new hosts, and its folder has the checkpoints that had reached S3. The time in between"
    " is not billed.",
    "resume": "a stop, max_run or a failure ends the job: all hosts get SIGTERM and are stopped 120 s later."
    " `smdp-launch resume` then launches a new job, and its folder has the checkpoints that had reached S3.",
    "kill": "the system kills a process that uses more memory than is available. The platform does not restart it: the"
    " job is billed until its processes exit, or until max_run.",
    "slow": "a disk, a network or another process delays one worker, and so all ranks that wait for its gradients.",
    "hang": "a lock, a read that never returns, or a collective operation that only some ranks call stops one rank, and"
    " all others wait for it. The platform does not end such a job: it is billed until max_run.",
    "late": "a host starts when its instance and image are ready. The other hosts wait: the entrypoint for the host's"
    " address, up to SMDP_HOSTS_TIMEOUT; the script for its process group, up to that group's timeout.",
    "throttle": "AWS refuses calls that are too frequent, to SageMaker, CloudWatch and S3: those of the follower and"
    " those of the script.",
    "expire": "the credentials of the user who follows the job expire after hours, and those of the job's role too. The"
    " role's are replaced in time for clients that read them again; the user logs in again.",
    "slow-input": "S3 and file systems deliver only so many bytes a second to a host, and each first read of an object"
    " waits for S3. Steps wait if the data loader does not read ahead far enough.",
}


_IN: dict[str, str] = {
    "computing": "in its own code",
    "collective": "in a collective operation",
    "loader": "in a process of its DataLoader",
}
_ACTIONS = {
    "slowed": "the channels are slow from the start",
    "read": "the hosts have read their last bytes",
    "job_stopped": "SIGTERM to all hosts: the job is stopped",
}


def platform(kind: Kind) -> str:
    """What happens to the job on the platform."""
    return _PLATFORM[kind]


def describe_planned_fault(fault: Fault) -> str:
    """What will happen to the local job, and when."""
    text = {
        "spot": f"all hosts are taken away ({_notice(fault)}) and started again {fault.seconds:g} s later",
        "resume": f"the job is stopped ({_notice(fault)}), and a new one continues from its checkpoints",
        "kill": f"rank {fault.rank} on {fault.host} is killed",
        "slow": f"rank {fault.rank} on {fault.host} is paused for {fault.seconds:g} s",
        "hang": f"rank {fault.rank} on {fault.host} stops for ever {_IN[fault.where]}",
        "late": f"{fault.host} starts {fault.seconds:g} s after the others",
        "throttle": f"three of four calls are refused for {fault.seconds:g} s",
        "expire": f"the follower's calls are refused for {fault.seconds:g} s, and the role gets new credentials",
        "slow-input": f"each host reads its channels at {describe_limits(fault)}",
    }[fault.kind]
    return f"{text}{_moment(fault)}"


def describe_limits(fault: Fault) -> str:
    """The rate and the latency of slow input."""
    rate = f"{size(round(fault.rate))}/s" if fault.rate else ""
    latency = f"{fault.latency * 1000:g} ms before the first bytes of a file" if fault.latency else ""
    return " and ".join(one for one in (rate, latency) if one)


def _notice(fault: Fault) -> str:
    return f"SIGTERM, {fault.grace:g} s to exit" if fault.grace else "without notice"


def _moment(fault: Fault) -> str:
    if fault.kind in ("late", "slow-input"):
        return ""
    if fault.after is not None:
        return f", {fault.after:g} s after training began"
    if fault.step is not None:
        return f", when step {fault.step} is reported"
    return ", when a checkpoint is saved" if fault.kind in ("spot", "resume") else ", when a step is reported"


def describe_fault(event: JobEvent) -> str:
    """What the local cloud did to the job, from its event."""
    fields, host = event.fields, event.fields.get("host", event.host)
    what, rank = str(fields.get("what")), f"rank {fields.get('rank')} on {host}"
    if what == "interrupted":
        grace = fields.get("grace")
        has_notice = isinstance(grace, float | int) and grace
        return f"SIGTERM to all hosts, {grace:g} s to exit" if has_notice else "all hosts are stopped without notice"
    if what == "refused":
        return f"calls are refused for {fields.get('seconds')} s"
    if what == "answered":
        refused = ", ".join(
            f"{count(number, 'call')} of {name}" for name, number in sorted(refused_calls(event).items())
        )
        return f"calls are answered again; refused: {refused or 'none'}"
    if what in _ACTIONS:
        return _ACTIONS[what]
    if what == "late":
        return f"{host} starts now, {fields.get('seconds')} s late"
    where = str(fields.get("where"))
    actions = {
        "killed": "is killed",
        "stopped": "is paused",
        "continued": "continues",
        "hung": f"stops for ever {_IN.get(where, '')}",
        "missed": "has no process of a DataLoader that can stop" if where == "loader" else "had exited already",
    }
    return f"{rank} {actions.get(what, what)}"


def refused_calls(event: JobEvent) -> dict[str, int]:
    """The number of refused calls by service."""
    refused = event.fields.get("refused")
    numbers = {str(name): whole_number(one) for name, one in refused.items()} if isinstance(refused, dict) else {}
    return {name: number for name, number in numbers.items() if number is not None}


def whole_number(value: object) -> int | None:
    """``value`` if it is a number of steps, files or calls; a script may send anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None
