"""Jobs and sweeps that are unknown to the service. If one is in the history, its resume was interrupted before it was
created, or it is a local one whose files were deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.records.history import LOCAL, find_launch

#: The error code for an unknown name, by the call.
_UNKNOWN = {"DescribeTrainingJob": "ValidationException", "DescribeHyperParameterTuningJob": "ResourceNotFound"}


def is_unknown(error: BaseException | None) -> bool:
    """Whether botocore's ``error`` means that there is no such job or sweep."""
    from botocore.exceptions import ClientError

    return isinstance(error, ClientError) and _UNKNOWN.get(error.operation_name) == error.response["Error"]["Code"]


def resumed_from(job: str, error: ServiceProblem) -> str | None:
    """The old job of the resume, if ``error`` means that ``job`` was never created; else None."""
    launched = find_launch(job)
    return launched.resumes if launched is not None and is_unknown(error.__cause__) else None


@contextmanager
def explain_unknown(job: str) -> Iterator[None]:
    """Add to a refused call about ``job``, or about the sweep of this name, what to do if the service does not know
    it."""
    try:
        yield
    except ServiceProblem as error:
        if not is_unknown(error.__cause__):
            raise
        launched = find_launch(job)
        if launched is not None and launched.resumes is not None:
            advice = f"it was never created: run smdp-launch resume {launched.resumes}"
        elif launched is not None and launched.where == LOCAL:
            advice = "its files in the folder of the local cloud were deleted: launch it again"
        else:
            advice = "check the name, the region and AWS_PROFILE"
        raise ServiceProblem(f"{str(error).rstrip('.')}; {advice}") from error.__cause__
