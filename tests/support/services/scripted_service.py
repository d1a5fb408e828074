"""SageMaker and CloudWatch with one job, whose answers and whose clock a test sets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

from botocore.exceptions import ClientError

from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry_policy import RetryPolicy

BEGAN = datetime(2026, 11, 21, 1, 2, 3, tzinfo=timezone.utc)


def refusal(code: str, message: str = "", status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "AnyCall")


class ScriptedService:
    """The service of the job ``j`` on one host.

    Attributes:
        now: seconds since BEGAN by the service's clock.
        lines: seconds since BEGAN and text of each line of the log.
        ended: seconds since BEGAN of the job's end.
        fields: further fields of the job's description.
        before: called before each answer, with the name of the call; it may raise an error.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[float, str]] = []
        self.ended: float | None = None
        self.fields: dict[str, Any] = {}
        self.before: Callable[[str], None] = lambda _: None
        self.refuse_tokens = 0
        self.page = 10_000  # lines

    def clients(self) -> Clients:
        policy = RetryPolicy(first_gap=0.0, credential_tries=2)
        return Clients(self, None, self, 0.0, lambda _: None, lambda _: None, policy)

    def describe_training_job(self, **_: str) -> dict[str, Any]:
        self.before("DescribeTrainingJob")
        status = "InProgress" if self.ended is None else "Failed"
        end = {} if self.ended is None else {"TrainingEndTime": _at(self.ended), "FailureReason": "AlgorithmError"}
        answer = {
            "TrainingJobName": "j",
            "TrainingJobStatus": status,
            "SecondaryStatus": "Training" if self.ended is None else "Failed",
            "CreationTime": BEGAN,
            "LastModifiedTime": _at(self.now if self.ended is None else self.ended),
            "SecondaryStatusTransitions": [],
            "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1},
        }
        return self._answer(**answer | end | self.fields)

    def get_paginator(self, _: str) -> ScriptedService:
        return self

    def paginate(self, **_: str) -> list[dict[str, Any]]:
        self.before("DescribeLogStreams")
        return [self._answer(logStreams=[{"logStreamName": "j/algo-1-1"}])]

    def get_log_events(self, nextToken: str = "", startTime: int = 0, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.before("GetLogEvents")
        if nextToken and self.refuse_tokens:
            self.refuse_tokens -= 1
            raise refusal("InvalidParameterException", "The specified nextToken is invalid.")
        every = [(_ms(at), text) for at, text in self.lines]
        start = int(nextToken) if nextToken else sum(at < startTime for at, _ in every)
        page = every[start : start + self.page]
        events = [{"timestamp": at, "message": text} for at, text in page]
        return self._answer(events=events, nextForwardToken=str(start + len(page)))

    def _answer(self, **fields: Any) -> dict[str, Any]:
        date = format_datetime(_at(self.now), usegmt=True)
        return {**fields, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}


def _at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def _ms(seconds: float) -> int:
    return round(_at(seconds).timestamp() * 1000)
