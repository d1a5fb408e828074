"""The lines of the history: a launch, an end, and what was read later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """Args:
    where: the AWS region, or "local".
    price: USD per hour of one host, with several groups the mean of all hosts; None without a price table.
    most_usd: USD for the whole job at its maximum run time; None without a price table.
    state: the state folder of a local job's local cloud. It is relative to the folder of the history if it lies below
        that, so that both can be moved together.
    resumes: the job whose checkpoints it continues from.
    serves: its job file says how to serve its model; None in the lines of older versions, and if it does not.
    sweep: it is a tuning job; None for a training job.
    instance_type: None if the job could get one of several, or has several groups.
    prices: USD per hour of one host by each type that the job could get, from ``price_source``; None without a price.
    tags: those of the job file.
    spot: it runs on spot capacity.
    keep_alive: seconds that its hosts stay as a warm pool.
    notify: the section ``notify`` of its job file, as JSON.
    types: number of hosts by instance type, if the job has several groups.
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
    serves: bool | None = None
    sweep: bool | None = None
    instance_type: str | None = None
    prices: dict[str, float] | None = None
    price_source: str | None = None
    tags: dict[str, str] | None = None
    spot: bool | None = None
    keep_alive: int | None = None
    notify: str | None = None
    types: dict[str, int] | None = None

    def price_of(self, instance_type: str | None) -> float | None:
        """USD per hour of one host of the type that the job got. Lines of older versions know only the highest price of
        all types that it could get."""
        if self.prices is not None and instance_type is not None:
            return self.prices.get(instance_type)
        return self.price


#: `End.ended` of a job or a sweep that its service refused to create.
NEVER_ACCEPTED = "NeverAccepted"


@dataclass(frozen=True)
class End:
    """How a job ended.

    Args:
        ended: the service's TrainingJobStatus, or `NEVER_ACCEPTED`.
        time: when this tool saw the end.
        billable_seconds: of one host, as the service counts them.
        usd: the cost of all hosts for these seconds, at the price of the launch; None if the price is unknown.
        training_seconds: more than ``billable_seconds`` on spot capacity; the sums of the trials for a sweep.
        instance_type: the type that the job got.
    """

    job: str
    ended: str
    summary: str
    exit_code: int
    time: str
    billable_seconds: int | None = None
    usd: float | None = None
    training_seconds: int | None = None
    instance_type: str | None = None


@dataclass(frozen=True)
class InputRate:
    """What a job would have read if no worker had waited for input.

    Args:
        input_mb_s: of all hosts together.
        input_hosts: that read.
        input_channels: MB/s of each channel whose bytes the hosts count.
    """

    job: str
    input_mb_s: float
    input_hosts: int
    input_channels: dict[str, float] | None = None


@dataclass(frozen=True)
class Retained:
    """How long the hosts of a job stayed as a warm pool.

    Args:
        pool: the service's status, such as Terminated or Reused, after which nothing more is billed.
        retained_seconds: of one host, as the service bills them.
    """

    job: str
    pool: str
    retained_seconds: int


@dataclass(frozen=True)
class Notified:
    """A notification that a command of this folder sends, or has sent.

    Args:
        notification: what about, such as ``end``.
    """

    job: str
    notification: str
