"""Jobs that are in the history but unknown to the service: their resume was interrupted before the job was created."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.records.history import find_launch


def is_unknown(error: BaseException | None) -> bool:
    """Whether botocore's ``error`` means that there is no such job."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError) or error.operation_name != "DescribeTrainingJob":
        return False
    return bool(error.response["Error"]["Code"] == "ValidationException")


def resumed_from(job: str, error: ServiceProblem) -> str | None:
    """The old job of the resume, if ``error`` means that ``job`` was never created; else None."""
    launched = find_launch(job)
    return launched.resumes if launched is not None and is_unknown(error.__cause__) else None


@contextmanager
def explain_never_created(job: str) -> Iterator[None]:
    """Add to a refused call about ``job`` how to create the job after all."""
    try:
        yield
    except ServiceProblem as error:
        old = resumed_from(job, error)
        if old is None:
            raise
        raise ServiceProblem(f"{error}; it was never created: run smdp-launch resume {old}") from error.__cause__
